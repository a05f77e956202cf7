"""sonde store run, show, check, diff: measure what the choice of a transport costs."""

from __future__ import annotations

import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from sonde.core.errors import Exit, UsageError, Warning, typed
from sonde.core.options import (
    A_NC,
    AGAINST,
    B_NC,
    FILE,
    MATTERS,
    TIMEOUT,
    BuiltinType,
    Counts,
    Sizes,
    common,
    settings,
)
from sonde.core.outcome import Outcome, Table
from sonde.store.cli_client import AUTH

if TYPE_CHECKING:
    from sonde.store.limits import Checked
    from sonde.store.run_bench import Request

DEFAULT_BUDGET_S = 60.0
START_S = 1.0  # part of a budget that loading and starting take
MAX_RATIO = 10.0  # no transport is this much faster than tcp: a larger limit is a typing error


class Ratio(BuiltinType):
    """A limit for a ratio of rates: "0.75". Value: float."""

    name, allowed = "ratio", "above 0, at most 10"

    def read(self, text: str) -> float:
        with suppress(ValueError):
            if 0 < (value := float(text)) <= MAX_RATIO:
                return value
        raise UsageError(
            "core.bad_number", f"'{text}' is not allowed; allowed: {self.allowed}", "write it like 0.75"
        )


class OperationSizes(Sizes):
    """Sizes of operations, written like message lengths. Value: tuple of int, B."""

    # The value of plan.MAX_BYTES, repeated here so that plan need not be imported
    largest, largest_is = 1 << 30, "1 GiB, the most that one operation moves"


@click.command()
@common("output", "budget", "precision", "seed", "dry_run")
@click.option(
    "--ops",
    metavar="LIST",
    help="Clients or operations, such as object,kv.get. Clients: object striped item kv db dataset attribute; hdf5 "
    "for the last two; or all.",
)
@click.option(
    "--sizes",
    type=OperationSizes(),
    metavar="SIZES",
    help="Bytes of an operation: begin:end:step, or a list.",
)
@click.option("--batch", "batches", type=Counts(), metavar="LIST", help="Operations in a batch: 1,10000.")
@click.option("--depth", "depths", type=Counts(), metavar="LIST", help="Batches in flight at once: 1,16.")
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="raw raw-ofi tcp plain ofi-msg ofi-rdm ofi-rma thesis thesis-tcp, ofi-msg/PROVIDER, or "
    "NAME=TRANSPORT,OPTION=…; may be repeated.",
)
@click.option(
    "--server",
    "addresses",
    multiple=True,
    metavar="HOST:PORT",
    help="A server that runs already; may be repeated.",
)
@click.option(
    "--servers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of servers to start here.",
)
@click.option(
    "--backend",
    default="null",
    show_default=True,
    metavar="NAME",
    help="Backends of these servers: null memory posix+lmdb posix+rocksdb.",
)
@click.option(
    "--safety", type=click.Choice(("network", "storage")), default="network", show_default=True,
    help="When a write is acknowledged.",
)  # fmt: skip
@click.option(
    "--token-file", type=click.Path(path_type=Path), metavar="FILE", help="The shared secret of the --server."
)
@AUTH
@click.option(
    "--rule",
    metavar="RULE",
    help="When a cell has enough samples: ci:2%, fixed:1000, …; see sonde net rules.",
)
@click.option(
    "--cap", type=click.IntRange(min=1), default=20000, show_default=True, help="Maximum samples of a cell."
)
@click.option(
    "--epoch-length",
    type=click.IntRange(1, 100000),
    default=50,
    show_default=True,
    help="Maximum samples of a burst.",
)
@TIMEOUT
def run(
    output: Path | None,
    budget_s: float | None,
    precision: float | None,
    seed: int | None,
    dry_run: bool,
    ops: str | None,
    sizes: tuple[int, ...] | None,
    batches: tuple[int, ...] | None,
    depths: tuple[int, ...] | None,
    variants: tuple[str, ...],
    addresses: tuple[str, ...],
    servers: int,
    backend: str,
    safety: str,
    token_file: Path | None,
    auth: str | None,
    rule: str | None,
    cap: int,
    epoch_length: int,
    timeout_s: float,
) -> Outcome:
    """Measure a storage service over every transport, interleaved in one run.

    Each case (an operation, its size, its batch) is measured on each variant in short bursts, each time in a new random
    order. A bare socket and bare libfabric, which move the same bytes, are measured as limits. Servers are started
    here, and by default store nothing, so that transports are compared and not disks. The default budget is 60 s;
    Ctrl-C saves what was measured until then.

    \b
    sonde store run --budget 60s -o store.nc
    sonde store run --ops object --sizes 4KiB --depth 1,16 --variant tcp,plain
    sonde store run --backend posix+lmdb --safety storage
    """
    began = settings().began
    from sonde.core.launch.start import output_path, replaced
    from sonde.core.rules import rule_with
    from sonde.store import run_bench as runs
    from sonde.store.plan import Plan, cases_of, choose_variants, fitting, measuring_s, without_hopeless
    from sonde.store.run import check_address, has

    for address in addresses:
        check_address(address)
    if addresses:
        _refuse_own_servers()
    build = has()
    chosen = choose_variants(variants, build.get("transports", ()))
    notes: list[Warning] = []
    if addresses and not variants and not all(map(_on_loopback, addresses)):
        # The raw limit is measured within this machine. It is no limit for the path to another machine.
        chosen = tuple(variant for variant in chosen if variant.style != "raw")
    backends = {} if addresses else runs.backends_of(backend, build, safety)
    cases, left = cases_of(ops, sizes, batches, depths)
    cases, lacking, hdf5 = runs.runnable(
        cases, runs.roles_of(addresses, token_file, auth) if addresses else backends
    )
    notes += [*left, *lacking]
    total_s = budget_s or DEFAULT_BUDGET_S
    asked = any(option is not None for option in (ops, sizes, batches, depths))
    # The selection depends on the options alone, not on the time that passed so far: a dry run shows the same.
    time_s = measuring_s(max(total_s - START_S, 0.0), len(cases) * len(chosen))
    fit = cases if asked else fitting(cases, chosen, time_s)
    chosen, hopeless = without_hopeless(chosen, fit, time_s)
    plan = Plan(
        variants=chosen,
        cases=tuple(fit),
        rule=rule_with(precision, rule, "ci:2%", "store"),
        safety=safety,
        seed=secrets.randbits(32) if seed is None else seed,
        cap=cap,
        epoch_length=epoch_length,
        servers=len(addresses) or servers,
        backends=backends,
        backend="of the server" if addresses else backend,
        asked=bool(variants),
        left_out=tuple(cases[len(fit) :]),
        hdf5=hdf5,
        notes=tuple(notes),
        hopeless=tuple(hopeless),
    )
    out = output_path("store", output)
    request = runs.Request(
        plan, out, ("sonde", *sys.argv[1:]), total_s, began, tuple(addresses), token_file, timeout_s, auth
    )
    gone = replaced(out)
    if dry_run:
        outcome = _dry(request)
        outcome.warnings = [*gone, *outcome.warnings]
        return outcome
    measured = runs.measure(request, settings().bar("store run", total_s))
    outcome = outcome_of(measured.paths[0], "run")
    outcome.warnings = [*gone, *plan.notes, *outcome.warnings]
    measured.check(outcome.warnings)
    if measured.interrupted:
        outcome.tell_interrupted(measured.paths)
    elif not outcome.complete:
        outcome.exit = Exit.INCOMPLETE
    return outcome


