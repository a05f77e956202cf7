"""Shells for tests of whole commands; see sonde_shell.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sonde_shell import Shell, shell

from sonde.core.launch.mpirun import Mpi


@pytest.fixture
def sonde(tmp_path: Path) -> Iterator[Shell]:
    """sonde("net", "show", "a.nc") in a folder of the test's own, with whatever MPI there is."""
    yield from shell(tmp_path, None)


@pytest.fixture
def sonde_mpi(tmp_path: Path, mpi: Mpi) -> Iterator[Shell]:
    """The same with the MPI that is being tested."""
    yield from shell(tmp_path, mpi)


@pytest.fixture
def sonde_open_mpi(tmp_path: Path, open_mpi: Mpi) -> Iterator[Shell]:
    """The same with Open MPI."""
    yield from shell(tmp_path, open_mpi)
