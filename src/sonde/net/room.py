"""net: the latency structure between ranks, and the number of measurements that is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.core import other_programs
from sonde.core.room import Room

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.layout import RoomSchema
    from sonde.core.section import Section
    from sonde.core.survey_entry import SurveyEntry


class NetRoom(Room):
    """The room net."""

    name = "net"
    title = "Interconnect"
    help = "Latency structure between ranks; how many measurements are enough."
    any_of = ("openmpi", "mpich")
    all_of = ("netcdf",)
    asks = ("openmpi", "mpich", "netcdf")
    differing = frozenset((other_programs.HOSTS, other_programs.SHARES))

    def schema(self) -> RoomSchema:
        from sonde.net.sealing import SCHEMA

        return SCHEMA

    def section(self, tree: xr.DataTree, dataset: str) -> Section:
        from sonde.net.figures import section

        return section(tree, dataset)

    def survey_entry(self) -> SurveyEntry:
        from sonde.net.run_survey import NetSurvey

        return NetSurvey()


ROOM = NetRoom()
