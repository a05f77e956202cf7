"""power: is a power budget held over the bus?"""

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


class PowerRoom(Room):
    """The room power."""

    name = "power"
    title = "Power"
    help = "A power budget over the bus: enforced, monitored, checked."
    any_of = ("power",)
    all_of = ("netcdf", "bus")
    asks = ("power", "bus")

    def schema(self) -> RoomSchema:
        from sonde.power.recording.sealing import SCHEMA

        return SCHEMA

    def section(self, tree: xr.DataTree, dataset: str) -> Section:
        from sonde.power.recording.figures import section

        return section(tree, dataset)

    def survey_entry(self) -> SurveyEntry:
        from sonde.power.demo.run_survey import PowerSurvey

        return PowerSurvey()

    def checks(self) -> Sequence[Check]:
        from sonde.power.run_doctor import power

        return (power,)


ROOM = PowerRoom()