def _refuse_own_servers() -> None:
    """UsageError  store.two_stores: an option for servers that are started here was given together with --server."""
    context = click.get_current_context()
    for name in ("servers", "backend"):
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise UsageError(
                "store.two_stores",
                f"--server and --{name} were both given, but --{name} cannot change a server that runs already",
                f"leave out --{name}, or --server: 'sonde store status' shows the backends of a server",
            )


def _on_loopback(address: str) -> bool:
    host = address.rpartition("@")[2].rpartition(":")[0]
    return host in ("localhost", "[::1]", "::1") or host.startswith("127.")


def _dry(request: Request) -> Outcome:
    from sonde.core.run_folder import folder_of

    plan = request.plan
    line = request.line(folder_of(request.out), request.servers or ["127.0.0.1:PORT"] * plan.servers)
    time_s = request.left_s()
    values = {
        "variants": [variant.name for variant in plan.variants],
        "cases": [case.spec for case in plan.cases],
        "cells": plan.cells,
        "command": typed(*line),
    }
    rows = [*plan.rows(time_s), ("dataset", str(request.out))]
    return Outcome.dry_run("store", "run", [rows], [line], values, [*plan.notes, *plan.warnings()])


@click.command("variants")
@common()
def show_variants() -> Outcome:
    """List the variants that store run compares, and describe each."""
    from sonde.store.plan import VARIANTS

    rows = [(v.name, v.style, v.transport, v.text) for v in VARIANTS.values()]
    return Outcome(
        "store",
        "variants",
        f"{len(rows)} variants",
        tables=[Table("Variants of sonde store run", ("name", "style", "transport", "description"), rows)],
        values={
            "variants": [
                {
                    "name": v.name,
                    "variant": v.style,
                    "transport": v.transport,
                    "options": v.options,
                    "text": v.text,
                }
                for v in VARIANTS.values()
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
    help="Show one case in full: object.write:4096:1:1, or the beginning of it.",
)
def show(file: Path, case: str | None) -> Outcome:
    """Show a dataset: the rates by client and variant, and their ratios."""
    outcome = outcome_of(file, "show")
    if case is not None:
        import sonde
        from sonde.core import dataset
        from sonde.store import verdict

        with sonde.open(file) as tree:
            summary = dataset.summary_of(tree, "store", file)
            names = [str(name) for name in summary["case"].values]
            found = [c for c, name in enumerate(names) if name == case or name.startswith(case)]
            if not found:
                raise UsageError(
                    "store.no_such_case",
                    f"{file} has no case '{case}'; it has: {', '.join(names)}",
                    "give one of these",
                )
            outcome.tables = [verdict.case_table(summary, c) for c in found]
    return outcome


def outcome_of(path: Path, verb: str) -> Outcome:
    """The Outcome that shows a dataset: verdict, tables, lessons and warnings."""
    import sonde
    from sonde.core import dataset
    from sonde.store import verdict

    with sonde.open(path) as tree:
        summary = dataset.summary_of(tree, "store", path)
        warnings = dataset.warnings_of(tree)
        values = verdict.values(summary) | {"stop_reason": str(tree.attrs.get("stop_reason", "unknown"))}
        return Outcome(
            "store",
            verb,
            verdict.sentence(summary, str(path)),
            schema=str(tree.attrs["schema"]),
            dataset=str(path),
            complete=bool(tree.attrs.get("complete", 1)),
            warnings=[*warnings, *verdict.warnings(summary)],
            values=values,
            tables=verdict.tables(summary),
            lines=[lesson["text"] for lesson in values["lessons"][1:]],  # the first is in the sentence
            sound=verdict.good(summary),
        )


@click.command()
@common()
@A_NC
@B_NC
@MATTERS
def diff(a: Path, b: Path, matters: float) -> Outcome:
    """Compare run B with run A, cell by cell; exit 1 when B is slower.

    Changes in the machine are reported with the findings.
    """
    return compared(a, b, matters, "diff")


@click.command()
@common()
@FILE
@AGAINST
@click.option(
    "--min-ratio",
    type=Ratio(),
    metavar="R",
    help="Minimum ratio of a variant's rate to that of tcp. Raw limits, plain and thesis are not judged.",
)
@MATTERS
def check(file: Path, against: Path | None, min_ratio: float | None, matters: float) -> Outcome:
    """Check a run against an earlier one, or against a limit; exit 1 on a finding, 4 without a result."""
    import sonde
    from sonde.core import dataset
    from sonde.store import limits

    if against is None and min_ratio is None:
        raise UsageError(
            "store.nothing_to_check",
            "no limit and no earlier run was given",
            "give --against BASE.nc, or --min-ratio 0.75",
        )
    outcome = compared(against, file, matters, "check") if against else outcome_of(file, "check")
    if against is None:
        outcome.tables, outcome.lines, outcome.sound = [], [], True
    found, inconclusive, verdict = outcome.findings, outcome.exit == Exit.INCOMPLETE, outcome.verdict
    checked = None
    if min_ratio is not None:
        with sonde.open(file) as tree:
            checked = limits.below(dataset.summary_of(tree, "store", file), min_ratio, str(file))
        found = [*checked.findings, *found]
    outcome.hold(found, file)
    if against is not None and not outcome.sound:
        outcome.verdict += f"; {verdict}"
    if checked is not None:
        outcome.values |= {"judged": checked.judged, "to_judge": checked.cells}
        if checked.judged < checked.cells or not checked.judged:
            outcome.sound = False
            outcome.verdict += f"; {_judged(checked)}"
            inconclusive |= not checked.judged
    if inconclusive and not found:
        outcome.exit = Exit.INCOMPLETE
    return outcome


def _judged(checked: Checked) -> str:
    """How many cells could be compared with the limit, as text."""
    if not checked.cells:
        return "it has no cell to compare with tcp"
    many = f"{checked.judged} of {checked.cells}" if checked.judged else f"none of {checked.cells}"
    return f"{many} ratios could be judged: the others have no interval yet; give a longer --budget"


def compared(a: Path, b: Path, matters: float, verb: str) -> Outcome:
    """The Outcome of a comparison of two runs, cell by cell."""
    import sonde
    from sonde.core import dataset
    from sonde.store import limits

    with sonde.open(a) as before, sonde.open(b) as after:
        machine = (dataset.attrs(before), dataset.attrs(after))
        result = limits.diff(
            dataset.summary_of(before, "store", a),
            dataset.summary_of(after, "store", b),
            (str(a), str(b)),
            matters,
            machine,
        )
    return result.outcome("store", verb, b)


COMMANDS = (run, show, check, diff, show_variants)
