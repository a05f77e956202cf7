"""sonde power workflow: check, run, show, cancel."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde.core.errors import Exit, UsageError
from sonde.core.options import common
from sonde.core.outcome import Outcome, Table
from sonde.core.units import format_duration, format_power
from sonde.power.cli_options import CONFIG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sonde.power.workflows.workflow import Step, Workflow

LOOK_S = 0.5
LOST_S = 60.0  # a run that gives no answer for this time is no longer followed
WORKFLOW = click.argument("file", metavar="FILE.toml", type=click.Path(path_type=Path))


@click.group()
def workflow() -> None:
    """Jobs that wait for each other, from a TOML file."""


def _read(file: Path) -> Workflow:
    from sonde.power.workflows.workflow import LONGEST, read

    try:
        with file.open("rb") as opened:
            raw = opened.read(LONGEST + 1)
        return read(raw.decode(), str(file))
    except OSError as error:
        raise UsageError(
            "power.no_file",
            f"{file}: {(error.strerror or str(error)).lower()}",
            "give the path of a workflow's TOML file",
        ) from None
    except UnicodeDecodeError:
        raise UsageError("power.bad_toml", f"{file} is not UTF-8", "save it as UTF-8") from None


@workflow.command()
@common()
@WORKFLOW
def check(file: Path) -> Outcome:
    """Check a workflow file, and show what would be run.

    \b
    sonde power workflow check study.toml
    """
    parsed = _read(file)
    return Outcome("power", "workflow check", _plan(parsed), values=_values(parsed))


def _plan(parsed: Workflow) -> str:
    longest: dict[str, int] = {}
    for name, step in parsed.steps.items():
        longest[name] = 1 + max((longest[other] for other in step.waits_for), default=0)
    count = len(parsed.steps)
    return (
        f"{parsed.name}: {count} job{'' if count == 1 else 's'}, at most {max(longest.values())} in sequence"
    )


def _values(parsed: Workflow) -> dict[str, Any]:
    jobs = [
        {
            "name": step.name,
            "command": list(step.command),
            "nodes": step.nodes,
            "power_w": step.demand_w or None,
            "after": list(step.after),
            "after_any": list(step.after_any),
            "retries": step.on_failure.retries,
            "then": step.on_failure.then,
        }
        for step in parsed.steps.values()
    ]
    return {"name": parsed.name, "jobs": jobs}


def _steps(steps: Sequence[Step]) -> Table:
    of_base: dict[str, set[str]] = {}
    for step in steps:
        of_base.setdefault(step.base, set()).add(step.name)
    base_of = {step.name: step.base for step in steps}

    def folded(names: Sequence[str], how: str) -> list[str]:
        """The names, with all jobs of a loop replaced by the loop's name."""
        whole = {base_of[name] for name in names if of_base[base_of[name]] <= set(names)}
        shown = dict.fromkeys(base_of[name] if base_of[name] in whole else name for name in names)
        return [f"{name}{how}" for name in shown]

    def waits(step: Step) -> str:
        names = [*folded(step.after, ""), *folded(step.after_any, " (any end)")]
        return (
            ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") if names else "–"
        )

    rows = [
        (
            step.name,
            str(step.nodes),
            format_power(step.demand_w) if step.demand_w else "–",
            f"retry {step.on_failure.retries}, {step.on_failure.then}"
            if step.on_failure.retries
            else step.on_failure.then,
            waits(step),
        )
        for step in steps
    ]
    return Table("Jobs", ("job", "nodes", "power", "on failure", "after"), rows, (1, 2))


@workflow.command()
@common(own_config=True)
@WORKFLOW
@CONFIG
@click.option(
    "--id", "run_id", default="", metavar="ID", help="Run id; a repeated submission with it is the same run."
)
@click.option("--detach", is_flag=True, help="Submit the workflow, and do not wait for its end.")
def run(file: Path, config_path: Path, run_id: str, detach: bool) -> Outcome:
    """Submit a workflow to the workflow engine, wait for its end, and report time and energy of its jobs.

    The run goes on without this command: Ctrl-C leaves it running, and 'show' reports its progress. Exit code 4: not
    all jobs ended well.

    \b
    sonde power workflow run study.toml --config power.toml
    """
    import secrets

    from sonde.power.jobs import run_proof
    from sonde.power.stack import run_bus
    from sonde.power.stack.run_state import own_user
    from sonde.power.workflows import run_workflow_bus

    parsed = _read(file)
    name = re.sub(r"^[^A-Za-z0-9]+", "", parsed.name)[:30] or "run"
    called = run_id or f"{name}-{secrets.token_hex(4)}"
    body = {
        "order": "RUN_WORKFLOW",
        "run": called,
        "user": own_user()[:64],
        "path": str(file.absolute()),
        "text": parsed.text,
    }
    stack = run_bus.load(config_path)
    with run_workflow_bus.open_bus(stack, "sonde") as bus:
        (state,) = run_workflow_bus.ask(
            bus, run_workflow_bus.SET, run_proof.proven(stack.users, run_workflow_bus.SET, body)
        )
        if detach:
            outcome = _outcome("run", state)
            outcome.verdict = f"{called} is running: {len(parsed.steps)} jobs"
            outcome.exit = Exit.DONE
            outcome.lines = [
                "To see its progress:",
                f"  sonde power workflow show {called} --config {config_path}",
            ]
            return outcome
        try:
            state = _follow(bus, called, state)
        except KeyboardInterrupt:
            outcome = _outcome("run", state)
            outcome.verdict = f"{called} is still running: {state['over']} of {state['total']} jobs are over"
            outcome.exit = Exit.INTERRUPTED
            outcome.lines = ["To end it:", f"  sonde power workflow cancel {called} --config {config_path}"]
            return outcome
    return _outcome("run", state)


