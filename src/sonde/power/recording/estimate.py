"""What a job will draw, from the signature of its beginning and from jobs that are over. Pure.

Two ways are tried, nearest neighbours and a ridge regression; who errs less when each known job is foretold by the
others is taken. Intervals are jackknife+: they rest on how wrong those foretellings were, and on no law of errors.

Source: Barber, Candès, Ramdas, Tibshirani, Predictive inference with the jackknife+, Ann. Statist. 49, 2021. Of a
nominal 1 - a they promise at least 1 - 2a for jobs that come from where the known ones came; about 1 - a is usual.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sonde.core.errors import DataError
from sonde.power.recording.signature import JobRecord, Signature
from sonde.power.stack.telemetry import NAN

LEAST = 5  # known jobs
NEIGHBOURS = 5
RIDGE = 1.0  # of standardised features
ALPHA = 0.1
MOST_TESTED = 50  # jobs that intervals are tested on: each takes all the others to be foretold again

Foretell = Callable[[np.ndarray, np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Estimate:
    """What a node of a job will draw on average, W. low_w, high_w: NaN where too few jobs are known for an interval."""

    power_w: float
    low_w: float
    high_w: float
    method: str
    jobs: int


@dataclass(frozen=True)
class Tested:
    """How wrong foretellings of known jobs were. error: median of |foretold - true| / true. worst: the largest.

    coverage: share of jobs (of many, some all over them) within their interval, each made from the others; NaN where
    there are too few. baseline: error of who foretells the mean of the others.
    """

    method: str
    jobs: int
    error: float
    worst: float
    coverage: float
    baseline: float


def nearest_neighbours(known: np.ndarray, values: np.ndarray, asked: np.ndarray) -> float:
    """The mean of the nearest jobs', the nearer the more."""
    distance = np.sqrt(((known - asked) ** 2).sum(axis=1))
    near = np.argsort(distance, kind="stable")[:NEIGHBOURS]
    weight = 1 / (distance[near] + 1e-6)
    return float((weight * values[near]).sum() / weight.sum())


def regression(known: np.ndarray, values: np.ndarray, asked: np.ndarray) -> float:
    """A ridge regression, of features that are standardised already."""
    middle, centre = values.mean(), known.mean(axis=0)
    x = known - centre
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ (values - middle))
    return float(middle + (asked - centre) @ weights)


METHODS: dict[str, Foretell] = {"nearest neighbours": nearest_neighbours, "regression": regression}


class Estimator:
    """Knows jobs, and foretells others.

    known : signatures of beginnings. power_w : what each came to on average, a node, W.

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
                f"{int(good.sum())} jobs are known; an estimate takes {LEAST} that are over",
                "let the monitor keep its history for longer",
            )
        self._x, self._y = x[good], y[good]
        errors = {name: self._errors(way) for name, way in METHODS.items()}
        self.method = min(errors, key=lambda name: float(np.median(np.abs(errors[name]) / self._y)))
        self._way, self._left_out = METHODS[self.method], errors[self.method]

    def estimate(self, asked: Signature) -> Estimate | None:
        """None: its beginning has no steadiness to go by, as that of a job that drew nothing."""
        vector = asked.vector()
        if not np.isfinite(vector).all():
            return None
        power = self._foretold(self._x, self._y, vector, self._way)
        low, high = self._interval(self._x, self._y, np.abs(self._left_out), vector)
        return Estimate(power, low, high, self.method, len(self._y))

    def tested(self) -> Tested:
        """Each known job foretold by the others. The method was chosen by the same errors: it flatters it a little."""
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

    def _foretold(self, known: np.ndarray, values: np.ndarray, asked: np.ndarray, way: Foretell) -> float:
        centre, scale = known.mean(axis=0), known.std(axis=0)
        scale = np.where(scale > 1e-12, scale, 1.0)
        return way((known - centre) / scale, values, (asked - centre) / scale)

    def _errors(
        self, way: Foretell, known: np.ndarray | None = None, values: np.ndarray | None = None
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
    """An estimator from jobs that are over: beginnings of head_s against what all of each drew.

    A job that was over within head_s teaches nothing: its beginning is all of it.

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
