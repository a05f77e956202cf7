"""The quick form of the power room: four simulated nodes under a budget, and the end of their manager."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sonde.core.errors import Finding, UsageError
from sonde.core.survey_entry import Call, Compared, Judgement, SurveyEntry

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.launch.measured import Measured

LEAST_S = 2.0  # least share of the time for a demonstration; it may take a little more
LONGEST_S = 20.0  # more time would show nothing new


class PowerSurvey(SurveyEntry):
    """The quick form of power."""

    weight = 0.2  # it measures no hardware of this machine: the time belongs to the other rooms
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
                f"its share of the time is {left:.1f} s, but a demonstration needs at least {LEAST_S:g} s",
                "give --budget 60s or more; 'sonde power demo' runs it alone",
            )
        length = min(left, LONGEST_S)
        out = call.folder / "power.nc"
        return run.run(out, call.command, length, call.progress(), time.monotonic(), quick=True)

    def judge(self, tree: xr.DataTree, name: str) -> Judgement:
        from sonde.power.recording import verdict

        summary = tree["summary"].to_dataset().load()
        text = f"simulated demonstration: {verdict.sentence(summary)}"
        return Judgement(text, verdict.findings(summary, name), verdict.sound(summary))

    def compare(self, before: xr.DataTree, now: xr.DataTree, names: tuple[str, str]) -> Compared:
        return (
            Compared()
        )  # with simulated nodes only a broken budget can become worse, and judge() finds that

    def drains(self, finding: Finding) -> bool:
        return False  # the host that simulates the nodes is not at fault
