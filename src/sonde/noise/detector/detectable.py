"""The smallest detectable burst, simulated in the run's own clean blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from sonde.core.deadline import Deadline
from sonde.noise.detector import judge
from sonde.noise.detector.block_numbers import Numbers
from sonde.noise.detector.plan import MIN_PAIRS

BUSY = 0.05  # above this share of time lost in stalls with nothing on, the machine is too busy to be measured
MDE_POWER, MDE_RUNS, MDE_PERMUTATIONS = 0.9, 40, 499
# For short budgets: the fewest simulated runs, and about how many steps of a search need all their runs.
MDE_MIN_RUNS, MDE_STEPS = 10, 4
SEARCH = "steps of the search for the smallest detectable burst"


def part_done(design: judge.Design, raw: xr.Dataset, numbers: Numbers, found: bool) -> judge.Design | None:
    """The part of the design that the run carried out. A run that was cut short had only these looks.

    found: the run ended because it detected something. With another agent it would have gone on to the end.
    """
    if found:
        return design
    shares = np.atleast_1d(np.asarray(raw.attrs["shares"], dtype=int))
    done = 0
    for segment, rounds in enumerate(design.rounds):
        here = numbers.variant[numbers.segment == segment]
        # The last round may be missing when the time was over, as in layout.is_complete.
        if np.count_nonzero(here >= 0) < (rounds - (rounds > MIN_PAIRS)) * int(shares.sum()):
            break
        done = segment + 1
    return judge.Design(design.rounds[:done], design.spend[:done], design.alpha) if done else None


def shared(attrs: Mapping[str, Any], clean_lost: float) -> bool:
    """Whether other programs work on the ranks' cores while nothing is on.

    Then a burst and the other programs take turns: the burst lasts longer, and no stall is as long as the burst. The
    simulation makes one stall of each burst, so it would be too optimistic.
    """
    return few_cores(attrs) or clean_lost > BUSY


def few_cores(attrs: Mapping[str, Any]) -> bool:
    """Whether there were more ranks than cores."""
    return any(int(attrs.get(name, 0) or 0) for name in ("oversubscribed", "crowded_kernel"))


def detectable(
    blocks: judge.Blocks,
    design: judge.Design | None,
    periods: list[float],
    period_s: float,
    weight: float,
    seed: int,
    shortest_s: float,
    deadline: Deadline,
    permutation_s: float,
    is_shared: bool,
) -> dict[str, float]:
    """The shortest burst in each period that this design detects with power MDE_POWER, from the run's own clean blocks.

    design: None where the run had no look and could detect nothing. is_shared: see shared().
    permutation_s: time of one permutation of all looks here, s. A simulated run has the same looks.
    """
    out = {"mde": math.nan, "mde_period": period_s, "mde_searched": 1.0, "mde_runs": float(MDE_RUNS)}
    clean = np.count_nonzero(blocks.on == 0)
    if (
        design is None
        or is_shared
        or clean < 4
        or not shortest_s > 0
        or period_s > float(np.median(blocks.length_s)) + 1e-2
    ):
        return out
    # The fewest permutations with which the look with the smallest share of alpha can detect. A verdict needs more.
    least = design.alpha * min(design.spend) * max(weight, 1 - weight)
    permutations = max(MDE_PERMUTATIONS, math.ceil(1.5 / least))
    run_s = permutations * permutation_s
    # With little time, a coarse answer about all bursts is better than a fine one about long bursts.
    if not deadline.never and run_s > 0:
        out["mde_runs"] = min(MDE_RUNS, max(MDE_MIN_RUNS, int(deadline.left_s() / (run_s * MDE_STEPS))))
    search = judge.detectable_burst(
        blocks,
        design,
        period_s,
        shortest_s,
        periods,
        wanted=MDE_POWER,
        fold_weight=weight,
        permutations=permutations,
        seed=seed,
        runs=int(out["mde_runs"]),
        deadline=deadline,
        run_s=run_s,
    )
    out["mde_searched"] = searched(search, deadline)
    if search.burst_s is not None:
        out["mde"] = search.burst_s / period_s
    return out


def searched(search: judge.Search, deadline: Deadline) -> float:
    """The share of a search that was done. It reports missing steps to the deadline."""
    if search.done < search.steps:
        deadline.leave_out(SEARCH, search.done, search.steps)
    return search.done / search.steps if search.steps else 1.0
