"""The range of values that the colours of a heat map span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sonde.report.prepare import limits
from sonde.report.prepare.quantities import Quantity


@dataclass(frozen=True)
class Ends:
    """The begin and the end of a colour scale, whether there are values below and above, and whether it was widened
    beyond its values.
    """

    low: float
    high: float
    below: bool = False
    above: bool = False
    widened: bool = False


def colour_ends(z: np.ndarray, floor: float = 0.0) -> Ends:
    """Colour range of values z: all of them, or up to the limits.CLIP quantile if the rest is far away.

    z: any shape, without NaN; logarithms if the scale is logarithmic. floor: quantile at which the lower end may be
    clipped too; powers of a spectrum have a long tail towards zero. Without values: 0 to 1; with one value: only this
    value.
    """
    finite = z[np.isfinite(z)]
    if finite.size == 0:
        return Ends(0.0, 1.0)
    low, high = float(finite.min()), float(finite.max())
    below = above = False
    if finite.size >= 100:
        foot, body = float(np.quantile(finite, floor)), float(np.quantile(finite, limits.CLIP))
        if body > foot:
            above = high - foot > 1.5 * (body - foot)
            below = floor > 0 and body - low > 1.2 * (body - foot)
        low, high = foot if below else low, body if above else high
    return Ends(low, high, below, above) if high > low else Ends(low, low + (abs(low) or 1.0) * 1e-3)


def matrix_ends(q: Quantity, z: np.ndarray, least: float | None = None) -> Ends:
    """Colour range of a matrix's values z, log10 where q.log: not narrower than least, symmetric about q.centre.

    least: share of the median to either side; None is q.least. Without values: 0 to 1.
    """
    ends = colour_ends(z)
    finite = z[np.isfinite(z)]
    if finite.size == 0:
        return ends
    middle = float(np.median(finite))
    if q.centre is not None:
        middle = float(np.log10(q.centre)) if q.log else q.centre
    least = q.least if least is None else least
    half = float(np.log10(1 + least)) if q.log else least * abs(middle)
    low, high = min(ends.low, middle - half), max(ends.high, middle + half)
    if q.centre is not None:
        reach = max(middle - low, high - middle)
        low, high = middle - reach, middle + reach
    narrow = float(finite.max() - finite.min()) < half
    return Ends(low, high, ends.below, ends.above, narrow)
