"""The folder for a role's persistent state, used by one process at a time."""

from __future__ import annotations

import fcntl
import os
import pwd
from pathlib import Path

from sonde.core.errors import EnvironmentFailure
from sonde.core.owned_files import make_folder


def own_user() -> str:
    """The user whose rights this process has. LOGNAME does not count: anybody can set it, and root may have another
    user's.
    """
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def held(folder: Path, role: str, mode: int = 0o777, lock: str = "lock", key: str = "state") -> int:
    """A descriptor that locks the folder for this process until it is closed. The folder is created if it is missing.

    mode: of a created folder. lock: the name of the lock file in it. key: the key that names the folder in the role's
    table.

    Raises
    ------
    EnvironmentFailure  power.cannot_keep, power.already_running, core.folder_of_others.
    """
    try:
        make_folder(folder, mode, parents=True, exist_ok=True, option=f"set '{key}' of [{role}] to")
        descriptor = os.open(folder / lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EnvironmentFailure(
            "power.cannot_keep",
            f"{error.filename or folder}: {error.strerror}",
            f"name a folder that can be written: '{key}' of [{role}]",
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise EnvironmentFailure(
            "power.already_running",
            f"another {role} uses {folder / lock}",
            f"end the other first, or set another '{key}'",
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise EnvironmentFailure(
            "power.cannot_keep",
            f"{folder / lock} cannot be locked: {error.strerror}",
            f"name a folder on a file system with locks: '{key}' of [{role}]",
        ) from None
    return descriptor
