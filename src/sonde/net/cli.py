"""sonde net: the commands. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonde.core.errors import Exit, Finding, UsageError, typed
from sonde.core.options import (
    A_NC,
    AGAINST,
    B_NC,
    DELAY,
    FILE,
    MATTERS,
    PAUSE,
    SHARE,
    SIZE,
    SIZES,
    TIMEOUT,
    common,
    settings,
)
from sonde.core.outcome import Outcome, Table
from sonde.net import cli_models
from sonde.net.cli_models import FILES
from sonde.net.modes import CHOICES, VALUES, modes, read_modes
from sonde.net.plan import PAIRINGS, Plan, gap_for, read_pair, read_pairs

if TYPE_CHECKING:
    from sonde.net.run import Request


@click.group()
def group() -> None:
    """Latency structure between ranks; how many measurements are enough."""


@group.command("modes")
@common()
def show_modes() -> Outcome:
    """List the modes, and the meaning of a sample in each."""
    rows = [(mode.name, mode.text, VALUES[mode.value]) for mode in modes().values()]
    return Outcome(
        "net",
        "modes",
        f"{len(rows)} modes",
        tables=[Table("Modes of sonde net run", ("mode", "exchange", "a sample is"), rows)],
        values={"modes": [{"mode": name, "text": text, "sample": sample} for name, text, sample in rows]},
    )


@group.command("rules")
@common()
def show_rules() -> Outcome:
    """List the stopping rules and their options."""
    from sonde.core.rules import rules

    rows = []
    for rule in rules():
        options = ", ".join(f"{option.name}={option.shown}" for option in rule.options)
        rows.append((rule.name, rule.text, options))
    return Outcome(
        "net",
        "rules",
        f"{len(rows)} stopping rules",
        tables=[Table("Stopping rules", ("rule", "stops when", "options"), rows)],
        values={"rules": [{"rule": name, "text": text, "options": options} for name, text, options in rows]},
    )


@group.command()
@common("output", "launcher", "hosts", "ntasks", "budget", "precision", "seed", "dry_run")
@click.option(
    "--mode",
    "mode",
    default="one_to_one",
    metavar="LIST",
    help="Modes, comma-separated, or all; see sonde net modes.",
)
@click.option(
    "--sizes",
    type=SIZES,
    default="0,8,64,512,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB",
    metavar="SIZES",
    help="Message lengths: begin:end:step, end not included, or a list.",
)
@click.option(
    "--rule",
    metavar="RULE",
    help="Stopping rule of each cell: ci:1%, fixed:1000, …; see sonde net rules.",
)
@click.option(
    "--value",
    type=click.Choice(CHOICES),
    help="Meaning of a ping-pong sample; default: half a round trip.",
)
@click.option(
    "--pairing",
    type=click.Choice(PAIRINGS),
    default="auto",
    help="Measure pairs at once, or one by one; auto tests whether they disturb each other.",
)
@click.option("--pairs", metavar="LIST", help="Measure only these pairs of ranks: 0-1,2-5.")
@click.option(
    "--by-class",
    is_flag=True,
    help="Find the classes of links in a short first pass, then measure a few links of each.",
)
@click.option("--raw/--no-raw", default=True, help="Store every sample, or only the summary.")
@click.option(
    "--cap",
    type=click.IntRange(min=1),
    default=20000,
    show_default=True,
    help="Largest number of samples per cell.",
)
@click.option(
    "--epoch-length",
    type=click.IntRange(1, 100000),
    default=50,
    show_default=True,
    help="Largest number of samples per burst.",
)
@click.option(
    "--warmup",
    type=click.IntRange(0, 10000),
    default=2,
    show_default=True,
    help="Unrecorded exchanges before each burst.",
)
@click.option(
    "--gap",
    "gap_s",
    type=PAUSE,
    metavar="TIME",
    help="Shortest time between epochs, 0s for none; by default the budget decides.",
)
@click.option(
    "--noise-size", type=SIZE, default="64KiB", metavar="SIZE", help="Message size of the noise modes."
)
@click.option(
    "--noise-ranks",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Number of ranks that make noise.",
)
@TIMEOUT
@click.option(
    "--forward", is_flag=True, hidden=True, help="Send all blocks to rank 0, as without a shared folder."
)
@click.option(
    "--inject-clock", default="", hidden=True, help="Put an error into a rank's clock: rank:seconds:drift,…"
)
@click.option(
    "--inject-slow", default="", hidden=True, help="Add time to each sample of a link: src:dst:seconds,…"
)
def run(
    output: Path | None,
    launcher: str,
    hosts: str | None,
    ntasks: int | None,
    budget_s: float | None,
    precision: float | None,
    seed: int | None,
    dry_run: bool,
    mode: str,
    sizes: tuple[int, ...],
    rule: str | None,
    value: str | None,
    pairing: str,
    pairs: str | None,
    by_class: bool,
    raw: bool,
    cap: int,
    epoch_length: int,
    warmup: int,
    gap_s: float | None,
    noise_size: int,
    noise_ranks: int,
    timeout_s: float,
    forward: bool,
    inject_clock: str,
    inject_slow: str,
) -> Outcome:
    """Measure delays between all pairs of ranks.

    Samples come in short bursts spread over the run, with pairs and lengths mixed. Each (pair, length) ends when its
    stopping rule is satisfied; --budget ends everything. Ctrl-C saves the results so far.

    \b
    sonde net run --ntasks 4 --budget 60s -o a.nc
    sonde net run --mode one_to_one,all_to_all --sizes 0:1000:100
    """
    began = settings().began
    from sonde.core import hostlist
    from sonde.core.launch.start import default_ntasks, output_path, prepare, replaced
    from sonde.core.rules import rule_with
    from sonde.net import run as runs

    plan = Plan(
        modes=read_modes(mode),
        sizes=sizes,
        ntasks=default_ntasks() if ntasks is None else ntasks,
        rule=rule_with(precision, rule, "ci:1%", "net"),
        value=value,
        pairing=pairing,
        pairs=read_pairs(pairs) if pairs else (),
        seed=secrets.randbits(32) if seed is None else seed,
        cap=cap,
        epoch_length=epoch_length,
        warmup=warmup,
        gap_s=gap_for(budget_s) if gap_s is None else gap_s,
        noise_bytes=noise_size,
        noise_ranks=noise_ranks,
        forward=forward,
        inject_clock=inject_clock,
        inject_slow=inject_slow,
    )
    if by_class and pairs:
        raise UsageError(
            "net.pairs_twice", "--by-class and --pairs both choose the pairs", "give only one of them"
        )
    out = output_path("net", output)
    start = prepare("net", "sonde-net", launcher, hostlist.expand(hosts) if hosts else ())
    request = runs.Request(plan, start, out, ("sonde", *sys.argv[1:]), budget_s, began, timeout_s)
    gone = replaced(out, [mode.name for mode in plan.modes])
    if dry_run:
        outcome = _dry(request)
        outcome.warnings = [*gone, *outcome.warnings]
        return outcome
    measured = (
        runs.measure_by_class(request, settings().bar)
        if by_class
        else runs.measure(request, settings().bar("net run", budget_s))
    )
    if not raw:
        runs.drop_raw(measured)
    outcome = _outcome("run", measured.paths)
    outcome.warnings = [*gone, *outcome.warnings]
    measured.check(outcome.warnings)
    if measured.interrupted:
        outcome.tell_interrupted(measured.paths)
    elif not outcome.complete:
        outcome.exit = Exit.INCOMPLETE
    return outcome


@group.command()
@common("output", "launcher", "hosts", "budget", "seed")
@FILE
@TIMEOUT
@click.option("--inject-slow", default="", hidden=True, help="Same as for run.")
def retest(
    file: Path,
    output: Path | None,
    launcher: str,
    hosts: str | None,
    budget_s: float | None,
    seed: int | None,
    timeout_s: float,
    inject_slow: str,
) -> Outcome:
    """Measure the suspicious links of a run again, with ordinary links for comparison; only the new data decide.

    The slowest of many links may be slow by chance: only new data prove it. Start this command like the first run, with
    the same hosts.
    """
    began = settings().began
    from sonde.core import hostlist
    from sonde.core.launch.start import output_path, prepare
    from sonde.net import run as runs

    number = secrets.randbits(32) if seed is None else seed
    suspects = runs.suspects_in(file, number)
    if not suspects.pairs:
        return Outcome(
            "net",
            "retest",
            f"{file} has no suspicious link",
            schema="net/1",
            dataset=str(file),
            values={"confirmed": []},
        )
    budget_s = budget_s or 20.0
    plan = Plan(
        modes=read_modes(suspects.mode),
        sizes=suspects.sizes,
        ntasks=suspects.ranks,
        pairs=suspects.pairs,
        seed=number,
        gap_s=gap_for(budget_s),
        labels={"selection": "retest", "retest_of": str(file)},
        inject_slow=inject_slow,
    )
    out = output_path("net", output or file.with_stem(f"{file.stem}-retest"))
    start = prepare("net", "sonde-net", launcher, hostlist.expand(hosts) if hosts else ())
    request = runs.Request(plan, start, out, ("sonde", *sys.argv[1:]), budget_s, began, timeout_s)
    measured = runs.measure(request, settings().bar("net retest", budget_s))
    measured.check()
    test = runs.judge_again(file, measured.paths[0], suspects)
    rows = [
        (f"{link.src}–{link.dst}", f"{link.ratio:.2f}", f"{link.low:.2f} to {link.high:.2f}", f"{link.q:.2g}")
        for link in test.links
    ]
    found = [
        Finding(
            "net.slow_link_confirmed",
            f"link {link.src}–{link.dst} is {link.ratio - 1:.0%} slower than expected in new data too",
            {"src": link.src, "dst": link.dst, "ratio": link.ratio, "q": link.q},
            typed("sonde", "net", "show", measured.paths[0], "--pair", f"{link.src},{link.dst}"),
        )
        for link in test.links
    ]
    verdict = f"{len(test.links)} of {len(suspects.suspects)} suspicious links are slow in new data too"
    outcome = Outcome(
        "net",
        "retest",
        verdict,
        schema="net/1",
        dataset=str(measured.paths[0]),
        findings=found,
        tables=[Table("Confirmed", ("link", "ratio", "95 % interval", "q"), rows, right=(1, 2, 3))]
        if rows
        else [],
        values={
            "suspects": [list(pair) for pair in suspects.suspects],
            "confirmed": [f.evidence for f in found],
        },
    )
    if measured.interrupted:
        outcome.tell_interrupted(measured.paths)
    return outcome


def _dry(request: Request) -> Outcome:
    plan = request.plan
    line = request.job().line(request.budget_s or 0.0)
    facts = {
        "ranks": plan.ntasks,
        "cells": plan.cells,
        "steps_parallel": plan.steps(True),
        "steps_serial": plan.steps(False),
        "rule": plan.rule,
        "mpi": str(request.start.mpi),
        "dataset": str(request.out),
        "command": typed(*line),
    }
    rows = [(name.replace("_", " "), str(value)) for name, value in facts.items() if name != "command"]
    return Outcome.dry_run("net", "run", [rows], [line], facts, plan.warnings())


@group.command()
@common()
@FILES
@click.option("--pair", metavar="A,B", help="One pair of ranks, every length.")
def show(files: tuple[Path, ...], pair: str | None) -> Outcome:
    """Show datasets: verdict, findings, delays by length, classes of links."""
    outcome = _outcome("show", list(files))
    if pair is not None:
        ends = read_pair(pair)
        outcome.tables = [table for path in files for table in _pair_tables(path, ends)]
    return outcome


def _pair_tables(path: Path, pair: tuple[int, int]) -> list[Table]:
    import sonde
    from sonde.net import verdict
    from sonde.net.figures import summary_of

    with sonde.open(path) as tree:
        summary = summary_of(tree).load()
        return [verdict.pair_table(summary, *ends) for ends in (pair, pair[::-1])]


@group.command()
@common()
@FILE
@AGAINST
@click.option("--max-median", "max_median_s", type=DELAY, metavar="TIME", help="Largest allowed median.")
@click.option("--up-to", "size_b", type=SIZE, metavar="SIZE", help="Largest message length for --max-median.")
@click.option(
    "--max-ratio",
    type=click.FloatRange(min=1),
    metavar="R",
    help="Largest ratio of the slowest to the fastest link of a class.",
)
@click.option("--min-converged", type=SHARE, metavar="SHARE", help="Smallest share of cells that converged.")
@click.option("--slow-links/--no-slow-links", default=True, help="Report slow links as findings, or not.")
@MATTERS
def check(
    file: Path,
    against: Path | None,
    max_median_s: float | None,
    size_b: int | None,
    max_ratio: float | None,
    min_converged: float | None,
    slow_links: bool,
    matters: float,
) -> Outcome:
    """Compare a run with limits, or with an earlier run; exit 1 on a finding.

    Prints the command that would drain the hosts behind the findings, and never runs it.
    """
    import sonde
    from sonde.core import dataset
    from sonde.core.drain import drain_lines, drain_words
    from sonde.net import limits, verdict
    from sonde.net.figures import summary_of

    outcome = _outcome("check", [file])
    outcome.tables = [table for table in outcome.tables if table.title == verdict.RHYTHM_TITLE]
    asked = limits.Limits(max_median_s, size_b, max_ratio, min_converged, slow_links)
    result = None
    with sonde.open(file) as tree:
        summary = summary_of(tree).load()
        found = limits.check(summary, asked, str(file))
        if against is not None:
            with sonde.open(against) as base:
                machine = (dataset.attrs(base), dataset.attrs(tree))
                result = limits.diff(
                    summary_of(base).load(), summary, (str(against), str(file)), matters, machine
                )
            found += result.findings
            outcome.tables.insert(0, result.table)
            outcome.values["detectable"] = result.values()["detectable"]
    if slow_links and (warning := limits.single_link(summary)):
        outcome.warnings.append(warning)
    outcome.hold(found, file)
    if result is None:
        detectable = float(summary.attrs.get("detectable_slowdown", "nan"))
        if slow_links and detectable == detectable:
            outcome.values["detectable"] = detectable
            if not found:
                outcome.verdict += f"; smallest detectable slowdown of a link {detectable:.0%}"
        if not outcome.sound:
            outcome.verdict += f"; {verdict.doubt(summary)[:1].lower()}{verdict.doubt(summary)[1:]}"
    if result is not None:
        outcome.exit = result.exit(found)
        if result.blunt:
            outcome.sound = False
            outcome.verdict += f"; {result.sentence(str(file))}"
    outcome.lines += drain_lines(found)
    if drain_command := drain_words(found):
        outcome.values["drain"] = drain_command
    return outcome


@group.command()
@common()
@A_NC
@B_NC
@MATTERS
def diff(a: Path, b: Path, matters: float) -> Outcome:
    """Show where B is slower than A, cell by cell, and what changed in the machine; exit 1 if B is slower."""
    import sonde
    from sonde.core import dataset
    from sonde.net import limits
    from sonde.net.figures import summary_of

    with sonde.open(a) as before, sonde.open(b) as after:
        machine = (dataset.attrs(before), dataset.attrs(after))
        result = limits.diff(
            summary_of(before).load(), summary_of(after).load(), (str(a), str(b)), matters, machine
        )
    return result.outcome("net", "diff", b)


def _mount() -> None:
    from sonde.net import cli_convert

    for command in (
        cli_convert.convert,
        cli_convert.cut,
        cli_convert.spectrum,
        cli_models.model,
        cli_models.replay,
    ):
        group.add_command(command)


_mount()


def _outcome(verb: str, paths: list[Path]) -> Outcome:
    """The result of one run: its datasets, one per mode, in order."""
    import sonde
    from sonde.core import dataset
    from sonde.net import verdict
    from sonde.net.figures import summary_of

    outcome = Outcome("net", verb, dataset=str(paths[0]))
    sentences: list[str] = []
    for path in paths:
        with sonde.open(path) as tree:
            summary = summary_of(tree).load()
            mode = str(tree.attrs.get("mode", "unknown mode"))
            sentences.append(verdict.sentence(summary, str(path)))
            outcome.schema = str(tree.attrs["schema"])
            outcome.complete &= bool(tree.attrs.get("complete", 1))
            outcome.sound &= verdict.sound(summary)
            outcome.findings += verdict.findings(summary, str(path))
            noted = [*dataset.warnings_of(tree), *verdict.warnings(summary)]
            outcome.warnings += [w for w in noted if w not in outcome.warnings]
            outcome.tables += verdict.tables(summary)
            values = verdict.values(summary)
            values["stop_reason"] = str(tree.attrs.get("stop_reason", "unknown"))
            if len(paths) == 1:
                outcome.values = values
            else:
                sentences[-1] = f"{mode}: {sentences[-1]}"
                outcome.values.setdefault("datasets", []).append(
                    {"dataset": str(path), "mode": mode, **values}
                )
    outcome.verdict = " ".join(sentences)
    return outcome
