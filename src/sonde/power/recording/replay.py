"""What another policy, or another budget, would have made of a recorded stretch of time. Pure.

The policies are those that run live (`recording.policy`). What a node would have drawn is known where it drew clearly
less than its cap; where it was at its cap it wanted at least that, and how much more nobody knows: such node-time is
counted apart, and never as enough. A node that was not heard, as before it came and after it went, wanted nothing, and
that time is none of its.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sonde.core.errors import DataError
from sonde.power.monitor.budget import NodeSeries, Step
from sonde.power.recording.policy import UNKNOWN, Node, Policy
from sonde.power.stack.config import NodeLimits
from sonde.power.stack.telemetry import NAN, STALE_S

AT_CAP = 0.95  # of its cap, from which on a node may have been held by it


@dataclass(frozen=True)
class WhatIf:
    """What a policy came to.

    max_sum_caps_w, mean_lent_w : sums of the caps it gave. short_s : node-seconds with a cap below what the node is
    known to have wanted; short_j : the energy it lacked. unsure_s : node-seconds in which the node was at its cap when
    it was recorded, and would have had no more than then: if that was enough is not known. node_s : all node-seconds.
    """

    policy: str
    budget_w: float
    max_sum_caps_w: float
    mean_lent_w: float
    short_s: float
    short_j: float
    unsure_s: float
    node_s: float


def replay(
    nodes: Mapping[str, NodeSeries],
    limits: Sequence[NodeLimits],
    budget_w: float,
    period_s: float,
    policy: str = "",
    step_s: float = NAN,
) -> WhatIf:
    """Runs one policy over what was recorded; policy "": the caps as they were.

    limits : what each node can be given; of others nothing is replayed. period_s : between two decisions. step_s :
    between two moments looked at; the period, where it is not told.

    Raises
    ------
    DataError  power.nothing_to_replay. UsageError  power.unknown_policy, power.budget_too_small.
    """
    chosen = [(one, nodes[one.name]) for one in limits if one.name in nodes and len(nodes[one.name].t)]
    if not chosen:
        raise DataError(
            "power.nothing_to_replay",
            "none of the configured nodes is in the history",
            "give the configuration of the cluster that it was recorded on",
        )
    step = step_s if math.isfinite(step_s) else period_s
    begin = min(float(series.t[0]) for _, series in chosen)
    end = max(float(series.t[-1]) for _, series in chosen)
    if end - begin < step:
        raise DataError(
            "power.nothing_to_replay",
            f"the history is {end - begin:.3g} s long, and a decision is taken every {period_s:g} s",
            "record for longer, or give a shorter --period",
        )
    times = np.arange(begin, end, step)
    there = np.stack([_heard(series.t, times) for _, series in chosen])
    power = np.stack([Step(series.t, series.power_w).at(times) for _, series in chosen])
    had = np.stack([Step(series.t, series.cap_w).at(times) for _, series in chosen])
    power, had = np.where(there, power, NAN), np.where(there, had, NAN)
    held = power >= AT_CAP * had
    caps = had
    if policy:
        chosen_limits = [one for one, _ in chosen]
        # To a policy who is not there is idle: by "not known" it would be lent what it has no use for.
        caps = _caps(Policy(policy), chosen_limits, budget_w, np.where(there, power, 0.0), had, held)
    wanted = np.where(held, NAN, power)
    lacking = np.fmax(wanted - caps, 0.0)
    short = lacking > 1e-6 * np.fmax(wanted, 1.0)
    # Less than it had is surely too little for a node that used all it had.
    less = held & (caps < had * (1 - 1e-6))
    lacking = np.where(less, np.fmax(np.fmin(power, had) - caps, 0.0), lacking)
    short |= less & (lacking > 0)
    unsure = held & ~short & (caps <= had * (1 + 1e-6))
    sums = np.nansum(caps, axis=0)
    return WhatIf(
        policy or "as it was",
        budget_w,
        float(sums.max()),
        float(sums.mean()),
        float(short.sum() * step),
        float(np.nansum(np.where(short, lacking, 0.0)) * step),
        float(unsure.sum() * step),
        float(np.isfinite(power).sum() * step),
    )


def _heard(t: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Whether a node's last report was not too long ago, at each time."""
    usual = float(np.median(np.diff(t))) if len(t) > 1 else 0.0
    place = np.searchsorted(t, times, side="right") - 1
    return (place >= 0) & (times - t[np.maximum(place, 0)] <= max(STALE_S, 3 * usual))


def _caps(
    policy: Policy,
    limits: Sequence[NodeLimits],
    budget_w: float,
    power: np.ndarray,
    had: np.ndarray,
    held: np.ndarray,
) -> np.ndarray:
    """Decision by decision: each sees what nodes would have drawn under the caps of the one before."""
    caps = np.empty_like(power)
    now = np.array([one.safe_w for one in limits])
    for k in range(power.shape[1]):
        seen = [
            Node(
                min_w=one.min_w,
                max_w=one.max_w,
                guaranteed_w=one.safe_w,
                power_w=_drawn(power[row, k], had[row, k], bool(held[row, k]), now[row], one.max_w),
                demand_w=UNKNOWN
                if held[row, k] or not math.isfinite(power[row, k])
                else float(power[row, k]),
                cap_w=float(now[row]),
            )
            for row, one in enumerate(limits)
        ]
        now = np.array(policy.share(budget_w, seen))
        caps[:, k] = now
    return caps


def _drawn(power: float, had: float, held: bool, cap: float, most: float) -> float:
    """What a node would have drawn under another cap: one that was held takes all it gets."""
    if not math.isfinite(power):
        return UNKNOWN
    return float(min(cap, most) if held and cap >= had else min(power, cap))
