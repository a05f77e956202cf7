"""sonde noise source: a model of a monitoring agent in the foreground, with a record of its bursts."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonde.core.errors import UsageError
from sonde.core.options import DURATION, PAUSE, SHARE, Whole, common, settings
from sonde.core.outcome import Outcome
from sonde.noise import saved

if TYPE_CHECKING:
    from sonde.core.launch import Launcher
    from sonde.noise.source.run import Source


@click.command("source")
@common("output", "launcher", "hosts", "budget", "seed", "dry_run")
@click.option(
    "--level", type=SHARE, required=True, metavar="SHARE", help="CPU time in each period: 1%, 0.01%."
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
    "--words",
    type=Whole(1),
    default="250000",
    show_default=True,
    metavar="N",
    help="64-bit words that it sums: its footprint in the caches.",
)
@click.option("--core", type=Whole(0), metavar="N", help="Pin it to this CPU.")
@click.option("--free", is_flag=True, help="Let the scheduler choose the CPU (the default).")
@click.option(
    "--sync",
    is_flag=True,
    help="Bursts on all hosts at the same time, at whole periods of the clock (the default).",
)
@click.option("--unsync", is_flag=True, help="A random phase for each host.")
@click.option(
    "--phase", "phase_s", type=PAUSE, metavar="TIME", help="Start bursts this long after whole periods."
)
@click.option("--duration", "duration_s", type=DURATION, metavar="TIME", help="How long the source works.")
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
    """Act as a monitoring agent: sum an array for a share of each period, sleep for the rest, record each burst.

    It works until --duration or --budget is over, or until Ctrl-C. In each case it saves the bursts.

    \b
    sonde noise source --level 1% --duration 60s -o source.nc
    sonde noise source --level 0.1% --period 500ms --core 1 --unsync
    """
    began = settings().began
    from sonde.core import hostlist
    from sonde.core.launch.start import replaced
    from sonde.noise import run_programs
    from sonde.noise.source import run as run_source

    options = [
        name
        for name, given in (("--sync", sync), ("--unsync", unsync), ("--phase", phase_s is not None))
        if given
    ]
    if len(options) > 1:
        raise UsageError(
            "noise.phase_twice", f"{' and '.join(options)} exclude each other", "give one of them"
        )
    if free and core is not None:
        raise UsageError(
            "noise.core_twice", "--core pins the source, but --free does not", "give one of the two"
        )
    names = hostlist.expand(hosts) if hosts else ()
    request = run_source.Source(
        level,
        period_s,
        words,
        core,
        None if unsync else phase_s or 0.0,
        secrets.randbits(32) if seed is None else seed,
    )
    start = run_source.prepare(launcher, names)
    run_source.check(request, here=not names)
    out = run_programs.output_path(output)
    warnings = replaced(out)
    if dry_run:
        outcome = _dry(request, start, names, out, run_source.duration(budget_s, duration_s, began))
        outcome.warnings = [*warnings, *outcome.warnings]
        return outcome
    bar = settings().bar("noise source", duration_s or budget_s)
    measured = run_source.run(
        request, start, names, out, ("sonde", *sys.argv[1:]), budget_s, duration_s, bar, began
    )
    outcome = outcome_of(measured.file.path, "source")
    outcome.warnings = [*warnings, *outcome.warnings]
    return saved.end(outcome, measured, len(names) < 2)


def outcome_of(path: Path, verb: str) -> Outcome:
    """The outcome of a dataset of kind `source`."""
    from sonde.noise.source import verdict as texts

    return saved.outcome_of(saved.read(path), verb, texts)


def _dry(request: Source, start: Launcher, names: Sequence[str], out: Path, works_s: float | None) -> Outcome:
    from sonde.core.run_folder import folder_of
    from sonde.core.units import format_duration, format_share
    from sonde.noise.source import run as run_source

    lines = [run_source.command(request, start, host, folder_of(out), works_s) for host in (names or ("",))]
    phase = "random, one for each host" if request.phase_s is None else format_duration(request.phase_s)
    rows = [
        ("level", format_share(request.level, 6, trim=True)),
        ("period", format_duration(request.period_s)),
        ("words", str(request.words)),
        ("core", "free" if request.core is None else str(request.core)),
        ("phase", phase),
        ("works for", "until Ctrl-C" if works_s is None else format_duration(works_s)),
        ("dataset", str(out)),
    ]
    values = {"commands": lines, "level": request.level, "period_s": request.period_s, "words": request.words}
    return Outcome.dry_run("noise", "source", [rows], lines, values)
