"""The savings and errors of each stopping rule on series that were recorded in full. Pure.

The reference for a rule is the median of the whole series of a cell, which has its own error: for short series a
coverage slightly below the level is expected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from scipy import stats as sps

from sonde.core.errors import DataError
from sonde.core.rules import Replay, replay
from sonde.core.stats import steady_median
from sonde.core.units import format_duration
from sonde.net.cells import pieces, series_in

LEVEL = 0.95
LEAST_SAMPLES = 20  # a cell with fewer samples shows nothing about a rule
GOOD = 0.01  # largest acceptable median error of a rule


@dataclass(frozen=True)
class RuleResult:
    """The result of one rule on one run.

    cells : number of replayed cells. n : median of samples taken. error, error_p95 : of |estimate / full median - 1|
    over cells.
    coverage, coverage_ci : share of intervals that contain the full median, among cells with an interval, with its
    exact binomial interval. time_saved : share of the sampling time that the rule would have saved. decisions : cells
    by decision.
    stopped : cells in which it converged before the series ended. wall_s, recorded_s : s, the duration that the run
    would have had and had, with the time between bursts; None if the file does not contain it.
    """

    rule: str
    cells: int
    n: float
    n_total: int
    error: float
    error_p95: float
    coverage: float
    coverage_ci: tuple[float, float]
    time_saved: float
    decisions: dict[str, int]
    stopped: int
    wall_s: float | None = None
    recorded_s: float | None = None

    @property
    def stops(self) -> bool:
        """Whether it converged in most cells before the series ended: a rule that takes every sample has no error."""
        return 2 * self.stopped >= self.cells

    @property
    def holds(self) -> bool:
        """Whether it stops, with a median error up to GOOD."""
        return self.stops and self.error <= GOOD

    def as_json(self) -> dict[str, object]:
        return {
            "rule": self.rule,
            "n": self.n,
            "error": self.error,
            "coverage": self.coverage,
            "time_saved": self.time_saved,
            "wall_s": self.wall_s,
            "recorded_s": self.recorded_s,
            "stopped": self.stopped,
            "error_p95": self.error_p95,
            "coverage_ci": list(self.coverage_ci),
            "cells": self.cells,
            "decisions": self.decisions,
        }


def replay_all(
    raw: xr.Dataset, specs: Sequence[str], *, cap: int = 20000, seed: int = 1, alone: bool = True
) -> list[RuleResult]:
    """Replay every cell of /raw with every rule.

    Parameters
    ----------
    raw : with latency, and epoch if there is one; read piecewise
    specs : rules, "ci:1%"
    cap : largest number of samples per cell
    alone : whether no other mode was measured between these bursts; otherwise the time between them says nothing about
    this one

    Raises
    ------
    DataError  net.no_series: no cell has LEAST_SAMPLES samples.
    UsageError  core.bad_rule.
    """
    replays: dict[str, list[tuple[Replay, float, float, int]]] = {spec: [] for spec in specs}
    wall = _Wall(len(specs)) if alone else None
    for x, epoch, t in _cells(raw):
        truth = steady_median(x, np.zeros(len(x), int) if epoch is None else epoch).median
        spent = np.cumsum(x)
        counts = []
        for spec in specs:
            one = replay(x, epoch, spec, cap=cap, seed=seed, level=LEVEL)
            time = float(spent[min(one.n, len(x)) - 1]) if one.n else 0.0
            replays[spec].append((one, truth, time / float(spent[-1]) if spent[-1] > 0 else 1.0, len(x)))
            counts.append(one.n)
        if wall is not None:
            wall.add(x, epoch, t, counts)
    if not any(replays.values()):
        raise DataError(
            "net.no_series",
            f"no cell has {LEAST_SAMPLES} samples or more, so there is nothing to replay",
            "measure with --raw, which stores every sample",
        )
    times = wall.seconds() if wall is not None else None
    return [
        replace(_result(spec, rows), wall_s=times[k], recorded_s=times[-1]) if times else _result(spec, rows)
        for k, (spec, rows) in enumerate(replays.items())
    ]


class _Wall:
    """The duration of a run in which each cell stops when a rule decides so, from the times of its bursts.

    Overlapping bursts are one step, of pairs that are measured at once. A step lasts until the end of its last needed
    burst; the time between steps (barriers, pauses, the choice of the next step) stays unchanged. A step without needed
    bursts takes no time.
    """

    def __init__(self, rules: int) -> None:
        self.rules = rules
        self.known = True
        self.bursts: list[
            np.ndarray
        ] = []  # (bursts of a cell, 2 + rules): begin, end in s; whether each rule needs it

    def add(
        self, x: np.ndarray, epoch: np.ndarray | None, t: np.ndarray | None, counts: Sequence[int]
    ) -> None:
        """One cell: its samples, their bursts and times, and the number of samples that each rule takes."""
        if epoch is None or t is None:
            self.known = False
        if not self.known or epoch is None or t is None:
            return
        first = np.flatnonzero(np.diff(epoch, prepend=epoch[0] - 1))
        last = np.append(first[1:], len(x)) - 1
        needed = first[:, None] < np.asarray(counts)[None, :]
        self.bursts.append(np.column_stack([t[first], t[last] + x[last], needed]))

    def seconds(self) -> list[float] | None:
        """The duration for each rule, and for the original run; None if times are unknown."""
        if not self.known or not self.bursts:
            return None
        bursts = np.concatenate(self.bursts)
        bursts = bursts[np.argsort(bursts[:, 0], kind="stable")]
        begin, end = bursts[:, 0], bursts[:, 1]
        latest = np.maximum.accumulate(end)
        step = np.flatnonzero(np.append(True, begin[1:] > latest[:-1]))
        starts, ends = begin[step], np.maximum.reduceat(end, step)
        pause = np.append(starts[1:] - ends[:-1], 0.0)
        out = []
        for k in range(self.rules):
            until = np.maximum.reduceat(np.where(bursts[:, 2 + k] > 0, end, -np.inf), step)
            used = np.isfinite(until)
            out.append(float(starts[0] + (until[used] - starts[used] + pause[used]).sum()))
        return [*out, float(ends[-1])]


def _cells(raw: xr.Dataset) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray | None]]:
    if "latency" not in raw:
        return
    for box in pieces(raw):
        for _, series in series_in(raw, box):
            x = np.asarray(series.latency, float)
            if len(x) < LEAST_SAMPLES:
                continue
            # Each epoch is one burst, or the file comes from a tool without bursts.
            epoch = np.asarray(series.epoch, np.int32) if len(np.unique(series.epoch)) > 1 else None
            yield x, epoch, series.t


def _result(spec: str, rows: list[tuple[Replay, float, float, int]]) -> RuleResult:
    n = np.array([one.n for one, *_ in rows])
    error = np.array([abs(one.estimate / truth - 1) for one, truth, *_ in rows if truth > 0])
    error = error[np.isfinite(error)]
    covered = [
        one.low <= truth <= one.high for one, truth, *_ in rows if np.isfinite([one.low, one.high]).all()
    ]
    test = sps.binomtest(sum(covered), len(covered)).proportion_ci(LEVEL) if covered else None
    decisions: dict[str, int] = {}
    for one, *_ in rows:
        decisions[one.decision] = decisions.get(one.decision, 0) + 1
    return RuleResult(
        spec,
        len(rows),
        float(np.median(n)),
        int(n.sum()),
        float(np.median(error)) if error.size else float("nan"),
        float(np.quantile(error, 0.95)) if error.size else float("nan"),
        sum(covered) / len(covered) if covered else float("nan"),
        (float(test.low), float(test.high)) if test else (float("nan"), float("nan")),
        float(1 - np.mean([share for _, _, share, _ in rows])),
        decisions,
        sum(one.decision == "converged" and one.n < length for one, _, _, length in rows),
    )


def best(results: Mapping[str, Sequence[RuleResult]]) -> str | None:
    """The rule with the fewest samples per cell, over all files together, among those that hold in each file.

    results: of each file, all with the same rules. None: no rule holds.
    """
    files = list(results.values())
    rules = [each for each in zip(*files) if all(one.holds for one in each)]
    return min(rules, key=lambda each: sum(one.n for one in each))[0].rule if rules else None


def verdict(results: Mapping[str, Sequence[RuleResult]]) -> tuple[str, bool]:
    """The verdict of a replay, and whether a rule holds; results as for `best`."""
    files = list(results.values())
    if (name := best(results)) is not None:
        rows = [one for each in files for one in each if one.rule == name]
        counts = " + ".join(f"{one.n:.0f}" for one in rows)
        text = f"{name} needs the fewest samples for a median error up to {GOOD:.0%}"
        text += f" in each of {len(rows)} files" if len(rows) > 1 else ""
        text += f": {counts} a cell"
        if all(one.wall_s is not None for one in rows):
            wall, whole = (sum(getattr(one, key) for one in rows) for key in ("wall_s", "recorded_s"))
            text += f", {format_duration(wall)} instead of {format_duration(whole)}"
        return f"{text}.", True
    stopping = [each for each in zip(*files) if all(one.stops for one in each)]
    if not stopping:
        where = " in each file" if len(files) > 1 else ""
        return (
            f"No stopping rule converges in most cells{where} before the series ends: record longer to compare "
            "them.",
            False,
        )

    def error(each: Sequence[RuleResult]) -> float:
        return max(one.error if np.isfinite(one.error) else np.inf for one in each)

    least = min(stopping, key=error)
    where = ""
    if len(files) > 1:
        names = [file for file, one in zip(results, least) if not one.error < error(least)]
        where = f" in {names[0]}"
    text = f"No stopping rule limits the median error to {GOOD:.0%}"
    text += f" in each of {len(files)} files" if len(files) > 1 else ""
    worst = error(least)
    off = f"is off by {worst:.1%}{where}" if np.isfinite(worst) else f"has no known error{where}"
    return f"{text}. The nearest, {least[0].rule}, {off}.", False