def _follow(bus: Any, called: str, state: dict[str, Any]) -> dict[str, Any]:
    """Wait until the run is over. A restarted engine goes on with it, so a missing answer is no end."""
    import time

    from sonde.core.errors import EnvironmentFailure
    from sonde.power.workflows import run_workflow_bus
    from sonde.power.workflows.workflow_run import GOING

    heard = time.monotonic()
    while state["state"] in GOING:
        time.sleep(LOOK_S)
        try:
            (state,) = run_workflow_bus.ask(bus, run_workflow_bus.GET, {"ask": "GET_WORKFLOW", "run": called})
            heard = time.monotonic()
        except EnvironmentFailure as error:
            if error.code != "power.no_answer" or time.monotonic() - heard > LOST_S:
                raise
    return state


@workflow.command()
@common(own_config=True)
@click.argument("what", metavar="FILE|ID")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    envvar="SONDE_POWER_CONFIG",
    metavar="FILE",
    help="The power stack's configuration; also by SONDE_POWER_CONFIG. Not needed for a file.",
)
def show(what: str, config_path: Path | None) -> Outcome:
    """Show the jobs of a workflow's file, or the progress of a run with time and energy of its jobs.

    \b
    sonde power workflow show study.toml
    sonde power workflow show study-1f0a22c7 --config power.toml
    """
    if Path(what).is_file() or what.endswith(".toml"):
        parsed = _read(Path(what))
        table = _steps(list(parsed.steps.values()))
        return Outcome("power", "workflow show", _plan(parsed), values=_values(parsed), tables=[table])
    if config_path is None:
        raise UsageError(
            "power.no_config",
            f"{what} is not a file, and no power stack was given",
            "give --config power.toml",
        )
    from sonde.power.stack import run_bus
    from sonde.power.workflows import run_workflow_bus

    with run_workflow_bus.open_bus(run_bus.load(config_path), "sonde") as bus:
        (state,) = run_workflow_bus.ask(bus, run_workflow_bus.GET, {"ask": "GET_WORKFLOW", "run": what})
    outcome = _outcome("show", state)
    outcome.exit = Exit.DONE
    return outcome


@workflow.command()
@common(own_config=True)
@click.argument("run_id", metavar="ID")
@CONFIG
@click.option("--reason", default="", metavar="TEXT", help="Reason; it is passed on to the jobs.")
def cancel(run_id: str, config_path: Path, reason: str) -> Outcome:
    """Cancel a run: no more of its jobs are submitted, and its running jobs are ended.

    \b
    sonde power workflow cancel study-1f0a22c7 --config power.toml
    """
    from sonde.power.jobs import run_proof
    from sonde.power.stack import run_bus
    from sonde.power.stack.run_state import own_user
    from sonde.power.workflows import run_workflow_bus

    body = {"order": "CANCEL_WORKFLOW", "run": run_id, "user": own_user()[:64], "reason": reason[:256]}
    stack = run_bus.load(config_path)
    with run_workflow_bus.open_bus(stack, "sonde") as bus:
        (state,) = run_workflow_bus.ask(
            bus, run_workflow_bus.SET, run_proof.proven(stack.users, run_workflow_bus.SET, body)
        )
    outcome = _outcome("cancel", state)
    outcome.verdict = f"{run_id} is cancelled: {state['over']} of {state['total']} jobs are over"
    outcome.exit = Exit.DONE
    return outcome


def _number(value: Any) -> float | None:
    return float(value) if math.isfinite(float(value)) else None


def _outcome(verb: str, state: dict[str, Any]) -> Outcome:
    """The result of a run, or its progress."""
    from sonde.power.monitor.verdict import joules

    jobs = [
        {**job, "energy_j": _number(job["energy_j"]), "seconds": _number(job["seconds"])}
        for job in state["jobs"]
    ]
    energy = _number(state["energy_j"])
    rows = [
        (
            str(job["name"]),
            str(job["told"] or job["state"])
            if job["state"] in ("submitting", "accepted")
            else str(job["state"]),
            str(job["attempt"]) if job["attempt"] else "–",
            format_duration(job["seconds"]) if job["seconds"] is not None else "–",
            joules(job["energy_j"]) if job["energy_j"] is not None else "–",
        )
        for job in jobs
    ]
    well = sum(job["state"] == "ended" for job in jobs)
    of_energy = f", {joules(energy)}" if energy is not None else ""
    so_far = f"{state['over']} of {state['total']} jobs are over{of_energy}"
    verdict = {
        "running": f"{state['run']} is running: {so_far}",
        "cancelling": f"{state['run']} is being cancelled: {so_far}",
        "ended": f"{state['run']} ended well: {state['total']} jobs{of_energy}",
        "failed": f"{state['run']} failed: {well} of {state['total']} jobs ended well{of_energy}",
        "cancelled": f"{state['run']} was cancelled: {well} of {state['total']} jobs ended well{of_energy}",
    }[str(state["state"])]
    outcome = Outcome(
        "power",
        f"workflow {verb}",
        verdict,
        complete=state["state"] == "ended",
        values={key: state[key] for key in ("run", "name", "user", "state", "trouble", "total", "over")}
        | {"energy_j": energy, "jobs": jobs},
        tables=[Table("Jobs", ("job", "state", "attempts", "time", "energy"), rows, (2, 3, 4), names=(0,))],
        lines=[f"{job['name']}: {job['why']}" for job in jobs if job["why"]],
        sound=state["state"] == "ended",
    )
    if state["trouble"]:
        outcome.lines.append(f"Trouble: {state['trouble']}")
    if state["state"] in ("failed", "cancelled"):
        outcome.exit = Exit.INCOMPLETE
    return outcome


COMMANDS = (workflow,)
