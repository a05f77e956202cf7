"""sonde store conformance: tests and measures backends and transports of external modules."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import click

from sonde.core.errors import EnvironmentFailure, Exit, Finding, UsageError
from sonde.core.options import common
from sonde.core.outcome import Outcome, Table
from sonde.core.surroundings import from_start_folder, place_of_ranks
from sonde.store.errors import from_code

PROGRAM = "sonde-storeconform"


@click.command()
@common()
@click.option(
    "--setting",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting to open backends with; {tmp} in the value becomes a new folder. May be repeated.",
)
@click.option(
    "--flags",
    is_flag=True,
    help="Only print the compiler flags for a module or a C++ client.",
)
@click.argument("module", required=False, type=click.Path(path_type=Path), metavar="MODULE.so")
def conformance(module: Path | None, given: tuple[str, ...], flags: bool) -> Outcome:
    """Test and measure a backend or transport of an external module.

    Checks that the module keeps everything that the interfaces promise, then measures it: a backend alone, a transport
    together with tcp. The exit code is 1 when a check fails.

    \b
    g++ -shared -fPIC mine.cpp $(sonde store conformance --flags) -o mine.so
    sonde store conformance ./mine.so --setting path={tmp}
    """
    from sonde.core import launch

    libexec = launch.libexec()
    if flags:
        compiler_flags = [
            "-std=c++20",
            f"-I{libexec.parent / 'include'}",
            f"-L{libexec.parent / 'lib'}",
            f"-Wl,-rpath,{libexec.parent / 'lib'}",
            "-lsonde-store",
        ]
        text = " ".join(compiler_flags) + "\n"
        return Outcome("store", "conformance", document=text, values={"flags": compiler_flags})
    if module is None:
        raise UsageError("store.no_module", "no module was named", "sonde store conformance ./mine.so")
    events = _run(libexec / PROGRAM, module, given)
    checks = [event for event in events if event["event"] == "check"]
    rates = [event for event in events if event["event"] == "rate"]
    failed = [event for event in checks if not event["passed"]]
    outcome = Outcome(
        "store",
        "conformance",
        f"{module} keeps all of {len(checks)} promises"
        if not failed
        else f"{module} breaks {len(failed)} of {len(checks)} promises",
        findings=[
            Finding("store.nonconforming", _failure(event), {"seen": str(event["message"])})
            for event in failed
        ],
        tables=_tables(checks, rates),
        values={"module": str(module), "checks": checks, "rates": rates},
    )
    if failed:
        outcome.exit = Exit.FINDING
    return outcome


def _failure(check: dict[str, Any]) -> str:
    """The text of a failed check: the promise, and what was observed instead."""
    promise = f"{check['subject']}: {check['name']}"
    return f"{promise}: {check['message']}" if check["message"] else promise


def _run(program: Path, module: Path, given: tuple[str, ...]) -> list[dict[str, Any]]:
    """The program's events.

    Raises
    ------
    SondeError: its own error. EnvironmentFailure  store.not_built, store.module_died: it ended without an event.
    """
    argv = [str(program), from_start_folder(str(module))]
    for setting in given:
        argv += ["--setting", setting]
    try:
        ran = subprocess.run(
            argv,
            cwd=place_of_ranks(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError:
        raise EnvironmentFailure(
            "store.not_built",
            "this build of Sonde has no storage server",
            "'sonde doctor' shows what to install; then 'make setup' builds it",
        ) from None
    events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    for event in events:
        if event["event"] == "error":
            raise from_code(str(event["code"]), str(event["what"]), str(event["hint"]))
    if not events or events[-1]["event"] != "end":
        lines = ran.stderr.strip().splitlines()
        last = next((event["name"] for event in reversed(events) if event["event"] == "check"), "")
        raise EnvironmentFailure(
            "store.module_died",
            f"{module} ended the test with status {ran.returncode}" + (f" after '{last}'" if last else ""),
            lines[-1] if lines else f"run it under a debugger: {' '.join(argv)}",
        )
    return events


def _tables(checks: list[dict[str, Any]], rates: list[dict[str, Any]]) -> list[Table]:
    """The tables of the checks, one row for each tested subject, and of the rates."""
    from sonde.core.units import format_size

    subjects = dict.fromkeys(str(event["subject"]) for event in checks)
    rows = []
    for subject in subjects:
        own = [event for event in checks if event["subject"] == subject]
        passed = sum(bool(event["passed"]) for event in own)
        rows.append(("✓" if passed == len(own) else "✗", subject, f"{passed} of {len(own)}"))
    tables = [Table("Promises kept", ("", "what", "checks"), rows, right=(2,))]
    if rates:
        lines = [
            (
                str(r["subject"]),
                str(r["what"]),
                format_size(int(r["bytes"])),
                str(r["batch"]),
                f"{r['ops_s']:,.0f}",
            )
            for r in rates
        ]
        tables.append(
            Table(
                "Operations per second, each measured once for half a second",
                ("what", "operation", "size", "batch", "ops/s"),
                lines,
                right=(2, 3, 4),
            )
        )
    return tables
