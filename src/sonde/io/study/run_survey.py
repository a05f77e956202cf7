"""The quick survey of the io room: an IOR-like benchmark, traced and untraced, on this host, and its disk alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.core.errors import Finding, UsageError
from sonde.core.launch.start import ranks_for, start_for
from sonde.core.survey_entry import Call, Compared, Judgement, SurveyEntry

if TYPE_CHECKING:
    import xarray as xr

    from sonde.core.launch.measured import Measured

WORKLOAD = "ior:-a MPIIO -c -t 1m -e"
BLOCK_BYTES = 8 << 20  # for each rank: enough to be split, and quick to write
TRACED_ROUNDS = (
    2  # to see the layers; the rest of the budget is for rates, which runs without the tracer tell
)
LEAST_S = 1.0  # below this not even one run fits: starting two ranks and making a dataset of a trace takes that long


class IoSurvey(SurveyEntry):
    """The quick survey of io."""

    weight = 0.6
    spread = 2.0

    def needs_s(self, call: Call) -> float:
        from sonde.io.record import run_request
        from sonde.io.study import run

        start_for(call, run.LOAD)
        run_request.library()
        return 2.5

    def measure(self, call: Call) -> Measured:
        import time

        from sonde.io.maps import run_maps
        from sonde.io.maps.layers import table_of
        from sonde.io.record import run_request
        from sonde.io.study import plan as study_plan
        from sonde.io.study import run

        start = start_for(call, run.LOAD)
        run_request.library()
        left_s = call.budget_s - (time.monotonic() - call.began)
        if left_s < LEAST_S:
            raise UsageError(
                "io.budget_too_short",
                f"{left_s:.1f} s are too short for one run of a benchmark",
                "use a longer --budget",
            )
        layers = run_maps.chosen((), (), False)
        cells = study_plan.cells_of(
            [study_plan.read_workload(WORKLOAD)],
            [ranks_for(call) * BLOCK_BYTES],
            [study_plan.NO_IO],
            [()],
            [str(call.folder.resolve())],
            [""],
            ranks_for(call),
        )
        plan = study_plan.Plan(
            cells,
            ranks_for(call),
            rounds=12,
            traced_rounds=TRACED_ROUNDS,
            rates_first=True,
            seed=call.seed,
            layers=table_of(layers),
        )
        request = run.Request(
            plan, start, layers, call.folder / "io.nc", call.command, call.budget_s, call.began, limit_s=60.0
        )
        return run.measure(request, call.progress())

    def judge(self, tree: xr.DataTree, name: str) -> Judgement:
        from sonde.io.study import verdict

        summary = tree["summary"].to_dataset().load()
        # The speed of a disk is no fault of the machine: `check` must not fail because of it.
        return Judgement(verdict.sentence(summary), (), verdict.sound(summary))

    def compare(self, before: xr.DataTree, now: xr.DataTree, names: tuple[str, str]) -> Compared:
        from sonde.core import dataset
        from sonde.io.study import compare as study_compare

        machine = (dataset.attrs(before), dataset.attrs(now))
        old, new = (tree["summary"].to_dataset().load() for tree in (before, now))
        found = study_compare.diff(old, new, names, machine=machine)
        return Compared(found.findings, found.sentence(names[1]) if found.blunt else "")

    def drains(self, finding: Finding) -> bool:
        return False  # a slow file system is that of every host that has it
