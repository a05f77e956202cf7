"""From /raw of a noise run to its /summary: verdicts, size of the effect, smallest detectable burst. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import xarray as xr

from sonde.core import stats
from sonde.core.deadline import Deadline
from sonde.core.described import optional
from sonde.noise import judge
from sonde.noise.histogram import quantiles
from sonde.noise.plan import LEAST_PAIRS

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999)
SCALES = (1, 64, 1024, 16384)
CELLS = 80  # cells of a folded period, as in the coarse fold of native/noise/judge.cpp
# Cells around the wake-up. Time lost in them always counts as the agent's.
WINDOW_BEFORE, WINDOW_AFTER = 1.5, 2.5
WIDER, WIDEST = (
    2.0,
    0.125,
)  # each next window is this many times as long; the longest, as a share of the period
SOURCE_GAP = 0.005  # "several seconds": 2 s of about 430 s in the tables of the source thesis
SOURCE_LEVEL = 0.99
BUSY = 0.05  # above this share of time lost in stalls with nothing on, the machine is too busy to be measured
MOST_LOST = 1 - 1e-6  # the share lost of a block in which every iteration is a stall
LATE_SHARE = 0.5  # a rank was late when the kernel kept it from running for this share of the stall
LATE_CELLS = 0.75  # the search for late ranks covers this many cells on each side of the wake-up
LATE_BLOCKS = 0.5  # a rank is named when it was late in this share of blocks,
NAMED_SHARE = 0.6  # and in this share of all cases of a late rank
MDE_POWER, MDE_RUNS, MDE_PERMUTATIONS = 0.9, 40, 499
# For short budgets: the fewest simulated runs, and about how many steps of a search need all their runs.
MDE_LEAST_RUNS, MDE_STEPS = 10, 4
SEARCH = "steps of the search for the smallest detectable burst"
SECONDS, NUMBER = {"units": "s"}, {"units": "1"}


@dataclass(frozen=True)
class Numbers:
    """The numbers of each block that are compared; ranks are merged. All (block,)."""

    variant: np.ndarray
    segment: np.ndarray
    begin: np.ndarray
    length: np.ndarray
    mean: np.ndarray  # s, of an iteration
    median: np.ndarray  # s
    lost: np.ndarray  # share of the block that stalls took beyond the time of an ordinary iteration


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


def analyse(raw: xr.Dataset, deadline: Deadline | None = None) -> xr.Dataset:
    """The complete /summary of a noise run.

    Parameters
    ----------
    raw : /raw in the layout of `sonde.noise.blocks`; its attrs are the root attributes
    deadline : the analysis ends by it: first the verdict, then the smallest detectable burst, from coarse to fine

    Returns
    -------
    Dataset over variant (all but "off"), block, quantile, scale, cell, look; see SUMMARY in the reference.
    """
    attrs = raw.attrs
    numbers = numbers_of(raw)
    names = [str(name) for name in np.atleast_1d(raw["variant_name"].values)]
    rounds = [int(r) for r in np.atleast_1d(attrs["rounds"])]
    data: dict[str, Any] = {}
    known: dict[float, dict[str, float]] = {}
    time = deadline or Deadline()
    rows = [
        one(raw, numbers, variant, rounds, known, time.part(1 / (len(names) - variant)))
        for variant in range(1, len(names))
    ]
    for key in rows[0] if rows else ():
        dims = ("variant", *DIMS.get(key, ()))
        data[key] = (dims, np.array([row[key] for row in rows]), _attrs(key))
    if rows:
        adjusted = holm([row["p"] for row in rows])
        data["p_adjusted"] = (("variant",), np.array(adjusted), _attrs("p_adjusted"))
        alpha = float(attrs["alpha"])
        data["detected"] = (
            ("variant",),
            np.array([int(p <= alpha) for p in adjusted], dtype="i1"),
            _attrs("detected"),
        )
    off = numbers.variant == 0
    data |= {
        "block_variant": (
            ("block",),
            numbers.variant.astype("i4"),
            NUMBER | {"long_name": "variant that was on"},
        ),
        "block_segment": (
            ("block",),
            numbers.segment.astype("i4"),
            NUMBER | {"long_name": "segment of a block"},
        ),
        "block_begin": (
            ("block",),
            numbers.begin,
            SECONDS | {"long_name": "begin of a block since the run began"},
        ),
        "block_length": (("block",), numbers.length, SECONDS | {"long_name": "length of a block"}),
        "block_mean": (("block",), numbers.mean, SECONDS | {"long_name": "mean time of an iteration"}),
        "block_median": (("block",), numbers.median, SECONDS | {"long_name": "median time of an iteration"}),
        "block_lost": (("block",), numbers.lost, NUMBER | {"long_name": "share of a block lost in stalls"}),
        "clean_iteration": (
            (),
            _median(numbers.median[off]),
            SECONDS | {"long_name": "median iteration, agent off"},
        ),
        "clean_lost": (
            (),
            _median(numbers.lost[off]),
            NUMBER | {"long_name": "share lost in stalls, agent off", "better": "lower"},
        ),
    }
    edges = np.asarray(raw["class_edge"].values)[reader(raw)]
    counts = _counts(raw)
    all_variants = range(len(names))
    data["quantile_s"] = (
        ("case", "quantile"),
        quantiles(np.array([counts[numbers.variant == v].sum(0) for v in all_variants]), edges, QUANTILES),
        SECONDS | {"long_name": "quantile of an iteration's time"},
    )
    data |= case_means(numbers, len(names))
    for name, attributes in (
        ("keeping_share", NUMBER | {"long_name": "cost of recording every iteration, a share of the loop"}),
        ("keeping_low", NUMBER | {"long_name": "low end of its 95 % interval"}),
        ("keeping_high", NUMBER | {"long_name": "high end of its 95 % interval"}),
    ):
        data[name] = ((), float(np.nanmedian(raw[name].values)), attributes)
    summary = xr.Dataset(
        data,
        coords={
            "variant": ("variant", np.array(names[1:], dtype="U"), {"long_name": "variant, without off"}),
            "case": ("case", names, {"long_name": "variant, off included"}),
            "quantile": ("quantile", np.array(QUANTILES), NUMBER | {"long_name": "quantile"}),
            "scale": ("scale", np.array(SCALES), NUMBER | {"long_name": "nodes"}),
            "cell": (
                "cell",
                (np.arange(CELLS) + 0.5) / CELLS,
                NUMBER | {"long_name": "share of the period, 0.5 at the wake-up"},
            ),
        },
    )
    for key in (
        "op",
        "size",
        "alpha",
        "matters",
        "period_s",
        "block_s",
        "study",
        "rounds",
        "shares",
        "variant_sources",
        "variant_periods_s",
        "agent",
        "oversubscribed",
        "crowded_kernel",
        "grain_s",
    ):
        if key in attrs:
            summary.attrs[key] = attrs[key]
    summary.attrs["ranks"] = int(raw.sizes["rank"])
    return summary


DIMS = {
    "cost": ("scale",),
    "cost_synchronised": (),
    "fold_on": ("cell",),
    "fold_off": ("cell",),
    "late_share": ("rank",),
}

TEXTS = {
    "p": ("1", "p of the run, adjusted for all interim tests"),
    "p_adjusted": ("1", "p, adjusted for the number of variants (Holm)"),
    "detected": ("1", "whether p_adjusted is at most alpha"),
    "detected_s": ("s", "time of the detection since the run began; NaN: not detected"),
    "p_fold": ("1", "p of the folded stalls at the last look"),
    "p_ranked": ("1", "p of the ranked blocks at the last look"),
    "z_fold": ("1", "largest standardised cell of the fold"),
    "z_ranked": ("1", "largest standardised rank sum"),
    "period": ("s", "period at which the fold was largest"),
    "phase": ("s", "phase at which the fold was largest"),
    "from_resume": ("1", "whether the phase counts from the moment the agent was resumed"),
    "feature": ("1", "number of the ranked feature with the largest statistic"),
    "slowdown": ("1", "slowdown: time lost in stalls and change of the typical iteration"),
    "slowdown_low": ("1", "low end of its 95 % interval"),
    "slowdown_high": ("1", "high end of its 95 % interval"),
    "stalls": ("1", "share of time lost in stalls, on minus off"),
    "stalls_low": ("1", "low end of its 95 % interval"),
    "stalls_high": ("1", "high end of its 95 % interval"),
    "typical": ("1", "change of the median iteration, a share"),
    "typical_low": ("1", "low end of its 95 % interval"),
    "typical_high": ("1", "high end of its 95 % interval"),
    "effect_pairs": ("1", "pairs of blocks behind the size of the effect"),
    "effect_fresh": ("1", "whether the detection did not use these blocks"),
    "effect_window": ("1", "whether only stalls around the agent's wake-up count"),
    "window_before": (
        "1",
        "time before the wake-up that counts as the agent's, a share of the period; NaN: no wake-up was found",
    ),
    "window_after": ("1", "time after the wake-up that counts as the agent's, a share of the period"),
    "mde": (
        "1",
        "shortest burst that this run detects with power 0.9, a share of the period; NaN: unknown, for example because "
        "others work on the ranks' cores",
    ),
    "mde_period": ("s", "period of the bursts for which mde holds"),
    "mde_searched": (
        "1",
        "share of the search for mde that --budget had time for; below 1, shorter bursts may be detectable, too",
    ),
    "mde_runs": ("1", "simulated runs in each step of that search; fewer when --budget is short"),
    "permutations": ("1", "permutations behind p at the last look"),
    "noisy_rank": ("1", "the rank that is late in the agent's stalls; -1: no rank, or several"),
    "late_share": ("1", "share of blocks in which a rank was late at the wake-up, on minus off"),
    "late_known": ("1", "share of blocks in which any rank was late"),
    "cost": ("1", "modelled slowdown by number of nodes, agents not synchronised"),
    "cost_synchronised": ("1", "modelled slowdown on any number of nodes, agents synchronised"),
    "wake_lost": ("s", "time lost a period"),
    "source_detected": ("1", "whether the source thesis's rule detects it: disjoint 99 % intervals of means"),
    "source_detected_s": ("s", "time at which the intervals first were disjoint; NaN: never"),
    "source_gap": (
        "1",
        "gap between the two intervals at the end, as a share of the clean mean; below 0: they overlap",
    ),
    "source_separated_s": (
        "s",
        "time at which they first were the thesis's several seconds apart; NaN: never",
    ),
    "agent_cpu": ("1", "CPU time of the agent, as a share of the time it was on"),
    "agent_paused": ("1", "CPU time of agents meant to be paused, as a share of that time"),
    "agent_wakeups": ("Hz", "wake-ups of its threads a second"),
    "duty": (
        "1",
        "CPU time that the noise source recorded in its blocks, a share; NaN: no noise source",
    ),
    "duty_asked": ("1", "requested share of CPU time; NaN: no noise source"),
    "duty_bursts": ("Hz", "bursts a second in these blocks"),
    "keeper_cpu": ("1", "CPU time of the process that drives it, as a share"),
    "drives": ("1", "number of times the agent was driven"),
    "drives_failed": ("1", "drives that failed"),
    "fold_on": ("1", "share of periods with a stall in a cell of the period, agent on"),
    "fold_off": ("1", "share of periods with a stall in a cell of the period, agent off"),
    "fold_threshold": ("s", "shortest time that counts as a stall in the fold"),
}

SUMMARY = {
    name: optional(("variant", *DIMS.get(name, ())), units, text, "|i1" if name == "detected" else "<f8")
    for name, (units, text) in TEXTS.items()
}
"""The variables of /summary for each variant. A clean run has no variants."""


def _attrs(key: str) -> dict[str, str]:
    units, text = TEXTS[key]
    better = {"better": "lower"} if key in ("slowdown", "stalls", "typical") else {}
    return {"units": units, "long_name": text, **better}


def one(
    raw: xr.Dataset,
    numbers: Numbers,
    variant: int,
    rounds: list[int],
    known: dict[float, dict[str, float]],
    deadline: Deadline,
) -> dict[str, Any]:
    """The results for one variant, compared with off.

    known: the smallest detectable bursts by period. They depend only on the blocks without an agent, so all variants
    share them.
    """
    name = str(np.atleast_1d(raw["variant_name"].values)[variant])
    attrs = raw.attrs
    seed, alpha = int(attrs["seed"]), float(attrs["alpha"])
    periods = [float(p) for p in np.atleast_1d(attrs["periods_s"])] if np.size(attrs["periods_s"]) else []
    own = _own_period(attrs, variant)
    periods = [own] if own else periods
    spend = [float(s) for s in np.atleast_1d(attrs["spend"])]
    weight, permutations = float(attrs["fold_weight"]), int(attrs["permutations"])
    chosen = np.flatnonzero((numbers.variant == variant) | (numbers.variant == 0))
    planned = chosen[numbers.segment[chosen] < len(rounds)]
    fresh = chosen[numbers.segment[chosen] >= len(rounds)]
    row: dict[str, Any] = {}

    found_at = _found_at(raw)
    if np.isfinite(found_at) and _sequential(attrs):
        planned = chosen[numbers.begin[chosen] < found_at]
        fresh = chosen[numbers.begin[chosen] >= found_at]
    ends = [
        int(np.flatnonzero(numbers.segment[planned] == segment).max()) + 1
        for segment in range(len(rounds))
        if np.any(numbers.segment[planned] == segment)
    ]
    whole = [k for k, segment in enumerate(sorted(set(numbers.segment[planned].tolist()))) if k < len(spend)]
    both = judge.blocks_of(raw, variant)
    seen: list[judge.Look] = []
    began_s = deadline.clock()
    if ends:
        recorded = recorded_looks(raw, ends, permutations, again=deadline.never)
        seen = judge.looks(
            both.where(np.isin(both.number, planned)),
            ends,
            [spend[k] for k in whole],
            periods,
            fold_weight=weight,
            permutations=permutations,
            seed=seed,
            deadline=deadline,
            known=recorded,
        )
        if 0 < seen[-1].permutations < permutations:
            deadline.leave_out(f"permutations of the test of {name}", seen[-1].permutations, permutations)
    looks_s = max(deadline.clock() - began_s, look_costs_s(raw))
    times = _end_times(raw, numbers, planned, ends)
    detecting = next((k for k, look in enumerate(seen) if look.p_so_far <= alpha), None)
    last = seen[detecting if detecting is not None else -1] if seen else None
    row["p"] = min(1.0, seen[-1].p_so_far) if seen else 1.0
    row["detected_s"] = times[detecting] if detecting is not None else math.nan
    row |= {
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
    windowed = bool(
        last
        and detecting is not None
        and last.period_s > 0
        and last.p_fold / weight <= last.p_ranked / (1 - weight)
        # Several sources wake up at different times. A window around one wake-up would leave out the others.
        and attrs.get("study") != "sweep"
    )
    wake = Wake(last.period_s, last.phase_s, last.from_resume) if last and windowed else None
    if wake:
        wake = widened(raw, numbers, variant, chosen, wake)
        windowed = not wake.whole
    lost = _window_lost(raw, numbers, wake) if wake and windowed else numbers.lost
    basis = fresh if _pairs(numbers, fresh, variant) >= 6 else chosen
    row |= effect(numbers, basis, variant, lost)
    row["effect_fresh"], row["effect_window"] = int(basis is fresh), int(windowed)
    row["window_before"], row["window_after"] = (wake.before, wake.after) if wake else (math.nan, math.nan)

    period = own or float(attrs.get("period_s", 0)) or (wake.period_s if wake else 1.0)
    if period not in known:
        known[period] = detectable(
            both,
            _done(judge.Design(tuple(rounds), tuple(spend), alpha), raw, numbers, detecting is not None),
            periods,
            period,
            weight,
            seed,
            float(np.nanmin(raw["stall_threshold"].values)),
            deadline,
            looks_s / permutations,
            shared(attrs, _median(numbers.lost[numbers.variant == 0])),
        )
    row |= known[period]
    row |= late(raw, numbers, variant, wake)
    row |= scale(raw, numbers, variant, wake, period)
    row |= source_rule(numbers, variant)
    row |= use(raw, numbers, variant)
    row |= duty(raw, numbers, variant)
    row |= fold(raw, numbers, variant, wake or Wake(period, 0.0, False))
    return row


def recorded_looks(raw: xr.Dataset, ends: list[int], permutations: int, *, again: bool) -> list[judge.Look]:
    """The recorded looks of the run, from the first, that need not be repeated. ends: numbers of blocks.

    again: whether to repeat the looks that had all their permutations. The judge is the same code and gives the same
    result. A look that the run had to end early is not repeated, because it had only the time that was left.
    """
    if "look_blocks" not in raw or not _sequential(raw.attrs):
        return []
    column = {f.name: np.atleast_1d(raw[f"look_{f.name.removesuffix('_s')}"].values)
              for f in fields(judge.Look) if f.name != "permutations"}  # fmt: skip
    drawn = np.atleast_1d(raw["look_permutations"].values) if "look_permutations" in raw else np.full(0, -1)
    out: list[judge.Look] = []
    whole = 0
    for k, end in enumerate(ends[: column["blocks"].size]):
        if int(column["blocks"][k]) != end or not np.isfinite(column["p_so_far"][k]):
            break
        count = int(drawn[k]) if k < drawn.size and drawn[k] > 0 else permutations
        values = {name: values[k].item() for name, values in column.items()}
        out.append(judge.Look(**values, permutations=count))
        if count < permutations:
            whole = k + 1
    return out[:whole] if again else out


def look_costs_s(raw: xr.Dataset) -> float:
    """The time that all looks took during the run, s: the same work on the same machine."""
    return float(np.nansum(raw["look_cost"].values)) if "look_cost" in raw else 0.0


def _own_period(attrs: dict[str, Any], variant: int) -> float:
    """The period of the agent of a variant, s; 0: unknown, or the same as the run's."""
    periods = np.atleast_1d(attrs.get("variant_periods_s", []))
    return float(periods[variant]) if variant < periods.size else 0.0


