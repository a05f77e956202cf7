"""Designs of a given length of time, as `sonde noise run` makes them."""

from __future__ import annotations

from sonde.noise.detector import judge
from sonde.noise.detector.plan import KNOWN_WEIGHT, SCAN_WEIGHT, looks, periods_to_fold, pitch

ALPHA = 0.01
CALIBRATION_S = 1.6  # before the first block, seen live
PERMUTATIONS = 1999


def pairs_in(seconds: float, block_s: float = 1.0) -> int:
    """Pairs of blocks that are over `seconds` after ranks have started."""
    return int((seconds - CALIBRATION_S) / (2 * pitch(block_s)))


def design(seconds: float, block_s: float = 1.0) -> judge.Design:
    rounds, spend = looks(pairs_in(seconds, block_s))
    return judge.Design(rounds, spend, ALPHA)


def folding(known: bool, period_s: float, block_s: float = 1.0) -> tuple[tuple[float, ...], float]:
    """Periods to fold at, and the fold's share of alpha."""
    return (
        (periods_to_fold(period_s, block_s), KNOWN_WEIGHT)
        if known
        else (periods_to_fold(0.0, block_s), SCAN_WEIGHT)
    )
