"""Whether runs find what they state that they would: bursts at the smallest level that a run says it detects with power
90 %, on the machine as it is and with every core kept busy by others.

A clean run of the same length comes first and says which level that is about; each run then states its own, and counts
where its bursts are at least as long.
"""

from __future__ import annotations

import os
import random

import numpy as np
from scipy.stats import binomtest

from bench.noise.live import Seen, once
from bench.rows import Row, row
from busy import busy
from sonde.noise.detector.detectable import MDE_POWER

RUNS, RUN_S, ABOVE = 20, 30.0, 1.25
LONGEST = 0.4  # of a period: what the source can do and the design can still find


def rows() -> list[Row]:
    rng = random.Random(26)
    return [_row(rng, False), _row(rng, True)]


def _row(rng: random.Random, loaded: bool) -> Row:
    with busy(loaded):
        seen = [one for _ in range(RUNS) if (one := _pair(rng)) is not None]
    counting = [one for one in seen if one.level >= one.mde]
    found = sum(one.detected for one in counting)
    missed = ", ".join(f"{one.level:.2%} of {one.mde:.2%}" for one in counting if not one.detected)
    return row(
        f"bursts at or above what the run stated with power {MDE_POWER:.0%} were detected, "
        f"{'every core busy' if loaded else 'nothing started beside it'}",
        f">= {MDE_POWER:.0%}",
        found / len(counting) if counting else None,
        list(binomtest(found, len(counting)).proportion_ci(0.95, "exact")) if counting else None,
        lambda share: share >= MDE_POWER,
        f"{len(counting)} of {RUNS} runs had such bursts; {RUNS - len(seen)} had no level to take; stated: "
        f"median {np.median([one.mde for one in seen]) if seen else np.nan:.2%}; lost with nothing on: median "
        f"{np.median([one.lost for one in seen]) if seen else np.nan:.1%}; missed (bursts of stated): "
        f"{missed or 'none'}",
    )


def _pair(rng: random.Random) -> Seen | None:
    """A run with bursts a little above what a run just before it stated; None where that stated nothing."""
    cpu = rng.choice(sorted(os.sched_getaffinity(0)))
    before = once(0.0, RUN_S, cpu, rng.randrange(1 << 30))
    level = ABOVE * before.mde
    if not level <= LONGEST:
        return None
    return once(level, RUN_S, cpu, rng.randrange(1 << 30))