def case_means(numbers: Numbers, cases: int) -> dict[str, Any]:
    """Mean time of an iteration over the blocks of each variant, its spread, and its 99 % interval; "off" is first."""
    rows = []
    for case in range(cases):
        y = numbers.mean[(numbers.variant == case) & np.isfinite(numbers.mean)]
        found, ci = stats.summarise(y), stats.mean_ci(y, SOURCE_LEVEL)
        rows.append((found.mean, found.sd, y.size, ci.low, ci.high))
    table = np.array(rows, dtype=float).reshape(cases, 5)
    return {
        name: (("case",), table[:, column], {"units": units, "long_name": text})
        for column, (name, units, text) in enumerate(
            (
                ("mean", "s", "mean time of an iteration, over the means of blocks"),
                ("sd", "s", "standard deviation of the means of blocks"),
                ("blocks", "1", "blocks"),
                ("mean_low", "s", "99 % interval of the mean (Student), low end"),
                ("mean_high", "s", "99 % interval of the mean (Student), high end"),
            )
        )
    }


def _found_at(raw: xr.Dataset) -> float:
    """The time at which the run itself detected its agent, s since it began; NaN: it did not.

    It is taken from the looks, which a killed run has recorded, too.
    """
    if "look_p_so_far" not in raw:
        return float(raw.attrs.get("detected_s", math.nan))
    found = np.asarray(raw["look_p_so_far"].values) <= float(raw.attrs["alpha"])
    return float(np.asarray(raw["look_elapsed"].values)[found].min()) if found.any() else math.nan


