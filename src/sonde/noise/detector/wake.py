"""The agent's wake-ups: when it works within its period, and the time that is lost around then."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from sonde.core import stats
from sonde.noise.detector.block_numbers import Numbers, differences, reader

CELLS = 80  # cells of a folded period, as in the coarse fold of native/noise/judge.cpp
# Cells around the wake-up. Time lost in them always counts as the agent's.
WINDOW_BEFORE, WINDOW_AFTER = 1.5, 2.5
# Each next window is this many times as long; the longest, as a share of the period.
WIDER, WIDEST = 2.0, 0.125


@dataclass(frozen=True)
class Wake:
    """The time at which the agent wakes up: `phase_s` after the begin of each period.

    Periods count from the begin of the run, or, with `from_resume`, from the moment the agent was resumed. before,
    after: shares of the period around the wake-up in which lost time counts as the agent's. If their sum is 1, all
    time counts.
    """

    period_s: float
    phase_s: float
    from_resume: bool
    before: float = WINDOW_BEFORE / CELLS
    after: float = WINDOW_AFTER / CELLS

    @property
    def whole(self) -> bool:
        """Whether all time counts."""
        return self.before + self.after >= 1

    def holds(self, phase: np.ndarray) -> np.ndarray:
        """Whether times since the wake-up lie in the window. phase: shares of the period."""
        return np.mod(phase + self.before, 1.0) <= self.before + self.after


def phases_of(
    raw: xr.Dataset, numbers: Numbers, wake: Wake
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rank, block, time since the wake-up (a share of the period, centred) and length of all stalls."""
    ranks, blocks, phases, lengths = [], [], [], []
    origin = _resumed(raw, numbers) if wake.from_resume else np.zeros(numbers.begin.size)
    for rank in range(raw.sizes["rank"]):
        block = np.asarray(raw["stall_block"].isel(rank=rank).values)
        present = block >= 0
        block = block[present]
        t = np.asarray(raw["stall_t"].isel(rank=rank).values, dtype=np.float64)[present] - origin[block]
        ranks.append(np.full(block.size, rank))
        blocks.append(block)
        phases.append(np.mod((t - wake.phase_s) / wake.period_s + 0.5, 1.0) - 0.5)
        lengths.append(np.asarray(raw["stall_length"].isel(rank=rank).values, dtype=np.float64)[present])
    return tuple(np.concatenate(part) for part in (ranks, blocks, phases, lengths))  # type: ignore[return-value]


def _resumed(raw: xr.Dataset, numbers: Numbers) -> np.ndarray:
    """The time at which the agent of each block was resumed, or, without an agent, would have been resumed."""
    with np.errstate(all="ignore"):
        resumed = np.asarray(raw["resumed"].values, dtype=np.float64)
        first = np.where(
            np.isfinite(resumed).any(0),
            np.nanmin(np.where(np.isfinite(resumed), resumed, np.inf), axis=0),
            np.nan,
        )
    return np.where(np.isfinite(first), first, numbers.begin - float(raw.attrs.get("settle_s", 0)))


def losses(raw: xr.Dataset, numbers: Numbers, wake: Wake) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Block, time since the wake-up (a share of the period) and share of the block lost: stalls of the finest rank."""
    rank, block, phase, length = phases_of(raw, numbers, wake)
    mine = rank == reader(raw)
    block, phase, length = block[mine], phase[mine], length[mine]
    ordinary = float(np.asarray(raw["stamp_every"].values)[reader(raw)]) * numbers.median[block]
    return block, phase, np.maximum(length - ordinary, 0) / numbers.length[block]


def window_lost(raw: xr.Dataset, numbers: Numbers, wake: Wake) -> np.ndarray:
    """The share of each block lost in stalls around the wake-up, as the finest rank recorded it."""
    block, phase, lost = losses(raw, numbers, wake)
    inside = wake.holds(phase)
    return np.bincount(block[inside], lost[inside], numbers.begin.size)


def widened(raw: xr.Dataset, numbers: Numbers, variant: int, blocks: np.ndarray, wake: Wake) -> Wake:
    """The window, made as long as the agent's bursts.

    A burst of a few ms ends within the first window. A longer burst and a rank take turns on the core, so the burst
    lasts many windows. The window is doubled as long as more time is lost in the added part with the agent on (95 %
    interval of the difference). All time counts if the window gets longer than WIDEST, or if the loss in the window
    is not consistent with the total loss of the blocks. That is less precise, but never too small.
    """
    block, phase, lost = losses(raw, numbers, wake)
    since = np.mod(phase + wake.before, 1.0)

    def more(begin: float, end: float) -> tuple[float, float, float]:
        here = (since > begin) & (since <= end)
        y = np.bincount(block[here], lost[here], numbers.begin.size)
        return stats.hodges_lehmann(differences(numbers, blocks, variant, y))

    length = end = wake.before + wake.after
    while end < 1:
        begin, end = end, min(1.0, WIDER * end)
        if more(begin, end)[1] > 0:
            length = end
    inside = more(-1.0, length)[0]
    _, low, high = more(-1.0, 1.0)
    if length > WIDEST or not low <= inside <= high:
        length = 1.0
    return replace(wake, after=length - wake.before)


def fold(raw: xr.Dataset, numbers: Numbers, variant: int, wake: Wake) -> dict[str, Any]:
    """The share of periods with a stall in each cell, for the figure.

    The threshold is chosen so that there are at most two stalls in each period on average.
    """
    out: dict[str, Any] = {
        "fold_on": np.full(CELLS, math.nan),
        "fold_off": np.full(CELLS, math.nan),
        "fold_threshold": math.nan,
    }
    _, block, phase, length = phases_of(raw, numbers, wake)
    chosen = np.isin(numbers.variant[block], (0, variant))
    if not chosen.any():
        return out
    seconds = float(np.sum(numbers.length[np.isin(numbers.variant, (0, variant))]))
    count = max(1, min(int(2 * seconds / wake.period_s), int(np.count_nonzero(chosen))))
    threshold = float(np.sort(length[chosen])[-count])
    out["fold_threshold"] = threshold
    for name, kind in (("fold_on", variant), ("fold_off", 0)):
        here = chosen & (numbers.variant[block] == kind) & (length >= threshold)
        cell = np.clip(((phase[here] + 0.5) * CELLS).astype(int), 0, CELLS - 1)
        slots = max(float(np.sum(numbers.length[numbers.variant == kind])) / wake.period_s, 1e-9)
        seen = np.unique(np.stack([cell, block[here]]), axis=1)[0] if cell.size else cell
        out[name] = np.bincount(seen, minlength=CELLS) / slots
    return out
