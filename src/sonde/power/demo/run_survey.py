"""The quick form of the power room: four simulated nodes under a budget, whose manager is killed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sonde.core.errors import Finding, UsageError
from sonde.core.survey_entry import Call, Compared, Judgement, SurveyEntry

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.launch.measured import Measured

LEAST_S = 2.0  # a share from which on it is shown; it may take a little more
LONGEST_S = 20.0  # what it shows is shown by then


class PowerSurvey(SurveyEntry):
    """The quick form of power."""

    weight = 0.2  # it measures nothing of this machine's hardware: the others have the time
    spread = 2.0

    def needs_s(self, call: Call) -> float:
        from sonde.power.demo import run

        run.program()
        return 4.0

    def measure(self, call: Call) -> Measured:
        from sonde.power.demo import run

        left = call.budget_s - (time.monotonic() - call.began)
        if left < LEAST_S:
            raise UsageError(
                "power.budget_too_short",
                f"its share of the time is {left:.1f} s, and a demonstration takes {LEAST_S:g} s or more",
                "give --budget 60s or more; 'sonde power demo' shows it by itself",
            )
        length = min(left, LONGEST_S)
        out = call.folder / "power.nc"
        return run.run(out, call.command, length, call.progress(), time.monotonic(), quick=True)

    def judge(self, tree: xr.DataTree, name: str) -> Judgement:
        from sonde.power.recording import verdict

        summary = tree["summary"].to_dataset().load()
        said = f"simulated demonstration: {verdict.sentence(summary)}"
        return Judgement(said, verdict.findings(summary, name), verdict.sound(summary))

    def compare(self, before: xr.DataTree, now: xr.DataTree, names: tuple[str, str]) -> Compared:
        return (
            Compared()
        )  # of simulated nodes nothing can become worse but a broken budget, which judge() finds

    def drains(self, finding: Finding) -> bool:
        return False  # a host that simulates others is not at fault
