"""Components of MPI-IO, whose names differ between versions of Open MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.io.study import run

if TYPE_CHECKING:
    from sonde.core.launch.mpirun import Mpi


def romio(mpi: Mpi) -> str:
    """Its component of ROMIO: romio321, in Open MPI 5 romio341."""
    return next(name for name in run.components(mpi) if name.startswith("romio"))
