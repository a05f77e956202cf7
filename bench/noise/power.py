"""What is found in how many seconds: bursts put into recorded clean runs; and what could be found, by budget."""

from __future__ import annotations

import numpy as np

from bench.noise import designs, traces
from sonde.noise import judge

KNOWN = ((0.01, 20.0), (0.003, 30.0), (0.001, 60.0), (0.0003, 120.0))  # level, bar in s
UNKNOWN = (
    (0.01, 1.0, 60.0),
    (0.003, 1.0, 60.0),
    (0.01, 0.1, 120.0),
    (0.001, 1.0, None),
    (0.0003, 1.0, None),
    (0.01, 0.73, None),
)
BUDGETS = (30.0, 60.0, 120.0, 300.0)
RUNS, WANTED = 100, 0.9


def rows() -> list[dict]:
    known = traces.load()
    out = []
    for level, bar in KNOWN:
        out.append(_row(known, level, 1.0, bar, told=True))
    for level, period, limit in UNKNOWN:
        out.append(_row(known, level, period, limit, told=False))
    out += _curve(known)
    return out


def _row(
    known: dict[str, traces.Trace], level: float, period_s: float, bar: float | None, told: bool
) -> dict:
    folds, weight = designs.folding(told, period_s)
    shares = {}
    for number, (name, trace) in enumerate(known.items()):
        found = judge.power(
            trace.blocks,
            designs.design(bar or 120.0),
            period_s,
            level * period_s,
            1e-6,
            folds,
            fold_weight=weight,
            permutations=designs.PERMUTATIONS,
            seed=7 + number,
            runs=RUNS,
        )
        shares[name] = found.share
    worst = min(shares, key=shares.__getitem__)
    bursts = f"{level:.4g} of the time in bursts each {period_s:g} s"
    return {
        "what": f"power: {bursts}, period {'known' if told else 'unknown'}, {bar or 120.0:g} s",
        "bar": f">= {WANTED:.0%} on every trace" if bar else "reported",
        "value": shares[worst],
        "ci": None,
        "met": shares[worst] >= WANTED if bar else None,
        "note": "power by trace, worst first: "
        + ", ".join(
            f"{name} {share:.0%}" for name, share in sorted(shares.items(), key=lambda item: item[1])
        ),
    }


def _curve(known: dict[str, traces.Trace]) -> list[dict]:
    out = []
    for told in (True, False):
        folds, weight = designs.folding(told, 1.0)
        for budget in BUDGETS:
            least = {}
            for number, (name, trace) in enumerate(known.items()):
                burst = judge.detectable_burst_s(
                    trace.blocks,
                    designs.design(budget),
                    1.0,
                    5e-6,
                    folds,
                    wanted=WANTED,
                    fold_weight=weight,
                    permutations=999,
                    seed=3 + number,
                    runs=40,
                )
                least[name] = np.nan if burst is None else burst
            out.append(
                {
                    "what": f"least burst found each second, period {'known' if told else 'unknown'}, {budget:g} s",
                    "bar": "reported",
                    "value": float(np.nanmedian(list(least.values()))),
                    "ci": None,
                    "met": None,
                    "note": "share of the time, median over traces; "
                    + ", ".join(f"{name} {value:.2%}" for name, value in least.items()),
                }
            )
    return out
