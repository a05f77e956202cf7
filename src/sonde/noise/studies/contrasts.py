"""Sweeps: which of two variants costs more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from sonde.core import stats
from sonde.noise.detector.block_numbers import Numbers, differences


def contrasts(names: Sequence[str]) -> list[tuple[str, str, str]]:
    """The questions of a sweep and the two variants that answer each: (question, first, second)."""
    periods = [name for name in names if name.startswith("each ")]
    questions = [
        ("sync", "apart", "together"),
        *([("period", periods[0], periods[-1])] if len(periods) > 1 else []),
        ("placement", "pinned", "free"),
        ("sibling", "pinned", "sibling"),
    ]
    return [(question, a, b) for question, a, b in questions if a in names and b in names]


def contrast(summary: xr.Dataset, first: str, second: str) -> stats.Shift:
    """The cost of `first` minus that of `second`, a share of the time, with a 95 % interval; pairs within a segment."""
    names = [str(name) for name in summary["case"].values]
    a, b = names.index(first), names.index(second)
    variant = summary["block_variant"].values
    moved = Numbers(
        variant=np.where(variant == a, 1, np.where(variant == b, 0, -1)),
        segment=summary["block_segment"].values,
        begin=summary["block_begin"].values,
        length=summary["block_length"].values,
        mean=summary["block_mean"].values,
        median=summary["block_median"].values,
        lost=summary["block_lost"].values,
    )
    blocks = np.flatnonzero(moved.variant >= 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        y = moved.lost + np.log(moved.median)
    return stats.hodges_lehmann(differences(moved, blocks, 1, y))
