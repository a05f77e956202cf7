"""What a run's MPI keeps on this machine outside the run's folder, and its removal when the MPI could not.

Open MPI's ranks share segments in /dev/shm, and its mpirun has a session folder in the temporary folder; mpirun
removes both when it ends in order, which a SIGKILL or the kernel's memory killer does not let it do. MPICH unlinks
its segments once all ranks have attached them. So what is there is noted in the run's folder as soon as the ranks
are up, and who outlives the launcher removes it: Sonde, else the guard (`process._GUARD` reads the note, too), else
`sonde data recover`. On other hosts this is left to the launcher's daemons.

A note has a line for each file or folder, "INODE PATH", and is named after the host, so that nothing is removed on
another machine, nor a thing that only has the name of the one noted.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = "/dev/shm/"
OF_OPEN_MPI_5 = ("prte.", "prterun.", "mpirun.")


def note_path(run_dir: Path) -> Path:
    """Where this host's note of a run lies."""
    return run_dir / f"remains-{socket.gethostname()}"


def note(
    run_dir: Path, launcher: int, ranks: Iterable[int], environment: Mapping[str, str], began: float
) -> None:
    """Notes what a run uses on this machine; nothing where it uses nothing or the folder takes no more.

    launcher, ranks: process ids. environment: the launcher's. began: s since 1970; what is older belongs to
    another.
    """
    found = [*segments(ranks), *session_folders(launcher, environment)]
    lines = []
    for path in dict.fromkeys(found):
        with suppress(OSError):
            is_ = path.lstat()
            # A coarse clock stamps files: some milliseconds behind.
            if is_.st_uid == os.geteuid() and is_.st_ctime >= began - 1:
                lines.append(f"{is_.st_ino} {path}\n")
    if lines:
        with suppress(OSError):
            note_path(run_dir).write_text("".join(lines))


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
    names = ("OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base", "TMPDIR", "TEMP", "TMP")
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
    path = note_path(run_dir)
    removed: list[Path] = []
    try:
        lines = path.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return removed
    left = [
        place for inode, _, name in (line.partition(" ") for line in lines) if _is(place := Path(name), inode)
    ]
    mapped = set(segments(_processes())) if left else set()
    for place in left:
        if place in mapped:
            continue
        with suppress(OSError):
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink()
            removed.append(place)
        if place.name.startswith("pid."):
            with suppress(OSError):  # the folder of all of this user's runs, when this was its last
                place.parent.rmdir()
    with suppress(OSError):
        path.unlink()
    return removed


def _is(place: Path, inode: str) -> bool:
    """Whether what was noted is still there, ours, and no link to elsewhere."""
    try:
        found = place.lstat()
    except OSError:
        return False
    known = str(place).startswith(SHARED_MEMORY) or place.name.startswith(("pid.", *OF_OPEN_MPI_5))
    return known and ".." not in place.parts and str(found.st_ino) == inode and found.st_uid == os.geteuid()


def _processes() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
