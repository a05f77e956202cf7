"""sonde noise host: the interruptions of each core, without MPI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonde.core.deadline import left_of, within
from sonde.core.options import CPUS, Duration, common, settings
from sonde.core.outcome import Outcome
from sonde.noise import saved

if TYPE_CHECKING:
    from sonde.noise.host.run import View


class Threshold(Duration):
    """A time with a unit, or "auto". Value: float, s; 0 for auto."""

    allowed = "auto, or times with a unit, such as 1us"

    def read(self, text: str) -> float:
        return 0.0 if text.strip() == "auto" else float(super().read(text))


@click.command("host")
@common("output", "budget", "dry_run")
@click.option("--cpus", type=CPUS, metavar="LIST", help="CPUs to measure: 0,2-3, or all (the default).")
@click.option(
    "--method",
    type=click.Choice(["detour", "fwq", "both"]),
    default="detour",
    show_default=True,
    help="Watch for gaps in a tight loop, time a fixed amount of work, or both in turn.",
)
@click.option(
    "--threshold",
    "threshold_s",
    type=Threshold(unit="us"),
    default="auto",
    metavar="TIME",
    help="Shortest gap that counts as a detour; auto: nine turns of the loop.",
)
def host(
    output: Path | None,
    budget_s: float | None,
    dry_run: bool,
    cpus: tuple[int, ...] | None,
    method: str,
    threshold_s: float,
) -> Outcome:
    """Measure the interruptions of each core: when, how long, how often, and by which program.

    It keeps the measured cores busy for --budget (10 s by default). Ctrl-C saves the data so far.

    \b
    sonde noise host --cpus 0-3 --budget 10s -o host.nc
    sonde noise host --method both
    """
    began = settings().began
    from sonde.core.launch.start import replaced
    from sonde.noise import run_programs
    from sonde.noise.host import run as run_host

    view = run_host.View(cpus or None, method, threshold_s)
    run_host.check(view)
    out = run_programs.output_path(output)
    duration_s = 10.0 if budget_s is None else left_of(budget_s, began)
    warnings = replaced(out)
    if dry_run:
        outcome = _dry(view, out, duration_s)
        outcome.warnings = [*warnings, *outcome.warnings]
        return outcome
    bar = settings().bar("noise host", duration_s)
    measured = run_host.run(view, out, ("sonde", *sys.argv[1:]), duration_s, bar, within(budget_s, began))
    outcome = outcome_of(measured.file.path, "host")
    outcome.warnings = [*warnings, *outcome.warnings]
    return saved.end(outcome, measured)


def outcome_of(path: Path, verb: str) -> Outcome:
    """The outcome of a dataset of kind `host`."""
    from sonde.noise.host import analyse as texts

    return saved.outcome_of(saved.read(path), verb, texts, texts.lines)


def _dry(view: View, out: Path, duration_s: float) -> Outcome:
    from sonde.core.run_folder import folder_of
    from sonde.core.units import format_duration
    from sonde.noise.host import run as run_host
    from sonde.noise.host.run_osnoise import absent

    line = run_host.command(view, folder_of(out), duration_s)
    rows = [
        ("CPUs", ", ".join(map(str, view.measured_cpus))),
        ("method", view.method),
        ("threshold", format_duration(view.threshold_s) if view.threshold_s else "auto"),
        ("time", format_duration(duration_s)),
        ("osnoise tracer", absent() or "available"),
        ("dataset", str(out)),
    ]
    values = {"commands": [line], "cpus": list(view.measured_cpus), "method": view.method}
    return Outcome.dry_run("noise", "host", [rows], [line], values)
