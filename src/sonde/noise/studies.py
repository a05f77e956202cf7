"""The studies of the source thesis, on this machine: how stable clean runs are, and the lowest level that is detected.

Pure: the designs of the studies and their analysis. `study_words` has the texts.

sensitivity  one run: nothing on, and the noise source at several levels, interleaved
sweep        one run: nothing on, and several kinds of noise at one level
stability    one run without noise, in groups of blocks
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from sonde.core import stats
from sonde.core.deadline import Deadline
from sonde.core.errors import UsageError
from sonde.core.units import format_duration
from sonde.noise import judge
from sonde.noise.analyse import (
    MDE_POWER,
    MDE_RUNS,
    NUMBER,
    SECONDS,
    SOURCE_LEVEL,
    Numbers,
    differences,
    numbers_of,
    searched,
    shared,
    source_moments,
)
from sonde.noise.plan import LEAST_PAIRS, Design, affordable_pairs, block_length, design_for, needed_budget

STUDIES = ("sensitivity", "sweep", "stability")
LEVELS = (0.01, 0.007, 0.005, 0.003, 0.001, 0.0005, 0.0001)  # the source's
SWEEPS = ("sync", "period", "placement", "sibling")
SWEPT_PERIODS_S = (0.01, 0.1, 1.0)
GROUPS, LEAST_IN_GROUP = 6, 3
NARROW = 0.01  # a clean run is stable up to this width of the 99 % interval of the mean, a share of the mean
STANDARD_BUDGET_S, STANDARD_PERIOD_S, STANDARD_ALPHA = 60.0, 1.0, 0.01  # the MDE of a clean run is for these
STANDARD_PERMUTATIONS = 3000
CHANGE_ALPHA, CHANGE_BLOCKS = 0.01, 5


def off_share(levels: int) -> int:
    """The number of "off" blocks in a round with one block of each level. levels: their number.

    All levels are compared with the same off blocks. For a given number of blocks, the intervals of the differences
    are narrowest with sqrt(levels) times as many off blocks as blocks of one level: 3 for 7.

    Source: Dunnett, J. Amer. Statist. Assoc. 50, 1955, 1096-1121.
    """
    return max(1, round(math.sqrt(levels)))


def threshold(levels: Sequence[float], found: Sequence[bool]) -> float | None:
    """The lowest level that is detected together with all higher ones; None if the highest is not detected."""
    lowest = None
    for level, detected in sorted(zip(levels, found), reverse=True):
        if not detected:
            break
        lowest = level
    return lowest


def standard_design() -> tuple[judge.Design, float]:
    """The design of `sonde noise run --budget 60s` for an agent that works each second, and its fold's weight."""
    design = design_for(STANDARD_BUDGET_S, STANDARD_PERIOD_S)
    return judge.Design(design.rounds, design.spend, STANDARD_ALPHA), design.fold_weight


def clean_design(budget_s: float, groups: int, block_s: float | None = None) -> Design:
    """Clean blocks that fit a budget, in groups of the same number of blocks, one after the other.

    Raises
    ------
    UsageError  noise.budget_too_short: fewer than LEAST_IN_GROUP blocks a group fit; the hint names the budget needed.
    """
    length_s = block_s or block_length(STANDARD_PERIOD_S)
    each = affordable_pairs(budget_s, length_s, variants=1) // groups
    if each < LEAST_IN_GROUP:
        needed = math.ceil(needed_budget(groups * LEAST_IN_GROUP, length_s, variants=1))
        raise UsageError(
            "noise.budget_too_short",
            f"in {format_duration(budget_s)} there is time for {each} blocks of {format_duration(length_s)} in each of "
            f"{groups} groups; at least {LEAST_IN_GROUP} are needed",
            f"give --budget {needed}s or more, or fewer --groups",
        )
    return Design((each,) * groups, (1.0,), length_s)


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
        for name, (units, text) in ALONE.items():
            values = np.array([row[name] for row in rows])
            summary[name] = (("variant",), values, {"units": units, "long_name": text})
    if study == "stability":
        summary = summary.assign(steadiness(raw, numbers, time))
    return summary


def pitch_of(numbers: Numbers) -> float:
    """The measured time from the begin of one block to that of the next, s; NaN with fewer than two blocks."""
    steps = np.diff(numbers.begin[np.isfinite(numbers.begin)])
    return float(np.median(steps)) if steps.size else math.nan


