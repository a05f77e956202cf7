"""sonde bus conformance: test implementations of the bus against everything that its interface promises."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sonde.core.errors import EnvironmentFailure, Exit, Finding, typed
from sonde.core.events import Progress
from sonde.core.options import common, settings
from sonde.core.outcome import Outcome, Table
from sonde.core.surroundings import from_start_folder, place_of_ranks

PROGRAM = "sonde-busconform"
KINDS = ("subject", "check", "unsupported")


@click.command()
@common()
@click.option(
    "--flags",
    is_flag=True,
    help="Only print the compiler flags for a module or a C++ program.",
)
@click.option("--list", "listed", is_flag=True, help="Only list the cases.")
@click.option(
    "--case",
    "case",
    metavar="PATTERN",
    help="Run only the cases whose name matches, with * and ?; long ones included.",
)
@click.option(
    "--profile",
    metavar="FILE[#NAME]",
    help="Use the transport, discovery and security of this profile instead of all that an implementation supports.",
)
@click.argument("what", nargs=-1, metavar="[IMPLEMENTATION|MODULE.so]...")
def conformance(
    what: tuple[str, ...], flags: bool, listed: bool, case: str | None, profile: str | None
) -> Outcome:
    """Test implementations, built in or your own module, against what the bus promises.

    Without a name it tests every installed implementation on every transport that it supports. Features that an
    implementation declares as unsupported are skipped. The test takes a minute for each. Exit 1 if a check fails.

    \b
    sonde bus conformance cyclonedds
    sonde bus conformance fastdds --case 'requests*'
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
    if listed:
        names = _names(libexec / PROGRAM)
        return Outcome(
            "bus", "conformance", document="".join(f"{n}\n" for n in names), values={"cases": names}
        )
    options = ["--case", case] if case else []
    options += ["--profile", from_start_folder(profile)] if profile else []
    named = [from_start_folder(word) if "/" in word else word for word in what]
    with settings().bar("bus conformance", None) as bar:
        events = _run(libexec / PROGRAM, [*options, *named], bar)
    found = {kind: [_plain(event) for event in events if event["event"] == kind] for kind in KINDS}
    checks, cannot = found["check"], found["unsupported"]
    failed = [check for check in checks if not check["passed"]]
    versions = {str(one["subject"]): str(one["version"]) for one in found["subject"]}
    subjects = ", ".join(" ".join(filter(None, pair)) for pair in versions.items())
    result = f"{len(checks) - len(failed)} of {len(checks)} check{'s' * (len(checks) != 1)} passed"
    if not checks:
        result = "it declares everything that was requested as unsupported"
    outcome = Outcome(
        "bus",
        "conformance",
        f"{subjects}: {result}",
        findings=[
            Finding(
                "bus.nonconforming",
                _seen(check),
                {"seen": str(check.get("message", ""))},
                typed("sonde", "bus", "conformance", *what, "--case", str(check["name"])),
            )
            for check in failed
        ],
        tables=_tables(checks, cannot),
        values={
            "subjects": found["subject"],
            "checks": checks,
            "unsupported": cannot,
        },
        sound=bool(checks),
    )
    if failed:
        outcome.exit = Exit.FINDING
    return outcome


def _plain(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "event"}


def _seen(check: dict[str, Any]) -> str:
    """A failed check as text: the promise, and what was observed instead."""
    promise = f"{check['subject']}: {check['name']}"
    return f"{promise}: {check['message']}" if check.get("message") else promise


def _not_built() -> EnvironmentFailure:
    return EnvironmentFailure(
        "bus.not_built",
        "this build of Sonde has no data bus",
        "'sonde doctor' says what to install; then 'make setup' builds it",
    )


def _names(program: Path) -> list[str]:
    """The names of all cases, for --case."""
    try:
        ran = subprocess.run(
            [str(program), "--list"],
            cwd=place_of_ranks(),
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        raise _not_built() from None
    return ran.stdout.splitlines()


def _run(program: Path, what: Sequence[str], progress: Progress) -> list[dict[str, Any]]:
    """The program's events. progress: shows each case when it ends.

    Raises
    ------
    SondeError: the error that the program reported. EnvironmentFailure  bus.not_built, bus.module_died: it ended
    without a report.
    """
    from sonde.core.errors import from_code

    command = [str(program), *what]
    began = time.monotonic()
    events: list[dict[str, Any]] = []
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        try:
            ran = subprocess.Popen(
                command,
                cwd=place_of_ranks(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                errors="replace",
            )
        except OSError:
            raise _not_built() from None
        with ran:
            assert ran.stdout
            try:
                for line in ran.stdout:
                    if not line.startswith("{"):
                        continue
                    events.append(json.loads(line))
                    progress.show(_progress(events, time.monotonic() - began))
            except BaseException:
                ran.terminate()  # this also ends its cases
                raise
        log.seek(0)
        log_lines = log.read().strip().splitlines()
    for event in events:
        if event["event"] == "error":
            raise from_code(str(event["code"]), str(event["what"]), str(event.get("hint", "")))
    if not events or events[-1]["event"] != "end":
        last = next((event["name"] for event in reversed(events) if event["event"] == "check"), "")
        raise EnvironmentFailure(
            "bus.module_died",
            f"the test ended with status {ran.returncode}" + (f" after '{last}'" if last else ""),
            log_lines[-1] if log_lines else f"run it under a debugger: {' '.join(command)}",
        )
    return events


def _progress(events: Sequence[dict[str, Any]], elapsed_s: float) -> dict[str, Any]:
    """The event for the progress bar: how many cases have ended, and the last one."""
    ended = [event for event in events if event["event"] in ("check", "unsupported")]
    note = f"{len(ended)} cases"
    if ended:
        note += f", last {ended[-1]['subject']}: {str(ended[-1]['name']).partition(':')[0]}"
    counts = {"done": len(ended), "active": 1, "cells": 0, "epoch": 0, "samples": 0}
    return {"event": "progress", **counts, "elapsed_s": elapsed_s, "note": note}


def _tables(checks: Sequence[dict[str, Any]], cannot: Sequence[dict[str, Any]]) -> list[Table]:
    """Checks by implementation and transport, with the features that it declares as unsupported."""
    from sonde.core.units import format_duration

    rows: list[tuple[str, ...]] = []
    for subject in dict.fromkeys(str(event["subject"]) for event in [*checks, *cannot]):
        own = [event for event in checks if event["subject"] == subject]
        passed = sum(bool(event["passed"]) for event in own)
        without = [str(event["message"]) for event in cannot if event["subject"] == subject]
        lacks = f"{len(without)}: {', '.join(dict.fromkeys(without))}" if without else ""
        took_s = sum(float(event["elapsed_s"]) for event in own)
        mark = "–" if not own else "✓" if passed == len(own) else "✗"
        rows.append((mark, subject, f"{passed} of {len(own)}", format_duration(took_s), lacks))
    head: tuple[str, ...] = ("", "tested", "passed", "time", "unsupported")
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    return [Table("Checks", head, rows, right=(2, 3))]
