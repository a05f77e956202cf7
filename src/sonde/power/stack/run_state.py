"""The folder in which a role keeps what has to outlive it, for one process at a time."""

from __future__ import annotations

import fcntl
import os
import pwd
from pathlib import Path

from sonde.core.errors import EnvironmentFailure


def own_user() -> str:
    """Whose rights this process has. Not by LOGNAME, which anybody sets, and root may have of another."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def held(folder: Path, role: str, mode: int = 0o777, lock: str = "lock", key: str = "state") -> int:
    """The descriptor by which this process has the folder, which is made where it is not there, until it is closed.

    mode: of a folder that is made. lock: the file in it that is locked. key: what names it in the role's table.

    Raises
    ------
    EnvironmentFailure  power.cannot_keep, power.already_running.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
        descriptor = os.open(folder / lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EnvironmentFailure(
            "power.cannot_keep",
            f"{error.filename or folder}: {error.strerror}",
            f"name one that can be written: '{key}' of [{role}]",
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise EnvironmentFailure(
            "power.already_running",
            f"another {role} has {folder / lock}",
            f"end that one first, or give this one another '{key}'",
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise EnvironmentFailure(
            "power.cannot_keep",
            f"{folder / lock} cannot be locked: {error.strerror}",
            f"name one on a file system with locks: '{key}' of [{role}]",
        ) from None
    return descriptor
