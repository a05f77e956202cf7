"""Session files of an mpirun if another user has prepared Open MPI's own folder for them."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest
from other_users import STRANGER, as_user, place

from sonde.core import launch
from sonde.core.launch.mpirun import Mpi
from sonde.core.launch.process import ProbeProcess

__all__ = ["place"]
pytestmark = pytest.mark.root
USER = 1000
HOST = socket.gethostname().partition(".")[0]


@pytest.fixture
def temporary(place: Path) -> Path:
    """A folder like /tmp."""
    made = place / "tmp"
    made.mkdir()
    made.chmod(0o1777)
    return made


@pytest.mark.parametrize("uid", [0, USER])
@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_a_folder_of_another_user_is_not_used(
    uid: int, mode: int, mpi: Mpi, place: Path, temporary: Path
) -> None:
    """0777: files in it can be replaced by links. 0755: MPI of anybody but root would fail."""
    trap = temporary / f"ompi.{HOST}.{uid}"
    as_user(STRANGER, lambda: (trap.mkdir(), trap.chmod(mode)))
    before = trap.stat().st_mtime_ns
    run = place / "run"
    run.mkdir()
    os.chown(run, uid, uid)
    root = ["--allow-run-as-root"] if uid == 0 and mpi.flavour == "openmpi" else []
    command = [str(mpi.mpirun), *root, "-n", "1", str(launch.probe("sonde-net", mpi.flavour)), "--hello"]

    def start() -> None:
        os.environ |= {"TMPDIR": str(temporary), "HOME": str(run)}
        tempfile.tempdir = None  # as in a process that starts with these
        with ProbeProcess(command, run, print, cwd=run) as process:
            ending = process.wait(100)
        assert ending.reason == "done", process.own_log()

    as_user(uid, start)
    assert trap.stat().st_mtime_ns == before, "session files were made in a stranger's folder"
    assert list(temporary.iterdir()) == [trap], "what the run made is gone with it"
