"""sonde noise: the commands. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

import secrets
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click

from sonde.core.errors import Exit, UsageError, Warning, typed
from sonde.core.options import CPUS, DURATION, common, settings
from sonde.core.outcome import Outcome
from sonde.noise import saved
from sonde.noise.agents import AgentPlan, Pause
from sonde.noise.cli_detector import (
    DETECTOR,
    LEVEL,
    PLACEMENTS,
    SOURCE,
    Placements,
    TooShort,
    options,
)
from sonde.noise.plan import COMMON_PERIODS_S, NO_SIZE, OFF, Plan, Variant, design_for, level_text

DEFAULT_BUDGET_S = 60.0


@click.group()
def group() -> None:
    """The cost of a monitoring agent for the jobs on the same nodes."""


# Commands that have their own module: (module, command).
ELSEWHERE: tuple[tuple[str, str], ...] = (
    ("cli_agents", "agents"),
    ("cli_source", "source"),
    ("cli_host", "host"),
    ("cli_studies", "sensitivity"),
    ("cli_studies", "stability"),
)


@group.command()
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
    size: int,
    alpha: float,
    matters: float,
    grain_s: float,
    poll: bool,
    keep: bool,
    every: str,
    timeout_s: float,
    words: int,
    unsync: bool,
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
    from sonde.noise import run as runs

    number = secrets.randbits(32) if seed is None else seed
    budget = budget_s or DEFAULT_BUDGET_S
    start = prepare("noise", "sonde-noise", launcher, hostlist.expand(hosts) if hosts else ())
    runs.check_cpus(cpus or (), start)
    out = output_path("noise", output)
    warnings = replaced(out)
    labels: dict[str, Any] = {}
    spent_s = 0.0
    if level is not None:
        period = period_s or 1.0
        target = runs.source_plan(level, period, words, number, aligned=not unsync) if level > 0 else None
        name = f"noise source {level_text(level)}" if level > 0 else "nothing"
        labels = {"level": level, "words": words}
    else:
        assert agent is not None
        _design(
            budget, period_s or 0.0, [1, 1]
        )  # a budget that is too short fails before the agent is watched
        watch_began = time.monotonic()
        target, period = _target(agent, pause, period_s, dry_run, warnings)
        spent_s = time.monotonic() - watch_began
        name = target.name or "agent"
    if cpus is None:
        cpus = (runs.last_cpu(),) if level else ()
    if compare:
        variants = _compared(compare, target, level, period, words, number, warnings)
    else:
        variants = (OFF, Variant(name, target, cpus, level if level is not None else float("nan")))
    shares = [variant.share for variant in variants]
    plan = Plan(
        variants,
        _design(budget, period, shares, spent_s),
        default_ntasks() if ntasks is None else ntasks,
        op=op,
        size=0 if op in NO_SIZE else size,
        alpha=alpha,
        matters=matters,
        grain_s=grain_s,
        seed=number,
        poll=poll,
        keep=keep,
        every=0 if every == "auto" else int(every),
        period_s=period,
        study="compare" if compare else "run",
        labels=labels,
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


def _target(
    agent: str, pause: str | None, period_s: float | None, dry_run: bool, warnings: list[Warning]
) -> tuple[AgentPlan, float]:
    """The agent that --agent names, and its period, s; 0: unknown. It may add warnings."""
    from sonde.core.units import format_duration
    from sonde.noise import run as runs
    from sonde.noise.agents import plan_for, recipe_for
    from sonde.noise.cli_agents import already
    from sonde.noise.run_agents import check_here, is_program

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
    names: tuple[str, ...],
    target: AgentPlan | None,
    level: float | None,
    period_s: float,
    words: int,
    seed: int,
    warnings: list[Warning],
) -> tuple[Variant, ...]:
    """One variant for each placement. It may add warnings."""
    from sonde.noise import run as runs

    if target is None:
        raise UsageError(
            "noise.no_agent", "--compare needs an agent or a noise source", "give a --level above 0"
        )
    cpu = runs.last_cpu()
    out = [Variant(OFF.name, share=2 if len(names) > 2 else 1)]
    for name in names:
        agent = target
        cpus: tuple[int, ...] = (cpu,)
        if name == "free":
            cpus = ()
        elif name == "sibling":
            cpus = runs.siblings(cpu)
            if not cpus:
                warnings.append(runs.no_smt(cpu))
                continue
        elif name == "sync" and level is None:
            warnings.append(
                Warning(
                    "noise.no_sync",
                    "an agent's own timers cannot be aligned across nodes, so --compare sync is left out",
                    "compare sync with --level",
                )
            )
            continue
        if level is not None and name != "sync":
            agent = runs.source_plan(level, period_s, words, seed, aligned=False)
        out.append(Variant(name, agent, cpus, level if level is not None else float("nan")))
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
    from sonde.core.seal import run_folder
    from sonde.core.units import format_duration

    line = start.line(plan.argv(str(run_folder(out).resolve()), budget_s), plan.ntasks, {})
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


FILES = click.argument(
    "files", nargs=-1, required=True, metavar="FILE.nc...", type=click.Path(path_type=Path)
)


@group.command()
@common()
@FILES
def show(files: tuple[Path, ...]) -> Outcome:
    """Show the results of datasets of this room: verdict, size of the effect, smallest detectable cost."""
    outcomes = [outcome_of(path, "show") for path in files]
    first = outcomes[0]
    if len(outcomes) == 1:
        first.exit = Exit.DONE
        return first
    unique = len({path.name for path in files}) == len(files)  # otherwise only the folders differ
    named = [(path.name if unique else str(path), each) for path, each in zip(files, outcomes)]
    return Outcome(
        "noise",
        "show",
        " ".join(f"{name}: {each.verdict}" for name, each in named),
        schema=first.schema,
        dataset=first.dataset,
        complete=all(each.complete for each in outcomes),
        findings=[
            replace(finding, text=f"{name}: {finding.text}")
            for name, each in named
            for finding in each.findings
        ],
        warnings=[
            replace(warning, evidence=f"{name}: {warning.evidence}")
            for name, each in named
            for warning in each.warnings
        ],
        tables=[
            replace(table, title=f"{name}: {table.title}" if table.title else name)
            for name, each in named
            for table in each.tables
        ],
        # A line that begins with a blank is a command to copy. It belongs to the line before it.
        lines=[
            line if line.startswith(" ") else f"{name}: {line}" for name, each in named for line in each.lines
        ],
        values={"datasets": [{"dataset": str(path), **each.values} for path, each in zip(files, outcomes)]},
        sound=all(each.sound for each in outcomes),
    )


def outcome_of(path: Path, verb: str) -> Outcome:
    """The outcome of a dataset of this room, of any kind."""
    from importlib import import_module

    from sonde.noise import verdict

    read = saved.read(path)
    summary = read.summary
    if read.kind != "run":
        return import_module(f"sonde.noise.cli_{read.kind}").outcome_of(path, verb)  # type: ignore[no-any-return]
    from sonde.noise import cli_studies, studies

    if str(summary.attrs.get("study")) in studies.STUDIES:
        return cli_studies.outcome_of(path, verb)
    outcome = saved.outcome_of(read, verb, verdict)
    outcome.findings = found = verdict.findings(summary)
    outcome.sound = verdict.sound(summary)
    if found:
        outcome.exit = Exit.FINDING
    elif not outcome.sound or not read.complete:
        outcome.exit = Exit.INCOMPLETE
    return outcome


def _mount() -> None:
    from importlib import import_module

    for module, name in ELSEWHERE:
        group.add_command(getattr(import_module(f"sonde.noise.{module}"), name))


_mount()
