"""store: what does a storage service gain or lose by its transport?"""

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


class StoreRoom(Room):
    """The room store."""

    name = "store"
    title = "Storage service"
    help = "Keys, objects and tables on servers; what a transport costs."
    any_of = ("store",)
    asks = ("store",)

    def schema(self) -> RoomSchema:
        from sonde.store.sealing import SCHEMA

        return SCHEMA

    def section(self, tree: xr.DataTree, dataset: str) -> Section:
        from sonde.store.figures import section

        return section(tree, dataset)

    def survey_entry(self) -> SurveyEntry:
        from sonde.store.run_survey import StoreSurvey

        return StoreSurvey()

    def checks(self) -> Sequence[Check]:
        from sonde.store.run_doctor import fabric, store

        return (store, fabric)


ROOM = StoreRoom()
