"""The files of a run's MPI outside the run's folder on this machine, and their removal when the MPI could not do it.

Open MPI's ranks share segments in /dev/shm, and its mpirun has a folder of session files (session_files.py). mpirun
removes both when it ends properly, but not after a SIGKILL or the kernel's out-of-memory killer. MPICH unlinks its
segments once all ranks have attached them. The present files are therefore recorded in the run's folder as soon as the
ranks are up, and a process that outlives the launcher removes them: Sonde, else the watchdog (`process._GUARD` reads
the record, too), else `sonde data recover`. On other hosts the launcher's daemons do this.

A record is named after the host, so that nothing is removed on another machine. Its first line is the inode of the
run's folder, so that a copy of a folder, which may come from another user, removes nothing. A line "INODE PATH" follows
for each file or folder, so that a new file under an old name is not removed. A record counts only in a folder that the
caller owns and nobody else can write in: otherwise its author could choose which of the caller's files to remove.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from sonde.core.errors import EnvironmentFailure
from sonde.core.owned_files import Folder

SHARED_MEMORY = "/dev/shm/"
OF_OPEN_MPI_5 = ("prte.", "prterun.", "mpirun.")
PRIVATE_SESSION = "sonde-mpi-"
"""The beginning of the name of a folder that is created for one mpirun; see session_files.py."""


def note_path(run_dir: Path) -> Path:
    """The path of this host's record of a run."""
    return run_dir / f"remains-{socket.gethostname()}"


def note(
    run_dir: Path,
    launcher: int,
    ranks: Iterable[int],
    environment: Mapping[str, str],
    began: float,
    created: Path | None = None,
) -> None:
    """Record the files that a run uses on this machine; do nothing if there are none or the folder cannot be written.

    launcher, ranks: process ids. environment: the launcher's. began: s since 1970; older files belong to another run.
    created: the folder that session_files created for it.
    """
    own = [created] if created else session_folders(launcher, environment)
    found = [*segments(ranks), *own]
    lines = []
    for path in dict.fromkeys(found):
        with suppress(OSError):
            is_ = path.lstat()
            # File time stamps come from a coarse clock: they may be some milliseconds late.
            if is_.st_uid == os.geteuid() and is_.st_ctime >= began - 1 and _WORD.fullmatch(str(path)):
                lines.append(f"{is_.st_ino} {path}\n")
    if lines:
        with suppress(OSError), Folder(run_dir) as run:
            run.write(note_path(run_dir).name, f"{run.inode}\n{''.join(lines)}".encode(), 0o600)


def segments(pids: Iterable[int]) -> list[Path]:
    """Files in /dev/shm that these processes have mapped and nobody has unlinked."""
    found: dict[Path, None] = {}
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/maps", errors="surrogateescape") as maps:
            for line in maps:
                path = line.rstrip("\n").split(maxsplit=5)[-1]
                if path.startswith(SHARED_MEMORY) and not path.endswith(" (deleted)"):
                    found[Path(path)] = None
    return list(found)


def session_folders(launcher: int, environment: Mapping[str, str]) -> list[Path]:
    """Folders that an mpirun of Open MPI 4 (ompi.HOST.UID/pid.PID) or 5 made for itself.

    Those of 5 are prte.HOST.PID.UID, and since 5.0.6 named after the program: prterun.HOST.PID.UID.
    """
    names = (
        *(f"OMPI_MCA_orte_{which}tmpdir_base" for which in ("", "local_")),
        *(f"PRTE_MCA_prte_{which}tmpdir_base" for which in ("", "local_")),
        *("TMPDIR", "TEMP", "TMP"),
    )
    bases = dict.fromkeys([*(environment[name] for name in names if environment.get(name)), "/tmp"])
    return [
        folder
        for base in bases
        for pattern in (f"ompi.*/pid.{launcher}", *(f"{name}*.{launcher}.*" for name in OF_OPEN_MPI_5))
        for folder in Path(base).glob(pattern)
    ]


def clear(run_dir: Path) -> list[Path]:
    """Remove the existing files of this host's record, and the record; return the removed paths.

    Files that a process still has mapped stay.
    """
    name = note_path(run_dir).name
    removed: list[Path] = []
    try:
        with Folder(run_dir) as run:
            if run.facts(name) is None or not run.is_private:
                return removed
            head, *lines = run.read_text(name).splitlines() or [""]
            if head != str(run.inode):  # it came with a copy of a folder
                lines = []
            noted = [(Path(path), inode) for inode, _, path in (line.partition(" ") for line in lines)]
            mapped = set(segments(_processes())) if noted else set()
            removed = [path for path, inode in noted if path not in mapped and _removed(path, inode)]
            run.remove(name)
    except (OSError, EnvironmentFailure):
        pass
    return removed


# Paths that fit into a line of the record.
_WORD = re.compile(r"[!-~]([ -~]*[!-~])?")


def _removed(path: Path, inode: str) -> bool:
    """Remove a recorded file or folder if the caller owns it and nobody else could have put it there."""
    if not path.is_absolute() or ".." in path.parts:
        return False
    in_memory = str(path).startswith(SHARED_MEMORY)
    if not in_memory and not path.name.startswith(("pid.", PRIVATE_SESSION, *OF_OPEN_MPI_5)):
        return False
    with suppress(OSError), _parent(path) as parent:
        found = parent.facts(path.name)
        if found is None or str(found.st_ino) != inode or found.st_uid != os.geteuid():
            return False
        if stat.S_ISREG(found.st_mode):
            parent.remove(path.name)
            return True
        if not stat.S_ISDIR(found.st_mode):
            return False
        with parent.folder(path.name) as folder:
            if str(folder.inode) != inode or not folder.is_private:
                return False
            folder.remove_all()
        parent.remove_folder(path.name)
        if path.name.startswith("pid."):
            with suppress(OSError), _parent(path.parent) as above:
                above.remove_folder(
                    path.parent.name
                )  # the folder of all of this user's runs, after the last one
        return True
    return False


def _parent(path: Path) -> Folder:
    """The folder above a path. OSError  another user can replace files in it, or it is a link."""
    parent = Folder(path.parent)
    if path.parent.is_symlink() or not (parent.is_private or parent.is_sticky):
        parent.close()
        raise PermissionError(str(path.parent))
    return parent


def _processes() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
