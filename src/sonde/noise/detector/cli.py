"""sonde noise run: whether an agent disturbs a parallel job, and by how much."""

from __future__ import annotations

import math
import secrets
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import click

from sonde.core.errors import Exit, UsageError, Warning, typed
from sonde.core.options import CPUS, DURATION, common, settings
from sonde.core.outcome import Outcome
from sonde.noise import saved
from sonde.noise.agents.recipes import AgentPlan, Pause
from sonde.noise.detector.cli_options import (
    DETECTOR,
    LEVEL,
    PLACEMENTS,
    SOURCE,
    Placements,
    TooShort,
    loop_settings,
    options,
)
from sonde.noise.detector.plan import COMMON_PERIODS_S, OFF, Plan, Variant, design_for, level_text

DEFAULT_BUDGET_S = 60.0


@click.command("run")
@common("output", "launcher", "hosts", "ntasks", "budget", "seed", "dry_run")
@click.option("--level", type=LEVEL, help="Measure the noise source at this level: 1%; 0 for no noise.")
@click.option(
    "--agent", metavar="COMMAND", help="Measure this agent: a recipe (sonde noise agents), or any command."
)
@click.option(
    "--pause",
    type=click.Choice(get_args(Pause)),
    help="How the agent is switched off; by default as in its recipe.",
)
@click.option(
    "--period",
    "period_s",
    type=DURATION,
    metavar="TIME",
    help="The agent's period; by default it is measured.",
)
@click.option(
    "--cpus",
    type=CPUS,
    metavar="LIST",
    help="CPUs for the agent: 0,2-5, or all. Default for the noise source: the last CPU.",
)
@click.option(
    "--compare", type=Placements(), metavar="LIST", help=f"Compare placements: {','.join(PLACEMENTS)}."
)
@options(DETECTOR, SOURCE)
def run(
    output: Path | None,
    launcher: str,
    hosts: str | None,
    ntasks: int | None,
    budget_s: float | None,
    seed: int | None,
    dry_run: bool,
    level: float | None,
    agent: str | None,
    pause: str | None,
    period_s: float | None,
    cpus: tuple[int, ...] | None,
    compare: tuple[str, ...] | None,
    op: str,
    timeout_s: float,
    words: int,
    unsync: bool,
    **loop: Any,
) -> Outcome:
    """Measure whether an agent disturbs a parallel job, by how much, and the smallest detectable cost.

    A loop of collectives runs in blocks for at most --budget (60 s by default). The agent is on in half of the
    blocks, in random order. Exit code 1: the agent causes a slowdown above --matters. Exit code 4: no verdict, because
    the machine is too noisy, the budget is too short, or the interval of the slowdown contains the limit.

    \b
    sonde noise run --level 1% --budget 30s
    sonde noise run --agent node-exporter --budget 60s
    sonde noise run --agent 'my-agent --interval 1' --period 1s
    """
    began = settings().began
    if (level is None) == (agent is None):
        raise UsageError(
            "noise.no_agent" if level is None else "noise.two_agents",
            "no agent was given to measure" if level is None else "--level and --agent were both given",
            "give --level 1% for the noise source, or --agent COMMAND",
        )
    from sonde.core import hostlist
    from sonde.core.launch.start import default_ntasks, output_path, prepare, replaced
    from sonde.noise.detector import run as runs

    number = secrets.randbits(32) if seed is None else seed
    budget = budget_s or DEFAULT_BUDGET_S
    start = prepare("noise", "sonde-noise", launcher, hostlist.expand(hosts) if hosts else ())
    runs.check_cpus(cpus or (), start)
    out = output_path("noise", output)
    warnings = replaced(out)
    if agent is not None:
        target = _agent(agent, pause, period_s, dry_run, budget, warnings)
    else:
        target = _source(level or 0.0, period_s or 1.0, words, number, aligned=not unsync)
    if cpus is None:
        cpus = (runs.last_cpu(),) if level else ()
    if compare:
        variants = _compared(compare, target, words, number, warnings)
    else:
        variants = (OFF, Variant(target.name, target.agent, cpus, target.level))
    plan = Plan(
        variants,
        _design(budget, target.period_s, [variant.share for variant in variants], target.spent_s),
        default_ntasks() if ntasks is None else ntasks,
        op=op,
        seed=number,
        period_s=target.period_s,
        study="compare" if compare else "run",
        labels=target.labels,
        **loop_settings(op, loop),
    )
    if dry_run:
        outcome = _dry(plan, start, out, budget)
        outcome.warnings = [*warnings, *outcome.warnings]
        return outcome
    request = runs.Request(plan, start, out, ("sonde", *sys.argv[1:]), budget, began, timeout_s)
    measured = runs.measure(request, settings().bar("noise run", budget))
    measured.check()
    outcome = outcome_of(measured.paths[0], "run")
    outcome.warnings = [*warnings, *outcome.warnings]
    if measured.interrupted:
        outcome.tell_interrupted(measured.paths)
    return outcome


@dataclass(frozen=True)
class Target:
    """The plan of a run. agent: None for nothing. level: of the noise source; NaN for an agent.

    period_s: 0 where it is unknown. spent_s: time that finding it took. labels: root attributes.
    """

    agent: AgentPlan | None
    name: str
    period_s: float
    level: float = math.nan
    spent_s: float = 0.0
    labels: dict[str, Any] = field(default_factory=dict)


