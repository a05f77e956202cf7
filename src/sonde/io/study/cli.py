"""sonde io study: benchmarks in several configurations of the stack, interleaved."""

from __future__ import annotations

import secrets
import sys
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde.core.errors import Exit, UsageError, typed
from sonde.core.options import DURATION, BuiltinType, Whole, common, settings
from sonde.core.outcome import Outcome
from sonde.io.maps.cli_options import LAYERS, MAPS, chosen

if TYPE_CHECKING:
    from sonde.core.launch.start import Start
    from sonde.io.study.plan import Plan

DEFAULT_BUDGET_S = 300.0


class WorkloadText(BuiltinType):
    """A benchmark: "ior:-a MPIIO -c -t 1m". Value: Workload."""

    name = "workload"
    allowed = "ior:OPTIONS, bt-io:OPTIONS, real:COMMAND"

    def read(self, text: str) -> Any:
        from sonde.io.study.plan import read_workload

        return read_workload(text)


class HintsText(BuiltinType):
    """Hints: "romio_cb_write=disable,cb_nodes=2", or none. Value: tuple of pairs."""

    name, allowed = "hints", "NAME=VALUE, comma-separated, or none"

    def read(self, text: str) -> Any:
        from sonde.io.study.plan import read_hints

        return read_hints(text)


class SizeList(BuiltinType):
    """Bytes: "64MiB,1GiB". Value: tuple of int."""

    name, allowed = "sizes", "sizes such as 64MiB,1GiB"

    def read(self, text: str) -> tuple[int, ...]:
        from sonde.core.units import parse_size

        return tuple(dict.fromkeys(parse_size(part) for part in text.split(",")))


class NameList(BuiltinType):
    """Names: "romio321,ompio". Value: tuple of str."""

    name, allowed = "names", "comma-separated names"

    def read(self, text: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not found:
            raise UsageError("io.no_component", "it has no name", "write them like romio321,ompio")
        return found


@click.command()
@common("output", "launcher", "hosts", "ntasks", "budget", "seed", "dry_run")
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    type=WorkloadText(),
    metavar="KIND:OPTIONS",
    help='"ior:-a MPIIO -c -t 1m", "bt-io:--class W", or another\'s program: '
    '"real:ior -t 1m -b {block}"; may be repeated.',
)
@click.option(
    "--size",
    "sizes",
    type=SizeList(),
    metavar="LIST",
    help="Bytes of a benchmark's file or files: 64MiB,1GiB.",
)
@click.option(
    "--io",
    "ios",
    type=NameList(),
    metavar="LIST",
    help="Open MPI's components for MPI-IO: romio321,ompio.  [default: all that exist]",
)
@click.option(
    "--hints",
    multiple=True,
    type=HintsText(),
    metavar="HINTS",
    help="Hints for MPI-IO: romio_cb_write=disable,cb_nodes=2, or none; may be repeated, one configuration each.",
)
@click.option(
    "--place",
    "places",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder for the files, one on each file system; may be repeated.  [default: here]",
)
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="NAME",
    help="A virtual cluster that is up, or host; may be repeated.  [default: host]",
)
@click.option("--repetitions", type=Whole(1), metavar="N", help="Maximum number of rounds.  [default: 10]")
@click.option(
    "--traced-rounds",
    type=Whole(1),
    metavar="N",
    help="Number of rounds that also run each cell under the tracer.  [default: 6]",
)
@click.option("--no-limits", is_flag=True, help="Do not measure disks and networks alone.")
@click.option(
    "--keep-traces",
    "keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Store the first trace of each cell in this folder.",
)
@click.option(
    "--timeout",
    "limit_s",
    type=DURATION,
    default="10min",
    show_default=True,
    metavar="TIME",
    help="Time limit for one run.",
)
@LAYERS
@MAPS
def study(
    output: Path | None,
    launcher: str,
    hosts: str | None,
    ntasks: int | None,
    budget_s: float | None,
    seed: int | None,
    dry_run: bool,
    workloads: tuple[Any, ...],
    sizes: tuple[int, ...] | None,
    ios: tuple[str, ...] | None,
    hints: tuple[tuple[tuple[str, str], ...], ...],
    places: tuple[Path, ...],
    clusters: tuple[str, ...],
    repetitions: int | None,
    traced_rounds: int | None,
    no_limits: bool,
    keep: Path | None,
    limit_s: float,
    names: tuple[str, ...] | None,
    maps: tuple[Path, ...],
) -> Outcome:
    """Measure benchmarks in several configurations of the I/O stack, and where their time goes.

    A cell is a benchmark, a size, a component, hints, a place and a cluster. Each round runs every cell once without
    the tracer, for its rate; the first rounds also run it with the tracer, to see where the time goes. Between these
    runs the disks, and the networks of clusters, are measured alone. The order is random. The study takes at most
    --budget (5 min by default); Ctrl-C keeps the results so far.

    \b
    sonde io study --workload "ior:-a MPIIO -c -t 1m -e" --size 64MiB,256MiB
    sonde io study --workload bt-io: --ntasks 4 --io romio321 \\
      --hints none --hints romio_cb_write=disable
    """
    began = settings().began
    from sonde.core import hostlist
    from sonde.core.launch.start import default_ntasks, output_path, prepare, replaced
    from sonde.io.maps.layers import table_of
    from sonde.io.study import plan as study_plan
    from sonde.io.study import run

    chosen_layers = chosen(names, maps)
    start = prepare("io", run.LOAD, launcher, hostlist.expand(hosts) if hosts else ())
    ranks = default_ntasks() if ntasks is None else ntasks
    run.check_components(ios or (), start.mpi)
    asked = ios or run.components(start.mpi) or (study_plan.NO_IO,)
    where = [str(place.resolve()) for place in places or (Path(),)]
    if clusters and hosts:
        raise UsageError("io.two_places", "--hosts and --cluster exclude each other", "leave out one of them")
    benchmarks = workloads or tuple(study_plan.read_workload(text) for text in study_plan.DEFAULT_WORKLOADS)
    unread = study_plan.unread_hints(benchmarks, asked, hints)
    cells = study_plan.cells_of(
        benchmarks,
        sizes or (() if workloads else (_default_size(ranks),)),
        asked,
        hints or ((),),
        tuple(dict.fromkeys(where)),
        tuple(dict.fromkeys("" if name == "host" else name for name in clusters)) or ("",),
        ranks,
    )
    plan = study_plan.Plan(
        cells,
        ranks,
        rounds=repetitions or study_plan.ROUNDS,
        traced_rounds=traced_rounds or study_plan.TRACED_ROUNDS,
        limits=not no_limits,
        seed=secrets.randbits(32) if seed is None else seed,
        layers=table_of(chosen_layers),
    )
    run.check_places([Path(place) for place in dict.fromkeys(where)], max(_bytes(plan)))
    run.check_clusters([cell.cluster for cell in cells])
    out = output_path("io", output)
    gone = replaced(out)
    budget = budget_s or DEFAULT_BUDGET_S
    if dry_run:
        outcome = _dry(plan, start, out, budget)
        outcome.warnings = [*gone, *unread, *outcome.warnings]
        return outcome
    request = run.Request(
        plan, start, chosen_layers, out, ("sonde", *sys.argv[1:]), budget, began, limit_s, keep, unread
    )
    measured = run.measure(request, settings().bar("io study", budget))
    measured.check()
    from sonde.io.cli import told_of

    outcome = told_of(out, "study")
    outcome.warnings = [*gone, *outcome.warnings]
    if not outcome.complete and outcome.exit == Exit.DONE:
        outcome.exit = Exit.INCOMPLETE
    if measured.interrupted:
        outcome.tell_interrupted([out])
    return outcome


