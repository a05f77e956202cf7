"""Time to a verdict, by Sonde and by the source's rule, on the same blocks: bursts put into recorded clean runs.

Each simulated run goes on for ten times as long as Sonde needed. The source's rule is asked after every block and its
first yes counts, although it pays nothing for asking again: its times are flattered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bench.noise import designs, traces
from bench.noise.power import KNOWN
from sonde.noise.detector import judge
from sonde.noise.detector.block_numbers import Numbers
from sonde.noise.detector.source_rule import source_moments

RUNS = 30  # of each trace and level
LONGER = 10  # times Sonde's own time, for which the source's rule is asked
PERIOD_S, LIMIT_S = 1.0, 120.0


def rows() -> list[dict]:
    known = traces.load()
    return [_row(known, level, 11 + number) for number, (level, _bar) in enumerate(KNOWN)]


def _row(known: dict[str, traces.Trace], level: float, seed: int) -> dict:
    random = np.random.default_rng(seed)
    ratios: dict[str, list[float]] = {
        name: [ratio for ratio in _ratios(trace, level, random) if ratio > 0] for name, trace in known.items()
    }
    every = [ratio for values in ratios.values() for ratio in values]
    middle = float(np.median(every)) if every else math.nan
    least = {name: float(np.median(values)) if values else math.nan for name, values in ratios.items()}
    late = sum(ratio >= LONGER for ratio in every)
    told = ", ".join(f"{name} {_times(value)}" for name, value in least.items())
    return {
        "what": f"time to verdict, source's rule over Sonde's: {level:.4g} of the time in bursts each {PERIOD_S:g} s",
        "bar": ">= 10 times, or the source's rule never separates",
        "value": middle if math.isfinite(middle) else None,
        "ci": None,
        "met": bool(least) and all(value >= LONGER for value in least.values()),
        "note": f"median by trace: {told}; {len(every)} of {RUNS * len(known)} simulated runs found by Sonde within "
        f"{LIMIT_S:g} s; in {late} of them the source's rule (99 % intervals of means 0.5 % apart) said nothing "
        f"within {LONGER} times as long",
    }


def _times(ratio: float) -> str:
    if math.isnan(ratio):
        return "not found by Sonde"
    return f"{ratio:.1f} times" if math.isfinite(ratio) else f"never within {LONGER} times"


def _ratios(trace: traces.Trace, level: float, random: np.random.Generator) -> Iterator[float]:
    """Of each simulated run: the source's time over Sonde's, infinite where it said nothing; 0: Sonde found nothing."""
    design = designs.design(LIMIT_S)
    folds, weight = designs.folding(True, PERIOD_S)
    ends = [2 * int(end) for end in np.cumsum(design.rounds)]
    for _ in range(RUNS):
        on, drawn = _drawn(trace, LONGER * ends[-1], random)
        blocks = _blocks(trace, on[: ends[-1]], drawn[: ends[-1]], design.rounds, level, random)
        first = next(
            (
                look.blocks
                for look in judge.looks(
                    blocks,
                    ends,
                    design.spend,
                    folds,
                    fold_weight=weight,
                    permutations=designs.PERMUTATIONS,
                    seed=int(random.integers(1 << 30)),
                )
                if look.p_so_far <= design.alpha
            ),
            None,
        )
        if first is None:
            yield 0.0
            continue
        # Work that is kept from a core for this share of the time takes longer by as much.
        means = trace.mean_s[drawn] / np.where(on == 1, 1 - level, 1.0)
        _, separated, _ = source_moments(_numbers(on, means), np.arange(LONGER * first), 1)
        yield math.inf if separated is None else separated / first


def _drawn(trace: traces.Trace, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Of each block of a run whether the source is on, one of each pair, and the block of the trace it is."""
    first = random.integers(2, size=-(-count // 2))
    on = np.stack([first, 1 - first], axis=1).reshape(-1)[:count].astype(np.int32)
    return on, random.integers(len(trace.blocks), size=count)


def _blocks(
    trace: traces.Trace,
    on: np.ndarray,
    drawn: np.ndarray,
    rounds: tuple[int, ...],
    level: float,
    random: np.random.Generator,
) -> judge.Blocks:
    """These blocks of the trace, with bursts at one phase in those that are on."""
    clean, count = trace.blocks, len(drawn)
    begin_s = np.arange(count) * 1.05 * PERIOD_S
    phase = random.uniform(0, PERIOD_S)
    index, t, length = [], [], []
    stalls = [np.flatnonzero(clean.stall_block == k) for k in range(len(clean))]
    for k, source in enumerate(drawn):
        here = stalls[source]
        burst = (phase - begin_s[k]) % PERIOD_S
        lasts = float(clean.length_s[source])
        bursts = np.arange(burst, lasts, PERIOD_S) if on[k] else np.zeros(0)
        times = np.concatenate([clean.stall_t_s[here], bursts])
        order = np.argsort(times, kind="stable")
        index.append(np.full(times.size, k, np.int32))
        t.append(times[order])
        length.append(
            np.concatenate([clean.stall_length_s[here], np.full(bursts.size, level * PERIOD_S)])[order]
        )
    return judge.Blocks(
        number=np.arange(count, dtype=np.int32),
        segment=np.repeat(np.arange(len(rounds)), 2 * np.array(rounds)).astype(np.int32),
        on=on,
        begin_s=begin_s,
        length_s=clean.length_s[drawn],
        resumed_s=np.full(count, 0.05),
        levels=clean.levels[drawn],
        stall_block=np.concatenate(index),
        stall_t_s=np.concatenate(t),
        stall_length_s=np.concatenate(length),
    )


def _numbers(on: np.ndarray, means: np.ndarray) -> Numbers:
    nothing = np.zeros(on.size)
    return Numbers(on, nothing, nothing, nothing, means, nothing, nothing)
