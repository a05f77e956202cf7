"""What each stopping rule would have saved, and lost, on series that were recorded in full. Pure.

The truth that a rule is held against is the median of the whole series of a cell, which has an error of
its own: a
coverage somewhat below the level is to be expected where the series is short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from scipy import stats as sps

from sonde.core.errors import DataError
from sonde.core.rules import Replay, replay
from sonde.core.stats import steady_median
from sonde.net.cells import pieces, series_in

LEVEL = 0.95
LEAST_SAMPLES = 20  # a cell with fewer says nothing about a rule


@dataclass(frozen=True)
class RuleResult:
    """How one rule did on one run.

    cells : cells replayed. n : median of samples taken. error, error_p95 : of |estimate / full median - 1|
    over
    cells. coverage, coverage_ci : share of intervals that held the full median, of cells that got one,
    with its
    exact binomial interval. time_saved : share of the time in samples that would not have been spent.
    decisions :
    cells by decision.
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

    def as_json(self) -> dict[str, object]:
        return {
            "rule": self.rule,
            "n": self.n,
            "error": self.error,
            "coverage": self.coverage,
            "time_saved": self.time_saved,
            "error_p95": self.error_p95,
            "coverage_ci": list(self.coverage_ci),
            "cells": self.cells,
            "decisions": self.decisions,
        }


def replay_all(raw: xr.Dataset, specs: Sequence[str], *, cap: int = 20000, seed: int = 1) -> list[RuleResult]:
    """Replays every cell of /raw against every rule.

    Parameters
    ----------
    raw : with latency, and epoch where there is one; taken piecewise
    specs : rules, "ci:1%"
    cap : samples a cell at most

    Raises
    ------
    DataError  net.no_series: no cell has LEAST_SAMPLES samples.
    UsageError  core.bad_rule.
    """
    told: dict[str, list[tuple[Replay, float, float]]] = {spec: [] for spec in specs}
    for x, epoch in _cells(raw):
        truth = steady_median(x, np.zeros(len(x), int) if epoch is None else epoch).median
        spent = np.cumsum(x)
        for spec in specs:
            said = replay(x, epoch, spec, cap=cap, seed=seed, level=LEVEL)
            taken = float(spent[min(said.n, len(x)) - 1]) if said.n else 0.0
            told[spec].append((said, truth, taken / float(spent[-1]) if spent[-1] > 0 else 1.0))
    if not any(told.values()):
        raise DataError(
            "net.no_series",
            f"no cell holds {LEAST_SAMPLES} samples or more, so there is nothing to replay",
            "measure with --raw, which keeps every sample",
        )
    return [_result(spec, rows) for spec, rows in told.items()]


def _cells(raw: xr.Dataset) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    if "latency" not in raw:
        return
    for box in pieces(raw):
        for _, series in series_in(raw, box):
            x = np.asarray(series.latency, float)
            if len(x) < LEAST_SAMPLES:
                continue
            # One epoch is one burst, or a file of a tool that knows none.
            epoch = np.asarray(series.epoch, np.int32) if len(np.unique(series.epoch)) > 1 else None
            yield x, epoch


def _result(spec: str, rows: list[tuple[Replay, float, float]]) -> RuleResult:
    n = np.array([said.n for said, _, _ in rows])
    error = np.array([abs(said.estimate / truth - 1) for said, truth, _ in rows if truth > 0])
    error = error[np.isfinite(error)]
    held = [
        said.low <= truth <= said.high for said, truth, _ in rows if np.isfinite([said.low, said.high]).all()
    ]
    test = sps.binomtest(sum(held), len(held)).proportion_ci(LEVEL) if held else None
    decisions: dict[str, int] = {}
    for said, _, _ in rows:
        decisions[said.decision] = decisions.get(said.decision, 0) + 1
    return RuleResult(
        spec,
        len(rows),
        float(np.median(n)),
        int(n.sum()),
        float(np.median(error)) if error.size else float("nan"),
        float(np.quantile(error, 0.95)) if error.size else float("nan"),
        sum(held) / len(held) if held else float("nan"),
        (float(test.low), float(test.high)) if test else (float("nan"), float("nan")),
        float(1 - np.mean([share for _, _, share in rows])),
        decisions,
    )
