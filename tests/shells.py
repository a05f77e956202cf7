"""Fixtures for tests of whole commands (see sonde_shell.py), for tests/system and tests/hostile."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonde.core.launch.mpirun import Mpi
from sonde_shell import Shell, Typed, environment, shell


@pytest.fixture
def sonde(tmp_path: Path) -> Iterator[Shell]:
    """sonde("net", "show", "a.nc") in the test's own folder, with any MPI that is installed."""
    yield from shell(tmp_path, None)


@pytest.fixture
def typed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Typed:
    """typed("net", "show", "a.nc"): as `sonde`, but in this process; for refused commands, and for those that only
    read.
    """
    return Typed(tmp_path, environment(None, "typed"), capfd)


@pytest.fixture
def sonde_mpi(tmp_path: Path, mpi: Mpi) -> Iterator[Shell]:
    """The same with the MPI that is being tested."""
    yield from shell(tmp_path, mpi)


@pytest.fixture
def sonde_open_mpi(tmp_path: Path, open_mpi: Mpi) -> Iterator[Shell]:
    """The same with Open MPI."""
    yield from shell(tmp_path, open_mpi)


@pytest.fixture
def munge() -> Iterator[Path]:
    """MUNGE's daemon with its own key: its socket."""
    daemon = shutil.which("munged", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if daemon is None:
        pytest.skip("munged is not installed")
    folder = Path("/tmp") / f"sonde-munge-{secrets.token_hex(4)}"  # a socket's path must be short
    folder.mkdir(mode=0o755)
    (folder / "key").write_bytes(secrets.token_bytes(64))
    (folder / "key").chmod(0o400)
    names = {"socket": "s", "key-file": "key", "log-file": "log", "pid-file": "pid", "seed-file": "seed"}
    options = [f"--{option}={folder / name}" for option, name in names.items()]
    child = subprocess.Popen(
        [daemon, "--foreground", "--force", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def ready() -> bool:
        """It writes its process id after it has made the socket."""
        pid = folder / "pid"
        return (folder / "s").exists() and pid.exists() and pid.read_text().endswith("\n")

    try:
        end = time.monotonic() + 20
        while not ready() and child.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        if not ready() or child.poll() is not None:
            log = (folder / "log").read_text() if (folder / "log").exists() else ""
            pytest.skip(f"munged does not start here: {log}")
        yield folder / "s"
    finally:
        child.terminate()
        child.wait(10)
        shutil.rmtree(folder, ignore_errors=True)
