"""The quick form of the noise room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sonde.core.errors import Finding
from sonde.survey.rooms import Call, Judgement

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.launch.session import Measured


class NoiseVisit:
    """Visits noise."""

    weight = 1.0

    def measure(self, call: Call) -> Measured:
        from sonde.noise import run as noise  # type: ignore[attr-defined]

        return noise.measure_quickly(
            call.start("sonde-noise"),
            call.folder / "noise.nc",
            ntasks=call.ranks,
            seed=call.seed,
            command=call.command,
            budget_s=call.budget_s,
            began=call.began,
            progress=call.progress(),
        )

    def judge(self, tree: xr.DataTree, name: str) -> Judgement:
        from sonde.noise import verdict  # type: ignore[attr-defined]

        summary = tree["summary"].to_dataset().load()
        return Judgement(
            verdict.sentence(summary, name), verdict.findings(summary, name), verdict.sound(summary)
        )

    def compare(self, before: xr.DataTree, now: xr.DataTree, names: tuple[str, str]) -> Sequence[Finding]:
        from sonde.noise import verdict  # type: ignore[attr-defined]

        old, new = (tree["summary"].to_dataset().load() for tree in (before, now))
        return verdict.worse(old, new, names)

    def drains(self, finding: Finding) -> bool:
        return False  # noise is an agent's, which runs on every node: draining one helps nobody


VISIT = NoiseVisit()
