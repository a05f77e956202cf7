"""The rule of the source thesis: disjoint 99 % intervals of means."""

from __future__ import annotations

import math

import numpy as np

from sonde.core import stats
from sonde.noise.detector.block_numbers import Numbers

SOURCE_GAP = 0.005  # "several seconds": 2 s of about 430 s in the tables of the source thesis
SOURCE_LEVEL = 0.99


def source_rule(numbers: Numbers, variant: int) -> dict[str, float]:
    """The rule of the source thesis on the same blocks: Student's 99 % intervals of the means.

    Each block counts as one run of the thesis. The rule does not adjust for repeated tests, so its times are too good:
    the first moment counts.
    """
    order = np.flatnonzero(
        ((numbers.variant == variant) | (numbers.variant == 0)) & np.isfinite(numbers.mean)
    )
    apart, separated, gap = source_moments(numbers, order, variant)

    def time(blocks: int | None) -> float:
        if blocks is None:
            return math.nan
        last = order[blocks - 1]
        return float(numbers.begin[last] + numbers.length[last])

    return {
        "source_detected": int(gap > 0),
        "source_detected_s": time(apart),
        "source_gap": gap,
        "source_separated_s": time(separated),
    }


def source_moments(numbers: Numbers, order: np.ndarray, variant: int) -> tuple[int | None, int | None, float]:
    """The numbers of blocks after which the intervals first were disjoint and SOURCE_GAP apart, and the last gap.

    order: the blocks in their order. The gap between the intervals at the end is a share of the clean mean; NaN with
    fewer than 6 blocks or 3 of a kind.
    """
    apart = separated = None
    gap = math.nan
    for end in range(6, order.size + 1):
        seen = order[:end]
        on, off = (numbers.mean[seen[numbers.variant[seen] == kind]] for kind in (variant, 0))
        if on.size < 3 or off.size < 3:
            continue
        high = stats.mean_ci(off, SOURCE_LEVEL).high
        gap = (stats.mean_ci(on, SOURCE_LEVEL).low - high) / float(off.mean())
        if gap > 0 and apart is None:
            apart = end
        if gap >= SOURCE_GAP and separated is None:
            separated = end
    return apart, separated, gap
