"""What tracing one call costs: a function that does nothing, beside the same without a tracer."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench.io.programs import nothing, numbers, row, traced, workshop

ROUNDS = 9
KEPT = 200_000  # B: what the thread's files take; nothing is appended any more
BARS = {"in memory": 30.0, "streaming to tmpfs": 60.0}


def rows() -> list[dict]:
    """ns a call more than without the tracer, by where its records go."""
    cost: dict[str, list[float]] = {"in memory": [], "streaming to tmpfs": [], "streaming to disk": []}
    with workshop() as shop, tempfile.TemporaryDirectory(prefix="sonde-bench-") as disk:
        for _ in range(ROUNDS):
            plain = statistics.median(numbers([shop / "many", 3]))
            for name, where, most in (
                ("in memory", shop, KEPT),
                ("streaming to tmpfs", shop, 0),
                ("streaming to disk", Path(disk), 0),
            ):
                with traced(nothing(), where, most) as env:
                    cost[name].append(statistics.median(numbers([shop / "many", 3], env)[1:]) - plain)
    out = []
    for name, found in cost.items():
        value, bar = statistics.median(found), BARS.get(name)
        out.append(
            row(
                f"one interposed call, entry, exit, two timestamps, record: {name}",
                f"<= {bar:g} ns" if bar else "(no bar)",
                value,
                value <= bar if bar else None,
                f"ns, median and range of {ROUNDS} rounds beside the same without a tracer",
                [min(found), max(found)],
            )
        )
    return out
