"""sonde bus conformance: what stands behind the bus, held against everything that its interface promises."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sonde.core.errors import EnvironmentFailure, Exit, Finding
from sonde.core.options import common
from sonde.core.outcome import Outcome, Table

PROGRAM = "sonde-busconform"


@click.command()
@common()
@click.option(
    "--flags",
    is_flag=True,
    help="Print what a compiler needs for a module or a C++ program, and do nothing else.",
)
@click.option(
    "--case", "case", metavar="PATTERN", help="Only cases whose name fits, with * and ?; long ones, too."
)
@click.option(
    "--profile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="On the transport, discovery and security of this profile instead of all that an implementation can.",
)
@click.argument("what", nargs=-1, metavar="[IMPLEMENTATION|MODULE.so]...")
def conformance(what: tuple[str, ...], flags: bool, case: str | None, profile: Path | None) -> Outcome:
    """Hold implementations, those built in or a module of yours, against what the bus promises.

    Without a name every implementation that is there, on every transport that it can. What one cannot do by its own
    word is not held against it. Exit 1 when a check fails.

    \b
    sonde bus conformance cyclonedds
    g++ -shared -fPIC mine.cpp $(sonde bus conformance --flags) -o mine.so
    sonde bus conformance ./mine.so
    """
    from sonde.core import launch

    libexec = launch.libexec()
    if flags:
        words = [
            "-std=c++20",
            f"-I{libexec.parent / 'include'}",
            f"-L{libexec.parent / 'lib'}",
            f"-Wl,-rpath,{libexec.parent / 'lib'}",
            "-lsonde-bus",
        ]
        return Outcome("bus", "conformance", document=" ".join(words) + "\n", values={"flags": words})
    options = ["--case", case] if case else []
    options += ["--profile", str(profile)] if profile else []
    events = _run(libexec / PROGRAM, [*options, *what])
    checks = [event for event in events if event["event"] == "check"]
    failed = [event for event in checks if not event["passed"]]
    cannot = [event for event in events if event["event"] == "unsupported"]
    named = [event for event in events if event["event"] == "subject"] or checks
    who = ", ".join(dict.fromkeys(str(event["subject"]) for event in named)) or ", ".join(what)
    outcome = Outcome(
        "bus",
        "conformance",
        f"{who}: all of {len(checks)} promises kept"
        if not failed
        else f"{who}: {len(failed)} of {len(checks)} promises broken",
        findings=[
            Finding("bus.nonconforming", _seen(event), {"seen": str(event.get("message", ""))})
            for event in failed
        ],
        tables=_tables(checks, cannot),
        values={"checks": checks, "unsupported": cannot},
        sound=bool(checks),
    )
    if failed:
        outcome.exit = Exit.FINDING
    return outcome


def _seen(check: dict[str, Any]) -> str:
    """A failed check: what was promised, and what was seen instead."""
    promise = f"{check['subject']}: {check['name']}"
    return f"{promise}: {check['message']}" if check.get("message") else promise


def _run(program: Path, what: Sequence[str]) -> list[dict[str, Any]]:
    """The program's events.

    Raises
    ------
    SondeError: its own error. EnvironmentFailure  bus.not_built, bus.module_died: it ended without a word.
    """
    from sonde.bus.run_probe import made

    words = [str(program), *what]
    try:
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError:
        raise EnvironmentFailure(
            "bus.not_built",
            "this build of Sonde has no data bus",
            "'sonde doctor' says what to install; then 'make setup' builds it",
        ) from None
    events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    for event in events:
        if event["event"] == "error":
            raise made(str(event["code"]), str(event["what"]), str(event.get("hint", "")))
    if not events or events[-1]["event"] != "end":
        said = ran.stderr.strip().splitlines()
        last = next((event["name"] for event in reversed(events) if event["event"] == "check"), "")
        raise EnvironmentFailure(
            "bus.module_died",
            f"the test ended with status {ran.returncode}" + (f" after '{last}'" if last else ""),
            said[-1] if said else f"run it under a debugger: {' '.join(words)}",
        )
    return events


def _tables(checks: list[dict[str, Any]], cannot: list[dict[str, Any]]) -> list[Table]:
    """Checks by what was tested, and what it cannot do by its own word."""
    rows = []
    for subject in dict.fromkeys(str(event["subject"]) for event in [*checks, *cannot]):
        own = [event for event in checks if event["subject"] == subject]
        passed = sum(bool(event["passed"]) for event in own)
        without = [str(event["name"]) for event in cannot if event["subject"] == subject]
        rows.append(
            ("✓" if passed == len(own) else "✗", subject, f"{passed} of {len(own)}", str(len(without)))
        )
    return [Table("Promises kept", ("", "what", "checks", "cannot by its own word"), rows, right=(2, 3))]
