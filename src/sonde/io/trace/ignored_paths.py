"""What a program does beside its I/O: starting MPI, loading code, reading what the system tells of itself.

Open MPI 4.1 alone makes some three hundred calls a rank on files below /sys when it starts, which on a short run is
most of the time in read(2). None of that is what anybody traces I/O for, so it is shown as a layer of its own.
"""

from __future__ import annotations

import re

LAYER = "system"
TITLE = "Start-up and system"

# Within these nothing is the program's own, whatever it is.
STARTING = ("mpi_init", "mpi_init_thread", "mpi_finalize")
# Layers whose calls are told apart by their files.
BY_FILE = ("posix", "kernel")

# Layers within which an MPI moves data between its ranks as well, over sockets where it has nothing better.
BETWEEN_RANKS = ("hdf5", "mpiio", "romio", "ompio")
# Functions that read and write at an offset, which neither a socket nor a pipe has.
AT_OFFSET = re.compile(r"_*p(read|write)")

_SYSTEM = (
    "/proc", "/sys", "/dev", "/etc", "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/boot", "/opt", "/run",
    "/var/lib", "/var/cache", "/var/run",
)  # fmt: skip
# Where MPIs keep what their processes share: Open MPI's session folders and segments, MPICH's, UCX's, libfabric's.
_OF_MPI = re.compile(
    r"^(/tmp|/var/tmp|/dev/shm)/(.*/)?(ompi\.|openmpi-sessions-|pmix|prte\.|vader_segment|sm_segment|mpich|ucx_|psm2_|fi_shm)"
)
# Where files are what the system tells and is told, and no data, whoever writes them.
_OF_KERNEL = ("/proc", "/sys", "/dev", "/run", "/var/run")
_COMPILED = re.compile(r"\.pyc(\.[0-9]+)?$")
_CODE = re.compile(r"(\.so(\.[0-9]+)*|\.pyc|\.py|\.pth)$|/(site|dist)-packages/")


def is_beside(path: str, written: bool = False) -> bool:
    """Whether a file is of the system, of an MPI, or code: none that a program is traced for.

    written: by the program. Then it is the program's, wherever it lies and whatever it is called, but what MPIs and
    Python write for themselves, and what is no file at all.
    """
    if _OF_MPI.match(path) or _COMPILED.search(path):
        return True
    if path.startswith("/dev/shm/"):
        return not written and bool(_CODE.search(path))
    if written:
        return _below(path, _OF_KERNEL)
    return bool(_CODE.search(path)) or _below(path, _SYSTEM)


def _below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
