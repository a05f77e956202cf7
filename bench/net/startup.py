"""How long `sonde --help` takes, beside a Python that does nothing, in turns."""

from __future__ import annotations

import os
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
    sonde, python = [str(Path(sys.executable).with_name("sonde")), "--help"], [sys.executable, "-c", "pass"]
    took_s(sonde)
    pairs = [(took_s(sonde), took_s(python)) for _ in range(RUNS)]
    wall_s = [of_sonde[0] for of_sonde, _ in pairs]
    cpu_s = statistics.median(of_sonde[1] for of_sonde, _ in pairs)
    bare_s = statistics.median(of_python[0] for _, of_python in pairs)
    value, interval = statistics.median(wall_s), quantile_ci(wall_s, 0.5)
    return [
        {
            "what": "`sonde --help`",
            "bar": "< 200 ms",
            "value": value,
            "ci": [interval.low, interval.high],
            "met": value < BAR_S,
            "note": f"s of wall clock, median of {RUNS} runs in turns with `python -c pass` "
            f"({bare_s * 1e3:.0f} ms); least {min(wall_s) * 1e3:.0f} ms, "
            f"processor time {cpu_s * 1e3:.0f} ms; load average {os.getloadavg()[0]:.1f} on "
            f"{os.cpu_count()} CPUs. Imports no numpy, xarray, scipy, rich (tests/cli/test_entry.py)",
        }
    ]


def took_s(command: list[str]) -> tuple[float, float]:
    """Wall clock and processor time of a command, s; its output is thrown away."""
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, use = os.wait4(child.pid, 0)
    took = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {child.returncode}")
    return took, use.ru_utime + use.ru_stime
