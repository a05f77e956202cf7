"""noise: the cost of a monitoring agent for the jobs on the same nodes."""

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


class NoiseRoom(Room):
    """The room noise."""

    name = "noise"
    title = "Noise"
    help = "The cost of a monitoring agent for the jobs on the same nodes."
    any_of = ("openmpi", "mpich")
    all_of = ("netcdf", "noise")
    asks = ("openmpi", "mpich", "netcdf", "noise")
    silent = frozenset(
        (
            "study",
            "op",
            "size",
            "block_s",
            "settle_s",
            "rounds",
            "spend",
            "periods_s",
            "fold_weight",
            "permutations",
            "shares",
            "fresh_rounds",
            "period_s",
            "alpha",
            "matters",
            "grain_s",
            "polled",
            "agent",
            "levels",
            "level",
            "words",
            "placements",
            "p_live",
            "detected_s",
            "blocks_planned",
            "blocks_measured",
            "variant_periods_s",
            "variant_sources",
        )
    )
    differing = frozenset(("blocks_planned", "blocks_measured", "rounds", "spend", "permutations", "levels"))
    closer = "show"
    run_files = RunFiles(runs=r"program-[0-9]{5}")  # several programs: each has a log of its own

    def schema(self) -> RoomSchema:
        from sonde.noise.kinds import SCHEMA

        return SCHEMA

    def section(self, tree: xr.DataTree, dataset: str) -> Section:
        from sonde.noise.kinds import section

        return section(tree, dataset)

    def survey_entry(self) -> SurveyEntry:
        from sonde.noise.detector.run_survey import NoiseSurvey

        return NoiseSurvey()

    def checks(self) -> Sequence[Check]:
        from sonde.noise.run_doctor import noise

        return (noise,)


ROOM = NoiseRoom()
