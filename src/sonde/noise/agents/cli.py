"""sonde noise agents: the agents with a recipe, the script of one of them, and a trial of it on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sonde.core.errors import Exit, Finding, UsageError, Warning, typed
from sonde.core.options import DURATION, common
from sonde.core.outcome import Outcome, Table
from sonde.core.units import format_duration, format_size

if TYPE_CHECKING:
    from sonde.noise.agents.recipes import AgentPlan, Recipe
    from sonde.noise.agents.run import Attempt


@click.command()
@common()
@click.argument("name", required=False)
@click.option("--period", "period_s", type=DURATION, metavar="TIME", help="The period of the agent.")
@click.option("--try", "trial", is_flag=True, help="Start the agent here, drive, pause, resume and stop it.")
def agents(name: str | None, period_s: float | None, trial: bool) -> Outcome:
    """List the agents that can be measured, or show how one of them is run.

    With a NAME, it shows the agent's script and notes. With --try, the agent runs here for seven periods; the result
    is its use of resources, whether it could be paused, and whether it left anything behind.

    \b
    sonde noise agents
    sonde noise agents collectd
    sonde noise agents node-exporter --try --period 1s
    """
    from sonde.noise.agents.recipes import find_recipe, plan_for, recipe_for

    if name is None:
        for option, given in (("--try", trial), ("--period", period_s is not None)):
            if given:
                raise UsageError(
                    "noise.agent_unnamed",
                    f"{option} needs the name of an agent",
                    f"for example: sonde noise agents collectd {option}{' 1s' if option == '--period' else ''}",
                )
        return _list()
    recipe = find_recipe(name) if not trial else recipe_for(name, _is_program)
    plan = plan_for(name, period_s, _is_program)
    if trial:
        return _try(name, recipe, plan)
    assert recipe is not None
    return _show(recipe, plan)


def _is_program(word: str) -> bool:
    from sonde.noise.agents import run as run_agents

    return run_agents.is_program(word)


def _list() -> Outcome:
    from sonde.core.distribution import family as find_family
    from sonde.noise.agents import run as run_agents
    from sonde.noise.agents.recipes import RECIPES

    family = find_family()
    rows, values = [], []
    for recipe in RECIPES:
        lacks = run_agents.missing(recipe)
        rows.append((recipe.name, recipe.what, "-" if lacks else "✓", recipe.packages.get(family, "-")))
        values.append(
            _facts(recipe) | {"here": not lacks, "missing": lacks, "install": recipe.install(family)}
        )
    here = sum(row[2] == "✓" for row in rows)
    return Outcome(
        "noise",
        "agents",
        f"{len(rows)} recipes; {here} of them can run here; any other agent can be measured by its command",
        tables=[
            Table("Agents that Sonde knows how to run", ("name", "what it runs", "here", "package"), rows)
        ],
        lines=["To see what an agent uses here:", "  sonde noise agents node-exporter --try"],
        values={"agents": values},
    )


def _facts(recipe: Recipe) -> dict[str, Any]:
    return {
        "name": recipe.name,
        "what": recipe.what,
        "period_s": recipe.period_s,
        "usual_s": recipe.usual_s,
        "pause": recipe.pause,
        "tested": recipe.tested,
        "notes": list(recipe.notes),
    }


def _show(recipe: Recipe, plan: AgentPlan) -> Outcome:
    from sonde.core.distribution import family
    from sonde.noise.agents import run as run_agents

    lacks, install = run_agents.missing(recipe), recipe.install(family())
    pauses = {
        "stop-cont": "SIGSTOP and SIGCONT; it keeps its state",
        "start-stop": "ending it and starting it again",
    }
    rows = [
        ("period", f"{format_duration(plan.period_s)}; in normal use {format_duration(recipe.usual_s)}"),
        ("driven by", plan.drive or "its own timer"),
        ("ready when", plan.ready or "it runs"),
        ("paused by", pauses[plan.pause]),
        ("ended by", plan.stop or f"SIGTERM, SIGKILL after {format_duration(plan.grace_s)}"),
        ("here", f"missing: {', '.join(lacks)}" if lacks else "✓"),
    ]
    if lacks:
        rows.append(("to install it", install or "from its makers, or load a module that provides it"))
    lines = [f"note: {note}" for note in recipe.notes]
    if not recipe.tested:
        lines.append("note: Sonde's tests do not run this recipe; try it with --try before you rely on it.")
    lines += ["Script; $SONDE_AGENT_DIR is the agent's own folder:"]
    lines += [f"  {line}" for line in plan.command.strip().splitlines()]
    return Outcome(
        "noise",
        "agents",
        f"{recipe.name}: {recipe.what}",
        tables=[Table("", ("", ""), rows)],
        lines=lines,
        values=_facts(recipe)
        | {
            "here": not lacks,
            "missing": lacks,
            "install": install,
            "script": plan.command,
            "ready": plan.ready,
            "drive": plan.drive,
            "asked_period_s": plan.period_s,
        },
        warnings=already(recipe),
    )


def already(recipe: Recipe) -> list[Warning]:
    """A warning when the agent already runs here, because then it runs in every block."""
    from sonde.noise.agents import run as run_agents

    if not (pids := run_agents.running(recipe)):
        return []
    found = f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids[:4]))}"
    return [
        Warning(
            "noise.agent_runs_already",
            f"{recipe.name} already runs here ({found}); its cost is in every block, and Sonde starts a second one",
            "stop the service while the agent is measured",
        )
    ]


def _try(name: str, recipe: Recipe | None, plan: AgentPlan) -> Outcome:
    from sonde.noise.agents import run as run_agents

    if recipe is not None:
        run_agents.check_here(recipe)
    trial = run_agents.try_out(plan, recipe.work if recipe else "")
    warnings = already(recipe) if recipe else []
    outcome = Outcome("noise", "agents", tables=[_table(plan, trial)], warnings=warnings)
    outcome.values = {"agent": plan.name or plan.command, "period_s": plan.period_s, "trial": _values(trial)}
    outcome.findings = _wrong(plan, recipe, trial)
    shown = plan.name or name
    if outcome.findings:
        outcome.verdict = f"{shown} cannot be measured as it is"
        outcome.exit = Exit.ENVIRONMENT
    else:
        used = f"{trial.cpu_s / trial.on_s:.2%} of a core"
        outcome.verdict = f"{shown} works, can be paused, and leaves nothing behind; it uses {used}"
        outcome.lines = [
            "To measure its cost for a parallel job:",
            f"  sonde noise run --agent {typed(name)} --budget 60s",
        ]
    return outcome


def _values(trial: Attempt) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(trial), "left": list(trial.left)}


def _table(plan: AgentPlan, trial: Attempt) -> Table:
    periods = trial.on_s / (plan.period_s or plan.drive_period_s)
    processes = _count(trial.processes, "process", "processes")
    threads = _count(trial.threads, "thread", "threads")
    rows = [
        ("ready after", format_duration(trial.start_s), ""),
        ("CPU a period", format_duration(trial.cpu_s / periods), f"{trial.cpu_s / trial.on_s:.3%} of a core"),
        ("wake-ups a period", f"{trial.wakeups / periods:.1f}", f"{processes}, {threads}"),
        ("memory", format_size(trial.rss_bytes), "pages that its processes share count for each process"),
    ]
    if plan.drive:
        size = format_size(round(trial.drive_bytes / trial.drives)) if trial.drives else "-"
        rows.append(("a drive takes", format_duration(trial.drive_s), f"{trial.drives} done, {size} each"))
    if trial.work_bytes:
        rows.append(("writes a period", format_size(round(trial.work_bytes / periods)), ""))
    rows += [
        ("paused", "✓" if trial.held else "✗", f"{format_duration(trial.paused_cpu_s)} of CPU while paused"),
        (
            "supervisor's CPU a period",
            format_duration(trial.keeper_cpu_s / periods),
            "for driving, pausing and watching the agent",
        ),
        ("left behind", ", ".join(trial.left) or "nothing", ""),
    ]
    return Table(
        f"{plan.name or plan.command}, {format_duration(trial.on_s)}", ("", "", ""), rows, right=(1,)
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _wrong(plan: AgentPlan, recipe: Recipe | None, trial: Attempt) -> list[Finding]:
    found = []
    if not trial.held:
        found.append(
            Finding("noise.agent_not_paused", "some of its processes were not stopped during the pause")
        )
    if plan.drive and not trial.drives:
        why = trial.drive_failure or "no drive was due"
        found.append(Finding("noise.agent_not_driven", f"no drive of it succeeded: {why}"))
    if recipe is not None and recipe.work and trial.work_bytes <= 0:
        found.append(Finding("noise.agent_idle", f"nothing was written to {recipe.work} while it was on"))
    if trial.left:
        found.append(Finding("noise.agent_left", f"left behind after its end: {', '.join(trial.left)}"))
    return found
