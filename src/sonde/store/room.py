"""store: what does a storage service gain or lose by its transport?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.core.room import Room, RunFiles

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
    run_files = RunFiles(
        # posix stores an object as `<space>+<key>`, or below folders of the first pieces of a long name: `<piece>~`.
        files=(
            r"server-[0-9]+(/[^/]+)*(?<!~)/("
            r"sonde-store|LOCK|[A-Za-z0-9._%-]*\+[A-Za-z0-9._%+-]*"
            # LMDB, SQLite, RocksDB
            r"|(data|lock)\.mdb|rows\.db(-wal|-shm|-journal)?"
            r"|[0-9]+\.(sst|log|blob|ldb|dbtmp)|CURRENT|IDENTITY|LOG(\.old\.[0-9]+)?"
            r"|(MANIFEST|OPTIONS)-[0-9]+(\.dbtmp)?)"
            r"|server-[0-9]+(/[^/]+)*~/[A-Za-z0-9._%+-]+"
        ),
        folders=r"server-[0-9]+(/(objects|keys|tables|db|[0-9a-f]{2}|[A-Za-z0-9._%+-]+~))*",
    )

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
