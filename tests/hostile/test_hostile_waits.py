"""Names that each user of the machine may take, and that Sonde's programs open: a user who takes them delays nobody."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from other_users import STRANGER, as_user, place

from sonde.bus import client as bus
from sonde.cluster import run_state
from sonde.core.launch.mpirun import Mpi
from sonde_shell import PROGRAM

__all__ = ["place"]
pytestmark = pytest.mark.root
CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
LONGEST_S = 100  # until a program counts as hanging


def apart(act: Callable[[], object]) -> None:
    """Runs it in a process with its own abstract sockets and /dev/shm, so that no other test is delayed."""
    pid = os.fork()
    if pid == 0:
        status = 1
        with suppress(BaseException):
            unshared = ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS | CLONE_NEWNET)
            assert unshared == 0, os.strerror(ctypes.get_errno())
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm"], check=True)
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            act()
            status = 0
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_who_listens_where_displays_would_holds_up_no_mpi(mpi: Mpi, tmp_path: Path) -> None:
    def attacked() -> None:
        held = []

        def listen() -> None:
            for number in range(10):
                one = socket.socket(socket.AF_UNIX)
                one.bind(f"\0/tmp/.X11-unix/X{number}")
                one.listen()
                held.append(one)

        listen()  # any user may; and none of them answers
        words = ["net", "run", "--ntasks", "2", "--sizes", "8", "--budget", "3s", "-o", tmp_path / "a.nc"]
        env = {"SONDE_MPI": mpi.flavour, "SONDE_CONFIG": ""}
        ran = subprocess.run([PROGRAM, *words], env=os.environ | env, timeout=LONGEST_S)
        assert ran.returncode in (
            0,
            4,
        )  # 4: on a busy machine the budget may be over before a cell is measured

    apart(attacked)


@pytest.mark.skipif("fastdds" not in bus.implementations(), reason="Fast DDS is not here")
@pytest.mark.parametrize("how", ["pipe", "lock"])
def test_who_takes_names_of_shared_memory_holds_up_no_bus(how: str, tmp_path: Path) -> None:
    def attacked() -> None:
        shared = Path("/dev/shm")

        def take() -> None:
            if how == "pipe":
                os.mkfifo(shared / "fastrtps_zz_el")
                return
            for port in range(7400, 7400 + 250 * 233, 250):  # the groups' of all domains
                file = os.open(shared / f"fastrtps_port{port}_sl", os.O_CREAT | os.O_RDWR, 0o666)
                os.set_inheritable(file, True)
                fcntl.flock(file, fcntl.LOCK_EX)
            subprocess.Popen(["sleep", "60"], close_fds=False)  # it has the sockets open

        as_user(STRANGER, take)
        words = ["bus", "run", "latency", "--sizes", "64", "--variants", "fastdds/shm", "--budget", "6s"]
        env = os.environ | {"SONDE_CONFIG": ""}
        ran = subprocess.run([PROGRAM, *words, "-o", tmp_path / "a.nc"], env=env, timeout=LONGEST_S)
        # Without its lock Fast DDS has no shared memory there, and reports that: 4, nothing was measured.
        assert ran.returncode in ((0,) if how == "pipe" else (0, 4))

    apart(attacked)


def test_nobody_else_can_lock_a_cluster(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may open a folder for reading may lock it, and a command would wait for that user."""
    monkeypatch.setattr(run_state, "STATE", place / "clusters")

    def take(folder: Path) -> None:
        with pytest.raises(PermissionError):
            os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    with run_state.held("one", make=True) as folder:
        assert folder is not None
        as_user(STRANGER, lambda: take(folder))
