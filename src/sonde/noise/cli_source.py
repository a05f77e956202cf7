"""sonde noise source: a monitoring agent as a model, in the foreground, and what it really did."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonde.core.errors import Exit, UsageError, Warning, typed
from sonde.core.options import DURATION, PAUSE, SHARE, Whole, common, settings
from sonde.core.outcome import Outcome, Table

if TYPE_CHECKING:
    from sonde.core.launch import Launcher
    from sonde.noise.run_source import Source


@click.command("source")
@common("output", "launcher", "hosts", "budget", "seed", "dry_run")
@click.option(
    "--level", type=SHARE, required=True, metavar="SHARE", help="CPU time of each period: 1%, 0.01%."
)
@click.option(
    "--period",
    "period_s",
    type=DURATION,
    default="1s",
    show_default=True,
    metavar="TIME",
    help="From burst to burst.",
)
@click.option(
    "--words",
    type=Whole(1),
    default="250000",
    show_default=True,
    metavar="N",
    help="64-bit words it sums: its footprint in the caches.",
)
@click.option("--core", type=Whole(0), metavar="N", help="Pin it to this CPU.")
@click.option("--free", is_flag=True, help="Leave it to the scheduler, as by default.")
@click.option(
    "--sync", is_flag=True, help="Bursts on all hosts together, on whole periods of the clock; the default."
)
@click.option("--unsync", is_flag=True, help="A random phase for each host.")
@click.option("--phase", "phase_s", type=PAUSE, metavar="TIME", help="Bursts this long after whole periods.")
@click.option("--duration", "duration_s", type=DURATION, metavar="TIME", help="How long it works.")
def source(
    output: Path | None,
    launcher: str,
    hosts: str | None,
    budget_s: float | None,
    seed: int | None,
    dry_run: bool,
    level: float,
    period_s: float,
    words: int,
    core: int | None,
    free: bool,
    sync: bool,
    unsync: bool,
    phase_s: float | None,
    duration_s: float | None,
) -> Outcome:
    """Be a monitoring agent: sum an array for a share of each period, sleep the rest, record each burst.

    It works until --duration or --budget is over, or Ctrl-C; the bursts are saved either way.

    \b
    sonde noise source --level 1% --duration 60s -o source.nc
    sonde noise source --level 0.1% --period 500ms --core 1 --unsync
    """
    began = settings().began
    from sonde.core import hostlist
    from sonde.noise import run_programs, run_source

    told = [
        name
        for name, given in (("--sync", sync), ("--unsync", unsync), ("--phase", phase_s is not None))
        if given
    ]
    if len(told) > 1:
        raise UsageError("noise.phase_twice", f"{' and '.join(told)} exclude one another", "give one of them")
    if free and core is not None:
        raise UsageError(
            "noise.core_twice", "--core pins the source, and --free does not", "give one of the two"
        )
    names = hostlist.expand(hosts) if hosts else ()
    asked = run_source.Source(
        level,
        period_s,
        words,
        core,
        None if unsync else phase_s or 0.0,
        secrets.randbits(32) if seed is None else seed,
    )
    start = run_source.prepare(launcher, names)
    run_source.check(asked, here=not names)
    out = run_programs.output_path(output)
    if dry_run:
        return _dry(asked, start, names, out, run_source.duration(budget_s, duration_s, began))
    bar = settings().bar("noise source", duration_s or budget_s)
    measured = run_source.run(
        asked, start, names, out, ("sonde", *sys.argv[1:]), budget_s, duration_s, bar, began
    )
    outcome = told_by(measured.file.path, "source")
    if measured.error is not None and not measured.interrupted and len(names) < 2:
        error = measured.error
        error.hint = f"{error.hint}; what was recorded is in {measured.file.path}".removeprefix("; ")
        raise error
    if measured.interrupted:
        outcome.exit = Exit.INTERRUPTED
        outcome.verdict = f"interrupted: {outcome.verdict}"
        outcome.warnings.insert(
            0,
            Warning(
                "noise.interrupted",
                f"interrupted; the bursts until then are saved in {measured.file.path}",
                "give --duration for an end of its own",
            ),
        )
    elif not outcome.complete:
        outcome.exit = Exit.INCOMPLETE
    return outcome


def told_by(path: Path, verb: str) -> Outcome:
    """What a dataset of kind `source` says."""
    import sonde
    from sonde.core import dataset
    from sonde.core.errors import DataError
    from sonde.noise import source as words

    with sonde.open(path) as tree:
        if "summary" not in tree.children:
            raise DataError(
                "noise.no_summary",
                f"{path} has no /summary",
                typed("sonde", "data", "validate", path),
            )
        summary = tree["summary"].to_dataset().load()
        kept = dataset.warnings_of(tree)
        complete = bool(tree.attrs.get("complete", 1))
        reason = str(tree.attrs.get("stop_reason", "unknown"))
    return Outcome(
        "noise",
        verb,
        words.sentence(summary),
        schema="noise/1",
        dataset=str(path),
        complete=complete,
        warnings=[*kept, *words.warnings(summary)],
        values={"stop_reason": reason, **words.values(summary)},
        tables=words.tables(summary),
    )


def _dry(asked: Source, start: Launcher, names: Sequence[str], out: Path, works_s: float | None) -> Outcome:
    import shlex

    from sonde.core.seal import run_folder
    from sonde.core.units import format_duration
    from sonde.noise import run_source
    from sonde.noise.source import percent

    lines = [run_source.command(asked, start, host, run_folder(out), works_s) for host in (names or ("",))]
    phase = "random, one for each host" if asked.phase_s is None else format_duration(asked.phase_s)
    rows = [
        ("level", percent(asked.level)),
        ("period", format_duration(asked.period_s)),
        ("words", str(asked.words)),
        ("core", "free" if asked.core is None else str(asked.core)),
        ("phase", phase),
        ("works for", "until Ctrl-C" if works_s is None else format_duration(works_s)),
        ("dataset", str(out)),
    ]
    return Outcome(
        "noise",
        "source",
        "nothing was done (--dry-run)",
        tables=[Table("Would run", ("what", "value"), rows)],
        lines=["It would start:", *(f"  {shlex.join(line)}" for line in lines)],
        values={"commands": lines, "level": asked.level, "period_s": asked.period_s, "words": asked.words},
    )
