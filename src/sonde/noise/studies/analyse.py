"""The studies of the source thesis, on this machine: how stable clean runs are, and the lowest level that is detected.

Pure: the analysis of the studies. `plan` has their designs, `verdict` the texts.

sensitivity  one run: nothing on, and the noise source at several levels, interleaved
sweep        one run: nothing on, and several kinds of noise at one level
stability    one run without noise, in groups of blocks
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from sonde.core import stats
from sonde.core.deadline import Deadline
from sonde.core.described import variables
from sonde.noise.detector import judge
from sonde.noise.detector.block_numbers import Numbers, numbers_of
from sonde.noise.detector.detectable import MDE_POWER, MDE_RUNS, searched, shared
from sonde.noise.detector.plan import MIN_PAIRS
from sonde.noise.detector.source_rule import SOURCE_LEVEL, source_moments
from sonde.noise.studies.plan import STANDARD_PERIOD_S, standard_design
from sonde.noise.studies.summary import ALONE, OF_GROUP, STEADINESS

STANDARD_PERMUTATIONS = 3000
CHANGE_ALPHA, CHANGE_BLOCKS = 0.01, 5


def add(raw: xr.Dataset, summary: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
    """The summary of a run, with the results of its study added.

    Parameters
    ----------
    raw : /raw; its attribute `study` is one of STUDIES
    summary : `analyse.analyse(raw)`
    deadline : the analysis ends by it

    Returns
    -------
    The summary with more variables: `alone_…` (variant) for a sensitivity, `group_…` (group) for a stability.
    """
    study, numbers = str(raw.attrs["study"]), numbers_of(raw)
    time, variants = deadline or Deadline(), summary.sizes.get("variant", 0)
    summary.attrs["pitch_s"] = pitch_of(numbers)
    if study == "sensitivity":
        rows = [alone(raw, numbers, k, time.part(1 / (variants + 1 - k))) for k in range(1, variants + 1)]
        summary = summary.assign(variables(ALONE, {name: [row[name] for row in rows] for name in ALONE}))
    if study == "stability":
        summary = summary.assign(variables(STEADINESS, steadiness(raw, numbers, time)))
    return summary


def pitch_of(numbers: Numbers) -> float:
    """The measured time from the begin of one block to that of the next, s; NaN with fewer than two blocks."""
    steps = np.diff(numbers.begin[np.isfinite(numbers.begin)])
    return float(np.median(steps)) if steps.size else math.nan


def alone(
    raw: xr.Dataset, numbers: Numbers, variant: int, deadline: Deadline | None = None
) -> dict[str, float]:
    """The result of a simulated run of one level alone, and the time it needs.

    In the real run all levels share the off blocks, and a block of one level waits for the blocks of the others. A run
    of this level alone has only blocks of the level and as many off blocks. To simulate it, the off blocks of each
    segment are dealt at random into hands, as many hands as there are off blocks in a round. One hand and the blocks
    of the level make such a run: its pairs stay in the measured order, and its labels are still random, because the
    hands were dealt without use of the data. It has looks after the same numbers of pairs and spends alpha as in
    `plan.looks`; both rules judge it. Its time is the number of its blocks times the time from block to block. The
    result is the median over the hands, so a hand with unlucky off blocks does not decide.

    The time does not include, for both rules: starting MPI, calibrating, and fresh blocks for the size of the effect.
    One disadvantage of the test remains in the time: it has a look only at the end of a segment. The rule of the
    source thesis is applied after every block, and its first yes counts; in a run that stops there, this yes would not
    have the stated error rate. There is no Holm adjustment, because a run alone has one question.

    Returns
    -------
    Values of ALONE. A segment that was cut short gives as many pairs as every hand can have. After the deadline no
    further hand is judged, and the first hand has fewer permutations.
    """
    attrs = raw.attrs
    hands = max(1, int(np.atleast_1d(attrs["shares"])[0]))
    spend = [float(share) for share in np.atleast_1d(attrs["spend"])]
    alpha, seed = float(attrs["alpha"]), int(attrs["seed"])
    periods = [float(np.atleast_1d(attrs["variant_periods_s"])[variant])]
    random = np.random.default_rng([seed, variant])
    both, pitch = judge.blocks_of(raw, variant), pitch_of(numbers)
    chosen: list[list[int]] = [[] for _ in range(hands)]
    ends: list[int] = []
    for segment in range(len(spend)):
        here = numbers.segment == segment
        on, off = (random.permutation(np.flatnonzero(here & (numbers.variant == k))) for k in (variant, 0))
        pairs = min(on.size, off.size // hands)
        if not pairs:
            break
        for hand, blocks in enumerate(chosen):
            blocks += sorted([*on[:pairs], *off[hand * pairs : (hand + 1) * pairs]])
        ends.append(len(chosen[0]))
    out = {"alone_p": math.nan, "alone_limit": len(chosen[0]) * pitch}
    out |= dict.fromkeys(("alone_s", "alone_source_s", "alone_separated_s"), math.nan)
    if not ends:
        return out
    found: dict[str, list[float]] = {name: [] for name in ALONE if name != "alone_limit"}
    time = deadline or Deadline()
    pieces = time.pieces()
    for hand, blocks in enumerate(chosen):
        if not pieces.fits() and hand:
            name = str(np.atleast_1d(raw["variant_name"].values)[variant])
            time.leave_out(f"runs of {name} alone", hand, len(chosen))
            break
        looks = judge.looks(
            both.where(np.isin(both.number, blocks)),
            ends,
            spend[: len(ends)],
            periods,
            fold_weight=float(attrs["fold_weight"]),
            permutations=int(attrs["permutations"]),
            seed=seed,
            deadline=time,
        )
        first = next((look.blocks for look in looks if look.p_so_far <= alpha), None)
        order = np.array([k for k in blocks if math.isfinite(numbers.mean[k])])
        apart, separated, _ = source_moments(numbers, order, variant)
        found["alone_p"].append(min(1.0, looks[-1].p_so_far))
        for name, count in (("alone_s", first), ("alone_source_s", apart), ("alone_separated_s", separated)):
            found[name].append(math.inf if count is None else count * pitch)
    for name, values in found.items():
        # With two hands, the later time counts: a detection by only one of them is not reliable.
        middle = sorted(values)[len(values) // 2]
        out[name] = middle if math.isfinite(middle) else math.nan
    return out


def steadiness(raw: xr.Dataset, numbers: Numbers, deadline: Deadline) -> dict[str, Any]:
    """The spread of clean blocks, in each group (segment) and over all groups.

    The Kruskal-Wallis test shows whether the levels of the groups differ; the change points of all blocks in their
    order show where. Both assume independent blocks. Compare them with the autocorrelation, which shows whether this
    holds.
    """
    from scipy.stats import kruskal

    known = np.isfinite(numbers.mean) & (numbers.variant == 0)
    y, segment = numbers.mean[known], numbers.segment[known]
    groups = [y[segment == k] for k in np.unique(segment)]
    table = []
    for group in groups:
        found, ci = stats.summarise(group), stats.mean_ci(group, SOURCE_LEVEL)
        table.append((found.mean, found.sd, group.size, ci.low, ci.high))
    columns = np.array(table, dtype=float).reshape(len(groups), 5).T
    p = math.nan
    if len(groups) > 1 and min(group.size for group in groups) > 1:
        p = float(kruskal(*groups).pvalue) if np.ptp(y) > 0 else 1.0
    jumps = [change.index for change in stats.change_points(y, CHANGE_ALPHA, CHANGE_BLOCKS)] if y.size else []
    changed = np.zeros(numbers.mean.size, "i1")
    changed[np.flatnonzero(known)[jumps]] = 1
    search = clean_search(
        raw, float(np.median(numbers.lost[numbers.variant == 0])) if y.size else 0.0, deadline
    )
    burst_s = math.nan if search is None or search.burst_s is None else search.burst_s
    return {
        **dict(zip(OF_GROUP, columns)),
        "groups_p": p,
        "autocorrelation": stats.autocorrelation(y, 1) if y.size else math.nan,
        "effective": stats.effective_samples(y),
        "clean_mde": burst_s / STANDARD_PERIOD_S,
        "clean_mde_searched": 1.0 if search is None else searched(search, deadline),
        "changed": changed,
    }


def clean_search(raw: xr.Dataset, clean_lost: float, deadline: Deadline) -> judge.Search | None:
    """The burst that `sonde noise run --budget 60s` detects, from clean blocks; None if they cannot show it."""
    clean = judge.blocks_of(raw, None)
    shortest_s = float(np.nanmin(np.asarray(raw["stall_threshold"].values)))
    if len(clean) < MIN_PAIRS or not shortest_s > 0 or shared(raw.attrs, clean_lost):
        return None
    if float(np.median(clean.length_s)) < STANDARD_PERIOD_S - 1e-2:
        return None
    design, weight = standard_design()
    return judge.detectable_burst(
        clean,
        design,
        STANDARD_PERIOD_S,
        shortest_s,
        wanted=MDE_POWER,
        fold_weight=weight,
        permutations=STANDARD_PERMUTATIONS,
        seed=int(raw.attrs["seed"]),
        runs=MDE_RUNS,
        deadline=deadline,
    )
