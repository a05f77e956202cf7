"""sonde bus run, show, check, diff, variants: measure what a data-distribution bus costs."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    from sonde.bus.cases import Wanted
    from sonde.bus.plan import Plan
    from sonde.bus.run_probe import Request

DEFAULT_BUDGET_S = 60.0
START_S = 1.0  # time to load and start, taken from the budget


class SampleSizes(Sizes):
    """Sizes of samples, written like message lengths. Value: tuple of int, B."""

    largest = _core.bus_sizes()["most"]
    largest_is = f"{format_size(largest)}, the largest sample that can be measured"


@click.command()
@common("output", "launcher", "hosts", "budget", "precision", "seed", "dry_run")
@click.argument("tests", nargs=-1, metavar="[TEST]...")
@click.option(
    "--variants",
    multiple=True,
    metavar="LIST",
    help="Variants to measure: cyclonedds,fastdds/shm,raw/udp4, or NAME=IMPLEMENTATION,KEY=…; may be repeated.",
)
@click.option("--sizes", type=SampleSizes(), metavar="SIZES", help="Sizes of a sample: 64,1KiB,16KiB.")
@click.option(
    "--subscribers", type=Counts(), metavar="LIST", help="Subscribers in fanout and throughput: 1,8,48."
)
@click.option("--participants", type=Counts(), metavar="LIST", help="Participants in discovery: 8,32,96.")
@click.option(
    "--all-to-all",
    is_flag=True,
    help="In discovery every participant matches every other, not one writer its readers.",
)
@click.option(
    "--within", "within_s", type=Duration(), metavar="TIME", help="Time limit of one discovery: 30s."
)
@click.option(
    "--steady",
    "steady_s",
    type=Duration(),
    metavar="TIME",
    help="How long datagrams are counted after discovery: 1s.",
)
@click.option("--groups", type=Counts(), metavar="LIST", help="Groups in partitions: 1,32.")
@click.option("--clients", type=Counts(), metavar="LIST", help="Clients in calls: 1,100.")
@click.option("--calls", type=Whole(1), metavar="N", help="Calls of each client in one step.")
@click.option(
    "--interfaces",
    metavar="LIST",
    help="With --hosts: the network between them, eth0 or 10.1.0.0/16. Default: by the routing table.",
)
@click.option(
    "--unprotected",
    is_flag=True,
    help="With --hosts: run without keys; anyone on their network can join.",
)
@click.option(
    "--rule",
    metavar="RULE",
    help="Stopping rule of a series: ci:2%, fixed:1000, …; see sonde net rules.",
)
@click.option(
    "--cap",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Maximum number of samples in a series.",
)
@click.option(
    "--epoch-length",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="Maximum number of samples in one burst.",
)
@TIMEOUT
def run(
    output: Path | None, budget_s: float | None, dry_run: bool, timeout_s: float, **given: Any
) -> Outcome:
    """Measure what a data-distribution bus costs, all variants interleaved in one run.

    TEST is one or more of latency, fanout, discovery, partitions, throughput, first-message, calls, or all; the default
    is latency. Variants are implementations of DDS over their transports, and for comparison bare sockets and shared
    memory. All traffic stays on this machine's loopback unless --hosts names several hosts. The default budget is 60 s;
    Ctrl-C saves what was measured.

    \b
    sonde bus run --budget 60s -o bus.nc
    sonde bus run discovery --participants 8,32 --variants cyclonedds
    sonde bus run latency fanout --sizes 64,16KiB --variants fastdds,fastdds/shm
    sonde bus run latency throughput --hosts n[1-2] --unprotected
    """
    began = settings().began
    from sonde.bus import run_probe as probe
    from sonde.core.launch.start import output_path, replaced

    total_s = budget_s or DEFAULT_BUDGET_S
    plan = _plan(total_s, **given)
    probe.program()  # without the probe, no other message helps
    out = output_path("bus", output)
    request = probe.Request(plan, out, ("sonde", *sys.argv[1:]), total_s, began, timeout_s)
    replaced_file = replaced(out)
    if dry_run:
        outcome = _dry(request)
        outcome.warnings = [*replaced_file, *outcome.warnings]
        return outcome
    probe.require(plan)
    measured = probe.measure(request, settings().bar("bus run", total_s))
    outcome = outcome_of(measured.paths[0], "run")
    outcome.warnings = [*replaced_file, *plan.notes, *outcome.warnings]
    measured.check(outcome.warnings)
    if measured.interrupted:
        outcome.tell_interrupted(measured.paths)
    elif not outcome.complete:
        outcome.exit = Exit.INCOMPLETE
    return outcome


def _plan(
    total_s: float,
    launcher: str,
    hosts: str | None,
    precision: float | None,
    seed: int | None,
    tests: tuple[str, ...],
    variants: tuple[str, ...],
    interfaces: str | None,
    unprotected: bool,
    rule: str | None,
    cap: int,
    epoch_length: int,
    **numbers: Any,
) -> Plan:
    """The plan of a run by its options, for a budget of `total_s`. numbers: the options of `_wanted`.

    Raises
    ------
    UsageError  bus.one_host and what the readers of the options raise.
    """
    from sonde.bus import run_probe as probe
    from sonde.bus.cases import between, cases_of, read_tests
    from sonde.bus.plan import Plan, fitting, measuring_s
    from sonde.bus.variants import choose_variants, guarded, with_paths
    from sonde.core.rules import rule_with

    where, started_by = probe.hosts_of(launcher, hostlist.expand(hosts) if hosts else ())
    across = len(where) > 1
    if not across and (interfaces or unprotected):
        raise UsageError(
            "bus.one_host",
            f"--{'interfaces' if interfaces else 'unprotected'} is for a run over several hosts; this run stays on "
            "the loopback",
            "name the hosts with --hosts, or leave the option out",
        )
    named, unmeasured = between(read_tests(tests)) if across else (read_tests(tests), ())
    wanted = _wanted(**numbers)
    chosen = choose_variants(variants, named, across)
    if across:
        chosen = guarded(chosen, unprotected, [host.name for host in where])
    if where:
        chosen = tuple(with_paths(variant, os.path.abspath) for variant in chosen)
    cases = [case for case in cases_of(named, wanted) if any(v.takes(case) for v in chosen)]
    # The plan depends only on the command line, not on the time spent so far: a dry run shows the same plan.
    time_s = measuring_s(max(total_s - START_S, 0.0), len(cases) * len(chosen))
    fit = cases if wanted.any else fitting(cases, chosen, time_s)
    return Plan(
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


def _wanted(
    sizes: tuple[int, ...] | None,
    subscribers: tuple[int, ...] | None,
    participants: tuple[int, ...] | None,
    all_to_all: bool,
    within_s: float | None,
    steady_s: float | None,
    groups: tuple[int, ...] | None,
    clients: tuple[int, ...] | None,
    calls: int | None,
) -> Wanted:
    from sonde.bus.cases import Wanted

    return Wanted(
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


def _dry(request: Request) -> Outcome:
    from sonde.core.run_folder import folder_of

    plan = request.plan
    line = request.line(folder_of(request.out))
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
    """List the variants that bus run compares by default."""
    from sonde.bus.cases import TESTS
    from sonde.bus.variants import NULL, RAW, usual_variants

    def tests(measured: tuple[str, ...]) -> str:
        missing = [test for test in TESTS if test not in measured]
        if len(missing) < len(measured):
            return f"all but {', '.join(missing)}" if missing else "all"
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
    note = (
        "Others: --variants NAME=IMPLEMENTATION,KEY=VALUE,…; keys: discovery, multicast, security, profile, …"
    )
    return Outcome(
        "bus",
        "variants",
        f"bus run compares {len(rows)} variants by default",
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
    "--case",
    "case",
    metavar="CASE",
    help='Show one case in full: "latency, 64 B", or the beginning of its name.',
)
def show(file: Path, case: str | None) -> Outcome:
    """Show a dataset: each test by variant, how costs grow, why a first message is slow."""
    outcome = outcome_of(file, "show")
    if case is not None:
        import sonde
        from sonde.bus import tables, verdict
        from sonde.bus.values import Values
        from sonde.core import dataset

        with sonde.open(file) as tree:
            summary = dataset.summary_of(tree, "bus", file)
            outcome.tables, outcome.lines = (
                tables.case_tables(summary, case),
                [],
            )  # lessons apply to the whole run
            if not outcome.tables:
                raise UsageError(
                    "bus.no_such_case",
                    f"{file} has no case '{case}'; its cases: {'; '.join(verdict.titles(Values(summary)))}",
                    "name one of these cases",
                )
    return outcome


def outcome_of(path: Path, verb: str) -> Outcome:
    """The outcome of showing a dataset."""
    import sonde
    from sonde.bus import lessons, tables, verdict
    from sonde.bus.texts import capitalised
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
            tables=tables.tables(summary),
            # The verdict contains the first lesson.
            lines=[
                capitalised(f"{lesson['text']}.")
                for lesson in lessons.merged_lessons(lessons.lessons(Values(summary))[1:])
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
    help="Compare one variant of B with one of A; both may be the same file: cyclonedds/udp4,mine.",
)
def diff(a: Path, b: Path, matters: float, variants: str | None) -> Outcome:
    """Compare run B with run A, case by case, and list changes of the machine; exit 1 if B costs more.

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
            "name one variant of A and one of B, with a comma between them: --variants cyclonedds/udp4,mine",
        )
    return compared(a, b, matters, "diff", (names[0], names[1]))


@click.command()
@common()
@FILE
@AGAINST
@MATTERS
def check(file: Path, against: Path | None, matters: float) -> Outcome:
    """Compare a run with an earlier one; exit 1 on a finding, 4 if the result is inconclusive."""
    if against is None:
        raise UsageError("bus.nothing_to_check", "there is no run to compare with", "give --against BASE.nc")
    outcome = compared(against, file, matters, "check")
    inconclusive, comparison = outcome.exit == Exit.INCOMPLETE, outcome.verdict
    outcome.hold(outcome.findings, file)
    if not outcome.sound:
        outcome.verdict += f"; {comparison}"
    if inconclusive and not outcome.findings:
        outcome.exit = Exit.INCOMPLETE
    return outcome


def compared(a: Path, b: Path, matters: float, verb: str, variants: tuple[str, str] | None = None) -> Outcome:
    """The comparison of two runs, case by case. variants: one of A and one of B, instead of those of the same name."""
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
