"""Levels of the noise source in a run: those of its variants, and the lowest that is detected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr


def threshold(levels: Sequence[float], found: Sequence[bool]) -> float | None:
    """The lowest level that is detected together with all higher ones; None if the highest is not detected."""
    lowest = None
    for level, detected in sorted(zip(levels, found), reverse=True):
        if not detected:
            break
        lowest = level
    return lowest


def levels_of(summary: xr.Dataset) -> np.ndarray:
    """(variant,) level of the noise source, a share; NaN for any other agent, or where the run does not state it."""
    if "duty_asked" in summary:
        return np.asarray(summary["duty_asked"].values, float)
    count = summary.sizes.get("variant", 0)
    levels = np.atleast_1d(np.asarray(summary.attrs.get("levels", ()), float))
    return levels[1:] if levels.size == count + 1 else np.full(count, np.nan)
