"""How long `sonde --help` takes, beside a Python that does nothing, in turns."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from sonde.core.stats import quantile_ci

BAR_S = 0.2
RUNS = 31


def rows() -> list[dict]:
    """The median of interleaved runs, with its interval. One run before them fills the page cache."""
    help_s, bare_s = [], []
    sonde, python = [str(Path(sys.executable).with_name("sonde")), "--help"], [sys.executable, "-c", "pass"]
    wall_s(sonde)
    for _ in range(RUNS):
        help_s.append(wall_s(sonde))
        bare_s.append(wall_s(python))
    value = statistics.median(help_s)
    interval = quantile_ci(help_s, 0.5)
    bare = statistics.median(bare_s)
    return [
        {
            "what": "`sonde --help`",
            "bar": "< 200 ms",
            "value": value,
            "ci": [interval.low, interval.high],
            "met": value < BAR_S,
            "note": f"s of wall clock, median of {RUNS} runs in turns with `python -c pass` "
            f"({bare * 1e3:.0f} ms), least {min(help_s) * 1e3:.0f} ms. Imports no numpy, xarray, scipy, rich "
            "(tests/cli/test_entry.py)",
        }
    ]


def wall_s(command: list[str]) -> float:
    """Seconds from start to exit, output thrown away."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began
