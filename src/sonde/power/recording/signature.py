"""The signature of a job: a few numbers that describe its power over time. Pure.

The power is that of one node, W, so that jobs of different size can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np

from sonde.power.stack.telemetry import NAN, JobSample

LEAST = 4  # fewest samples of a signature
LEAST_PERIODIC = 16  # fewest samples for telling a rhythm from chance
ALPHA = 0.01  # probability of taking chance for a rhythm


@dataclass(frozen=True)
class Signature:
    """mean_w, p10_w, p50_w, p90_w : of its power. spread : standard deviation over mean. jump : mean step between
    neighbouring samples over mean. period_s : of its rhythm; NaN if none is significant. trend : change over the
    observed time, over mean. nodes : number of nodes. samples, duration_s : the data it rests on.
    """

    mean_w: float
    p10_w: float
    p50_w: float
    p90_w: float
    spread: float
    jump: float
    period_s: float
    trend: float
    nodes: int
    samples: int
    duration_s: float

    def vector(self) -> np.ndarray:
        """The features for an estimator: power and steadiness; a job without a rhythm gets a period of 0."""
        period = math.log1p(self.period_s) if math.isfinite(self.period_s) else 0.0
        power = [self.mean_w, self.p10_w, self.p50_w, self.p90_w]
        return np.array([*power, self.spread, self.jump, period, self.trend, math.log(max(1, self.nodes))])

    def as_json(self) -> dict[str, float | int | None]:
        values = dict(zip((one.name for one in fields(self)), astuple(self)))
        return {name: value if math.isfinite(value) else None for name, value in values.items()}


def signature(times_s: Sequence[float], power_w: Sequence[float], nodes: int) -> Signature | None:
    """The signature of one job. power_w: of all its nodes together. None: fewer than LEAST samples.

    Unknown samples are left out. The time between two samples is weighted by its length (trapezoids), so that uneven
    reports do not bias the mean.
    """
    t, p = np.asarray(times_s, float), np.asarray(power_w, float) / max(1, nodes)
    good = np.isfinite(t) & np.isfinite(p)
    t, p = t[good], p[good]
    order = np.argsort(t, kind="stable")
    t, p = t[order], p[order]
    t, first = np.unique(t, return_index=True)
    p = p[first]
    if len(t) < LEAST:
        return None
    duration = float(t[-1] - t[0])
    mean = float(((p[1:] + p[:-1]) / 2 * np.diff(t)).sum() / duration)
    even = np.interp(np.linspace(t[0], t[-1], len(t)), t, p)
    low, middle, high = np.quantile(even, [0.1, 0.5, 0.9])
    scale = mean if mean > 0 else NAN
    slope = float(np.polyfit(t - t[0], p, 1)[0])
    return Signature(
        mean_w=mean,
        p10_w=float(low),
        p50_w=float(middle),
        p90_w=float(high),
        spread=float(np.std(even) / scale),
        jump=float(np.mean(np.abs(np.diff(p))) / scale),
        period_s=period(even, duration / (len(t) - 1)),
        trend=slope * duration / scale,
        nodes=nodes,
        samples=len(t),
        duration_s=duration,
    )


def period(values: np.ndarray, step_s: float) -> float:
    """The period of an evenly sampled series; NaN if no rhythm is significant.

    Fisher's exact test of the largest ordinate of the periodogram, by its first term, which is an upper bound of the
    probability.

    Source: R. A. Fisher, Tests of significance in harmonic analysis, Proc. R. Soc. A 125, 1929.
    """
    n = len(values)
    if n < LEAST_PERIODIC or not np.isfinite(values).all():
        return NAN
    place = np.arange(n)
    rest = values - np.polyval(np.polyfit(place, values, 1), place)
    spectrum = np.abs(np.fft.rfft(rest)[1 : (n - 1) // 2 + 1]) ** 2
    total = float(spectrum.sum())
    # A straight line leaves only rounding errors, whose largest ordinate means nothing.
    if total <= 1e-18 * n * n * max(1.0, float(np.mean(values)) ** 2):
        return NAN
    best = int(np.argmax(spectrum))
    g, m = float(spectrum[best]) / total, len(spectrum)
    chance = m * (1 - g) ** (m - 1)
    if chance > ALPHA or best == 0:  # one period in the whole observed time is a trend
        return NAN
    return n * step_s / (best + 1)


@dataclass(frozen=True)
class JobRecord:
    """All reports of one job, in the order of time."""

    job: str
    user: str
    name: str
    nodes: tuple[str, ...]
    times_s: tuple[float, ...]
    power_w: tuple[float, ...]
    energy_j: float
    state: str

    def head(self, seconds: float) -> Signature | None:
        """The signature of its beginning."""
        n = next((k for k, t in enumerate(self.times_s) if t - self.times_s[0] > seconds), len(self.times_s))
        return signature(self.times_s[:n], self.power_w[:n], len(self.nodes))

    def whole(self) -> Signature | None:
        return signature(self.times_s, self.power_w, len(self.nodes))


def records(samples: Iterable[JobSample]) -> list[JobRecord]:
    """Samples of many jobs, as one record each; in the order in which jobs were first heard."""
    of: dict[str, list[JobSample]] = {}
    for sample in samples:
        of.setdefault(sample.job, []).append(sample)
    found = []
    for job, reports in of.items():
        reports.sort(key=lambda one: one.at_ns)
        running = [one for one in reports if one.state in ("running", "")]
        last = reports[-1]
        nodes = max((one.nodes for one in reports), key=len)
        energies = [one.energy_j for one in reports if math.isfinite(one.energy_j)]
        found.append(
            JobRecord(
                job,
                last.user,
                last.name,
                nodes,
                tuple((one.at_ns - reports[0].at_ns) * 1e-9 for one in running),
                tuple(one.power_w for one in running),
                energies[-1] if energies else NAN,
                last.state,
            )
        )
    return found