def _sequential(attrs: dict[str, Any]) -> bool:
    return len(np.atleast_1d(attrs["shares"])) == 2


def reader(raw: xr.Dataset) -> int:
    """The rank that recorded iterations most finely. Its histogram and lengths represent the loop."""
    return judge.reader(raw)


def _counts(raw: xr.Dataset) -> np.ndarray:
    return np.asarray(raw["count"].isel(rank=reader(raw)).values, dtype=np.float64)


def numbers_of(raw: xr.Dataset) -> Numbers:
    """The numbers that are compared, of the blocks that all ranks completed. Other blocks have variant -1."""
    rank = reader(raw)
    at = {
        name: np.asarray(raw[name].isel(rank=rank).values, dtype=np.float64)
        for name in ("t_begin", "length", "excluded", "iterations")
    }
    status = np.asarray(raw["status"].values) == 1
    counts, edges = _counts(raw), np.asarray(raw["class_edge"].values)[rank]
    median = quantiles(counts, edges, (0.5,))[:, 0]
    busy = at["length"] - at["excluded"]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = busy / at["iterations"]
    variant = np.where(status, np.asarray(raw["variant"].values), -1)
    every = float(np.asarray(raw["stamp_every"].values)[rank])
    lost = np.zeros(variant.size)
    block = np.asarray(raw["stall_block"].isel(rank=rank).values)
    length = np.asarray(raw["stall_length"].isel(rank=rank).values, dtype=np.float64)
    present = block >= 0
    excess = np.maximum(length[present] - every * median[block[present]], 0)
    np.add.at(lost, block[present], excess)
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = lost / busy
    begin = np.nanmin(np.asarray(raw["t_begin"].values, dtype=np.float64), axis=0)
    return Numbers(variant, np.asarray(raw["segment"].values), begin, at["length"], mean, median, lost)


