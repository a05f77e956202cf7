"""sonde power run, show."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonde.core.deadline import left_of, within
from sonde.core.errors import Exit
from sonde.core.options import FILE, common, settings
from sonde.core.outcome import Outcome
from sonde.power.cli_options import CONFIG

if TYPE_CHECKING:
    from sonde.core.launch.measured import Measured


@click.command()
@common("output", "budget", "dry_run", own_config=True)
@CONFIG
def run(config_path: Path, output: Path | None, budget_s: float | None, dry_run: bool) -> Outcome:
    """Record a power stack's telemetry for a while, and report whether its budget was held.

    It only listens: the caps are the same as without it. --budget is the duration, 60 s by default.

    \b
    sonde power run --config power.toml --budget 10min -o power.nc
    """
    from sonde.core.launch.start import replaced
    from sonde.core.units import format_duration
    from sonde.power.recording import run_record
    from sonde.power.stack.run_bus import load

    stack = load(config_path)
    duration = 60.0 if budget_s is None else budget_s
    out = run_record.output_path(output, stack.cluster)
    gone = replaced(out)
    if dry_run:
        rows = [
            ("cluster", stack.cluster),
            ("nodes", str(len(stack.nodes))),
            ("time", format_duration(duration)),
            ("dataset", str(out)),
        ]
        return Outcome.dry_run("power", "run", [rows], [], {"nodes": [n.name for n in stack.nodes]}, gone)
    began = settings().began
    request = run_record.Request(
        stack,
        out,
        ("sonde", *sys.argv[1:]),
        left_of(duration, began),
        deadline=within(duration, began),
    )
    measured = run_record.measure(request, settings().bar("power run", duration))
    outcome = outcome_of(measured.paths[0], "run")
    outcome.warnings = [*gone, *outcome.warnings]
    return end(outcome, measured)


def end(outcome: Outcome, measured: Measured) -> Outcome:
    if measured.interrupted:
        outcome.tell_interrupted(measured.paths)
    elif not outcome.complete:
        outcome.exit = Exit.INCOMPLETE
    return outcome


@click.command()
@common()
@FILE
def show(file: Path) -> Outcome:
    """Show a recording: caps and power against the budget, leases, energy, traffic.

    \b
    sonde power show power.nc
    """
    return outcome_of(file, "show")


def outcome_of(path: Path, verb: str) -> Outcome:
    """The outcome for a dataset of this room."""
    import sonde
    from sonde.core import dataset
    from sonde.power.recording import verdict

    with sonde.open(path) as tree:
        summary = dataset.summary_of(tree, "power", path)
        warnings = dataset.warnings_of(tree)
        complete = bool(tree.attrs.get("complete", 1))
        stop_reason = str(tree.attrs.get("stop_reason", "unknown"))
    return Outcome(
        "power",
        verb,
        verdict.sentence(summary),
        schema="power/1",
        dataset=str(path),
        complete=complete,
        findings=verdict.findings(summary, str(path)),
        warnings=warnings,
        values={"stop_reason": stop_reason, **verdict.values(summary)},
        tables=verdict.tables(summary),
        sound=verdict.sound(summary),
    )


COMMANDS = (run, show)
