"""Writes of 64 B with all layers traced, beside the same without a tracer, and what self times are worth then."""

from __future__ import annotations

import statistics

from bench.io.programs import every, numbers, row, traced, workshop

ROUNDS = 9
WRITES = 300_000


def rows() -> list[dict]:
    """The ratio of both, interleaved."""
    ratios = []
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
    value = statistics.median(ratios)
    return [
        row(
            "64 B writes to tmpfs, all layers, against untraced",
            "<= 1.3 times",
            value,
            value <= 1.3,
            f"median and range of {ROUNDS} interleaved rounds of {WRITES} writes",
            [min(ratios), max(ratios)],
        )
    ]
