"""The results of one variant, compared with blocks without an agent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from sonde.core.deadline import Deadline
from sonde.noise.detector import judge
from sonde.noise.detector.agent_use import duty, use
from sonde.noise.detector.block_numbers import Numbers, finite_median, pairs_in
from sonde.noise.detector.detectable import detectable, part_done, shared
from sonde.noise.detector.effect import effect
from sonde.noise.detector.late_ranks import late
from sonde.noise.detector.recorded_looks import (
    end_times,
    found_at_s,
    is_sequential,
    look_costs_s,
    recorded_looks,
)
from sonde.noise.detector.scale import scale
from sonde.noise.detector.source_rule import source_rule
from sonde.noise.detector.wake import Wake, fold, widened, window_lost

MIN_FRESH_PAIRS = 6  # fewer fresh pairs have no interval


@dataclass(frozen=True)
class PlannedTest:
    """How the run was planned to test one variant.

    periods_s: at which stalls are folded. own_s: the period of this variant's agent; 0: unknown, or that of the run.
    rounds, spend: of each segment, the spend as a share of alpha. weight: of the fold, against the ranked blocks.
    """

    variant: int
    name: str
    periods_s: list[float]
    own_s: float
    rounds: list[int]
    spend: list[float]
    weight: float
    permutations: int
    alpha: float
    seed: int


def planned_test(raw: xr.Dataset, variant: int) -> PlannedTest:
    """The test of a variant, from the root attributes."""
    attrs = raw.attrs
    own = _own_period(attrs, variant)
    periods = [float(p) for p in np.atleast_1d(attrs["periods_s"])] if np.size(attrs["periods_s"]) else []
    return PlannedTest(
        variant,
        str(np.atleast_1d(raw["variant_name"].values)[variant]),
        [own] if own else periods,
        own,
        [int(r) for r in np.atleast_1d(attrs["rounds"])],
        [float(s) for s in np.atleast_1d(attrs["spend"])],
        float(attrs["fold_weight"]),
        int(attrs["permutations"]),
        float(attrs["alpha"]),
        int(attrs["seed"]),
    )


@dataclass(frozen=True)
class Parts:
    """The blocks of a variant and of "off", (block,) numbers in order: all, those that the looks use, and fresh ones.

    The detection did not use the fresh blocks.
    """

    chosen: np.ndarray
    planned: np.ndarray
    fresh: np.ndarray


def parts_of(raw: xr.Dataset, numbers: Numbers, test: PlannedTest) -> Parts:
    """The blocks for the test of a variant."""
    chosen = np.flatnonzero((numbers.variant == test.variant) | (numbers.variant == 0))
    found_at = found_at_s(raw)
    if np.isfinite(found_at) and is_sequential(raw.attrs):
        at, border = numbers.begin[chosen], found_at
    else:
        at, border = numbers.segment[chosen], len(test.rounds)
    return Parts(chosen, chosen[at < border], chosen[at >= border])


@dataclass(frozen=True)
class Judged:
    """The looks at a variant. times_s: of each look. detecting: number of the first that detects it; None: none does.

    cost_s: time of all looks here.
    """

    looks: list[judge.Look]
    times_s: list[float]
    detecting: int | None
    cost_s: float

    @property
    def last(self) -> judge.Look | None:
        """The look that detects it, else the last; None without any."""
        return self.looks[-1 if self.detecting is None else self.detecting] if self.looks else None


def judged(
    raw: xr.Dataset,
    numbers: Numbers,
    test: PlannedTest,
    both: judge.Blocks,
    planned: np.ndarray,
    deadline: Deadline,
) -> Judged:
    """The looks at the planned blocks of a variant: recorded ones where they stand, the others repeated."""
    segments = numbers.segment[planned]
    ends = [
        int(np.flatnonzero(segments == segment).max()) + 1
        for segment in range(len(test.rounds))
        if np.any(segments == segment)
    ]
    looks: list[judge.Look] = []
    began_s = deadline.clock()
    if ends:
        looks = judge.looks(
            both.where(np.isin(both.number, planned)),
            ends,
            test.spend[: len(set(segments.tolist()))],
            test.periods_s,
            fold_weight=test.weight,
            permutations=test.permutations,
            seed=test.seed,
            deadline=deadline,
            known=recorded_looks(raw, ends, test.permutations, again=deadline.never),
        )
        drawn = looks[-1].permutations
        if 0 < drawn < test.permutations:
            deadline.leave_out(f"permutations of the test of {test.name}", drawn, test.permutations)
    cost_s = max(deadline.clock() - began_s, look_costs_s(raw))
    detecting = next((k for k, look in enumerate(looks) if look.p_so_far <= test.alpha), None)
    return Judged(looks, end_times(numbers, planned, ends), detecting, cost_s)


def results_of_test(found: Judged) -> dict[str, Any]:
    """The results of the test itself."""
    last = found.last
    return {
        "p": min(1.0, found.looks[-1].p_so_far) if found.looks else 1.0,
        "detected_s": math.nan if found.detecting is None else found.times_s[found.detecting],
        "p_fold": last.p_fold if last else 1.0,
        "p_ranked": last.p_ranked if last else 1.0,
        "z_fold": last.z_fold if last else 0.0,
        "z_ranked": last.z_ranked if last else 0.0,
        "period": last.period_s if last else 0.0,
        "phase": last.phase_s if last else 0.0,
        "from_resume": int(last.from_resume) if last else 0,
        "feature": last.feature if last else 0,
        "permutations": last.permutations if last else 0,
    }


def wake_of(
    raw: xr.Dataset, numbers: Numbers, test: PlannedTest, found: Judged, chosen: np.ndarray
) -> Wake | None:
    """The wake-up of the agent with its window; None where the fold did not show it."""
    last = found.last
    shown = (
        last is not None
        and found.detecting is not None
        and last.period_s > 0
        and last.p_fold / test.weight <= last.p_ranked / (1 - test.weight)
        # Several sources wake up at different times. A window around one wake-up would leave out the others.
        and raw.attrs.get("study") != "sweep"
    )
    if last is None or not shown:
        return None
    wake = Wake(last.period_s, last.phase_s, last.from_resume)
    return widened(raw, numbers, test.variant, chosen, wake)


def effect_results(
    raw: xr.Dataset, numbers: Numbers, variant: int, parts: Parts, wake: Wake | None
) -> dict[str, Any]:
    """The size of the effect, from fresh blocks if there are enough, and from the window if it is not everything."""
    windowed = wake is not None and not wake.whole
    lost = window_lost(raw, numbers, wake) if wake and windowed else numbers.lost
    fresh = pairs_in(numbers, parts.fresh, variant) >= MIN_FRESH_PAIRS
    return effect(numbers, parts.fresh if fresh else parts.chosen, variant, lost) | {
        "effect_fresh": int(fresh),
        "effect_window": int(windowed),
        "window_before": wake.before if wake else math.nan,
        "window_after": wake.after if wake else math.nan,
    }


def results_of(
    raw: xr.Dataset,
    numbers: Numbers,
    variant: int,
    known: dict[float, dict[str, float]],
    deadline: Deadline,
) -> dict[str, Any]:
    """The results for one variant, compared with off.

    known: the smallest detectable bursts by period. They depend only on the blocks without an agent, so all variants
    share them.
    """
    test = planned_test(raw, variant)
    parts = parts_of(raw, numbers, test)
    both = judge.blocks_of(raw, variant)
    found = judged(raw, numbers, test, both, parts.planned, deadline)
    wake = wake_of(raw, numbers, test, found, parts.chosen)
    row = results_of_test(found) | effect_results(raw, numbers, variant, parts, wake)
    period = test.own_s or float(raw.attrs.get("period_s", 0)) or (wake.period_s if wake else 1.0)
    if period not in known:
        design = judge.Design(tuple(test.rounds), tuple(test.spend), test.alpha)
        known[period] = detectable(
            both,
            part_done(design, raw, numbers, found.detecting is not None),
            test.periods_s,
            period,
            test.weight,
            test.seed,
            float(np.nanmin(raw["stall_threshold"].values)),
            deadline,
            found.cost_s / test.permutations,
            shared(raw.attrs, finite_median(numbers.lost[numbers.variant == 0])),
        )
    row |= known[period]
    row |= late(raw, numbers, variant, wake)
    row |= scale(raw, numbers, variant, wake, period)
    row |= source_rule(numbers, variant)
    row |= use(raw, numbers, variant)
    row |= duty(raw, numbers, variant)
    row |= fold(raw, numbers, variant, wake or Wake(period, 0.0, False))
    return row


def _own_period(attrs: dict[str, Any], variant: int) -> float:
    """The period of the agent of a variant, s; 0: unknown, or the same as the run's."""
    periods = np.atleast_1d(attrs.get("variant_periods_s", []))
    return float(periods[variant]) if variant < periods.size else 0.0
