"""What is found in how many seconds: bursts put into recorded clean runs; and what could be found, by budget."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from bench.noise import designs, traces
from sonde.noise.detector import judge

KNOWN = ((0.01, 20.0), (0.003, 30.0), (0.001, 60.0), (0.0003, 120.0))  # level, bar in s
UNKNOWN = (
    (0.01, 1.0, 60.0),
    (0.003, 1.0, 60.0),
    (0.01, 0.1, 120.0),
    (0.001, 1.0, None),
    (0.0003, 1.0, None),
    (0.01, 0.73, None),
)
BUDGETS = (30.0, 60.0, 120.0)
RUNS, FEWER_RUNS, CURVE_RUNS, WANTED = 100, 40, 20, 0.9
LIMIT_S = 120.0  # of what has no bar


@dataclass(frozen=True)
class Case:
    """Bursts for this share of the time at this period, in runs of so many seconds; bar None: reported."""

    level: float
    period_s: float
    told: bool
    seconds: float
    bar: bool


def rows() -> list[dict]:
    known = traces.load()
    cases = [Case(level, 1.0, True, seconds, True) for level, seconds in KNOWN]
    cases += [
        Case(level, period, False, limit or LIMIT_S, limit is not None) for level, period, limit in UNKNOWN
    ]
    curve = [(told, budget) for told in (True, False) for budget in BUDGETS]
    names = list(known)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        shares = {(case, name): pool.submit(_share, case, name) for case in cases for name in names}
        least = {(one, name): pool.submit(_least, *one, name) for one in curve for name in names}
        out = [_row(case, {name: shares[case, name].result() for name in names}) for case in cases]
        out += [_curve(*one, {name: least[one, name].result() for name in names}) for one in curve]
    return out


def _blocks(name: str) -> tuple[judge.Blocks, int]:
    """A trace's blocks, and its place among all, for seeds."""
    known = traces.load()
    return known[name].blocks, list(known).index(name)


def _shortest(blocks: judge.Blocks) -> float:
    """The shortest stall a trace has kept, s: a burst below it would stand out from what was left away."""
    return float(blocks.stall_length_s.min())


def _share(case: Case, name: str) -> float:
    """Of simulated runs on one trace, the share that finds the bursts."""
    blocks, number = _blocks(name)
    folds, weight = designs.folding(case.told, case.period_s)
    return judge.power(
        blocks,
        designs.design(case.seconds),
        case.period_s,
        case.level * case.period_s,
        _shortest(blocks),
        folds,
        fold_weight=weight,
        permutations=designs.PERMUTATIONS,
        seed=7 + number,
        runs=RUNS if case.bar else FEWER_RUNS,
    ).share


def _least(told: bool, budget_s: float, name: str) -> float:
    """On one trace, the shortest burst each second that is found with the power wanted, s."""
    blocks, number = _blocks(name)
    folds, weight = designs.folding(told, 1.0)
    burst = judge.detectable_burst(
        blocks,
        designs.design(budget_s),
        1.0,
        _shortest(blocks),
        folds,
        wanted=WANTED,
        fold_weight=weight,
        permutations=designs.PERMUTATIONS,
        seed=3 + number,
        runs=CURVE_RUNS,
    ).burst_s
    return np.nan if burst is None else burst


def _row(case: Case, shares: dict[str, float]) -> dict:
    worst = min(shares, key=shares.__getitem__)
    bursts = f"{case.level:.4g} of the time in bursts each {case.period_s:g} s"
    by_trace = sorted(shares.items(), key=lambda item: item[1])
    return {
        "what": f"power: {bursts}, period {'known' if case.told else 'unknown'}, {case.seconds:g} s",
        "bar": f">= {WANTED:.0%} on every trace" if case.bar else "reported",
        "value": shares[worst],
        "ci": None,
        "met": shares[worst] >= WANTED if case.bar else None,
        "note": f"{RUNS if case.bar else FEWER_RUNS} simulated runs a trace; power by trace, worst first: "
        + ", ".join(f"{name} {share:.0%}" for name, share in by_trace),
    }


def _curve(told: bool, budget_s: float, least: dict[str, float]) -> dict:
    return {
        "what": f"least burst found each second, period {'known' if told else 'unknown'}, {budget_s:g} s",
        "bar": "reported",
        "value": float(np.nanmedian(list(least.values()))),
        "ci": None,
        "met": None,
        "note": "share of the time, median over traces; "
        + ", ".join(f"{name} {value:.4%}" for name, value in least.items()),
    }