ALONE = {
    "alone_p": ("1", "p of a run of this level alone, adjusted for all its looks; median of the hands"),
    "alone_s": (
        "s",
        "time in which a run of this level alone detects it; NaN: not within alone_limit",
    ),
    "alone_source_s": (
        "s",
        "time after which the two intervals of the source thesis are disjoint; NaN: never",
    ),
    "alone_separated_s": (
        "s",
        "time after which they are the thesis's several seconds apart; NaN: never",
    ),
    "alone_limit": ("s", "time that all pairs of a run of this level alone take"),
}


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
    texts = (
        ("group_mean", SECONDS, "mean time of an iteration over the means of a group's blocks"),
        ("group_sd", SECONDS, "standard deviation of the means of a group's blocks"),
        ("group_blocks", NUMBER, "blocks of a group"),
        ("group_low", SECONDS, "99 % interval of a group's mean (Student), low end"),
        ("group_high", SECONDS, "99 % interval of a group's mean (Student), high end"),
    )
    out: dict[str, Any] = {
        name: (("group",), column, {**units, "long_name": text})
        for (name, units, text), column in zip(texts, columns)
    }
    search = clean_search(
        raw, float(np.median(numbers.lost[numbers.variant == 0])) if y.size else 0.0, deadline
    )
    single = {
        "groups_p": (p, "p of equal levels in all groups (Kruskal-Wallis)"),
        "autocorrelation": (
            stats.autocorrelation(y, 1) if y.size else math.nan,
            "correlation of a block's mean with the mean of the next block",
        ),
        "effective": (stats.effective_samples(y), "independent blocks that give the mean as exactly"),
        "clean_mde": (
            math.nan if search is None or search.burst_s is None else search.burst_s / STANDARD_PERIOD_S,
            "shortest burst each second, as a share, that a run of 60 s detects with power 0.9",
        ),
        "clean_mde_searched": (
            1.0 if search is None else searched(search, deadline),
            "share of the search for clean_mde that --budget had time for; below 1, clean_mde may be too long",
        ),
    }
    for name, (value, text) in single.items():
        out[name] = ((), value, {**NUMBER, "long_name": text})
    out["changed"] = (("block",), changed, {**NUMBER, "long_name": "1 where the level of blocks changed"})
    return out


def clean_search(raw: xr.Dataset, clean_lost: float, deadline: Deadline) -> judge.Search | None:
    """The burst that `sonde noise run --budget 60s` detects, from clean blocks; None if they cannot show it."""
    clean = judge.blocks_of(raw, None)
    shortest_s = float(np.nanmin(np.asarray(raw["stall_threshold"].values)))
    if len(clean) < LEAST_PAIRS or not shortest_s > 0 or shared(raw.attrs, clean_lost):
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


# ---- sweeps: which of two variants costs more -----------------------------------------------------


def contrasts(names: Sequence[str]) -> list[tuple[str, str, str]]:
    """The questions of a sweep and the two variants that answer each: (question, first, second)."""
    periods = [name for name in names if name.startswith("each ")]
    questions = [
        ("sync", "apart", "together"),
        *([("period", periods[0], periods[-1])] if len(periods) > 1 else []),
        ("placement", "pinned", "free"),
        ("sibling", "pinned", "sibling"),
    ]
    return [(question, a, b) for question, a, b in questions if a in names and b in names]


def contrast(summary: xr.Dataset, first: str, second: str) -> stats.Shift:
    """The cost of `first` minus that of `second`, a share of the time, with a 95 % interval; pairs within a segment."""
    names = [str(name) for name in summary["case"].values]
    a, b = names.index(first), names.index(second)
    variant = summary["block_variant"].values
    moved = Numbers(
        variant=np.where(variant == a, 1, np.where(variant == b, 0, -1)),
        segment=summary["block_segment"].values,
        begin=summary["block_begin"].values,
        length=summary["block_length"].values,
        mean=summary["block_mean"].values,
        median=summary["block_median"].values,
        lost=summary["block_lost"].values,
    )
    blocks = np.flatnonzero(moved.variant >= 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        y = moved.lost + np.log(moved.median)
    return stats.hodges_lehmann(differences(moved, blocks, 1, y))
