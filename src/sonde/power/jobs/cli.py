"""sonde power submit, queue, cancel, hold, release."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonde.core.options import DURATION, SIZE, Whole, common
from sonde.core.outcome import Outcome, Table
from sonde.core.units import format_duration, format_power
from sonde.power.cli_options import CONFIG, Power

if TYPE_CHECKING:
    from sonde.power.jobs.jobs import JobState

PASSED_ON = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "USER")


def _nodes_of(state: JobState) -> str:
    from sonde.core import hostlist

    return hostlist.fold(part.node for part in state.parts) if state.parts else "–"


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@common(own_config=True)
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@CONFIG
@click.option("--nodes", type=Whole(1), default=1, show_default=True, metavar="N", help="Number of nodes.")
@click.option("--hosts", default="", metavar="LIST", help="These nodes and no others: n[001-004].")
@click.option("--cores", type=Whole(1), metavar="N", help="Cores of each node; default: whole nodes.")
@click.option("--memory", type=SIZE, metavar="SIZE", help="Memory of each node.")
@click.option("--disks", type=Whole(1), metavar="N", help="Disks of each node.")
@click.option("--nics", type=Whole(1), metavar="N", help="NICs of each node.")
@click.option("--time", "limit_s", type=DURATION, metavar="TIME", help="Time limit; default: the queue's.")
@click.option("--power", "power_w", type=Power(), metavar="POWER", help="Guaranteed power of each node.")
@click.option("--demand", "demand_w", type=Power(), metavar="POWER", help="Expected power of each node.")
@click.option("--queue", default="", metavar="NAME", help="Queue; default: the default queue.")
@click.option("--name", default="", metavar="NAME", help="Name; default: the command.")
@click.option(
    "--job-output",
    default="",
    metavar="FILE",
    help="File for the output; several nodes append to one file.",
)
@click.option(
    "--env", "env", multiple=True, metavar="NAME[=VALUE]", help="Pass on this variable too; may be repeated."
)
@click.option(
    "--id", "job", default="", metavar="ID", help="Job id; a repeated submission with it is the same job."
)
def submit(
    command: tuple[str, ...],
    config_path: Path,
    nodes: int,
    hosts: str,
    cores: int | None,
    memory: int | None,
    disks: int | None,
    nics: int | None,
    limit_s: float | None,
    power_w: float | None,
    demand_w: float | None,
    queue: str,
    name: str,
    job_output: str,
    env: tuple[str, ...],
    job: str,
) -> Outcome:
    """Submit a job: a command, and the resources it needs.

    The job gets HOME, LANG, LOGNAME, PATH, SHELL, TERM and USER from this environment, and the variables of --env.

    \b
    sonde power submit --config power.toml --power 250W -- ./solver x.dat
    """
    import secrets

    from sonde.core import hostlist
    from sonde.power.jobs.jobs import RESERVED, Spec
    from sonde.power.stack import run_bus
    from sonde.power.stack.run_state import own_user

    variables = [
        one if "=" in one else f"{one}={os.environ[one]}" for one in env if "=" in one or one in os.environ
    ]
    variables += [f"{one}={os.environ[one]}" for one in PASSED_ON if one in os.environ]
    fresh = f"{own_user()[:40]}-{secrets.token_hex(6)}"
    if RESERVED.fullmatch(fresh):  # user 'slurm', and a number without letters
        fresh += "-"
    spec = Spec(
        job or fresh,
        command,
        own_user(),
        name or Path(command[0]).name,
        queue,
        tuple(dict((one.partition("=")[0], one) for one in reversed(variables)).values()),
        str(Path.cwd()),
        str(Path(job_output).absolute()) if job_output else "",
        nodes,
        tuple(hostlist.expand(hosts)) if hosts else (),
        cores or 0,
        memory or 0,
        disks or 0,
        nics or 0,
        limit_s or 0.0,
        0.0,
        power_w or 0.0,
        demand_w or 0.0,
    )
    from sonde.power.jobs.jobs import to_plain

    state = _ordered(run_bus.load(config_path), {"order": "SUBMIT_JOB", "spec": to_plain(spec)})
    text = f"{state.job} is {state.state} in queue {state.spec.queue}"
    return Outcome("power", "submit", text, values=_values(state))


def _ordered(stack: Any, body: dict[str, Any]) -> JobState:
    from sonde.power.jobs import jobs, run_jobs_bus, run_proof

    proven = run_proof.proven(stack.users, jobs.SCHEDULER_SET, body)
    with run_jobs_bus.open_bus(stack, "sonde") as bus:
        reply = run_jobs_bus.ask(bus, jobs.SCHEDULER_SET, proven)
    return jobs.JobState.of(reply.body["jobs"][0])


def _values(state: JobState) -> dict[str, Any]:
    from sonde.power.jobs.jobs import to_plain

    values: dict[str, Any] = to_plain(state)
    values.update({"job": state.job, "priority": round(state.priority, 6)})
    return values


@click.command()
@common(own_config=True)
@click.argument("job", metavar="[JOB]", default="")
@CONFIG
@click.option("--user", default="", metavar="NAME", help="Show only this user's jobs.")
@click.option("--queue", "of_queue", default="", metavar="NAME", help="Show only this queue's jobs.")
@click.option("--all", "over", is_flag=True, help="Also show jobs that are over.")
def queue(job: str, config_path: Path, user: str, of_queue: str, over: bool) -> Outcome:
    """Show which jobs run and wait, and why; with a job id all about that job.

    \b
    sonde power queue --config power.toml
    """
    import math
    import time

    from sonde.power.jobs import jobs, run_jobs_bus
    from sonde.power.stack import run_bus

    with run_jobs_bus.open_bus(run_bus.load(config_path), "sonde") as bus:
        query = {"ask": "GET_JOB" if job else "GET_QUEUE", "job": job, "user": user, "queue": of_queue}
        body = run_jobs_bus.ask(bus, jobs.SCHEDULER_GET, {**query, "over": over}).body
    states = [jobs.JobState.of(one) for one in body["jobs"]]
    running = sum(state.active for state in states)
    waiting = sum(not state.active and not state.over for state in states)
    numbers = {
        name: float(body[name]) if math.isfinite(body[name]) else None
        for name in ("budget_w", "committed_w", "guaranteed_w")
    }
    budget, guaranteed = numbers["budget_w"], numbers["guaranteed_w"]
    verdict = f"{running} jobs have nodes, {waiting} jobs wait"
    if job:
        verdict = f"{job} is {states[0].state}"
    elif budget is not None and guaranteed is not None:
        verdict += (
            f"; guarantees and safe caps add up to {format_power(guaranteed)} of {format_power(budget)}"
        )
    listed = [_values(state) for state in states]
    outcome = Outcome(
        "power",
        "queue",
        verdict,
        values={
            **numbers,
            "trouble": str(body["trouble"]),
            "forgotten": int(body["forgotten"]),
            "jobs": listed,
        },
    )
    now = time.time()

    def since(at_ns: int) -> str:
        return format_duration(float(round(max(0.0, now - at_ns / 1e9)))) if at_ns else "–"

    rows = [
        (
            state.job,
            state.spec.user,
            state.spec.queue,
            state.state,
            _nodes_of(state) if state.parts else str(state.spec.nodes),
            since(state.started_ns if state.active else state.submitted_ns),
        )
        for state in states
    ]
    if rows:
        outcome.tables.append(Table("Jobs", ("job", "user", "queue", "state", "nodes", "since"), rows, (5,)))
    outcome.lines += [f"{state.job}: {state.reason}" for state in states if state.reason]
    if over and body["forgotten"]:
        outcome.lines.append(f"Removed for lack of room: {body['forgotten']} jobs that are over")
    if body["trouble"]:
        outcome.lines.append(f"Trouble: {body['trouble']}")
    return outcome


def _about_one(verb: str, order: str, what: str) -> click.Command:
    @click.command(verb, help=f"{what}\n\n\b\nsonde power {verb} ada-0123456789ab --config power.toml")
    @common(own_config=True)
    @click.argument("job", metavar="JOB")
    @CONFIG
    def command(job: str, config_path: Path) -> Outcome:
        from sonde.power.stack import run_bus
        from sonde.power.stack.run_state import own_user

        state = _ordered(run_bus.load(config_path), {"order": order, "job": job, "user": own_user()[:64]})
        why = f": {state.reason}" if state.reason else ""
        return Outcome("power", verb, f"{job} is {state.state}{why}", values=_values(state))

    return command


COMMANDS = (
    submit,
    queue,
    _about_one(
        "cancel",
        "CANCEL_JOB",
        "End a job. A waiting job ends at once; a running job gets TERM, and KILL after its grace time.",
    ),
    _about_one("hold", "HOLD_JOB", "Hold a waiting job: it does not start."),
    _about_one("release", "RELEASE_JOB", "Release a held job: it waits for its start again."),
)
