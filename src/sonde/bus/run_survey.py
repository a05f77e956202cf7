"""The quick form of the bus room: round trips over each installed DDS, on loopback."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sonde.core.errors import Finding
from sonde.core.survey_entry import Call, Compared, Judgement, SurveyEntry

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.launch.measured import Measured

QUICK = (
    "cyclonedds",
    "fastdds",
    "fastdds/shm",
    "raw/udp4",
    "raw/shm",
)  # 'sonde bus run' measures the other variants
SIZES = (64, 16384)
WITH_TIME_S = 30.0  # with at least this budget, fanout and throughput are measured, too


class BusSurvey(SurveyEntry):
    """The quick form of bus."""

    weight = 0.6
    spread = math.inf  # observed: a factor of 9 for a bare socket, depending on the cores of the two threads

    def needs_s(self, call: Call) -> float:
        from sonde.bus import run_probe as probe

        probe.program()
        return 2.0

    def measure(self, call: Call) -> Measured:
        import time
        from dataclasses import replace

        from sonde.bus import run_probe as probe
        from sonde.bus.cases import Wanted, cases_of
        from sonde.bus.plan import Plan, fitting, measuring_s
        from sonde.bus.variants import choose_variants

        probe.program()
        tests: tuple[str, ...] = ("latency",)
        if call.budget_s >= WITH_TIME_S:
            tests = ("latency", "fanout", "throughput")
        # A variant that is not installed is no fault here.
        variants = tuple(replace(variant, asked=False) for variant in choose_variants(QUICK, tests))
        left_s = call.budget_s - (time.monotonic() - call.began)
        wanted = cases_of(tests, Wanted(sizes=SIZES, subscribers=(1, 8)))
        cases = fitting(wanted, variants, measuring_s(left_s, len(wanted) * len(variants)))
        plan = Plan(variants=variants, cases=tuple(cases), seed=call.seed)
        request = probe.Request(plan, call.folder / "bus.nc", call.command, call.budget_s, call.began)
        return probe.measure(request, call.progress())

    def judge(self, tree: xr.DataTree, name: str) -> Judgement:
        from sonde.bus import verdict

        summary = tree["summary"].to_dataset().load()
        # A slow variant is a lesson, not a fault of the machine: `check` must not fail because of it.
        return Judgement(verdict.sentence(summary, name), (), verdict.sound(summary))

    def compare(self, before: xr.DataTree, now: xr.DataTree, names: tuple[str, str]) -> Compared:
        from sonde.bus import limits
        from sonde.core import dataset

        machine = (dataset.attrs(before), dataset.attrs(now))
        old, new = (tree["summary"].to_dataset().load() for tree in (before, now))
        found = limits.diff(old, new, names, machine=machine)
        return Compared(found.findings, found.sentence(names[1]) if found.blunt else "")

    def drains(self, finding: Finding) -> bool:
        return False  # a slow bus may come from the installed packages, equally on every host
