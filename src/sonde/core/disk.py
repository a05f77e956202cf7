"""Errors in writing to a disk, and folders brought to stable storage."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sonde.core.errors import EnvironmentFailure, reason_not_written

_FULL = (errno.ENOSPC, errno.EDQUOT)


def cannot_write(
    path: Path, error: OSError | RuntimeError, hint: str, probe: bool = False
) -> EnvironmentFailure:
    """core.disk_full or core.cannot_write, for an error in writing `path`.

    probe: the error comes from netCDF, whose number is unreliable (a full disk may be EACCES)."""
    number = getattr(error, "errno", None)
    if number not in _FULL and probe and _is_full(path.parent):
        number = errno.ENOSPC
        error = OSError(number, os.strerror(number))
    what = f"cannot write {path}: {reason_not_written(error)}"
    if number in _FULL:
        return EnvironmentFailure("core.disk_full", what, f"free space there; or {hint}")
    return EnvironmentFailure("core.cannot_write", what, hint)


def _is_full(folder: Path, probe_bytes: int = 32 << 20) -> bool:
    """Whether a full disk or a used-up quota caused an error. HDF5 does not report it: so this is tried."""
    try:
        probe = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as failed:
        if failed.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            return failed.errno in _FULL
        room = os.statvfs(folder)
        # A file system without blocks, such as /proc, has no space that can run out.
        return room.f_blocks > 0 and room.f_bavail * room.f_frsize < probe_bytes
    try:
        os.posix_fallocate(probe, 0, probe_bytes)
    except OSError as failed:
        return failed.errno in _FULL
    finally:
        os.close(probe)
    return False


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems cannot
        if error.errno not in (errno.EINVAL, errno.EBADF):
            raise
    finally:
        os.close(descriptor)
