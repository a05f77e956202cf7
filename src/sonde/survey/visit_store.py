"""The quick form of the store room: objects and keys over every transport there is, on loopback, nothing kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sonde.core.errors import Finding
from sonde.survey.rooms import Call, Judgement

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.launch.session import Measured

# Of these, as many as the share of the budget has time for: see `fitting`. What is slow by a factor that the room's own
# run tells anyway would take most of the time.
LEFT_OUT = ("plain", "thesis")
WITH_TIME_S = 30.0  # a share from which on they are measured, too


class StoreVisit:
    """Visits store."""

    weight = 0.35  # noise must keep what `sonde check` leaves it of 40 s

    def measure(self, call: Call) -> Measured:
        import time

        from sonde.store import run_bench as runs
        from sonde.store.plan import Plan, choose_variants, default_cases, fitting, measuring_s

        there = runs.offers()
        variants = choose_variants((), there.get("transports", ()))
        if call.budget_s < WITH_TIME_S:
            variants = tuple(variant for variant in variants if variant.name not in LEFT_OUT)
        left_s = call.budget_s - (time.monotonic() - call.began)
        cases = fitting(default_cases(), variants, measuring_s(left_s, len(default_cases())))
        plan = Plan(
            variants=variants,
            cases=tuple(cases),
            seed=call.seed,
            backends=runs.backends_of("null", there),
            backend="null",
        )
        request = runs.Request(plan, call.folder / "store.nc", call.command, call.budget_s, call.began)
        return runs.measure(request, call.progress())

    def judge(self, tree: xr.DataTree, name: str) -> Judgement:
        from sonde.store import verdict

        summary = tree["summary"].to_dataset().load()
        # What a transport is good for is a lesson and no fault of the machine's: `check` must not fail for it.
        return Judgement(verdict.sentence(summary, name), (), verdict.sound(summary))

    def compare(self, before: xr.DataTree, now: xr.DataTree, names: tuple[str, str]) -> Sequence[Finding]:
        from sonde.core import dataset
        from sonde.store import limits

        machine = (dataset.attrs(before), dataset.attrs(now))
        old, new = (tree["summary"].to_dataset().load() for tree in (before, now))
        return limits.diff(old, new, names, machine=machine).findings

    def drains(self, finding: Finding) -> bool:
        return False  # a slow transport may be the fault of what was installed, on every host alike


VISIT = StoreVisit()
