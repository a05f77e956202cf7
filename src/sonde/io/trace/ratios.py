"""Ratios of paired measurements. Pure."""

from __future__ import annotations

import numpy as np

from sonde.core import stats


def ratio_of_pairs(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """The typical second/first of pairs, and its interval; NaN with fewer than six pairs."""
    known = (first > 0) & (second > 0) & np.isfinite(first) & np.isfinite(second)
    if not known.any():
        return (float("nan"),) * 3
    shift = stats.hodges_lehmann(np.log(second[known] / first[known]))
    return (float(np.exp(shift.estimate)), float(np.exp(shift.low)), float(np.exp(shift.high)))
