"""The quick form of the noise room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.core.errors import Finding, UsageError
from sonde.core.launch.start import ranks_for, start_for
from sonde.core.survey_entry import Call, Compared, Judgement, SurveyEntry

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.launch.measured import Measured


class NoiseSurvey(SurveyEntry):
    """The quick form of noise."""

    weight = 2.5
    spread = 2.0

    def needs_s(self, call: Call) -> float:
        from sonde.noise.detector.plan import MIN_PAIRS, block_length, needed_budget
        from sonde.noise.detector.run import QUICK_PERIOD_S

        start_for(call, "sonde-noise")
        return needed_budget(MIN_PAIRS, block_length(QUICK_PERIOD_S))

    def measure(self, call: Call) -> Measured:
        from sonde.noise.detector import run as noise

        start = start_for(call, "sonde-noise")
        try:
            return noise.measure_quickly(
                start,
                call.folder / "noise.nc",
                ntasks=ranks_for(call),
                seed=call.seed,
                command=call.command,
                budget_s=call.budget_s,
                began=call.began,
                progress=call.progress(),
            )
        except UsageError as error:
            if error.code != "noise.budget_too_short":
                raise
            # The hint of the room is about its own budget. The user set the budget of the survey.
            raise UsageError(error.code, error.what, "give more with --budget") from None

    def judge(self, tree: xr.DataTree, name: str) -> Judgement:
        from sonde.noise.detector import verdict

        summary = tree["summary"].to_dataset().load()
        return Judgement(
            f"{verdict.loop(summary)}: {verdict.sentence(summary)}",
            verdict.findings(summary),
            verdict.sound(summary),
        )

    def compare(self, before: xr.DataTree, now: xr.DataTree, names: tuple[str, str]) -> Compared:
        from sonde.noise.detector import verdict

        old, new = (tree["summary"].to_dataset().load() for tree in (before, now))
        return Compared(verdict.worse(old, new, names))

    def unfit(self, finding: Finding) -> bool:
        return finding.code in ("noise.busy_machine", "noise.blind")

    def drains(self, finding: Finding) -> bool:
        return False  # an agent that makes noise runs on every node, so draining one node does not help
