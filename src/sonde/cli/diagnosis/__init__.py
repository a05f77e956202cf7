"""The checks of `sonde doctor`, in the order in which they are shown."""

from __future__ import annotations

from functools import cache

from sonde.core.diagnosis import Check
from sonde.core.room import rooms


@cache
def checks() -> dict[str, Check]:
    """All checks by name: of the MPIs, of each room, of the machine, of libraries."""
    from sonde.cli.diagnosis import cluster, libraries, machine, mpi

    of_rooms = [check for room in rooms() for check in room.checks()]
    found = [*mpi.CHECKS, *of_rooms, *machine.CHECKS, *cluster.CHECKS, *libraries.CHECKS]
    return {check.name: check for check in found}
