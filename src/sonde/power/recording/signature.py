"""The signature of a job: a few numbers that tell of its power over time. Pure.

Power is that of a node, W, so that jobs of different width can be held against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np

from sonde.power.stack.telemetry import NAN, JobSample

LEAST = 4  # samples of a signature
LEAST_PERIODIC = 16  # from which on a rhythm can be told from chance
ALPHA = 0.01  # of taking chance for a rhythm


@dataclass(frozen=True)
class Signature:
    """mean_w, p10_w, p50_w, p90_w : of its power. spread : standard deviation over mean. jump : mean step between two
    neighbouring samples over mean. period_s : of its rhythm; NaN where none stands out. trend : change over the time
    seen, over mean. nodes : how many. samples, duration_s : what it rests on.
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
        """What an estimator learns from: power and steadiness; no rhythm is one of no length."""
        period = math.log1p(self.period_s) if math.isfinite(self.period_s) else 0.0
        power = [self.mean_w, self.p10_w, self.p50_w, self.p90_w]
        return np.array([*power, self.spread, self.jump, period, self.trend, math.log(max(1, self.nodes))])

    def as_json(self) -> dict[str, float | int | None]:
        told = dict(zip((one.name for one in fields(self)), astuple(self)))
        return {name: value if math.isfinite(value) else None for name, value in told.items()}


def signature(times_s: Sequence[float], power_w: Sequence[float], nodes: int) -> Signature | None:
    """Of what one job drew. power_w: of all its nodes together. None: fewer than LEAST samples.

    Samples that are not known are left out; what is between two samples counts by its length (trapezoids), so that
    uneven reports do not tilt the mean.
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
    """The rhythm of an even series; NaN where none stands out of chance.

    Fisher's exact test of the largest ordinate of the periodogram by its first term, which bounds the chance.

    Source: R. A. Fisher, Tests of significance in harmonic analysis, Proc. R. Soc. A 125, 1929.
    """
    n = len(values)
    if n < LEAST_PERIODIC or not np.isfinite(values).all():
        return NAN
    place = np.arange(n)
    rest = values - np.polyval(np.polyfit(place, values, 1), place)
    spectrum = np.abs(np.fft.rfft(rest)[1 : (n - 1) // 2 + 1]) ** 2
    total = float(spectrum.sum())
    # A straight line leaves rounding alone, whose largest ordinate means nothing.
    if total <= 1e-18 * n * n * max(1.0, float(np.mean(values)) ** 2):
        return NAN
    best = int(np.argmax(spectrum))
    g, m = float(spectrum[best]) / total, len(spectrum)
    chance = m * (1 - g) ** (m - 1)
    if chance > ALPHA or best == 0:  # one turn in all that was seen is a trend
        return NAN
    return n * step_s / (best + 1)


@dataclass(frozen=True)
class JobRecord:
    """All that was told of one job, in the order of time."""

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
    made = []
    for job, said in of.items():
        said.sort(key=lambda one: one.at_ns)
        running = [one for one in said if one.state in ("running", "")]
        last = said[-1]
        nodes = max((one.nodes for one in said), key=len)
        told = [one.energy_j for one in said if math.isfinite(one.energy_j)]
        made.append(
            JobRecord(
                job,
                last.user,
                last.name,
                nodes,
                tuple((one.at_ns - said[0].at_ns) * 1e-9 for one in running),
                tuple(one.power_w for one in running),
                told[-1] if told else NAN,
                last.state,
            )
        )
    return made
