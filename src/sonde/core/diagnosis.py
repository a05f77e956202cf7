"""What a check of `sonde doctor` is, and how checks are asked, each with a time limit. Touches the machine.

To add one: a function `(here: Here) -> Answer` under `@check("name", "Title", group)`, in a room's `run_doctor.py`
if it is the room's, and its name in the room's `checks()`; all others are listed in `cli/diagnosis/`.
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

GOOD, POOR, NONE, FACT = "✓", "!", "✗", " "

NETCDF = threading.Lock()
"""Held by a check while it writes or reads datasets: with two threads in netCDF-C or HDF5 a process crashes."""


@dataclass(frozen=True)
class Need:
    """Something that is missing: what it would give, and what to type to get it."""

    what: str
    install: str


@dataclass(frozen=True)
class Answer:
    """What a check found.

    text: one line for a person. mark: GOOD, POOR (works, but measures worse), NONE (does not work), FACT.
    values: the same for JSON. needs: what is missing. advice: what to do about a POOR one.
    """

    text: str
    mark: str = FACT
    values: Mapping[str, Any] = field(default_factory=dict)
    needs: Sequence[Need] = ()
    advice: str = ""


@dataclass(frozen=True)
class Ran:
    """A program that ran: exit status (None when it had to be ended), stdout, stderr."""

    status: int | None
    out: str
    err: str


@dataclass(frozen=True)
class Here:
    """The machine as checks see it; tests hand them another one.

    root: the tree that holds proc/, sys/, dev/, etc/. cwd: where results would go.
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
        """A small file's text without blanks around it; "" where it is not or may not be read."""
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
        """Where a program is on PATH, or None."""
        return shutil.which(program, path=self.environ.get("PATH"))

    def run(self, words: Sequence[str], timeout_s: float) -> Ran:
        """Runs a program without input; ends it and all that it started after `timeout_s`."""
        try:
            child = subprocess.Popen(
                list(words),
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
    """Makes a check of a function."""
    return lambda ask: Check(name, title, group, ask, limit_s)


def ask(checks: Sequence[Check], here: Here) -> dict[str, Answer]:
    """Asks every check, each in a thread of its own, and waits for none longer than its limit.

    Returns the answers by the checks' names. A check that fails or does not answer says so and does not end the
    others.
    """
    answers: dict[str, Answer] = {}

    def one(asked: Check) -> None:
        try:
            answers[asked.name] = asked.ask(here)
        except Exception as error:
            answers[asked.name] = Answer(f"could not be found out: {type(error).__name__}: {error}", POOR)

    threads = [threading.Thread(target=one, args=(asked,), daemon=True) for asked in checks]
    started_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread, asked in zip(threads, checks):
        thread.join(max(0.0, started_s + asked.limit_s - time.monotonic()))
    late = {asked.name: Answer(f"no answer within {asked.limit_s:g} s", POOR) for asked in checks}
    return {asked.name: answers.get(asked.name, late[asked.name]) for asked in checks}
