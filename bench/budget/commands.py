"""Every command that has a --budget, with one: how many seconds it takes until it is back."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.rows import Row, row

LATE_S = 5.0  # by which a command may be late on a machine left alone
BUDGET_S, LONG_S = 20.0, 60.0

# A run that finds nothing takes longest: it has no early end, and searches for all that would have been found.
NOTHING = ("--ntasks", "2", "--agent", "sleep 100000")
COMMANDS: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("noise run", LONG_S, NOTHING),
    ("noise run", LONG_S, (*NOTHING, "--period", "1s")),
    ("noise run", BUDGET_S, (*NOTHING, "--period", "1s")),
    ("noise sensitivity", LONG_S, ("--ntasks", "2", "--levels", "1%,0.1%")),
    ("noise stability", LONG_S, ("--ntasks", "2")),
    ("noise host", BUDGET_S, ()),
    ("noise source", BUDGET_S, ("--level", "1%")),
    ("net run", BUDGET_S, ("--ntasks", "2")),
    ("store run", BUDGET_S, ()),
    ("bus run", BUDGET_S, ()),
    ("io study", BUDGET_S, ("--ntasks", "2", "--place", ".", "--size", "8MiB")),
    ("power demo", BUDGET_S, ()),
    ("check", BUDGET_S, ()),
    ("survey", LONG_S, ()),
)
CHOICE = "SONDE_BENCH_COMMANDS"  # a part of a command's name: only those that hold it


def rows() -> list[Row]:
    wanted = os.environ.get(CHOICE, "")
    return [_row(*command) for command in COMMANDS if wanted in command[0]]


def _row(name: str, budget_s: float, words: tuple[str, ...]) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        line = [str(Path(sys.executable).parent / "sonde"), *name.split(), *words]
        line += ["--budget", f"{budget_s:g}s", "--progress", "never"]
        if name == "power demo":  # it takes a folder among the temporary files by itself
            line += ["-o", str(Path(folder) / "demo.nc")]
        began = time.monotonic()
        ran = subprocess.run(line, capture_output=True, text=True, check=False, cwd=folder)
        took_s = time.monotonic() - began
    note = f"{' '.join((name, *words))}; exit {ran.returncode}"
    if ran.returncode in (2, 3, 5):
        note += f": {ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else 'no message'}"
        return row(f"{name}, --budget {budget_s:g}s", "not run here", None, None, None, note)
    return row(
        f"{name}, --budget {budget_s:g}s: seconds taken",
        f"at most {budget_s + LATE_S:g} s on a machine left alone",
        took_s,
        None,
        lambda seconds: seconds <= budget_s + LATE_S,
        note,
    )
