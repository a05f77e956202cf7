"""bus: what does a data-distribution bus cost?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.core.room import Room

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from sonde.core.diagnosis import Check
    from sonde.core.layout import RoomSchema
    from sonde.core.section import Section
    from sonde.core.survey_entry import SurveyEntry


class BusRoom(Room):
    """The room bus."""

    name = "bus"
    title = "Data bus"
    help = "Measure what a data-distribution bus costs, and which variant suits."
    any_of = ("bus",)
    all_of = ("netcdf",)
    asks = ("bus",)

    def schema(self) -> RoomSchema:
        from sonde.bus.sealing import SCHEMA

        return SCHEMA

    def section(self, tree: xr.DataTree, dataset: str) -> Section:
        from sonde.bus.figures import section

        return section(tree, dataset)

    def survey_entry(self) -> SurveyEntry:
        from sonde.bus.run_survey import BusSurvey

        return BusSurvey()

    def checks(self) -> Sequence[Check]:
        from sonde.bus.run_doctor import bus

        return (bus,)


ROOM = BusRoom()
