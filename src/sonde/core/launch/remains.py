"""What a run's MPI keeps on this machine outside the run's folder, and its removal when the MPI could not.

Open MPI's ranks share segments in /dev/shm, and its mpirun has a folder of session files (session_files.py); mpirun
removes both when it ends in order, which a SIGKILL or the kernel's memory killer does not let it do. MPICH unlinks
its segments once all ranks have attached them. So what is there is noted in the run's folder as soon as the ranks
are up, and who outlives the launcher removes it: Sonde, else the guard (`process._GUARD` reads the note, too), else
`sonde data recover`. On other hosts this is left to the launcher's daemons.

A note is named after the host, so that nothing is removed on another machine. Its first line is the inode of the run's
folder, so that a copy of a folder, which may come from another user, removes nothing. A line "INODE PATH" follows for
each file or folder, so that a new file under an old name is not removed. A note counts only in a folder that the caller
owns and nobody else may write in: otherwise its author could choose which of the caller's files to remove.
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
"""How the name of a folder begins that is made for one mpirun; see session_files.py."""


def note_path(run_dir: Path) -> Path:
    """Where this host's note of a run lies."""
    return run_dir / f"remains-{socket.gethostname()}"


def note(
    run_dir: Path,
    launcher: int,
    ranks: Iterable[int],
    environment: Mapping[str, str],
    began: float,
    made: Path | None = None,
) -> None:
    """Notes what a run uses on this machine; nothing where it uses nothing or the folder takes no more.

    launcher, ranks: process ids. environment: the launcher's. began: s since 1970; what is older belongs to
    another. made: the folder that session_files made for it.
    """
    own = [made] if made else session_folders(launcher, environment)
    found = [*segments(ranks), *own]
    lines = []
    for path in dict.fromkeys(found):
        with suppress(OSError):
            is_ = path.lstat()
            # A coarse clock stamps files: some milliseconds behind.
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
    """Removes what this host's note names and is still there, and the note; returns what was removed.

    What a process still has mapped stays.
    """
    name = note_path(run_dir).name
    removed: list[Path] = []
    try:
        with Folder(run_dir) as run:
            if run.facts(name) is None or not run.is_private:
                return removed
            head, *lines = run.read_text(name).splitlines() or [""]
            if head != str(run.inode):  # it came with a copy of its folder
                lines = []
            noted = [(Path(path), inode) for inode, _, path in (line.partition(" ") for line in lines)]
            mapped = set(segments(_processes())) if noted else set()
            removed = [path for path, inode in noted if path not in mapped and _removed(path, inode)]
            run.remove(name)
    except (OSError, EnvironmentFailure):
        pass
    return removed


# Paths that fit into a line of the note.
_WORD = re.compile(r"[!-~]([ -~]*[!-~])?")


def _removed(path: Path, inode: str) -> bool:
    """Removes a noted file or folder if the caller owns it and nobody else could have put it there."""
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
                above.remove_folder(path.parent.name)  # of all of this user's runs, when this was its last
        return True
    return False


def _parent(path: Path) -> Folder:
    """The folder above a path. OSError  another user may replace files in it, or it is a link."""
    parent = Folder(path.parent)
    if path.parent.is_symlink() or not (parent.is_private or parent.is_sticky):
        parent.close()
        raise PermissionError(str(path.parent))
    return parent


def _processes() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
