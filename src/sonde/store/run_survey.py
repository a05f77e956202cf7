"""The survey entry of the store room: objects and keys over every transport on loopback. Nothing is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.core.errors import Finding
from sonde.core.survey_entry import Call, Compared, Judgement, SurveyEntry

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.launch.measured import Measured

# The slow variants would take most of the time, and `sonde store run` shows their cost anyway. Within one host ofi-rma
# behaves like ofi-rdm.
LEFT_OUT = ("raw-ofi", "plain", "thesis", "ofi-rma")
WITH_TIME_S = 30.0  # with at least this budget they are measured, too
CLIENTS = ("object", "striped", "item", "kv")  # `sonde store run` compares tables and HDF5


class StoreSurvey(SurveyEntry):
    """The survey entry of store."""

    weight = 0.6
    spread = 2.0

    def needs_s(self, call: Call) -> float:
        from sonde.store.run import program

        program()
        return 3.0

    def measure(self, call: Call) -> Measured:
        import time

        from sonde.store import run_bench as runs
        from sonde.store.plan import Plan, choose_variants, default_cases, fitting, measuring_s
        from sonde.store.run import has

        build = has()
        variants = choose_variants((), build.get("transports", ()))
        if call.budget_s < WITH_TIME_S:
            variants = tuple(variant for variant in variants if variant.name not in LEFT_OUT)
        left_s = call.budget_s - (time.monotonic() - call.began)
        wanted = [case for case in default_cases() if case.client in CLIENTS]
        cases = fitting(wanted, variants, measuring_s(left_s, len(wanted)))
        plan = Plan(
            variants=variants,
            cases=tuple(cases),
            seed=call.seed,
            backends=runs.backends_of("null", build),
            backend="null",
        )
        request = runs.Request(plan, call.folder / "store.nc", call.command, call.budget_s, call.began)
        return runs.measure(request, call.progress())

    def judge(self, tree: xr.DataTree, name: str) -> Judgement:
        from sonde.store import verdict

        summary = tree["summary"].to_dataset().load()
        # How good a transport is, is a lesson and not a fault of the machine: `check` must not fail because of it.
        return Judgement(verdict.sentence(summary, name), (), verdict.valid(summary))

    def compare(self, before: xr.DataTree, now: xr.DataTree, names: tuple[str, str]) -> Compared:
        from sonde.core import dataset
        from sonde.store import limits

        machine = (dataset.attrs(before), dataset.attrs(now))
        old, new = (tree["summary"].to_dataset().load() for tree in (before, now))
        found = limits.diff(old, new, names, machine=machine)
        return Compared(found.findings, found.sentence(names[1]) if found.blunt else "")

    def drains(self, finding: Finding) -> bool:
        return False  # the cause of a slow transport may be the installed software, which is the same on every host