def _default_size(ranks: int) -> int:
    """Bytes of the default workload: the size nearest to DEFAULT_BYTES that the ranks can share in transfers of 1
    MiB."""
    from sonde.io.study.plan import DEFAULT_BYTES

    step = ranks << 20
    return max(1, round(DEFAULT_BYTES / step)) * step


def _bytes(plan: Plan) -> list[int]:
    from sonde.io.study.plan import DEFAULT_BYTES, bytes_of

    return [bytes_of(cell, plan.ntasks) or DEFAULT_BYTES for cell in plan.cells]


def _dry(plan: Plan, start: Start, out: Path, budget_s: float) -> Outcome:
    from sonde.core import run_folder
    from sonde.core.units import format_duration
    from sonde.io.study import run

    lines = []
    for cell in plan.cells:
        line = run.line_of(cell, plan, start, run_folder.folder_of(out).resolve())
        lines.append(run.started(line, cell, plan, start, {}, None, cell.place))
    expected, each = plan.expected_s(), [plan.round_s(number) for number in range(plan.rounds)]
    fits = max(1, sum(ends <= budget_s for ends in accumulate(each)))
    traced = min(plan.traced_rounds, plan.rounds)
    rows = [
        ("dataset", str(out)),
        ("cells", f"{len(plan.cells)}"),
        (
            "rounds",
            f"{plan.rounds} at most, {'all' if traced == plan.rounds else traced} of them with a traced run of each "
            "cell, too",
        ),
        ("ranks", str(plan.ntasks)),
        (
            "raw limits of",
            ", ".join(place or f"network of {cluster}" for place, cluster in plan.places()) or "none",
        ),
        (
            "time",
            f"roughly {format_duration(expected)}; within --budget {format_duration(budget_s)} {fits} rounds",
        ),
    ]
    cells = [(f"cell {k}", f"{cell.benchmark}: {cell.stack.name}, {cell.place}"
              + (f", {cell.cluster}" if cell.cluster else "")) for k, cell in enumerate(plan.cells)]  # fmt: skip
    return Outcome.dry_run(
        "io",
        "study",
        [rows, cells],
        lines,
        {
            "dataset": str(out),
            "rounds": plan.rounds,
            "expected_s": expected,
            "cells": plan.as_json()["cells"],
            "commands": [typed(*line) for line in lines],
        },
    )
