"""The size of the effect, with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from sonde.core import stats
from sonde.noise.detector.block_numbers import Numbers, differences

MAX_LOST = 1 - 1e-6  # the share lost of a block in which every iteration is a stall


def effect(numbers: Numbers, blocks: np.ndarray, variant: int, lost: np.ndarray) -> dict[str, Any]:
    """The size of the effect with 95 % intervals. lost: share of each block lost in stalls.

    Slowdown and typical iteration are ratios minus 1: a loop that loses half of its time takes twice as long.
    """
    with np.errstate(divide="ignore"):
        typical = np.log(numbers.median)
    longer = typical - np.log1p(-np.minimum(lost, MAX_LOST))
    out: dict[str, Any] = {}
    for name, y in (("slowdown", longer), ("stalls", lost), ("typical", typical)):
        pairs = differences(numbers, blocks, variant, y)
        shift = np.array(stats.hodges_lehmann(pairs))
        out |= dict(
            zip(
                (name, f"{name}_low", f"{name}_high"),
                (shift if name == "stalls" else np.expm1(shift)).tolist(),
            )
        )
        out["effect_pairs"] = pairs.size
    return out