def _median(x: np.ndarray) -> float:
    x = x[np.isfinite(x)]
    return float(np.median(x)) if x.size else math.nan


def _end_times(raw: xr.Dataset, numbers: Numbers, planned: np.ndarray, ends: list[int]) -> list[float]:
    """The time of each look, s since the run began: the end of its last block."""
    return [float(numbers.begin[planned[end - 1]] + numbers.length[planned[end - 1]]) for end in ends]


def _pairs(numbers: Numbers, blocks: np.ndarray, variant: int) -> int:
    on = np.count_nonzero(numbers.variant[blocks] == variant)
    return int(min(on, np.count_nonzero(numbers.variant[blocks] == 0)))


def differences(numbers: Numbers, blocks: np.ndarray, variant: int, y: np.ndarray) -> np.ndarray:
    """On minus off for each pair: the k-th block of each kind within a segment.

    Labels were drawn at random, so this pairing is fair.
    """
    out: list[float] = []
    for segment in np.unique(numbers.segment[blocks]):
        here = blocks[numbers.segment[blocks] == segment]
        on, off = (y[here[numbers.variant[here] == kind]] for kind in (variant, 0))
        count = min(on.size, off.size)
        out += (on[:count] - off[:count]).tolist()
    found = np.array(out)
    return found[np.isfinite(found)]


