"""sonde net: the commands. Each returns an Outcome; nothing is printed here."""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import click

from sonde.core.errors import Exit, SondeError, UsageError
from sonde.core.options import DURATION, SIZE, SIZES, common, settings
from sonde.core.outcome import Outcome, Table
from sonde.net.modes import CHOICES, VALUES, modes, read_modes
from sonde.net.plan import PAIRINGS, Plan, gap_for, read_pairs, rule_with


@click.group()
def group() -> None:
    """Latency structure between ranks; how many measurements are enough."""


@group.command("modes")
@common()
def show_modes() -> Outcome:
    """What modes there are, and what a sample is in each."""
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
    """What stopping rules there are, and their options."""
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
@click.option("--mode", "mode", default="one_to_one", metavar="LIST", help="Modes, comma-separated, or all; see sonde net modes.")
@click.option("--sizes", type=SIZES, default="0,8,64,512,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB", metavar="SIZES", help="Message lengths: begin:end:step, end left out, or a list.")
@click.option("--rule", metavar="RULE", help="When a cell has enough samples: ci:1%, fixed:1000, …; see sonde net rules.")
@click.option("--value", type=click.Choice(CHOICES), help="What a sample of a ping-pong is; half a round trip by default.")
@click.option("--pairing", type=click.Choice(PAIRINGS), default="auto", help="Pairs of a round at once, or one by one; auto measures whether they disturb each other.")
@click.option("--pairs", metavar="LIST", help="Only these pairs of ranks: 0-1,2-5.")
@click.option("--by-class", is_flag=True, help="Find the classes of links in a short first pass, then measure a few links of each.")
@click.option("--raw/--no-raw", default=True, help="Keep every sample, or the summary alone.")
@click.option("--cap", type=click.IntRange(min=1), default=20000, show_default=True, help="Samples a cell at most.")
@click.option("--epoch-length", type=click.IntRange(1, 100000), default=50, show_default=True, help="Samples of one burst at most.")
@click.option("--warmup", type=click.IntRange(0, 10000), default=2, show_default=True, help="Exchanges before each burst that are not kept.")
@click.option("--gap", "gap_s", type=DURATION, metavar="TIME", help="Least time from one epoch to the next; by default the budget decides.")
@click.option("--noise-size", type=SIZE, default="64KiB", metavar="SIZE", help="Messages of the noise modes.")
@click.option("--noise-ranks", type=click.IntRange(min=0), default=2, show_default=True, help="Ranks that make noise.")
@click.option("--timeout", "timeout_s", type=DURATION, default="60s", show_default=True, metavar="TIME", help="How long ranks may be silent.")
@click.option("--forward", is_flag=True, hidden=True, help="Send all blocks to rank 0, as where no folder is shared.")
@click.option("--inject-clock", default="", hidden=True, help="Put an error into a rank's clock: rank:seconds:drift,…")
@click.option("--inject-slow", default="", hidden=True, help="Add time to each sample of a link: src:dst:seconds,…")
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

    Samples come in short bursts spread over the run, pairs and lengths mixed. Each (pair, length) ends when its
    stopping rule is content; --budget ends all. Ctrl-C saves what there is.

    \b
    sonde net run --ntasks 4 --budget 60s -o a.nc
    sonde net run --mode one_to_one,all_to_all --sizes 0:1000:100
    """
    began = time.monotonic()
    from sonde.core import hostlist
    from sonde.net import run as runs

    plan = Plan(
        modes=read_modes(mode),
        sizes=sizes,
        ntasks=runs.default_ntasks() if ntasks is None else ntasks,
        rule=rule_with(precision, rule),
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
        raise UsageError("net.pairs_twice", "--by-class chooses the pairs, and --pairs does too", "give one of the two")
    out = runs.output_path(output)
    start = runs.prepare(launcher, hostlist.expand(hosts) if hosts else ())
    if dry_run:
        return _dry(plan, start, out, budget_s)
    request = runs.Request(plan, start, out, ("sonde", *sys.argv[1:]), budget_s, began, timeout_s)
    measured = runs.measure_by_class(request, settings().bar) if by_class else runs.measure(request, settings().bar("net run", budget_s))
    if not raw:
        runs.drop_raw(measured)
    outcome = _outcome("run", measured.paths)
    if measured.error is not None:
        raise _saved(measured.error, measured.paths)
    if measured.interrupted:
        outcome.exit = Exit.INTERRUPTED
    elif not outcome.complete:
        outcome.exit = Exit.INCOMPLETE
    return outcome


def _saved(error: SondeError, paths: list[Path]) -> SondeError:
    """The error, with the word that what was measured before it is there."""
    kept = ", ".join(map(str, paths))
    error.hint = "; ".join(filter(None, (f"what was measured is in {kept}", error.hint)))
    return error


def _dry(plan: Plan, start: Any, out: Path, budget_s: float | None) -> Outcome:
    from sonde.core.seal import run_folder
    from sonde.net import run as runs

    line = shlex.join(runs.command(plan, start, run_folder(out), budget_s or 0.0))
    facts = {
        "ranks": plan.ntasks,
        "cells": plan.cells,
        "steps_parallel": plan.steps(True),
        "steps_serial": plan.steps(False),
        "rule": plan.rule,
        "mpi": str(start.mpi),
        "dataset": str(out),
        "command": line,
    }
    rows = [(name.replace("_", " "), str(value)) for name, value in facts.items() if name != "command"]
    return Outcome(
        "net",
        "run",
        "nothing was done (--dry-run)",
        tables=[Table("Would measure", ("what", "value"), rows)],
        lines=["It would start:", f"  {line}"],
        values=facts,
        warnings=plan.warnings(),
    )



@group.command()
@common()
@click.argument("files", nargs=-1, required=True, metavar="FILE.nc...", type=click.Path(path_type=Path))
def show(files: tuple[Path, ...]) -> Outcome:
    """What datasets say: verdict, findings, delays by length, classes of links."""
    return _outcome("show", list(files))


def _outcome(verb: str, paths: list[Path]) -> Outcome:
    """The result of one run: its datasets, one a mode, told one after the other."""
    import sonde
    from sonde.core import dataset
    from sonde.net import verdict
    from sonde.net.figures import summary_of

    outcome = Outcome("net", verb, dataset=str(paths[0]))
    told: list[str] = []
    for path in paths:
        with sonde.open(path) as tree:
            summary = summary_of(tree).load()
            mode = str(tree.attrs.get("mode", "unknown mode"))
            told.append(verdict.sentence(summary, str(path)))
            outcome.schema = str(tree.attrs["schema"])
            outcome.complete &= bool(tree.attrs.get("complete", 1))
            outcome.findings += verdict.findings(summary, str(path))
            outcome.warnings += [w for w in dataset.warnings_of(tree) if w not in outcome.warnings]
            outcome.tables += verdict.tables(summary)
            values = verdict.values(summary)
            values["stop_reason"] = str(tree.attrs.get("stop_reason", "unknown"))
            if len(paths) == 1:
                outcome.values = values
            else:
                told[-1] = f"{mode}: {told[-1]}"
                outcome.values.setdefault("datasets", []).append({"dataset": str(path), "mode": mode, **values})
    outcome.verdict = " ".join(told)
    return outcome