def _source(level: float, period_s: float, words: int, seed: int, *, aligned: bool) -> Target:
    """The noise source at the level of --level; 0: nothing."""
    from sonde.noise.detector import run as runs

    agent = runs.source_plan(level, period_s, words, seed, aligned=aligned) if level > 0 else None
    name = f"noise source {level_text(level)}" if level > 0 else "nothing"
    return Target(agent, name, period_s, level, labels={"level": level, "words": words})


def _agent(
    text: str,
    pause: str | None,
    period_s: float | None,
    dry_run: bool,
    budget: float,
    warnings: list[Warning],
) -> Target:
    """The agent that --agent names. It may add warnings."""
    _design(budget, period_s or 0.0, [1, 1])  # a budget that is too short fails before the agent is watched
    began = time.monotonic()
    agent, period = _agent_plan(text, pause, period_s, dry_run, warnings)
    return Target(agent, agent.name or "agent", period, spent_s=time.monotonic() - began)


def _agent_plan(
    agent: str, pause: str | None, period_s: float | None, dry_run: bool, warnings: list[Warning]
) -> tuple[AgentPlan, float]:
    """The agent that --agent names, and its period, s; 0: unknown. It may add warnings."""
    from sonde.core.units import format_duration
    from sonde.noise.agents.cli import already
    from sonde.noise.agents.recipes import plan_for, recipe_for
    from sonde.noise.agents.run import check_here, is_program
    from sonde.noise.detector import run as runs

    recipe = recipe_for(agent, is_program)
    if recipe is not None:
        check_here(recipe)
        warnings += already(recipe)
    target = plan_for(agent, period_s, is_program).with_changes(pause=pause)
    if recipe is not None or period_s or dry_run:
        return target, target.period_s
    found = runs.find_period(target)
    if found:
        warnings.append(
            Warning(
                "noise.period_found",
                f"the agent's use of CPU time shows a period of {format_duration(found)}",
                "give --period if you know a better value",
            )
        )
    else:
        warnings.append(
            Warning(
                "noise.period_unknown",
                "the period of the agent is unknown, and no steady period was seen in "
                f"{format_duration(runs.WATCH_S)}: common periods were tried",
                "give --period TIME; then smaller effects are detectable",
            )
        )
    return target, found


def _compared(
    names: tuple[str, ...], target: Target, words: int, seed: int, warnings: list[Warning]
) -> tuple[Variant, ...]:
    """One variant for each placement. It may add warnings."""
    from sonde.noise.detector import run as runs

    if target.agent is None:
        raise UsageError(
            "noise.no_agent", "--compare needs an agent or a noise source", "give a --level above 0"
        )
    is_source = not math.isnan(target.level)
    cpu = runs.last_cpu()
    out = [Variant(OFF.name, share=2 if len(names) > 2 else 1)]
    for name in names:
        agent = target.agent
        cpus: tuple[int, ...] = (cpu,)
        if name == "free":
            cpus = ()
        elif name == "sibling":
            cpus = runs.siblings(cpu)
            if not cpus:
                warnings.append(runs.no_smt(cpu))
                continue
        elif name == "sync" and not is_source:
            warnings.append(
                Warning(
                    "noise.no_sync",
                    "an agent's own timers cannot be aligned across nodes, so --compare sync is left out",
                    "compare sync with --level",
                )
            )
            continue
        if is_source and name != "sync":
            agent = runs.source_plan(target.level, target.period_s, words, seed, aligned=False)
        out.append(Variant(name, agent, cpus, target.level))
    if len(out) < 2:
        raise UsageError(
            "noise.nothing_to_compare", "none of these placements is possible here", "try pinned,free"
        )
    return tuple(out)


def _design(budget: float, period_s: float, shares: list[int], spent_s: float = 0.0) -> Any:
    """The design that a budget has time for. If the budget is too short, exit code 4 comes before anything starts."""
    try:
        return design_for(budget, period_s, shares=shares, spent_s=spent_s)
    except UsageError as error:
        raise TooShort(error.code, error.what, error.hint) from None


def _dry(plan: Plan, start: Any, out: Path, budget_s: float) -> Outcome:
    from sonde.core.run_folder import folder_of
    from sonde.core.units import format_duration

    line = start.line(plan.argv(str(folder_of(out).resolve()), budget_s), plan.ntasks, {})
    design = plan.design
    facts: dict[str, Any] = {
        "dataset": str(out),
        "blocks": plan.blocks,
        "block_s": design.block_s,
        "looks_after_pairs": [sum(design.rounds[: k + 1]) for k in range(len(design.rounds))],
        "periods_s": list(design.periods_s or COMMON_PERIODS_S),
        "expected_s": plan.expected_s,
        "command": typed(*line),
    }
    rows = [
        ("dataset", str(out)),
        (
            "blocks",
            f"{plan.blocks} of {format_duration(design.block_s)}, {format_duration(plan.expected_s)} in total",
        ),
        ("variants", ", ".join(variant.name for variant in plan.variants)),
        ("interim tests", f"after {', '.join(map(str, facts['looks_after_pairs']))} pairs"),
        ("folded at", ", ".join(format_duration(p) for p in design.periods_s)),
    ]
    return Outcome.dry_run("noise", "run", [rows], [line], facts, plan.warnings())


def outcome_of(path: Path, verb: str) -> Outcome:
    """The outcome of the dataset of a run that is no study."""
    from sonde.noise.detector import verdict

    read = saved.read(path)
    summary = read.summary
    outcome = saved.outcome_of(read, verb, verdict)
    outcome.findings = found = verdict.findings(summary)
    outcome.sound = verdict.sound(summary)
    if found:
        outcome.exit = Exit.FINDING
    elif not outcome.sound or not read.complete:
        outcome.exit = Exit.INCOMPLETE
    return outcome
