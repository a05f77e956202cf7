"""`sonde check --against` on a machine that did not change, as it is and with every core kept busy by others: how often
it blames the machine. And with the processors' time cut to a half for Sonde alone: how often it does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from scipy.stats import binomtest

from bench.rows import Row, row
from busy import busy

RUNS, THROTTLED, WRONG = 20, 5, 1  # WRONG: of the 2 * RUNS unchanged ones
SONDE = Path(sys.executable).with_name("sonde")
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")  # of cgroup v1


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="sonde-bench-") as scratch:
        base = Path(scratch) / "base"
        subprocess.run([SONDE, "survey", "-o", base, "--budget", "60s"], check=True, capture_output=True)
        quiet, loaded = (_codes(base, RUNS, beside) for beside in (nullcontext(), busy()))
        return [*_unchanged(quiet, loaded), _throttled(base)]


def _codes(
    base: Path, runs: int, beside: AbstractContextManager[None], group: Path | None = None
) -> Counter[str]:
    """How often each exit code came, and what each that is a finding named."""
    seen: Counter[str] = Counter()
    with beside:
        for _ in range(runs):
            ran = subprocess.run(
                [SONDE, "check", "--against", base, "--json"],
                capture_output=True,
                text=True,
                preexec_fn=(lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if group else None,
            )
            codes = sorted({finding["code"] for finding in json.loads(ran.stdout).get("findings", [])})
            seen[" ".join([str(ran.returncode), *codes])] += 1
    return seen


def _text(seen: Counter[str]) -> str:
    return ", ".join(f"{count} ended with {what}" for what, count in sorted(seen.items()))


def _unchanged(quiet: Counter[str], loaded: Counter[str]) -> list[Row]:
    both = quiet + loaded
    wrong = sum(count for what, count in both.items() if what.startswith("1"))
    return [
        row(
            "check --against on an unchanged machine blames it",
            f"<= {WRONG} of {2 * RUNS}",
            wrong,
            [2 * RUNS * end for end in binomtest(wrong, 2 * RUNS).proportion_ci(0.95, "exact")],
            lambda value: value <= WRONG,
            f"nothing started beside it: {_text(quiet)}; every core busy: {_text(loaded)}",
        )
    ]


def _throttled(base: Path) -> Row:
    """A fault of this machine that nobody else's work explains: half of the processors' time."""
    what = "check --against finds that Sonde has half of the processors' time"
    if not (CPU_GROUPS / "cgroup.procs").exists():
        return row(what, f"{THROTTLED} of {THROTTLED}", None, None, None, f"no {CPU_GROUPS} is here")
    group = CPU_GROUPS / f"sonde-bench-{os.getpid()}"
    group.mkdir()
    try:
        period_us = 10_000
        (group / "cpu.cfs_period_us").write_text(str(period_us))
        (group / "cpu.cfs_quota_us").write_text(str(period_us * len(os.sched_getaffinity(0)) // 2))
        seen = _codes(base, THROTTLED, nullcontext(), group)
    finally:
        group.rmdir()
    found = sum(count for text, count in seen.items() if text.startswith("1"))
    return row(
        what, f"{THROTTLED} of {THROTTLED}", found, None, lambda value: value == THROTTLED, _text(seen)
    )
