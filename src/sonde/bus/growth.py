"""Growth of a cost with a number: power laws and straight lines, with their uncertainty. Pure.

A law is fitted to one value at each of several numbers, such as datagrams at 8, 16, 32 participants. Its interval comes
from the distance of these values from the law, not from the number of measurements. So a law that fits badly has a wide
interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sonde.core import stats

# The source of this room's test plan plots datagrams of simple discovery over participants, and calls the growth
# exponential. According to that figure they are this factor times the square of the number of participants.
SOURCE_SQUARE = 2.37

LEVEL = 0.95
NARROW = 1.0  # a wider interval of the exponent does not show quadratic growth
FEWEST = 4  # numbers needed to distinguish a power law from an exponential
NAN = float("nan")


@dataclass(frozen=True)
class Law:
    """value = factor * number^exponent, and value = square * number^2, with 95 % intervals (NaN: too few numbers).

    numbers: the smallest and the largest measured number. points: the count of measured numbers. misfit: standard
    deviation of log(value) about the law; 0.1 is about 10 %. against_exponential: difference of Akaike's criterion
    between factor * e^(rate * number), which has as many parameters, and the power law: above 2 the power law fits
    better, below -2 worse; NaN with fewer than four numbers.
    """

    factor: float
    exponent: float
    exponent_low: float
    exponent_high: float
    square: float
    square_low: float
    square_high: float
    points: int
    numbers: tuple[float, float]
    misfit: float
    against_exponential: float

    def at(self, number: float) -> float:
        """The value of the law at a number."""
        return float(self.factor * number**self.exponent)

    @property
    def quadratic(self) -> bool | None:
        """Whether the growth is quadratic: the exponent's interval contains 2. None: no interval, or a too wide one."""
        if not math.isfinite(self.exponent_low):
            return None
        if not self.exponent_low <= 2 <= self.exponent_high:
            return False
        return True if self.exponent_high - self.exponent_low <= NARROW else None

    @property
    def exponential(self) -> bool | None:
        """Whether an exponential fits better than the power law; None: undecided."""
        if not abs(self.against_exponential) > 2:
            return None
        return self.against_exponential < 0


def power_law(number: Sequence[float] | np.ndarray, value: Sequence[float] | np.ndarray) -> Law | None:
    """The power law through values at numbers, both above 0; others are left out. None with fewer than two numbers.

    Source: least squares of the logarithms; intervals after Student. Akaike, IEEE Trans. Automatic Control 19, 1974.
    """
    n, y = _sorted(number, value, positive=True)
    if len(n) < 2:
        return None
    line = straight(np.log(n), np.log(y))
    assert line is not None
    ratio = stats.mean_ci(np.log(y) - 2 * np.log(n), LEVEL)
    square = float(np.mean(np.log(y) - 2 * np.log(n)))
    against = NAN
    if len(n) >= FEWEST:
        other = straight(n, np.log(y))
        assert other is not None
        floor = 1e-12  # computed values fit exactly
        against = len(n) * (math.log(max(other.residual, floor)) - math.log(max(line.residual, floor)))
    return Law(
        math.exp(line.base),
        line.slope,
        line.slope_low,
        line.slope_high,
        math.exp(square),
        math.exp(ratio.low),
        math.exp(ratio.high),
        len(n),
        (float(n[0]), float(n[-1])),
        math.sqrt(line.residual / (len(n) - 2)) if len(n) > 2 else NAN,
        against,
    )


@dataclass(frozen=True)
class Line:
    """value = base + slope * number; the slope with its 95 % interval. residual: sum of squares about the line."""

    base: float
    slope: float
    slope_low: float
    slope_high: float
    residual: float

    def at(self, number: float) -> float:
        return self.base + self.slope * number


def straight(number: Sequence[float] | np.ndarray, value: Sequence[float] | np.ndarray) -> Line | None:
    """The straight line through values at numbers; None with fewer than two numbers, no interval with two."""
    n, y = _sorted(number, value)
    if len(n) < 2:
        return None
    away = n - n.mean()
    spread = float((away**2).sum())
    slope = float((away * y).sum() / spread)
    base = float(y.mean() - slope * n.mean())
    residual = float(((y - base - slope * n) ** 2).sum())
    half = NAN
    if len(n) > 2:
        from scipy.stats import t

        half = float(t.ppf((1 + LEVEL) / 2, len(n) - 2) * math.sqrt(residual / (len(n) - 2) / spread))
    return Line(base, slope, slope - half, slope + half, residual)


