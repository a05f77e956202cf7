"""Predicts a job's power from the signature of its beginning and from jobs that are over. Pure.

Two methods are tried, nearest neighbours and a ridge regression. Each known job is predicted from the others, and the
method with the smaller error is used. Intervals are jackknife+: they rest on the errors of those predictions, and on no
assumed error distribution.

Source: Barber, Candès, Ramdas, Tibshirani, Predictive inference with the jackknife+, Ann. Statist. 49, 2021. With a
nominal coverage of 1 - a they guarantee at least 1 - 2a for jobs from the same distribution as the known ones; about 1
- a is usual.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sonde.core.errors import DataError
from sonde.power.recording.signature import JobRecord, Signature
from sonde.power.stack.telemetry import NAN

LEAST = 5  # fewest known jobs
NEIGHBOURS = 5
RIDGE = 1.0  # for standardised features
ALPHA = 0.1
MOST_TESTED = 50  # jobs on which intervals are tested: each test predicts all other jobs again

Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Estimate:
    """The predicted mean power of a job's node, W. low_w, high_w: NaN if too few jobs are known for an interval."""

    power_w: float
    low_w: float
    high_w: float
    method: str
    jobs: int


@dataclass(frozen=True)
class Tested:
    """Errors of the predictions of known jobs. error: median of |predicted - true| / true. worst: the largest.

    coverage: share of jobs (of many, an even selection) within their interval, each predicted from the others; NaN if
    there are too few. baseline: error of predicting the mean of the others.
    """

    method: str
    jobs: int
    error: float
    worst: float
    coverage: float
    baseline: float


def nearest_neighbours(known: np.ndarray, values: np.ndarray, asked: np.ndarray) -> float:
    """The weighted mean of the nearest jobs; nearer jobs weigh more."""
    distance = np.sqrt(((known - asked) ** 2).sum(axis=1))
    near = np.argsort(distance, kind="stable")[:NEIGHBOURS]
    weight = 1 / (distance[near] + 1e-6)
    return float((weight * values[near]).sum() / weight.sum())


def regression(known: np.ndarray, values: np.ndarray, asked: np.ndarray) -> float:
    """A ridge regression on standardised features."""
    middle, centre = values.mean(), known.mean(axis=0)
    x = known - centre
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ (values - middle))
    return float(middle + (asked - centre) @ weights)


METHODS: dict[str, Predict] = {"nearest neighbours": nearest_neighbours, "regression": regression}


class Estimator:
    """Holds known jobs, and predicts others.

    known : signatures of beginnings. power_w : mean power of each job, for one node, W.

    Raises
    ------
    DataError  power.too_few_jobs: fewer than LEAST.
    """

    def __init__(self, known: Sequence[Signature], power_w: Sequence[float]) -> None:
        x = np.array([one.vector() for one in known], float).reshape(len(known), -1 if len(known) else 1)
        y = np.asarray(power_w, float)
        good = np.isfinite(x).all(axis=1) & np.isfinite(y) & (y > 0)
        if int(good.sum()) < LEAST:
            raise DataError(
                "power.too_few_jobs",
                f"{int(good.sum())} jobs are known; an estimate needs {LEAST} jobs that are over",
                "set a longer history for the monitor",
            )
        self._x, self._y = x[good], y[good]
        errors = {name: self._errors(way) for name, way in METHODS.items()}
        self.method = min(errors, key=lambda name: float(np.median(np.abs(errors[name]) / self._y)))
        self._way, self._left_out = METHODS[self.method], errors[self.method]

    def estimate(self, asked: Signature) -> Estimate | None:
        """None: the beginning has no usable steadiness, for example of a job that drew nothing."""
        vector = asked.vector()
        if not np.isfinite(vector).all():
            return None
        power = self._foretold(self._x, self._y, vector, self._way)
        low, high = self._interval(self._x, self._y, np.abs(self._left_out), vector)
        return Estimate(power, low, high, self.method, len(self._y))

    def tested(self) -> Tested:
        """Each known job predicted from the others. The method was chosen by the same errors, which makes them slightly
        too small.
        """
        relative = np.abs(self._left_out) / self._y
        total, n = float(self._y.sum()), len(self._y)
        others = (total - self._y) / (n - 1)
        inside = []
        for k in np.linspace(0, n - 1, min(n, MOST_TESTED)).astype(int):
            rest = np.arange(n) != k
            x, y = self._x[rest], self._y[rest]
            errors = np.abs(self._errors(self._way, x, y))
            low, high = self._interval(x, y, errors, self._x[k])
            if math.isfinite(low):
                inside.append(low <= self._y[k] <= high)
        return Tested(
            self.method,
            n,
            float(np.median(relative)),
            float(relative.max()),
            float(np.mean(inside)) if inside else NAN,
            float(np.median(np.abs(others - self._y) / self._y)),
        )

    def _foretold(self, known: np.ndarray, values: np.ndarray, asked: np.ndarray, way: Predict) -> float:
        centre, scale = known.mean(axis=0), known.std(axis=0)
        scale = np.where(scale > 1e-12, scale, 1.0)
        return way((known - centre) / scale, values, (asked - centre) / scale)

    def _errors(
        self, way: Predict, known: np.ndarray | None = None, values: np.ndarray | None = None
    ) -> np.ndarray:
        x, y = (self._x, self._y) if known is None or values is None else (known, values)
        out = np.empty(len(y))
        for k in range(len(y)):
            rest = np.arange(len(y)) != k
            out[k] = y[k] - self._foretold(x[rest], y[rest], x[k], way)
        return out

    def _interval(
        self, known: np.ndarray, values: np.ndarray, errors: np.ndarray, asked: np.ndarray
    ) -> tuple[float, float]:
        n = len(values)
        place = math.ceil((1 - ALPHA) * (n + 1))
        if place > n:
            return NAN, NAN
        middles = np.array(
            [
                self._foretold(known[rest], values[rest], asked, self._way)
                for k in range(n)
                for rest in [np.arange(n) != k]
            ]
        )
        return float(np.sort(middles - errors)[n - place]), float(np.sort(middles + errors)[place - 1])


def learn(done: Sequence[JobRecord], head_s: float) -> Estimator:
    """An estimator from jobs that are over: it relates beginnings of head_s to the mean power of each whole job.

    A job that was over within head_s is not used: its beginning is the whole job.

    Raises
    ------
    DataError  power.too_few_jobs.
    """
    heads, means = [], []
    for one in done:
        head, whole = one.head(head_s), one.whole()
        if head is not None and whole is not None and whole.duration_s > head_s:
            heads.append(head)
            means.append(whole.mean_w)
    return Estimator(heads, means)
