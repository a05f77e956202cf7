"""Counts of durations in the detector's classes (`native/noise/histogram.hpp`): put together, and their quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sonde.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# Counters of one model of processor are calibrated to a few ppm; within this their classes are the same.
_SAME_TICK = 1e-4


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
        held = np.flatnonzero(counts[where])
        if not len(held):
            continue
        upto = np.cumsum(counts[where][held])
        for k, share in enumerate(wanted):
            at = min(int(np.searchsorted(upto, share * upto[-1])), len(held) - 1)
            c = held[at]
            inside = (share * upto[-1] - (upto[at] - counts[where][c])) / counts[where][c]
            out[(*where, k)] = bounds[c] + (bounds[c + 1] - bounds[c]) * inside
    return out


class Merged:
    """Histograms of several ranks put together, a rank at a time.

    Ranks whose counters tick alike share their classes. Of others the counts are spread evenly within each
    class over the edges of all.

    Parameters
    ----------
    blocks : number of histograms a rank
    """

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._groups: list[tuple[np.ndarray, np.ndarray]] = []  # edges, counts

    def add(self, count: ArrayLike, edges: ArrayLike) -> None:
        """One rank. count: (blocks, classes); edges: (classes + 1,), s.

        Raises
        ------
        DataError  noise.bad_histogram: edges are not known, or shapes do not fit.
        """
        counts, bounds = np.asarray(count), np.asarray(edges, np.float64)
        if counts.shape != (self._blocks, len(bounds) - 1) or not np.isfinite(bounds).all():
            raise DataError(
                "noise.bad_histogram",
                f"counts of shape {counts.shape} and {len(bounds)} edges, of which "
                f"{int(np.count_nonzero(~np.isfinite(bounds)))} are not known, make no histogram",
                "the rank's calibration may be lost",
            )
        for known, total in self._groups:
            if len(known) == len(bounds) and np.allclose(known, bounds, rtol=_SAME_TICK, atol=0):
                total += counts
                return
        self._groups.append((bounds, counts.astype(np.int64)))

    def counts(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Counts (blocks, classes) and edges (classes + 1), s. Without ranks both are empty."""
        if not self._groups:
            return np.zeros((self._blocks, 0)), np.zeros(1)
        if len(self._groups) == 1:
            edges, counts = self._groups[0]
            return counts.astype(np.float64), edges
        edges = np.unique(np.concatenate([known for known, _ in self._groups]))
        upto = np.zeros((self._blocks, len(edges)))
        for known, counts in self._groups:
            below = np.concatenate([np.zeros((self._blocks, 1)), np.cumsum(counts, axis=1)], axis=1)
            for b in range(self._blocks):
                upto[b] += np.interp(edges, known, below[b])
        return np.maximum(np.diff(upto, axis=1), 0), edges
