"""The rank that the agent delays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from sonde.noise.detector.block_numbers import Numbers
from sonde.noise.detector.wake import CELLS, Wake, phases_of

LATE_SHARE = 0.5  # a rank was late when the kernel kept it from running for this share of the stall
LATE_CELLS = 0.75  # the search for late ranks covers this many cells on each side of the wake-up
LATE_BLOCKS = 0.5  # a rank is named when it was late in this share of blocks,
NAMED_SHARE = 0.6  # and in this share of all cases of a late rank


def late(raw: xr.Dataset, numbers: Numbers, variant: int, wake: Wake | None) -> dict[str, Any]:
    """The rank that causes the agent's stalls.

    In a collective all ranks stall when one rank stalls. The late rank is the one that the kernel kept from running
    for half of the stall or more; where the loop polls, it is the rank with such a gap in its own polling. The
    function counts the blocks in which a rank was late at the wake-up, on minus off, with the threshold of stall
    length that separates the two best.
    """
    ranks = raw.sizes["rank"]
    nothing: dict[str, Any] = {
        "noisy_rank": -1,
        "late_share": np.full(ranks, math.nan),
        "late_known": math.nan,
    }
    if wake is None:
        return nothing
    rank, block, phase, length = phases_of(raw, numbers, wake)
    present = [np.asarray(raw["stall_block"].isel(rank=r).values) >= 0 for r in range(ranks)]
    away = np.concatenate(
        [
            np.fmax(
                np.asarray(raw["stall_delay"].isel(rank=r).values, dtype=np.float64)[present[r]],
                np.asarray(raw["stall_gap"].isel(rank=r).values, dtype=np.float64)[present[r]],
            )
            for r in range(ranks)
        ]
    )
    if not np.isfinite(away).any():
        return nothing  # there is no data from the kernel or from polling
    at_wake = np.abs(phase) <= LATE_CELLS / CELLS
    is_late = at_wake & (away >= LATE_SHARE * length)
    on, off = (max(1, int(np.sum(numbers.variant == kind))) for kind in (variant, 0))
    lengths = np.unique(length[at_wake & (numbers.variant[block] == variant)])
    best = np.zeros(ranks)
    for threshold in lengths[:: max(1, lengths.size // 64)]:
        chosen = is_late & (length >= threshold)
        share = np.zeros(ranks)
        for kind, blocks, sign in ((variant, on, 1), (0, off, -1)):
            here = chosen & (numbers.variant[block] == kind)
            pairs = np.unique(np.stack([rank[here], block[here]]), axis=1)[0]
            share += sign * np.bincount(pairs, minlength=ranks) / blocks
        if share.max() > best.max():
            best = share
    share = np.clip(best, 0, None)
    loudest = int(np.argmax(share))
    named = share[loudest] >= LATE_BLOCKS and share[loudest] >= NAMED_SHARE * share.sum()
    return {
        "noisy_rank": loudest if named else -1,
        "late_share": share,
        "late_known": float(min(1.0, share.sum())),
    }