def slope_of(number: Sequence[float] | np.ndarray, blocks: np.ndarray) -> Line | None:
    """The straight line through medians of values from blocks of time, with the interval of its slope.

    Parameters
    ----------
    number : (k,)
    blocks : (k, blocks) value at each number in each block; NaN: not measured

    Returns
    -------
    Line. With at least six complete blocks, the slope is the Hodges-Lehmann estimate over the blocks, with the interval
    of the signed-rank test: effects on a whole block cancel. With fewer blocks the line goes through the medians.
    """
    n = np.asarray(number, float)
    whole = np.isfinite(blocks).all(axis=0) & (len(n) > 1)
    if whole.sum() < 6 or len(np.unique(n)) < 2:
        known = np.isfinite(blocks).any(axis=1)
        medians = np.array([np.nanmedian(row) for row in blocks[known]])
        return straight(n[known], medians)
    y = blocks[:, whole]
    away = n - n.mean()
    slopes = (away[:, None] * y).sum(axis=0) / float((away**2).sum())
    shift = stats.hodges_lehmann(slopes, LEVEL)
    middle = np.median(y, axis=1)
    base = float(np.median(middle - shift.estimate * n))
    residual = float(((middle - base - shift.estimate * n) ** 2).sum())
    return Line(base, shift.estimate, shift.low, shift.high, residual)


def crossing(a: Law | None, b: Law | None) -> float | None:
    """The number above which law `a` is larger than law `b`; None: law `a` is never larger, or always."""
    if a is None or b is None or not a.exponent > b.exponent:
        return None
    where = (b.factor / a.factor) ** (1 / (a.exponent - b.exponent))
    return float(where) if math.isfinite(where) and where > 1 else None


def _sorted(
    number: Sequence[float] | np.ndarray, value: Sequence[float] | np.ndarray, positive: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and values as arrays, sorted by number, without values that are not finite (or not above 0). Values of
    the same number are averaged.
    """
    n, y = np.asarray(number, float), np.asarray(value, float)
    good = np.isfinite(n) & np.isfinite(y)
    if positive:
        good &= (n > 0) & (y > 0)
    each = np.unique(n[good])
    return each, np.array([y[good][n[good] == one].mean() for one in each])


@dataclass(frozen=True)
class Estimate:
    """A value at a number, interpolated between measured numbers or extrapolated (`beyond`).

    value: NaN if only one other number was measured. measured: the numbers behind the estimate.
    """

    value: float
    low: float
    high: float
    measured: tuple[float, ...]
    beyond: bool


def estimate_at(
    number: Sequence[float], values: Sequence[tuple[float, float, float]], at: float
) -> Estimate | None:
    """The estimate at a number from values (estimate, low, high) measured at other numbers, by linear interpolation.

    Outside the measured range it extrapolates the line through the two nearest numbers, without an interval, because
    the error is unknown. With a single measured number the estimate at another number is NaN. None without values. An
    unknown end gives no interval.
    """
    measured = {float(n): v for n, v in zip(number, values) if math.isfinite(v[0])}
    if not measured:
        return None
    n = sorted(measured)
    if at in measured:
        return Estimate(*measured[at], (at,), False)
    if len(n) == 1:
        return Estimate(NAN, NAN, NAN, (n[0],), True)
    right = min(max(int(np.searchsorted(n, at)), 1), len(n) - 1)
    a, b = n[right - 1], n[right]
    weight = (at - a) / (b - a)
    estimate, low, high = (y + weight * (z - y) for y, z in zip(measured[a], measured[b]))
    if (
        not n[0] <= at <= n[-1]
    ):  # not less than the nearest value: outside the range a cost is not assumed to shrink
        nearest = measured[a] if at < a else measured[b]
        estimate = max(estimate, nearest[0]) if at > b else min(estimate, nearest[0])
        estimate = max(estimate, 0.0)
        return Estimate(estimate, NAN, NAN, (a, b), True)
    return Estimate(estimate, low, high, (a, b), False)
