"""sonde noise sensitivity, sonde noise stability: the studies of the source thesis, on this machine."""

from __future__ import annotations

import math
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import click

from sonde.core.errors import Exit, SondeError, UsageError, Warning, typed
from sonde.core.options import CPUS, DURATION, SHARE, BuiltinType, Whole, common, settings
from sonde.core.outcome import Outcome
from sonde.noise import saved
from sonde.noise.detector import cli_options
from sonde.noise.detector.plan import OFF, OPS, Design, Plan, Variant, design_for, level_text
from sonde.noise.studies import plan as studies
from sonde.noise.studies import verdict

DEFAULT_BUDGET_S = 300.0


class Levels(BuiltinType):
    """Levels of the noise source, without 0. Value: tuple of shares, from the highest."""

    name, allowed = "levels", "a list such as 1%,0.3%,0.1%"

    def read(self, text: str) -> tuple[float, ...]:
        hint = "write them like 1%,0.3%,0.1%; blocks without noise are always included"
        found: list[float] = []
        for word in text.split(","):
            value = SHARE.read(word)
            if any(math.isclose(value, known, rel_tol=1e-9) for known in found):
                raise UsageError("noise.bad_levels", f"'{word.strip()}' is given twice", hint)
            found.append(value)
        return tuple(sorted(found, reverse=True))


