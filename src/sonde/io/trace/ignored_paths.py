"""Calls outside a program's I/O: starting MPI, loading code, reading system information.

Open MPI 4.1 alone makes some three hundred calls a rank on files below /sys when it starts, which is most of the time
in read(2) of a short run. Nobody traces I/O to see them, so they form a layer of their own.
"""

from __future__ import annotations

import re

LAYER = "system"
TITLE = "Start-up and system"

# All calls within these functions are outside the program's I/O.
STARTING = (
    "mpi_init", "mpi_init_thread", "mpi_finalize", "mpi_init_f08", "mpi_init_thread_f08", "mpi_finalize_f08",
    "ompi_init_f", "ompi_init_thread_f", "ompi_finalize_f",
)  # fmt: skip
# Layers whose calls are classified by their files.
BY_FILE = ("posix", "kernel")

# Layers within which an MPI also moves data between its ranks, over sockets if it has no better transport.
BETWEEN_RANKS = ("hdf5", "mpiio", "romio", "ompio")
# Functions that read and write at an offset, which sockets and pipes do not have.
AT_OFFSET = re.compile(r"_*p(read|write)")

_SYSTEM = (
    "/proc", "/sys", "/dev", "/etc", "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/boot", "/opt", "/run",
    "/var/lib", "/var/cache", "/var/run",
)  # fmt: skip
# Folders in which MPIs store what their processes share: Open MPI's session folders and segments, MPICH's, UCX's,
# libfabric's.
_OF_MPI = re.compile(
    r"^((/tmp|/var/tmp|/dev/shm)/(.*/)?(ompi\.|openmpi-sessions-|pmix|prte\.|vader_segment|sm_segment|mpich|ucx_|psm2_|fi_shm)"
    r"|/ucx_shm_posix_[^/]*$)"  # as given to shm_open
)
# Folders whose files are an interface to the kernel and contain no data, whoever writes them.
_OF_KERNEL = ("/proc", "/sys", "/dev", "/run", "/var/run")
_COMPILED = re.compile(r"\.pyc(\.[0-9]+)?$")
_CODE = re.compile(r"(\.so(\.[0-9]+)*|\.pyc|\.py|\.pth)$|/(site|dist)-packages/")


def is_beside(path: str, written: bool = False) -> bool:
    """Whether a file belongs to the system, to an MPI, or is code: no file that a program is traced for.

    written: the program wrote it. Then it is the program's, whatever its folder and name, except what MPIs and Python
    write for themselves, and what is no regular file.
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
