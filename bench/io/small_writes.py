"""Writes of 64 B with all layers traced, beside the same without a tracer, and what self times are worth then."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.io.programs import every, numbers, row, traced, workshop

ROUNDS = 9
WRITES = 300_000


def rows() -> list[dict]:
    """The ratio of both, interleaved; and what the trace tells of a write, beside what it takes without a tracer."""
    ratios, told = [], []
    with workshop() as shop:
        line = [shop / "small", shop / "data", WRITES, 2]
        for number in range(ROUNDS):
            found = {}
            for kind in ("plain", "traced") if number % 2 else ("traced", "plain"):
                if kind == "plain":
                    found[kind] = numbers(line)[-1]
                else:
                    with traced(every(), shop) as env:
                        found[kind] = numbers(line, env)[-1]
            ratios.append(found["traced"] / found["plain"])
            told.append(own_s(shop, line) / (found["plain"] / WRITES))
    value, right = statistics.median(ratios), statistics.median(told)
    return [
        row(
            "64 B writes to tmpfs, all layers, against untraced",
            "<= 1.3 times",
            value,
            value <= 1.3,
            f"median and range of {ROUNDS} interleaved rounds of {WRITES} writes",
            [min(ratios), max(ratios)],
        ),
        row(
            "time of such a write itself, as the trace tells it, against the loop without a tracer",
            "(no bar)",
            right,
            None,
            "what tracing takes is taken off; the loop's own instructions are in neither",
            [min(told), max(told)],
        ),
    ]


def own_s(shop: Path, line: Sequence[object]) -> float:
    """A write's own time in a trace of the same program, s."""
    data = shop / "a.nc"
    sonde = [Path(sys.executable).with_name("sonde"), "io", "run", "--json", "-o", data, "--", *line]
    ran = subprocess.run(list(map(str, sonde)), check=True, capture_output=True, text=True, timeout=300)
    (write,) = [one for one in json.loads(ran.stdout)["functions"] if one["function"] == "write"]
    data.unlink()
    return float(write["self_s"]) / int(write["calls"])
