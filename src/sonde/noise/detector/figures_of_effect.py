"""Figures of the effect: which iterations and ranks, at which levels and on how many nodes."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from sonde.core.figure import Axis, Figure, Kind
from sonde.core.units import format_duration
from sonde.noise.detector import verdict
from sonde.noise.detector.analyse import QUANTILES
from sonde.noise.detector.block_numbers import reader
from sonde.noise.detector.figure_cases import VARIANT, case_names
from sonde.noise.detector.histogram import quantiles
from sonde.noise.detector.levels import levels_of, threshold

MAX_RANKS = 64  # bars
SHUFFLES, SHUFFLED_LEVEL = 200, 0.95
MIN_COUNT = 5  # blocks of each kind, or readings beyond a quantile; fewer mean nothing
PER_DECADE = 6  # quantiles that are drawn


def shift(summary: xr.Dataset, raw: xr.Dataset | None) -> Figure | None:
    """The ratio of the quantiles of the iteration, on over off, and the same ratio for shuffled labels."""
    count = summary.sizes.get("variant", 0)
    if not count:
        return None
    every = 1
    if raw is None:
        q = np.asarray(QUANTILES)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = summary["quantile_s"].values[1:] / summary["quantile_s"].values[0]
        low = high = np.full(ratio.shape, np.nan)
    else:
        every = int(raw["stamp_every"].values[reader(raw)])
        q = tail_of(raw, summary)
        ratio, low, high = (
            np.stack(part) for part in zip(*(shuffled(raw, summary, k + 1, q) for k in range(count)))
        )
    if not np.isfinite(ratio).any():
        return None
    bounded = bool(np.isfinite(low).any())
    y = np.stack([ratio, low, high] if bounded else [ratio], axis=1)
    null = [f"{SHUFFLED_LEVEL:.0%} of runs with shuffled labels".replace("%", " %", 1)] * 2 if bounded else []
    data = xr.Dataset(
        {
            "x": (("variant", "series", "point"), np.broadcast_to(1 / (1 - q), y.shape)),
            "y": (("variant", "series", "point"), y),
            "style": ("series", ["line", *["dashed" for _ in null]]),
            "hue": ("series", [1, *[4 for _ in null]]),
            "key": ("series", ["", *null]),
            "level": ("level", [1.0]),
        },
        coords={"series": ["agent on over off", *null], "variant": case_names(summary)[1:]},
    )
    if count == 1:
        data = data.isel(variant=0, drop=True)
    return Figure(
        "noise-shift",
        "Which iterations got longer",
        "How much longer the typical iteration (left) and rarer, longer iterations (right) take with the agent on. A "
        "step only at the right means a few long interruptions; a shift of the whole line means a shared core, cache "
        "or link."
        + (" Values between the dashed lines may be chance." if bounded else "")
        + (f" Each reading of the clock covers {every} iterations." if every > 1 else ""),
        Kind.SCATTER,
        data,
        {"x": Axis("one iteration in N is longer", log=True), "y": Axis("agent on over off", log=True)},
        (VARIANT,) if count > 1 else (),
    )


def tail_of(raw: xr.Dataset, summary: xr.Dataset) -> np.ndarray:
    """The quantiles to draw: evenly spaced in the logarithm of their rarity.

    The rarest quantile has MIN_COUNT readings beyond it in the case with the fewest readings.
    """
    total = np.asarray(raw["count"].isel(rank=reader(raw)).sum("class").values, np.float64)
    labels = summary["block_variant"].values
    readings = [total[labels == case].sum() for case in range(summary.sizes["case"])]
    rarest = max(100.0, min(readings) / MIN_COUNT)
    rarity = np.geomspace(2, rarest, max(2, round(PER_DECADE * math.log10(rarest / 2))))
    return 1 - 1 / np.concatenate([[1 / 0.9, 1 / 0.75], rarity])


def shuffled(
    raw: xr.Dataset, summary: xr.Dataset, variant: int, q: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The on / off ratios of quantiles, and their range when labels are drawn again in each segment.

    Parameters
    ----------
    q : (quantile,) in [0, 1)

    Returns
    -------
    ratio, low, high (quantile,): low and high are the bounds of the central SHUFFLED_LEVEL of SHUFFLES draws; NaN
    where there are fewer than MIN_COUNT blocks of a kind.
    """
    labels = np.asarray(summary["block_variant"].values)
    chosen = np.flatnonzero((labels == variant) | (labels == 0))
    rank = reader(raw)
    counts = np.asarray(raw["count"].isel(rank=rank).values, np.float64)[chosen]
    edges = np.asarray(raw["class_edge"].values)[rank]
    segment, on = summary["block_segment"].values[chosen], labels[chosen] == variant
    wanted = q.tolist()

    def ratios(drawn: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = quantiles(drawn @ counts, edges, wanted) / quantiles(~drawn @ counts, edges, wanted)
        return np.asarray(found)

    ratio = ratios(on)
    if min(np.count_nonzero(on), np.count_nonzero(~on)) < MIN_COUNT:
        return ratio, np.full(q.size, np.nan), np.full(q.size, np.nan)
    random = np.random.default_rng(int(raw.attrs.get("seed", 0)))
    drawn = np.empty((SHUFFLES, chosen.size), bool)
    for row in drawn:
        for one in np.unique(segment):
            row[segment == one] = random.permutation(on[segment == one])
    tail = (1 - SHUFFLED_LEVEL) / 2
    low, high = np.quantile(ratios(drawn), [tail, 1 - tail], axis=0)
    return ratio, low, high


def late(summary: xr.Dataset) -> Figure | None:
    """The share of the agent's stalls in which each rank was late."""
    if "late_share" not in summary or summary.sizes.get("rank", 0) < 2:
        return None
    share = 100 * summary["late_share"].values
    known = np.flatnonzero((summary["late_known"].values > 0) & np.isfinite(share).any(axis=1))
    if not known.size:
        return None
    ranks = np.sort(np.argsort(-np.nanmax(share[known], axis=0), kind="stable")[:MAX_RANKS])
    y = share[np.ix_(known, ranks)].T
    names = case_names(summary)[1:]
    data = (
        xr.Dataset({"y": ("bar", y[:, 0])}, coords={"bar": ranks})
        if known.size == 1
        else xr.Dataset(
            {"y": (("bar", "series"), y)}, coords={"bar": ranks, "series": [names[k] for k in known]}
        )
    )
    left = summary.sizes["rank"] - ranks.size
    return Figure(
        "noise-late",
        "Late ranks",
        "In a collective all ranks wait when one is late. Each bar is the share of the agent's stalls in which the "
        "kernel took the core from this rank for most of the stall. One high bar shows the core on which the agent "
        "works." + (f" {left} ranks with lower bars are left out." if left else ""),
        Kind.BAR,
        data,
        {"bar": Axis("Rank"), "y": Axis("late in", "%")},
    )


def cost(summary: xr.Dataset) -> Figure | None:
    """The modelled slowdown by number of nodes."""
    if summary.attrs.get("study") == verdict.SURVEY or "cost" not in summary:
        return None
    values = 100 * summary["cost"].values
    known = [k for k in range(values.shape[0]) if np.isfinite(values[k]).any() and (values[k] > 0).any()]
    if not known:
        return None
    together = 100 * summary["cost_synchronised"].values
    names, nodes = case_names(summary)[1:], summary["scale"].values.astype(float)
    y = np.concatenate([values[known], np.repeat(together[known][:, None], nodes.size, axis=1)])
    n = len(known)
    data = xr.Dataset(
        {
            "x": (("series", "point"), np.broadcast_to(nodes, y.shape)),
            "y": (("series", "point"), y),
            "style": ("series", ["line"] * n + ["dashed"] * n),
            "hue": ("series", [k + 1 for k in known] * 2),
            "key": ("series", [""] * n + ["agents of all nodes in step"] * n),
        },
        coords={"series": [names[k] for k in known] * 2},
    )
    grain = format_duration(float(summary.attrs.get("grain_s", 0.001)))
    return Figure(
        "noise-cost",
        "Modelled cost at scale",
        f"A model, not a measurement: an application computes {grain} between two collectives and waits each time for "
        "the slowest node. If agents wake up at independent times, their cost grows with the number of nodes, until "
        "every step meets an agent. If all agents wake up at the same time, they cost the same as on one node.",
        Kind.SCATTER,
        data,
        {"x": Axis("nodes", log=True), "y": Axis("modelled slowdown, %", log=True)},
    )


def variants(summary: xr.Dataset) -> Figure | None:
    """The slowdown of each variant with its interval."""
    if summary.sizes.get("variant", 0) < 2 or sensitivity(summary) is not None:
        return None
    value, low, high = (100 * summary[f"slowdown{end}"].values for end in ("", "_low", "_high"))
    if not np.isfinite(value).any():
        return None
    data = xr.Dataset(
        {"y": ("bar", value), "low": ("bar", low), "high": ("bar", high)},
        coords={"bar": case_names(summary)[1:]},
    )
    return Figure(
        "noise-variants",
        "Slowdown of each variant",
        "Slowdown against blocks of the same run with nothing on, with 95 % intervals. Where intervals overlap, this "
        "run does not show which variant costs less. An interval that contains 0 does not prove that there is no cost.",
        Kind.BAR,
        data,
        {"bar": Axis("Variant"), "y": Axis("slowdown", "%")},
    )


def sensitivity(summary: xr.Dataset) -> Figure | None:
    """The measured slowdown over the level of the noise source, and the lowest level that is detected."""
    level = levels_of(summary)
    # In a sweep, two sources together have twice the level of one source. These are not two levels of noise.
    if np.unique(level[level > 0]).size < 2 or summary.attrs.get("study") == "sweep":
        return None
    level = 100 * np.where(level > 0, level, np.nan)
    value, low, high = (100 * summary[f"slowdown{end}"].values for end in ("", "_low", "_high"))
    ours = summary["detected"].values.astype(bool)
    theirs = summary["source_detected"].values.astype(bool)
    groups = {
        "detected": ours & ~theirs,
        "detected, means disjoint": ours & theirs,
        "not detected": ~ours & ~theirs,
        "not detected, but means disjoint": ~ours & theirs,
    }
    groups = {name: here for name, here in groups.items() if here.any()}
    shape = (len(groups) + 1, level.size)
    x, y, foot, head = (np.full(shape, np.nan) for _ in range(4))
    for k, here in enumerate(groups.values()):
        x[k, here], y[k, here], foot[k, here], head[k, here] = level[here], value[here], low[here], high[here]
    x[-1] = y[-1] = level
    hues = {"detected": 2, "detected, means disjoint": 0, "not detected": 1}
    data = xr.Dataset(
        {
            "x": (("series", "point"), x),
            "y": (("series", "point"), y),
            "low": (("series", "point"), foot),
            "high": (("series", "point"), head),
            "style": ("series", ["points"] * len(groups) + ["dashed"]),
            "hue": ("series", [hues.get(name, 3) for name in groups] + [4]),
        },
        coords={"series": [*groups, "slowdown = level"]},
    )
    rules = ((ours, "Sonde"), (theirs, "disjoint means"))
    floors = [(threshold(level.tolist(), found.tolist()), name) for found, name in rules]
    marks = [(at, name) for at, name in floors if at is not None]
    if marks:
        data = data.assign(
            mark=("mark", [at for at, _ in marks]),
            mark_name=("mark", [f"floor, {name}" for _, name in marks]),
        )
    return Figure(
        "noise-sensitivity",
        "Detected levels of noise",
        "Measured slowdown at each level of the noise source, with 95 % intervals. Dotted lines are floors: the lowest "
        "level that is detected together with all higher ones, by Sonde's test and by the rule of disjoint 99 % "
        "intervals of means on the same blocks. Points off the dashed line lose more or less than the share of time "
        "that the source works. An interval without a lower end reaches down to 0 or below.",
        Kind.SCATTER,
        data,
        {"x": Axis("level of the source, %", log=True), "y": Axis("measured slowdown, %", log=True)},
    )
