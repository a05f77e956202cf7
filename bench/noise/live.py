"""Live: clean runs, and the noise source at known levels on a CPU that is drawn, one after the other, in drawn order.

Each run ends with its verdict, or when its time is over. Machines are shared: what else ran stands beside each row.
"""

from __future__ import annotations

import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from bench.noise import designs
from bench.noise.false_alarms import alarm_row
from bench.noise.power import KNOWN
from sonde.core.events import NullProgress
from sonde.core.launch.start import prepare
from sonde.noise.detector import run as runs
from sonde.noise.detector.plan import KNOWN_WEIGHT, OFF, Design, Plan, Variant, looks

CLEAN_RUNS, CLEAN_BLOCK_S, CLEAN_PAIRS = 20, 0.5, 8
REPEATS = 5
WORDS = 250_000


@dataclass
class Seen:
    """One run. level 0: clean. cpu: where the source was; rank: the one named, -1 none; mde: what it stated."""

    level: float
    detected: bool
    seconds: float
    cpu: int
    rank: int
    lost: float
    source_s: float
    source_gap_s: float
    mde: float


def rows() -> list[dict]:
    rng = random.Random(20)
    asked = [(0.0, 0.0)] * CLEAN_RUNS + [case for case in KNOWN for _ in range(REPEATS)]
    rng.shuffle(asked)
    seen = [
        once(level, bar, rng.choice(sorted(os.sched_getaffinity(0))), rng.randrange(1 << 30))
        for level, bar in asked
    ]
    clean = [run for run in seen if run.level == 0]
    losses = [run.lost for run in seen]
    lost = f"lost in stalls with nothing on: median {np.median(losses):.2%}, worst {max(losses):.2%}"
    row = alarm_row("false alarms, live clean runs", sum(run.detected for run in clean), len(clean))
    row["note"] += f"; {lost}"
    out = [row]
    for level, bar in KNOWN:
        here = [run for run in seen if run.level == level]
        times = sorted(run.seconds if run.detected else np.inf for run in here)
        out.append(
            {
                "what": f"live: {level:.4g} of the time in bursts each 1 s, 2 ranks on 2 cores: found within {bar:g} s",
                "bar": "reported (the bar is on injected traces)",
                "value": sum(run.detected for run in here) / len(here),
                "ci": list(
                    binomtest(sum(run.detected for run in here), len(here)).proportion_ci(0.95, "exact")
                ),
                "met": None,
                "note": f"{len(here)} runs; seconds to the verdict: "
                f"{', '.join('not found' if np.isinf(t) else f'{t:.0f}' for t in times)}; {lost}",
            }
        )
    found = [run for run in seen if run.level and run.detected]
    apart = [run.source_gap_s for run in found if np.isfinite(run.source_gap_s)]
    out.append(
        {
            "what": "live: the source's rule (99 % intervals 0.5 % apart) by the time Sonde had its verdict",
            "bar": "reported (ten times as long is simulated on recorded runs)",
            "value": len(apart) / len(found) if found else None,
            "ci": None,
            "met": None,
            "note": f"share of {len(found)} detected runs in which it had said yes at some moment; without the gap, "
            f"intervals disjoint at some moment: {sum(np.isfinite(run.source_s) for run in found)}",
        }
    )
    named = [run for run in found if run.rank >= 0]
    right = sum(run.rank == _rank_on(run.cpu) for run in named)
    out.append(
        {
            "what": "the noisy rank is named, where noise was detected",
            "bar": ">= 95 %",
            "value": right / len(found) if found else None,
            "ci": list(binomtest(right, len(found)).proportion_ci(0.95, "exact")) if found else None,
            "met": bool(found) and right >= 0.95 * len(found),
            "note": f"{right} right, {len(named) - right} wrong, {len(found) - len(named)} not named",
        }
    )
    return out


def _rank_on(cpu: int) -> int:
    """Ranks are bound to cores in order."""
    return sorted(os.sched_getaffinity(0)).index(cpu)


def once(level: float, bar_s: float, cpu: int, seed: int) -> Seen:
    """A run that is over after bar_s (0: after CLEAN_PAIRS), with the noise source at a level on a CPU; 0: clean."""
    import sonde

    if bar_s:
        rounds, spend = looks(designs.pairs_in(bar_s))
        design = Design(rounds, spend, 1.0, periods_s=(1.0,), fold_weight=KNOWN_WEIGHT)
    else:
        rounds, spend = looks(CLEAN_PAIRS)
        design = Design(rounds, spend, CLEAN_BLOCK_S, periods_s=(0.5,), fold_weight=KNOWN_WEIGHT)
    period_s = design.periods_s[0]
    target = Variant("nothing")
    if level:
        target = Variant("source", runs.source_plan(level, period_s, WORDS, seed), (cpu,), level)
    plan = Plan((OFF, target), design, 2, seed=seed, fresh_rounds=0, period_s=period_s)
    with tempfile.TemporaryDirectory(prefix="sonde-bench-") as scratch:
        start = prepare("noise", "sonde-noise", "auto", ())
        request = runs.Request(plan, start, Path(scratch) / "run.nc", ("bench",), None, 0.0)
        measured = runs.measure(request, NullProgress())
        with sonde.open(measured.paths[0]) as tree:
            row = tree["summary"].to_dataset().isel(variant=0).load()
    return Seen(
        level,
        bool(row["detected"]),
        float(row["detected_s"]),
        cpu,
        int(row["noisy_rank"]),
        float(row["clean_lost"]),
        float(row["source_detected_s"]),
        float(row["source_separated_s"]),
        float(row["mde"]),
    )
