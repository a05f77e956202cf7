"""Replays recorded telemetry under another policy or budget. Pure.

The policies are the live ones (`recording.policy`). A node that drew clearly less than its cap shows its demand. A node
at its cap wanted at least that power, and how much more is unknown: such node-time is counted separately, never as
sufficient. A node that was not heard, before it came or after it went, had no demand, and that time does not count.
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

AT_CAP = 0.95  # share of its cap from which on a node may have been limited by it


@dataclass(frozen=True)
class WhatIf:
    """The result of a policy.

    max_sum_caps_w, mean_lent_w : sums of its caps. short_s : node-seconds with a cap below the node's known demand;
    short_j : the energy that was missing. unsure_s : node-seconds in which the node was at its recorded cap and would
    have had no higher one: it is unknown whether that was enough. node_s : all node-seconds.
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
    """Replay one policy; policy "": the recorded caps.

    limits : the range of each node's cap; only these nodes are replayed. period_s : time between two decisions. step_s
    : time between two evaluated moments; default: the period.

    Raises
    ------
    DataError  power.nothing_to_replay. UsageError  power.unknown_policy, power.budget_too_small.
    """
    chosen = [(one, nodes[one.name]) for one in limits if one.name in nodes and len(nodes[one.name].t)]
    if not chosen:
        raise DataError(
            "power.nothing_to_replay",
            "the history contains none of the configured nodes",
            "use the configuration of the recorded cluster",
        )
    step = step_s if math.isfinite(step_s) else period_s
    begin = min(float(series.t[0]) for _, series in chosen)
    end = max(float(series.t[-1]) for _, series in chosen)
    if end - begin < step:
        raise DataError(
            "power.nothing_to_replay",
            f"the history is only {end - begin:.3g} s long, with a decision every {period_s:g} s",
            "record longer, or give a shorter --period",
        )
    times = np.arange(begin, end, step)
    present = np.stack([_heard(series.t, times) for _, series in chosen])
    power = np.stack([Step(series.t, series.power_w).at(times) for _, series in chosen])
    had = np.stack([Step(series.t, series.cap_w).at(times) for _, series in chosen])
    power, had = np.where(present, power, NAN), np.where(present, had, NAN)
    limited = power >= AT_CAP * had
    caps = had
    if policy:
        chosen_limits = [one for one, _ in chosen]
        # A policy gets an absent node as an idle one: as "unknown" it would be lent power that it cannot use.
        caps = _caps(Policy(policy), chosen_limits, budget_w, np.where(present, power, 0.0), had, limited)
    wanted = np.where(limited, NAN, power)
    lacking = np.fmax(wanted - caps, 0.0)
    short = lacking > 1e-6 * np.fmax(wanted, 1.0)
    # Less than the recorded cap is certainly too little for a node that used all of it.
    less = limited & (caps < had * (1 - 1e-6))
    lacking = np.where(less, np.fmax(np.fmin(power, had) - caps, 0.0), lacking)
    short |= less & (lacking > 0)
    unsure = limited & ~short & (caps <= had * (1 + 1e-6))
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
    """Whether a node's last report was recent enough, at each time."""
    usual = float(np.median(np.diff(t))) if len(t) > 1 else 0.0
    place = np.searchsorted(t, times, side="right") - 1
    return (place >= 0) & (times - t[np.maximum(place, 0)] <= max(STALE_S, 3 * usual))


def _caps(
    policy: Policy,
    limits: Sequence[NodeLimits],
    budget_w: float,
    power: np.ndarray,
    had: np.ndarray,
    limited: np.ndarray,
) -> np.ndarray:
    """The caps of each decision; each sees the power that nodes would have drawn under the caps before."""
    caps = np.empty_like(power)
    now = np.array([one.safe_w for one in limits])
    for k in range(power.shape[1]):
        seen = [
            Node(
                min_w=one.min_w,
                max_w=one.max_w,
                guaranteed_w=one.safe_w,
                power_w=_drawn(power[row, k], had[row, k], bool(limited[row, k]), now[row], one.max_w),
                demand_w=UNKNOWN
                if limited[row, k] or not math.isfinite(power[row, k])
                else float(power[row, k]),
                cap_w=float(now[row]),
            )
            for row, one in enumerate(limits)
        ]
        now = np.array(policy.share(budget_w, seen))
        caps[:, k] = now
    return caps


def _drawn(power: float, had: float, limited: bool, cap: float, most: float) -> float:
    """A node's power under another cap: a limited node takes all it gets."""
    if not math.isfinite(power):
        return UNKNOWN
    return float(min(cap, most) if limited and cap >= had else min(power, cap))
