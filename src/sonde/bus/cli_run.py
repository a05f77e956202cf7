"""sonde bus run, show, check, diff, variants: what a data-distribution bus costs, measured."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonde import _core
from sonde.core import hostlist
from sonde.core.errors import Exit, UsageError, typed
from sonde.core.options import (
    A_NC,
    AGAINST,
    B_NC,
    FILE,
    MATTERS,
    TIMEOUT,
    Counts,
    Duration,
    Sizes,
    Whole,
    common,
    settings,
)
from sonde.core.outcome import Outcome, Table
from sonde.core.units import format_size

if TYPE_CHECKING:
    from sonde.bus.run_probe import Request

DEFAULT_BUDGET_S = 60.0
START_S = 1.0  # of a budget, that loading and starting take


class SampleSizes(Sizes):
    """Bytes of samples, written as message lengths are. Value: tuple of int, B."""

    largest = _core.bus_sizes()["most"]
    largest_is = f"{format_size(largest)}, the largest sample that is measured"


@click.command()
@common("output", "launcher", "hosts", "budget", "precision", "seed", "dry_run")
@click.argument("tests", nargs=-1, metavar="[TEST]...")
@click.option(
    "--variants",
    multiple=True,
    metavar="LIST",
    help="Ways over the bus: cyclonedds,fastdds/shm,raw/udp4, or NAME=IMPLEMENTATION,KEY=…; again for more.",
)
@click.option("--sizes", type=SampleSizes(), metavar="SIZES", help="Bytes of a sample: 64,1KiB,16KiB.")
@click.option("--subscribers", type=Counts(), metavar="LIST", help="Of fanout, throughput: 1,8,48.")
@click.option("--participants", type=Counts(), metavar="LIST", help="Of discovery: 8,32,96.")
@click.option(
    "--all-to-all", is_flag=True, help="Of discovery: each matches all, not one writer and its readers."
)
@click.option(
    "--within", "within_s", type=Duration(), metavar="TIME", help="Of discovery, given up after: 30s."
)
@click.option(
    "--steady", "steady_s", type=Duration(), metavar="TIME", help="Of discovery, counted afterwards: 1s."
)
@click.option("--groups", type=Counts(), metavar="LIST", help="Of partitions, how many there are: 1,32.")
@click.option("--clients", type=Counts(), metavar="LIST", help="Of calls: 1,100.")
@click.option("--calls", type=Whole(1), metavar="N", help="Of calls, how many a client makes in a visit.")
@click.option(
    "--interfaces",
    metavar="LIST",
    help="With --hosts, by which they reach each other: eth0, 10.1.0.0/16; else where the way leads.",
)
@click.option(
    "--unprotected",
    is_flag=True,
    help="With --hosts: whoever reaches their network may join; no keys needed.",
)
@click.option(
    "--rule",
    metavar="RULE",
    help="When a series has enough samples: ci:2%, fixed:1000, …; see sonde net rules.",
)
@click.option(
    "--cap", type=click.IntRange(min=1), default=100_000, show_default=True, help="Samples a series at most."
)
@click.option(
    "--epoch-length",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="Samples of one burst at most.",
)
@TIMEOUT
def run(
    output: Path | None,
    launcher: str,
    hosts: str | None,
    budget_s: float | None,
    precision: float | None,
    seed: int | None,
    dry_run: bool,
    tests: tuple[str, ...],
    variants: tuple[str, ...],
    sizes: tuple[int, ...] | None,
    subscribers: tuple[int, ...] | None,
    participants: tuple[int, ...] | None,
    all_to_all: bool,
    within_s: float | None,
    steady_s: float | None,
    groups: tuple[int, ...] | None,
    clients: tuple[int, ...] | None,
    calls: int | None,
    interfaces: str | None,
    unprotected: bool,
    rule: str | None,
    cap: int,
    epoch_length: int,
    timeout_s: float,
) -> Outcome:
    """Measure what a data-distribution bus costs, all variants interleaved in one run.

    TEST is one or more of latency, fanout, discovery, partitions, throughput, first-message, calls, or all; none:
    latency. Variants are implementations of DDS over their transports, beside bare sockets and shared memory. All of
    it stays on this machine's loopback, unless --hosts names several hosts. The default budget is 60 s; Ctrl-C saves
    what there is.

    \b
    sonde bus run --budget 60s -o bus.nc
    sonde bus run discovery --participants 8,32 --variants cyclonedds
    sonde bus run latency fanout --sizes 64,16KiB --variants fastdds,fastdds/shm
    sonde bus run latency throughput --hosts n[1-2] --unprotected
    """
    began = settings().began
    from sonde.bus import run_probe as probe
    from sonde.bus.plan import (
        Plan,
        Wanted,
        between,
        cases_of,
        choose_variants,
        fitting,
        guarded,
        measuring_s,
        read_tests,
        with_paths,
    )
    from sonde.core.launch.start import output_path, replaced
    from sonde.core.rules import rule_with

    where, started_by = probe.hosts_of(launcher, hostlist.expand(hosts) if hosts else ())
    across = len(where) > 1
    if not across and (interfaces or unprotected):
        raise UsageError(
            "bus.one_host",
            f"--{'interfaces' if interfaces else 'unprotected'} is for a run over several hosts; this one keeps to the "
            "loopback",
            "name them with --hosts, or leave it out",
        )
    named, unmeasured = between(read_tests(tests)) if across else (read_tests(tests), ())
    wanted = Wanted(
        sizes or (),
        subscribers or (),
        participants or (),
        clients or (),
        groups or (),
        calls or 0,
        all_to_all,
        within_s or 0.0,
        steady_s or 0.0,
    )
    chosen = choose_variants(variants, named, across)
    if across:
        chosen = guarded(chosen, unprotected, [host.name for host in where])
    if where:
        chosen = tuple(with_paths(variant, os.path.abspath) for variant in chosen)
    cases = [case for case in cases_of(named, wanted) if any(v.takes(case) for v in chosen)]
    all_of_it = budget_s or DEFAULT_BUDGET_S
    # What is measured follows from what was typed alone, not from how long this took so far: a dry run says the same.
    time_s = measuring_s(max(all_of_it - START_S, 0.0), len(cases) * len(chosen))
    fit = cases if wanted.any else fitting(cases, chosen, time_s)
    plan = Plan(
        variants=chosen,
        cases=tuple(fit),
        rule=rule_with(precision, rule, "ci:2%", "bus"),
        seed=secrets.randbits(32) if seed is None else seed,
        cap=cap,
        epoch_length=epoch_length,
        hosts=where,
        launcher=started_by,
        interfaces=tuple(filter(None, (word.strip() for word in (interfaces or "").split(",")))),
        notes=unmeasured,
        left_out=tuple(case for case in cases if case not in fit),
    )
    probe.program()  # without which nothing else is worth saying
    out = output_path("bus", output)
    request = probe.Request(plan, out, ("sonde", *sys.argv[1:]), all_of_it, began, timeout_s)
    gone = replaced(out)
    if dry_run:
        outcome = _dry(request)
        outcome.warnings = [*gone, *outcome.warnings]
        return outcome
    probe.require(plan)
    measured = probe.measure(request, settings().bar("bus run", all_of_it))
    outcome = told_of(measured.paths[0], "run")
    outcome.warnings = [*gone, *plan.notes, *outcome.warnings]
    measured.check(outcome.warnings)
    if measured.interrupted:
        outcome.tell_interrupted(measured.paths)
    elif not outcome.complete:
        outcome.exit = Exit.INCOMPLETE
    return outcome


def _dry(request: Request) -> Outcome:
    from sonde.core.seal import run_folder

    plan = request.plan
    line = request.line(run_folder(request.out))
    values = {
        "variants": [variant.name for variant in plan.variants],
        "cases": [case.spec for case in plan.cases],
        "cells": plan.cells,
        "command": typed(*line),
    }
    rows = [*plan.rows(request.left_s()), ("dataset", str(request.out))]
    return Outcome.dry_run("bus", "run", [rows], [line], values, [*plan.notes, *plan.warnings()])


@click.command("variants")
@common()
def show_variants() -> Outcome:
    """The variants that bus run compares, and what each is."""
    from sonde.bus.plan import NULL, RAW, TESTS, usual_variants

    def tests(measured: tuple[str, ...]) -> str:
        left = [test for test in TESTS if test not in measured]
        if len(left) < len(measured):
            return f"all but {', '.join(left)}" if left else "all"
        return ", ".join(test for test in TESTS if test in measured)

    found = usual_variants()
    rows = [
        (
            v.name,
            v.transport,
            "–" if v.implementation in (RAW, NULL) else v.discovery,
            tests(v.tests),
        )
        for v in found
    ]
    note = "Any other: --variants NAME=IMPLEMENTATION,KEY=VALUE,…; keys are discovery, multicast, security, profile, …"
    return Outcome(
        "bus",
        "variants",
        f"{len(rows)} variants are compared where none are named",
        tables=[
            Table(
                "Variants of sonde bus run", ("name", "transport", "discovery", "measured in"), rows, (), note
            )
        ],
        values={
            "variants": [
                {
                    "name": v.name,
                    "implementation": v.implementation,
                    "transport": v.transport,
                    "discovery": v.discovery,
                    "options": v.options,
                    "tests": list(v.tests),
                }
                for v in found
            ]
        },
    )


@click.command()
@common()
@FILE
@click.option(
    "--case", "case", metavar="CASE", help='One case in full: "latency, 64 B", or the beginning of it.'
)
def show(file: Path, case: str | None) -> Outcome:
    """What a dataset says: each test by variant, how costs grow, why a first message is slow."""
    outcome = told_of(file, "show")
    if case is not None:
        import sonde
        from sonde.bus import verdict
        from sonde.bus.values import Values
        from sonde.core import dataset

        with sonde.open(file) as tree:
            summary = dataset.summary_of(tree, "bus", file)
            outcome.tables, outcome.lines = (
                verdict.case_tables(summary, case),
                [],
            )  # lessons are of the whole run
            if not outcome.tables:
                raise UsageError(
                    "bus.no_such_case",
                    f"{file} has no case '{case}'; it has: {'; '.join(verdict.titles(Values(summary)))}",
                    "name one of them",
                )
    return outcome


def told_of(path: Path, verb: str) -> Outcome:
    """What a dataset says of itself."""
    import sonde
    from sonde.bus import verdict
    from sonde.bus.values import Values, between
    from sonde.core import dataset
    from sonde.core.values import plain

    with sonde.open(path) as tree:
        summary = dataset.summary_of(tree, "bus", path)
        values = verdict.values(summary) | {"stop_reason": str(tree.attrs.get("stop_reason", "unknown"))}
        values |= {
            name: plain(tree.attrs[name])
            for name in ("cycles_per_s", "instructions", "hostlist", "hosts", "host_addresses")
            if name in tree.attrs
        }
        return Outcome(
            "bus",
            verb,
            verdict.sentence(summary, str(path), between(tree.attrs)),
            schema=str(tree.attrs["schema"]),
            dataset=str(path),
            complete=bool(tree.attrs.get("complete", 1)),
            warnings=[*dataset.warnings_of(tree), *verdict.warnings(summary)],
            values=values,
            tables=verdict.tables(summary),
            # The first is in the sentence.
            lines=[
                verdict.capitalised(f"{lesson['text']}.")
                for lesson in verdict.told_together(verdict.lessons(Values(summary))[1:])
            ],
            sound=verdict.good(summary),
        )


@click.command()
@common()
@A_NC
@B_NC
@MATTERS
@click.option(
    "--variants",
    metavar="OF_A,OF_B",
    help="Hold one variant of B against one of A, which may be the same file: cyclonedds/udp4,mine.",
)
def diff(a: Path, b: Path, matters: float, variants: str | None) -> Outcome:
    """Where B costs more than A, case by case, and what changed in the machine; exit 1 when it does.

    \b
    sonde bus diff before.nc after.nc
    sonde bus diff keys.nc keys.nc --variants cyclonedds/udp4,secured
    """
    if variants is None:
        return compared(a, b, matters, "diff")
    names = [name.strip() for name in variants.split(",")]
    if len(names) != 2 or not all(names):
        raise UsageError(
            "bus.bad_variant",
            f"--variants {variants} does not name two variants",
            "name one of A, a comma, and one of B: --variants cyclonedds/udp4,mine",
        )
    return compared(a, b, matters, "diff", (names[0], names[1]))


@click.command()
@common()
@FILE
@AGAINST
@MATTERS
def check(file: Path, against: Path | None, matters: float) -> Outcome:
    """Hold a run against an earlier one; exit 1 on a finding, 4 where nothing can be said."""
    if against is None:
        raise UsageError(
            "bus.nothing_to_check", "there is nothing to hold it against", "give --against BASE.nc"
        )
    outcome = compared(against, file, matters, "check")
    unsaid, told = outcome.exit == Exit.INCOMPLETE, outcome.verdict
    outcome.hold(outcome.findings, file)
    if not outcome.sound:
        outcome.verdict += f"; {told}"
    if unsaid and not outcome.findings:
        outcome.exit = Exit.INCOMPLETE
    return outcome


def compared(a: Path, b: Path, matters: float, verb: str, variants: tuple[str, str] | None = None) -> Outcome:
    """Two runs, case by case. variants: of A and B, where they are not to be of one name."""
    import sonde
    from sonde.bus import limits
    from sonde.core import dataset

    with sonde.open(a) as before, sonde.open(b) as after:
        machine = (dataset.attrs(before), dataset.attrs(after))
        result = limits.diff(
            dataset.summary_of(before, "bus", a),
            dataset.summary_of(after, "bus", b),
            (str(a), str(b)),
            matters,
            machine,
            variants,
        )
    outcome = result.outcome("bus", verb, b)
    if variants is not None:
        outcome.verdict = result.sentence(f"{variants[1]} of {b}")
    return outcome


COMMANDS: tuple[click.Command, ...] = (run, show, check, diff, show_variants)
