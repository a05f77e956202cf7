"""io: where does the time go in the parallel I/O stack?"""

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


class IoRoom(Room):
    """The room io."""

    name = "io"
    title = "Parallel I/O"
    help = "Measure where the time goes in the parallel I/O stack, layer by layer."
    any_of = ("io",)
    all_of = ("netcdf",)
    asks = ("io", "iokernel", "iostack")
    silent = frozenset(("study", "rounds", "traced", "status", "max_trace", "began_utc_ns"))
    run_files = RunFiles(
        files=(
            # the tracer and the watcher; servers; runs of a study
            r"table|[^/]+\.(tail|functions|descriptors|shared|refused)|watch\.spec|servers\.json"
            r"|results\.json|out|err|hints|trace\.nc|[a-z]+-[0-9]{5}\.part"
            # unfinished files, as earlier versions named them
            r"|\.servers\.json\.part|trace\.nc\.part"
        ),
        runs=r"trace\.run",
    )

    def schema(self) -> RoomSchema:
        from sonde.io.kinds import SCHEMA

        return SCHEMA

    def section(self, tree: xr.DataTree, dataset: str) -> Section:
        from sonde.io.kinds import section

        return section(tree, dataset)

    def survey_entry(self) -> SurveyEntry:
        from sonde.io.study.run_survey import IoSurvey

        return IoSurvey()

    def checks(self) -> Sequence[Check]:
        from sonde.io.run_doctor import io, iokernel, iostack

        return (io, iokernel, iostack)


ROOM = IoRoom()
