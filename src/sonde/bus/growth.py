"""How a cost grows with a number: power laws, straight lines, and how well the data know them. Pure.

A law is fitted to a value at each of several numbers, such as datagrams at 8, 16, 32 participants. Its interval comes
from how far these values lie from the law, not from how often each was measured: what the law cannot follow makes it
wider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sonde.core import stats

# The source of this room's test plan drew datagrams of simple discovery against participants, and called their growth
# exponential. Read off that drawing they are this many times the square of the number of participants.
SOURCE_SQUARE = 2.37

LEVEL = 0.95
NARROW = 1.0  # an exponent's interval that is wider tells the square from nothing
FEWEST = 4  # numbers from which on a power law can be told from an exponential
NAN = float("nan")


@dataclass(frozen=True)
class Law:
    """value = factor * number^exponent, and value = square * number^2, with 95 % intervals (NaN: too few numbers).

    numbers: the smallest and the largest at which was measured. points: how many. misfit: standard deviation of
    log(value) about the law; 0.1 is about 10 %. against_exponential: how much better the power law fits than factor *
    e^(rate * number), which has as many parameters, as a difference of Akaike's criterion: above 2 better, below -2
    worse; NaN with fewer than four numbers.
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
        """The value that the law tells of a number."""
        return float(self.factor * number**self.exponent)

    @property
    def quadratic(self) -> bool | None:
        """Whether the exponent's interval holds 2; None: there is none, or it holds 2 and too much else to say so."""
        if not math.isfinite(self.exponent_low):
            return None
        if not self.exponent_low <= 2 <= self.exponent_high:
            return False
        return True if self.exponent_high - self.exponent_low <= NARROW else None

    @property
    def exponential(self) -> bool | None:
        """Whether an exponential fits better than the power law; None: the data do not tell the two apart."""
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
        floor = 1e-12  # values made by a formula fit to the last digit
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
    """The straight line through values at numbers; None with fewer than two, no interval with two."""
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
    """The straight line through medians of values that were taken in blocks of time, and its slope's interval.

    Parameters
    ----------
    number : (k,)
    blocks : (k, blocks) value at each number in each block; NaN: none

    Returns
    -------
    Line. With six blocks and more that have all numbers, the slope is the typical one of the blocks (Hodges and
    Lehmann), with the interval of the signed-rank test: what moves a whole block falls out. With fewer the line goes
    through the medians.
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
    """The number from which on law `a` tells more than law `b`; None: it never does, or it does from the
    beginning.
    """
    if a is None or b is None or not a.exponent > b.exponent:
        return None
    where = (b.factor / a.factor) ** (1 / (a.exponent - b.exponent))
    return float(where) if math.isfinite(where) and where > 1 else None


def _sorted(
    number: Sequence[float] | np.ndarray, value: Sequence[float] | np.ndarray, positive: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays in the order of the numbers, without what is not finite (or not above 0); values of one
    number averaged.
    """
    n, y = np.asarray(number, float), np.asarray(value, float)
    good = np.isfinite(n) & np.isfinite(y)
    if positive:
        good &= (n > 0) & (y > 0)
    each = np.unique(n[good])
    return each, np.array([y[good][n[good] == one].mean() for one in each])


@dataclass(frozen=True)
class Told:
    """A value that measured ones tell of a number: between two of them, or beyond the last, which `beyond` then says.

    value: NaN where one number alone was measured, and another is asked about. measured: the numbers that it rests on.
    """

    value: float
    low: float
    high: float
    measured: tuple[float, ...]
    beyond: bool


def told_of(number: Sequence[float], values: Sequence[tuple[float, float, float]], at: float) -> Told | None:
    """What values (estimate, low, high) measured at numbers tell of another: on the straight line between its
    neighbours.

    Beyond the last on the line through the last two, and how far off that is nobody measured, so it has no ends. One
    value alone says nothing of another number: NaN. None without values. An end that is not known makes none.
    """
    there = {float(n): v for n, v in zip(number, values) if math.isfinite(v[0])}
    if not there:
        return None
    n = sorted(there)
    if at in there:
        return Told(*there[at], (at,), False)
    if len(n) == 1:
        return Told(NAN, NAN, NAN, (n[0],), True)
    right = min(max(int(np.searchsorted(n, at)), 1), len(n) - 1)
    a, b = n[right - 1], n[right]
    weight = (at - a) / (b - a)
    estimate, low, high = (y + weight * (z - y) for y, z in zip(there[a], there[b]))
    if not n[0] <= at <= n[-1]:  # never less than the nearest: a cost does not shrink where nobody looked
        nearest = there[a] if at < a else there[b]
        estimate = max(estimate, nearest[0]) if at > b else min(estimate, nearest[0])
        estimate = max(estimate, 0.0)
        return Told(estimate, NAN, NAN, (a, b), True)
    return Told(estimate, low, high, (a, b), False)
