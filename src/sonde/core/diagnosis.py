"""The checks of `sonde doctor`, and how they run, each with a time limit. Touches the machine.

To add a check, write a function `(here: Here) -> Answer` under `@check("name", "Title", group)`. A room's check goes
into the room's `run_doctor.py`, and its name into the room's `checks()`; all others are listed in `cli/diagnosis/`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sonde.core.surroundings import place_of_ranks

GOOD, POOR, NONE, FACT = "✓", "!", "✗", " "

NETCDF = threading.Lock()
"""A check holds this while it writes or reads datasets: with two threads in netCDF-C or HDF5 a process crashes."""


@dataclass(frozen=True)
class Need:
    """A missing part: what it would provide, and the command that installs it."""

    what: str
    install: str


@dataclass(frozen=True)
class Answer:
    """The result of a check.

    text: one line for a person. mark: GOOD, POOR (works, but measures worse), NONE (does not work), FACT.
    values: the same for JSON. needs: missing parts. advice: what to do about a POOR one.
    """

    text: str
    mark: str = FACT
    values: Mapping[str, Any] = field(default_factory=dict)
    needs: Sequence[Need] = ()
    advice: str = ""


@dataclass(frozen=True)
class Ran:
    """A program that ran: exit status (None if it had to be killed), stdout, stderr."""

    status: int | None
    out: str
    err: str


@dataclass(frozen=True)
class Here:
    """The machine as checks see it; tests give them another one.

    root: the tree that holds proc/, sys/, dev/, etc/. cwd: the folder for results.
    """

    root: Path = Path("/")
    cwd: Path = Path()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @cached_property
    def machine(self) -> Mapping[str, Any]:
        """The machine as a dataset's root attributes describe it."""
        from sonde.core import provenance

        return provenance.machine(self.root)

    def read(self, path: str) -> str:
        """A small file's text without surrounding blanks; "" if it does not exist or cannot be read."""
        try:
            with (self.root / path).open("rb") as file:
                return file.read(1 << 20).decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def number(self, path: str) -> int | None:
        """The whole number that a file holds, or None."""
        text = self.read(path)
        return int(text) if text.lstrip("-").isdecimal() else None

    def which(self, program: str) -> str | None:
        """The path of a program on PATH, or None."""
        return shutil.which(program, path=self.environ.get("PATH"))

    def run(self, argv: Sequence[str], timeout_s: float) -> Ran:
        """Run a program without input; after `timeout_s` end it and all its descendants."""
        try:
            child = subprocess.Popen(
                list(argv),
                cwd=place_of_ranks(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environ),
                start_new_session=True,
            )
        except OSError as error:
            return Ran(None, "", str(error))
        try:
            out, err = child.communicate(timeout=timeout_s)
            return Ran(child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return Ran(None, "", f"no answer within {timeout_s:g} s")


@dataclass(frozen=True)
class Check:
    """One check: its key in JSON, its title, the group it is shown in, its function and time limit (s)."""

    name: str
    title: str
    group: str
    ask: Callable[[Here], Answer]
    limit_s: float

    def __call__(self, here: Here) -> Answer:
        return self.ask(here)


def check(
    name: str, title: str, group: str, limit_s: float = 10.0
) -> Callable[[Callable[[Here], Answer]], Check]:
    """Make a check from a function."""
    return lambda ask: Check(name, title, group, ask, limit_s)


def ask(checks: Sequence[Check], here: Here) -> dict[str, Answer]:
    """Run every check, each in its own thread, and wait for each no longer than its limit.

    Returns the answers by the checks' names. A check that fails or does not answer in time reports so and does not end
    the others.
    """
    answers: dict[str, Answer] = {}

    def one(asked: Check) -> None:
        try:
            answers[asked.name] = asked.ask(here)
        except Exception as error:
            answers[asked.name] = Answer(f"the check failed: {type(error).__name__}: {error}", POOR)

    threads = [threading.Thread(target=one, args=(asked,), daemon=True) for asked in checks]
    started_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread, asked in zip(threads, checks):
        thread.join(max(0.0, started_s + asked.limit_s - time.monotonic()))
    late = {asked.name: Answer(f"no answer within {asked.limit_s:g} s", POOR) for asked in checks}
    return {asked.name: answers.get(asked.name, late[asked.name]) for asked in checks}