def effect(numbers: Numbers, blocks: np.ndarray, variant: int, lost: np.ndarray) -> dict[str, Any]:
    """The size of the effect with 95 % intervals. lost: share of each block lost in stalls.

    Slowdown and typical iteration are ratios minus 1: a loop that loses half of its time takes twice as long.
    """
    with np.errstate(divide="ignore"):
        typical = np.log(numbers.median)
    longer = typical - np.log1p(-np.minimum(lost, MOST_LOST))
    out: dict[str, Any] = {}
    for name, y in (("slowdown", longer), ("stalls", lost), ("typical", typical)):
        pairs = differences(numbers, blocks, variant, y)
        shift = np.array(stats.hodges_lehmann(pairs))
        out |= dict(
            zip(
                (name, f"{name}_low", f"{name}_high"),
                (shift if name == "stalls" else np.expm1(shift)).tolist(),
            )
        )
        out["effect_pairs"] = pairs.size
    return out


def _phase(
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


def _losses(raw: xr.Dataset, numbers: Numbers, wake: Wake) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Block, time since the wake-up (a share of the period) and share of the block lost: stalls of the finest rank."""
    rank, block, phase, length = _phase(raw, numbers, wake)
    mine = rank == reader(raw)
    block, phase, length = block[mine], phase[mine], length[mine]
    ordinary = float(np.asarray(raw["stamp_every"].values)[reader(raw)]) * numbers.median[block]
    return block, phase, np.maximum(length - ordinary, 0) / numbers.length[block]


def _window_lost(raw: xr.Dataset, numbers: Numbers, wake: Wake) -> np.ndarray:
    """The share of each block lost in stalls around the wake-up, as the finest rank recorded it."""
    block, phase, lost = _losses(raw, numbers, wake)
    inside = wake.holds(phase)
    return np.bincount(block[inside], lost[inside], numbers.begin.size)


def widened(raw: xr.Dataset, numbers: Numbers, variant: int, blocks: np.ndarray, wake: Wake) -> Wake:
    """The window, made as long as the agent's bursts.

    A burst of a few ms ends within the first window. A longer burst and a rank take turns on the core, so the burst
    lasts many windows. The window is doubled as long as more time is lost in the added part with the agent on (95 %
    interval of the difference). All time counts if the window gets longer than WIDEST, or if the loss in the window
    is not consistent with the total loss of the blocks. That is less precise, but never too small.
    """
    block, phase, lost = _losses(raw, numbers, wake)
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


def _done(design: judge.Design, raw: xr.Dataset, numbers: Numbers, found: bool) -> judge.Design | None:
    """The part of the design that the run carried out. A run that was cut short had only these looks.

    found: the run ended because it detected something. With another agent it would have gone on to the end.
    """
    if found:
        return design
    shares = np.atleast_1d(np.asarray(raw.attrs["shares"], dtype=int))
    done = 0
    for segment, rounds in enumerate(design.rounds):
        here = numbers.variant[numbers.segment == segment]
        # The last round may be missing when the time was over, as in blocks.is_complete.
        if np.count_nonzero(here >= 0) < (rounds - (rounds > LEAST_PAIRS)) * int(shares.sum()):
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
        out["mde_runs"] = min(MDE_RUNS, max(MDE_LEAST_RUNS, int(deadline.left_s() / (run_s * MDE_STEPS))))
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


def late(raw: xr.Dataset, numbers: Numbers, variant: int, wake: Wake | None) -> dict[str, Any]:
    """The rank that causes the agent's stalls.

    In a collective all ranks stall when one rank stalls. The late rank is the one that the kernel kept from running
    for half of the stall or more; where the loop polls, it is the rank with such a gap in its own polling. The
    function counts the blocks in which a rank was late at the wake-up, on minus off, with the threshold of stall
    length that separates the two best.
    """
    ranks = raw.sizes["rank"]
    nothing: dict[str, Any] = {
        "noisy_rank": -1,
        "late_share": np.full(ranks, math.nan),
        "late_known": math.nan,
    }
    if wake is None:
        return nothing
    rank, block, phase, length = _phase(raw, numbers, wake)
    present = [np.asarray(raw["stall_block"].isel(rank=r).values) >= 0 for r in range(ranks)]
    away = np.concatenate(
        [
            np.fmax(
                np.asarray(raw["stall_delay"].isel(rank=r).values, dtype=np.float64)[present[r]],
                np.asarray(raw["stall_gap"].isel(rank=r).values, dtype=np.float64)[present[r]],
            )
            for r in range(ranks)
        ]
    )
    if not np.isfinite(away).any():
        return nothing  # there is no data from the kernel or from polling
    at_wake = np.abs(phase) <= LATE_CELLS / CELLS
    is_late = at_wake & (away >= LATE_SHARE * length)
    on, off = (max(1, int(np.sum(numbers.variant == kind))) for kind in (variant, 0))
    lengths = np.unique(length[at_wake & (numbers.variant[block] == variant)])
    best = np.zeros(ranks)
    for threshold in lengths[:: max(1, lengths.size // 64)]:
        chosen = is_late & (length >= threshold)
        share = np.zeros(ranks)
        for kind, blocks, sign in ((variant, on, 1), (0, off, -1)):
            here = chosen & (numbers.variant[block] == kind)
            pairs = np.unique(np.stack([rank[here], block[here]]), axis=1)[0]
            share += sign * np.bincount(pairs, minlength=ranks) / blocks
        if share.max() > best.max():
            best = share
    share = np.clip(best, 0, None)
    loudest = int(np.argmax(share))
    named = share[loudest] >= LATE_BLOCKS and share[loudest] >= NAMED_SHARE * share.sum()
    return {
        "noisy_rank": loudest if named else -1,
        "late_share": share,
        "late_known": float(min(1.0, share.sum())),
    }


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
    if wake is None or _median(numbers.lost[numbers.variant == 0]) > BUSY:
        return nothing
    lost = _window_lost(raw, numbers, wake) * period_s
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


def use(raw: xr.Dataset, numbers: Numbers, variant: int) -> dict[str, float]:
    """The use of the agent while it was on, and its CPU time while it should be paused; means over nodes."""
    names = ("agent_cpu", "agent_paused", "agent_wakeups", "keeper_cpu", "drives", "drives_failed")
    if "agent_cpu" not in raw:
        return dict.fromkeys(names, math.nan)
    settle_s = float(raw.attrs.get("settle_s", 0))

    def total(name: str, kind: int) -> float:
        used = np.asarray(raw[name].values, dtype=np.float64)[:, numbers.variant == kind]
        return float(np.nansum(used)) / max(1, raw.sizes["node"])

    def share(name: str, kind: int) -> float:
        lengths = numbers.length[numbers.variant == kind]
        time = float(np.sum(lengths)) + settle_s * lengths.size
        return total(name, kind) / time if time > 0 else math.nan

    if not (numbers.variant == variant).any():
        return dict.fromkeys(names, math.nan)
    return {
        "agent_cpu": share("agent_cpu", variant),
        "agent_paused": share("agent_cpu", 0),
        "agent_wakeups": share("agent_wakeups", variant),
        "keeper_cpu": share("keeper_cpu", variant),
        "drives": total("agent_drives", variant),
        "drives_failed": total("agent_drives_failed", variant),
    }


def duty(raw: xr.Dataset, numbers: Numbers, variant: int) -> dict[str, float]:
    """The load of the noise sources in the blocks of a variant, for each node.

    It comes from the recorded bursts that began in these blocks.
    """
    requested = math.nan
    levels = np.atleast_1d(raw.attrs.get("levels", []))
    if variant < levels.size:
        counts = np.atleast_1d(raw.attrs.get("variant_sources", np.ones(levels.size)))
        requested = float(levels[variant]) * float(counts[variant])
    out = {"duty": math.nan, "duty_asked": requested, "duty_bursts": math.nan}
    blocks = np.flatnonzero(numbers.variant == variant)
    if "burst_cpu" not in raw or not blocks.size or not np.isfinite(requested):
        return out
    nodes = len({str(host) for host in raw["source_host"].values})
    ends = numbers.begin + numbers.length
    used, bursts = 0.0, 0
    for source in range(raw.sizes["source"]):
        count = int(raw["n_bursts"].values[source])
        begin = np.asarray(raw["burst_begin"].isel(source=source).values, dtype=np.float64)[:count]
        cpu = np.asarray(raw["burst_cpu"].isel(source=source).values, dtype=np.float64)[:count]
        at = np.clip(np.searchsorted(numbers.begin, begin, side="right") - 1, 0, None)
        inside = (begin >= numbers.begin[at]) & (begin < ends[at]) & (numbers.variant[at] == variant)
        used += float(cpu[inside].sum())
        bursts += int(np.count_nonzero(inside))
    seconds = float(numbers.length[blocks].sum()) * nodes
    return out | {"duty": used / seconds, "duty_bursts": bursts / seconds}


def fold(raw: xr.Dataset, numbers: Numbers, variant: int, wake: Wake) -> dict[str, Any]:
    """The share of periods with a stall in each cell, for the figure.

    The threshold is chosen so that there are at most two stalls in each period on average.
    """
    out: dict[str, Any] = {
        "fold_on": np.full(CELLS, math.nan),
        "fold_off": np.full(CELLS, math.nan),
        "fold_threshold": math.nan,
    }
    _, block, phase, length = _phase(raw, numbers, wake)
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


def holm(p: list[float]) -> list[float]:
    """Holm's adjustment of p-values, in their order. Source: Holm 1979."""
    order = sorted(range(len(p)), key=p.__getitem__)
    out, most = [0.0] * len(p), 0.0
    for place, k in enumerate(order):
        most = max(most, min(1.0, (len(p) - place) * p[k]))
        out[k] = most
    return out
