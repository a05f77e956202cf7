"""Quantiles of counts of durations in the detector's classes (`native/noise/histogram.hpp`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sonde.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def quantiles(count: ArrayLike, edges: ArrayLike, q: Sequence[float]) -> NDArray[np.float64]:
    """The quantiles of histograms, interpolated linearly within a class, as in the detector's own `quantile`.

    Parameters
    ----------
    count : (..., classes)
    edges : (classes + 1,), ascending
    q : each in [0, 1]

    Returns
    -------
    (..., len(q)), in the unit of `edges`; NaN where a histogram is empty. q = 0 is the begin of the first class that
    is not empty, q = 1 the end of the last.

    Raises
    ------
    UsageError  noise.bad_quantile. DataError  noise.bad_histogram: shapes do not fit, edges decrease, a count < 0.
    """
    counts, bounds = np.asarray(count, np.float64), np.asarray(edges, np.float64)
    wanted = np.asarray(q, np.float64)
    if not ((wanted >= 0) & (wanted <= 1)).all():
        raise UsageError(
            "noise.bad_quantile", f"the quantiles are {wanted.tolist()}; each must be from 0 to 1", ""
        )
    if bounds.ndim != 1 or counts.ndim < 1 or len(bounds) != counts.shape[-1] + 1:
        raise DataError(
            "noise.bad_histogram",
            f"counts of shape {counts.shape} have {bounds.size} edges; there must be one more edge than classes",
            "check that counts and edges are from the same run",
        )
    if not (np.diff(bounds) >= 0).all() or not (counts >= 0).all():
        raise DataError("noise.bad_histogram", "edges of classes decrease, or a count is below 0 or NaN", "")
    out = np.full((*counts.shape[:-1], len(wanted)), np.nan)
    for where in np.ndindex(counts.shape[:-1]):
        row = counts[where]
        filled = np.flatnonzero(row)
        if not len(filled):
            continue
        upto = np.cumsum(row[filled])
        at = np.minimum(np.searchsorted(upto, wanted * upto[-1]), len(filled) - 1)
        c = filled[at]
        # The same order of operations as in the detector, so that both agree to the last digit.
        above = wanted * upto[-1] - (upto[at] - row[c])
        out[where] = bounds[c] + (bounds[c + 1] - bounds[c]) * above / row[c]
    return out
