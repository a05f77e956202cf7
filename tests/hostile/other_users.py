"""Another user of the machine: a folder that both can reach, and that user's actions in it."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

STRANGER = 65534  # nobody: has no rights of other users, and exists on every machine


def as_user(uid: int, act: Callable[[], object]) -> None:
    """Calls a function in a process of that user."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            act()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def shared_place() -> Iterator[Path]:
    """A folder that every user can reach, unlike pytest's own; it belongs to root."""
    place = Path(tempfile.mkdtemp(prefix="sonde-hostile-"))
    place.chmod(0o755)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def strangers_folder(place: Path) -> Path:
    folder = place / "stranger"
    folder.mkdir(mode=0o755)
    os.chown(folder, STRANGER, STRANGER)
    return folder


place = pytest.fixture(shared_place)


@pytest.fixture
def stranger(place: Path) -> Path:
    """A folder that belongs to the stranger."""
    return strangers_folder(place)


@pytest.fixture
def victim(place: Path) -> Path:
    """A file of root's that nobody else may read or write."""
    path = place / "secret"
    path.write_text("root's own words, and nobody else's\n")
    path.chmod(0o600)
    return path
