"""A model of the cost on many nodes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from sonde.noise.detector.block_numbers import Numbers, finite_median
from sonde.noise.detector.detectable import BUSY
from sonde.noise.detector.wake import Wake, window_lost

SCALES = (1, 64, 1024, 16384)


def scale(
    raw: xr.Dataset, numbers: Numbers, variant: int, wake: Wake | None, period_s: float
) -> dict[str, Any]:
    """A model of the cost on many nodes: every node has one burst in each period, as measured here.

    The times of the bursts are independent. A step of an application computes for `grain_s` and then waits for the
    slowest of N nodes. A node's burst of length d falls into a step with probability grain_s / w, where w is the work
    between two bursts. So the step loses E[max of N] = the integral of 1 - F(x)^N, with F(x) = 1 - (grain_s / w) *
    P(d > x). Synchronised agents cost the same on any number of nodes.
    """
    grain = float(raw.attrs.get("grain_s", 0.001))
    nothing = {"cost": np.full(len(SCALES), math.nan), "cost_synchronised": math.nan, "wake_lost": math.nan}
    # With much other load, a burst measured here does not represent the agent on a node of a large job.
    if wake is None or finite_median(numbers.lost[numbers.variant == 0]) > BUSY:
        return nothing
    lost = window_lost(raw, numbers, wake) * period_s
    on, off = (lost[numbers.variant == kind] for kind in (variant, 0))
    if not on.size or not off.size:
        return nothing
    burst = np.sort(np.maximum(on - np.median(off), 0))
    work = period_s - float(burst.mean())  # between two bursts; the slowdown is relative to it
    if work <= 0:
        return nothing
    hit = min(1.0, grain / work)
    steps = np.diff(np.concatenate([[0.0], burst]))
    above = 1 - np.arange(burst.size) / burst.size  # P(d > x) left of each burst
    cost = [float(np.sum(steps * (1 - (1 - hit * above) ** nodes)) / grain) for nodes in SCALES]
    return {
        "cost": np.array(cost),
        "cost_synchronised": float(burst.mean() / work),
        "wake_lost": float(burst.mean()),
    }
