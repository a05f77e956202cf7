"""sonde power demo."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sonde.core.errors import Exit
from sonde.core.options import common, settings
from sonde.core.outcome import Outcome
from sonde.power.recording.cli import end, outcome_of


@click.command()
@common("output", "budget")
def demo(output: Path | None, budget_s: float | None) -> Outcome:
    """Start four simulated nodes under a budget, kill their manager, and show that the budget was held.

    A workflow of four jobs runs meanwhile. Node managers, a system manager and its standby, resource manager, job
    scheduler, job manager, workflow engine, the monitor, and, if installed, the MQTT bridge with mosquitto are real
    processes on their own bus on loopback. This machine's hardware is not touched, and everything is stopped at the
    end. --budget is the duration, 40 s by default. The dataset goes to a new folder among the temporary files, unless
    --output names another place.

    \b
    sonde power demo
    sonde power demo --budget 20s --json
    """
    from sonde.core.launch.start import replaced
    from sonde.power.demo import run as demo_run
    from sonde.power.recording import run_record

    length = 40.0 if budget_s is None else budget_s
    out = run_record.demo_path(output)
    gone = replaced(out)
    bar = settings().bar("power demo", length)
    measured = demo_run.run(out, ("sonde", *sys.argv[1:]), length, bar, settings().began)
    outcome = outcome_of(measured.paths[0], "demo")
    outcome.warnings = [*gone, *outcome.warnings]
    if outcome.findings:
        outcome.exit = Exit.FINDING
    return end(outcome, measured)


COMMANDS = (demo,)