class Names(BuiltinType):
    """A list of different names. Value: tuple."""

    name = "names"

    def __init__(self, known: Sequence[str], what: str) -> None:
        self.known, self.what = known, what
        self.allowed = ", ".join(known)

    def read(self, text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        for name in names:
            if name not in self.known:
                raise UsageError(
                    f"noise.unknown_{self.what}",
                    f"there is no {self.what} '{name}'; there are: {self.allowed}",
                    f"write them like {','.join(self.known[:2])}",
                )
            if names.count(name) > 1:
                raise UsageError("noise.twice", f"'{name}' is given twice", "give each once")
        return names


_OPS = click.option(
    "--op",
    "ops",
    type=Names(OPS, "op"),
    default="alltoall",
    show_default=True,
    metavar="LIST",
    help="Operations that the loop repeats; each has its own run and its own dataset.",
)
_BLOCK = click.option(
    "--block-s", "block_s", type=DURATION, hidden=True, help="Length of a block; for tests of Sonde itself."
)
_DETECTOR = cli_options.DETECTOR[1:]  # without its --op, which takes only one operation
# --size --poll --keep --every --timeout: without the options for a verdict
_LOOP = (cli_options.DETECTOR[1], *cli_options.DETECTOR[5:])


@dataclass(frozen=True)
class Wishes:
    """The options that both studies have."""

    output: Path | None
    launcher: str
    hosts: str | None
    ntasks: int
    budget_s: float
    seed: int
    dry_run: bool
    timeout_s: float


@click.command("sensitivity")
@common("output", "launcher", "hosts", "ntasks", "budget", "seed", "dry_run")
@click.option(
    "--levels",
    type=Levels(),
    default=",".join(f"{100 * level:g}%" for level in studies.LEVELS),
    show_default=True,
    metavar="LIST",
    help="Levels of the noise source.",
)
@click.option(
    "--period",
    "period_s",
    type=DURATION,
    default="1s",
    show_default=True,
    metavar="TIME",
    help="Time from burst to burst.",
)
@click.option(
    "--sweep",
    type=Names(studies.SWEEPS, "sweep"),
    metavar="LIST",
    help="Instead, compare different kinds of noise at the highest level: sync,period,placement,sibling.",
)
@click.option(
    "--cpus",
    type=CPUS,
    metavar="LIST",
    help="CPUs for the source: 0,2-5, or all. By default the last CPU.",
)
@click.option(
    "--words",
    type=Whole(1),
    default=cli_options.WORDS,
    show_default=True,
    metavar="N",
    help="Words that the source sums.",
)
@_OPS
@_BLOCK
@cli_options.options(_DETECTOR)
def sensitivity(
    output: Path | None,
    launcher: str,
    hosts: str | None,
    ntasks: int | None,
    budget_s: float | None,
    seed: int | None,
    dry_run: bool,
    levels: tuple[float, ...],
    period_s: float,
    sweep: tuple[str, ...] | None,
    cpus: tuple[int, ...] | None,
    words: int,
    ops: tuple[str, ...],
    block_s: float | None,
    timeout_s: float,
    **detector: Any,
) -> Outcome:
    """Measure the lowest level of noise that is detected here, by Sonde's test and by the rule of the source thesis.

    One run has blocks without noise and blocks at each level, in random order, so that all levels meet the same
    machine. Both rules judge the same blocks. The reported time is the time of a run of one level alone. All operations
    together take --budget (5 min by default).

    \b
    sonde noise sensitivity --budget 5min
    sonde noise sensitivity --levels 1%,0.1% --op barrier --budget 2min
    sonde noise sensitivity --sweep sync,period --levels 1%
    """
    wishes = _wishes(output, launcher, hosts, ntasks, budget_s, seed, dry_run, timeout_s)
    warnings: list[Warning] = []
    if sweep and cpus is not None:
        raise UsageError(
            "noise.cpus_twice",
            "--sweep chooses the CPUs itself, but --cpus was given",
            "leave out one of them",
        )
    if sweep:
        variants = _swept(sweep, levels[0], period_s, words, wishes, warnings)
        period_s = max([period_s, *(variant.period_s for variant in variants)])
    else:
        variants = _levels(levels, period_s, words, wishes.seed, _last() if cpus is None else cpus)
    shares = [variant.share for variant in variants]
    study = "sweep" if sweep else "sensitivity"

    def plan(op: str, budget: float) -> Plan:
        design = _afford(
            budget, len(ops), lambda: design_for(budget, period_s, shares=shares, block_s=block_s)
        )
        return _plan(op, variants, design, wishes, detector, study, period_s, {"words": words})

    outcome = _measure("sensitivity", ops, wishes, plan)
    outcome.warnings = [*warnings, *outcome.warnings]
    return outcome


@click.command("stability")
@common("output", "launcher", "hosts", "ntasks", "budget", "seed", "dry_run")
@click.option(
    "--groups",
    type=Whole(2),
    default=studies.GROUPS,
    show_default=True,
    metavar="N",
    help="Groups of runs, one after the other over the budget.",
)
@_OPS
@_BLOCK
@cli_options.options(_LOOP)
def stability(
    output: Path | None,
    launcher: str,
    hosts: str | None,
    ntasks: int | None,
    budget_s: float | None,
    seed: int | None,
    dry_run: bool,
    groups: int,
    ops: tuple[str, ...],
    block_s: float | None,
    timeout_s: float,
    **detector: Any,
) -> Outcome:
    """Measure whether clean runs of the loop agree with each other, so that noise can be recognised.

    A run of the source thesis is a block here. Its rule asks for a narrow 99 % interval of their mean. The table also
    shows what this rule cannot see: groups that differ, changes of level, correlated neighbours, and the smallest
    detectable burst. All operations together take --budget (5 min by default).

    \b
    sonde noise stability --budget 2min
    sonde noise stability --op alltoall,barrier,allreduce --budget 5min
    """
    wishes = _wishes(output, launcher, hosts, ntasks, budget_s, seed, dry_run, timeout_s)

    def plan(op: str, budget: float) -> Plan:
        design = _afford(budget, len(ops), lambda: studies.clean_design(budget, groups, block_s))
        return _plan(op, (OFF,), design, wishes, detector, "stability", 0.0, {"groups": groups})

    return _measure("stability", ops, wishes, plan)


def _wishes(
    output: Path | None,
    launcher: str,
    hosts: str | None,
    ntasks: int | None,
    budget_s: float | None,
    seed: int | None,
    dry_run: bool,
    timeout_s: float,
) -> Wishes:
    from sonde.core.launch.start import default_ntasks

    return Wishes(
        output,
        launcher,
        hosts,
        default_ntasks() if ntasks is None else ntasks,
        budget_s or DEFAULT_BUDGET_S,
        secrets.randbits(32) if seed is None else seed,
        dry_run,
        timeout_s,
    )


def _last() -> tuple[int, ...]:
    from sonde.noise.detector.run import last_cpu

    return (last_cpu(),)


def _afford(budget_s: float, ops: int, design: Callable[[], Design]) -> Design:
    """The design, or exit code 4 before anything starts. Each of several operations has its part of the budget."""
    try:
        return design()
    except UsageError as error:
        hint = error.hint
        if ops > 1:
            hint = f"{hint}, and that for each of the {ops} operations"
        raise cli_options.TooShort(error.code, error.what, hint) from None


def _levels(
    levels: Sequence[float], period_s: float, words: int, seed: int, places: tuple[int, ...]
) -> tuple[Variant, ...]:
    from sonde.noise.studies.run_sources import recorded_source

    out = [Variant(OFF.name, share=studies.off_share(len(levels)))]
    for level in levels:
        agent = recorded_source(f"{level:.6g}", level, period_s, words, seed)
        out.append(Variant(level_text(level), agent, places, level, period_s=period_s))
    return tuple(out)


def _swept(
    sweeps: Sequence[str], level: float, period_s: float, words: int, wishes: Wishes, warnings: list[Warning]
) -> tuple[Variant, ...]:
    """One variant for each kind of the same noise. It may add warnings."""
    from sonde.core import hostlist
    from sonde.core.units import format_duration
    from sonde.noise.detector import run as runs
    from sonde.noise.studies.run_sources import rank_cpus, recorded_source

    last = runs.last_cpu()
    out: list[Variant] = []

    def one(
        name: str, period: float, cpus: tuple[int, ...], cores: tuple[int, ...] = (), aligned: bool = True
    ) -> None:
        agent = recorded_source(name, level, period, words, wishes.seed, aligned=aligned, cores=cores)
        out.append(Variant(name, agent, cpus, level, period_s=period, sources=max(1, len(cores))))

    if "sync" in sweeps:
        nodes = len(hostlist.expand(wishes.hosts)) if wishes.hosts else 1
        cores = rank_cpus(-(-wishes.ntasks // nodes))
        if len(cores) < 2:
            warnings.append(
                Warning(
                    "noise.one_core",
                    "all ranks of a host share one core, so its sources cannot burst at the same time",
                    "run it where each rank has a core",
                )
            )
        else:
            one("together", period_s, (), cores)
            one("apart", period_s, (), cores, aligned=False)
    if "period" in sweeps:
        for period in studies.SWEPT_PERIODS_S:
            one(f"each {format_duration(period)}", period, (last,))
    siblings = runs.siblings(last) if "sibling" in sweeps else ()
    if "sibling" in sweeps and not siblings:
        warnings.append(
            Warning(
                "noise.no_sibling",
                f"CPU {last} has no second hardware thread here, so the sibling is left out",
                "run it where SMT is on",
            )
        )
    if "placement" in sweeps or siblings:
        one("pinned", period_s, (last,))
    if "placement" in sweeps:
        one("free", period_s, ())
    if siblings:
        one("sibling", period_s, siblings)
    if len(out) < 2:
        raise UsageError(
            "noise.nothing_to_compare",
            "none of these questions can be answered here",
            "try --sweep period,placement",
        )
    return (Variant(OFF.name, share=studies.off_share(len(out))), *out)


def _plan(
    op: str,
    variants: tuple[Variant, ...],
    design: Design,
    wishes: Wishes,
    detector: dict[str, Any],
    study: str,
    period_s: float,
    labels: dict[str, Any],
) -> Plan:
    return Plan(
        variants,
        design,
        wishes.ntasks,
        op=op,
        seed=wishes.seed,
        period_s=period_s,
        study=study,
        labels=labels,
        **cli_options.loop_settings(op, detector),
    )


def _measure(verb: str, ops: Sequence[str], wishes: Wishes, plan: Callable[[str, float], Plan]) -> Outcome:
    """Measure one run and one dataset for each operation, one after the other; the outcome is for all of them.

    plan: called with an operation and its part of the budget, s.
    """
    from sonde.core import hostlist
    from sonde.core.launch.start import output_path, prepare, replaced
    from sonde.noise.detector import run as runs
    from sonde.noise.studies.sealing import SCHEMA

    began = settings().began
    share = wishes.budget_s / len(ops)
    plans = [plan(op, share) for op in ops]
    start = prepare(
        "noise", "sonde-noise", wishes.launcher, hostlist.expand(wishes.hosts) if wishes.hosts else ()
    )
    for variant in plans[0].variants:
        runs.check_cpus(variant.cpus, start)
    out = output_path("noise", wishes.output)
    paths = [out if len(ops) == 1 else out.with_name(f"{out.stem}-{op}.nc") for op in ops]
    replacing = [replaced(path) for path in paths]
    if wishes.dry_run:
        outcome = _dry(verb, plans, start, paths, wishes)
        outcome.warnings = [*chain(*replacing), *outcome.warnings]
        return outcome
    bar = settings().bar
    done: list[Path] = []
    for number, (one, path) in enumerate(zip(plans, paths)):
        now = began if number == 0 else time.monotonic()
        title = f"noise {verb}" if len(ops) == 1 else f"noise {verb}: {one.op}"
        request = runs.Request(
            one, start, path, ("sonde", *sys.argv[1:]), share, now, wishes.timeout_s, SCHEMA
        )
        try:
            measured = runs.measure(request, bar(title, share))
        except SondeError as error:
            if done:
                hint = f"the data measured before is in {', '.join(map(str, done))}"
                error.hint = "; ".join(filter(None, (error.hint, hint)))
            raise
        done.append(measured.paths[0])
        measured.check()
        if measured.interrupted:
            break
    outcome = together(done, verb)
    outcome.warnings = [*chain(*replacing[: len(done)]), *outcome.warnings]
    if measured.interrupted:
        outcome.tell_interrupted(done)
    return outcome


def _dry(verb: str, plans: Sequence[Plan], start: Any, paths: Sequence[Path], wishes: Wishes) -> Outcome:
    from sonde.core.run_folder import folder_of
    from sonde.core.units import format_duration

    tables, lines, values = [], [], []
    for plan, path in zip(plans, paths):
        design, share = plan.design, wishes.budget_s / len(plans)
        line = start.line(plan.argv(str(folder_of(path).resolve()), share), plan.ntasks, {})
        lengths = (
            f"{plan.blocks} of {format_duration(design.block_s)}, {format_duration(plan.expected_s)} in total"
        )
        shares = ", ".join(f"{variant.name} {variant.share}" for variant in plan.variants)
        rows = [
            ("dataset", str(path)),
            ("operation", plan.op),
            ("blocks", lengths),
            ("blocks in a round", shares),
            ("rounds", " + ".join(map(str, design.rounds))),
        ]
        tables.append(rows)
        lines.append(line)
        values.append(
            {
                "dataset": str(path),
                "op": plan.op,
                "blocks": plan.blocks,
                "block_s": design.block_s,
                "rounds": list(design.rounds),
                "shares": list(plan.shares),
                "expected_s": plan.expected_s,
                "command": typed(*line),
            }
        )
    facts = values[0] if len(values) == 1 else {"datasets": values}
    return Outcome.dry_run("noise", verb, tables, lines, facts, plans[0].warnings())


def outcome_of(path: Path, verb: str) -> Outcome:
    """The outcome of the dataset of a study."""
    return together([path], verb)


def together(paths: Sequence[Path], verb: str) -> Outcome:
    """The outcome of all datasets of one study. Their tables are side by side where possible."""
    datasets = [saved.read(path) for path in paths]
    summaries = [each.summary for each in datasets]
    complete = all(each.complete for each in datasets)
    warnings: list[Warning] = []
    for each in datasets:
        summary = each.summary
        # A warning belongs to one operation, so with several datasets it starts with the name of its operation.
        prefix = f"{summary.attrs['op']}: " if len(paths) > 1 else ""
        warnings += [
            Warning(warning.code, prefix + warning.evidence, warning.hint)
            for warning in [*each.warnings, *verdict.warnings(summary)]
        ]
    study = str(summaries[0].attrs["study"])
    single = len(summaries) == 1
    values = [{"stop_reason": each.stop_reason, **verdict.values(each.summary)} for each in datasets]
    sentences = [verdict.sentence(summary) for summary in summaries]
    lines = [line for s in summaries for line in verdict.answer_lines(s)] if study == "sweep" else []
    if not single:
        lines.append(f"Datasets: {', '.join(map(str, paths))}")
    outcome = Outcome(
        "noise",
        verb,
        " ".join(sentences),
        schema="noise/1",
        dataset=str(paths[0]),
        complete=complete,
        warnings=warnings,
        values=values[0]
        if single
        else {"datasets": [{"dataset": str(path), **each} for path, each in zip(paths, values)]},
        tables=verdict.stability_tables(summaries)
        if study == "stability"
        else [table for summary in summaries for table in verdict.tables(summary)],
        lines=lines,
        sound=all(verdict.sound(summary) for summary in summaries),
    )
    if not complete or (study == "sensitivity" and not outcome.sound):
        outcome.exit = Exit.INCOMPLETE
    return outcome
