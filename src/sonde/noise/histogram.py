"""Counts of durations in the detector's classes (`native/noise/histogram.hpp`), and their quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sonde.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def quantiles(count: ArrayLike, edges: ArrayLike, q: Sequence[float]) -> NDArray[np.float64]:
    """Quantiles of histograms, by a straight line within the class, as the detector's own `quantile`.

    Parameters
    ----------
    count : (..., classes)
    edges : (classes + 1,), ascending
    q : each in [0, 1]

    Returns
    -------
    (..., len(q)), in the unit of `edges`; NaN where a histogram is empty. q = 0 is the begin of the first
    class that holds something, q = 1 the end of the last.

    Raises
    ------
    UsageError  noise.bad_quantile. DataError  noise.bad_histogram: shapes do not fit, edges fall, a count < 0.
    """
    counts, bounds = np.asarray(count, np.float64), np.asarray(edges, np.float64)
    wanted = np.asarray(q, np.float64)
    if not ((wanted >= 0) & (wanted <= 1)).all():
        raise UsageError("noise.bad_quantile", f"a quantile is {wanted.tolist()}; allowed are 0 to 1", "")
    if bounds.ndim != 1 or counts.ndim < 1 or len(bounds) != counts.shape[-1] + 1:
        raise DataError(
            "noise.bad_histogram",
            f"counts of shape {counts.shape} have {bounds.size} edges; one more than classes are needed",
            "are counts and edges of the same run?",
        )
    if not (np.diff(bounds) >= 0).all() or not (counts >= 0).all():
        raise DataError("noise.bad_histogram", "edges of classes fall, or a count is below 0 or NaN", "")
    out = np.full((*counts.shape[:-1], len(wanted)), np.nan)
    for where in np.ndindex(counts.shape[:-1]):
        row = counts[where]
        held = np.flatnonzero(row)
        if not len(held):
            continue
        upto = np.cumsum(row[held])
        at = np.minimum(np.searchsorted(upto, wanted * upto[-1]), len(held) - 1)
        c = held[at]
        # In the order of the detector's own arithmetic, so that both agree to the last digit.
        above = wanted * upto[-1] - (upto[at] - row[c])
        out[where] = bounds[c] + (bounds[c + 1] - bounds[c]) * above / row[c]
    return out
