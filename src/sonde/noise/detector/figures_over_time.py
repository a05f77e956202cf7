"""Figures of a run over time, and over the agent's period."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from sonde.core.figure import Axis, Figure, Kind
from sonde.core.units import format_duration
from sonde.noise.detector.figure_cases import CLEAN, VARIANT, case_names, is_single
from sonde.noise.detector.wake import CELLS, WINDOW_AFTER, WINDOW_BEFORE

MAX_STALLS = 3000  # stalls that are drawn: the longest
WIDE = 2  # an axis is logarithmic from this ratio of largest to smallest value
TIME = Axis("time since the run began", "s")


def blocks(summary: xr.Dataset) -> Figure | None:
    """The mean iteration of each block over the run."""
    names = case_names(summary)
    variant, mean = summary["block_variant"].values, summary["block_mean"].values
    middle = summary["block_begin"].values + summary["block_length"].values / 2
    known = np.isfinite(mean) & np.isfinite(middle) & (variant >= 0)
    if np.count_nonzero(known) < 2:
        return None
    count = len(names)
    x, y = (np.full((2 * count, len(mean)), np.nan) for _ in range(2))
    ends = (middle[known].min(), middle[known].max())
    for k in range(count):
        here = known & (variant == k)
        x[k, here], y[k, here] = middle[here], mean[here]
        if here.any():
            x[count + k, :2], y[count + k, :2] = ends, np.median(mean[here])
    data = xr.Dataset(
        {
            "x": (("series", "point"), x),
            "y": (("series", "point"), y),
            "style": ("series", ["points"] * count + ["dashed"] * count),
            "hue": ("series", [*range(count)] * 2),
            "key": ("series", [""] * count + ["median of these"] * count),
        },
        coords={"series": [*names, *names]},
    )
    found = float(summary["detected_s"].values[0]) if is_single(summary) else math.nan
    if math.isfinite(found):
        data = data.assign(mark=("mark", [found]), mark_name=("mark", ["detected"]))
    return Figure(
        "noise-blocks",
        "Iteration over the run, block by block",
        "Each point is the mean iteration of one block. The order of the blocks is random, so a change of the machine "
        "itself moves all colours in the same way. If the distance between the dashed medians is larger than the "
        "spread of the points explains, the agent causes it."
        + (" The detection did not use the blocks after the dotted line." if math.isfinite(found) else ""),
        Kind.SCATTER,
        data,
        {"x": TIME, "y": Axis("mean iteration", "s", log=bool(mean[known].max() > WIDE * mean[known].min()))},
    )


def stalls(raw: xr.Dataset, summary: xr.Dataset) -> Figure | None:
    """The longest stalls over the run; a stall that several ranks saw counts once."""
    if "stall_block" not in raw:
        return None
    names = case_names(summary)
    at, time, length = merged_stalls(raw)
    variant = summary["block_variant"].values[at]
    known = variant >= 0
    if np.count_nonzero(known) < 2:
        return None
    time, length, variant = time[known], length[known], variant[known]
    total = length.size
    least = float(np.partition(length, total - MAX_STALLS)[total - MAX_STALLS]) if total > MAX_STALLS else 0.0
    shown = length >= least
    time, length, variant = time[shown], length[shown], variant[shown]
    most = max(int(np.count_nonzero(variant == k)) for k in range(len(names)))
    x, y = (np.full((len(names), most), np.nan) for _ in range(2))
    for k in range(len(names)):
        here = variant == k
        n = int(np.count_nonzero(here))
        order = np.argsort(time[here])
        x[k, :n], y[k, :n] = time[here][order], length[here][order]
    data = xr.Dataset(
        {"x": (("series", "point"), x), "y": (("series", "point"), y)}, coords={"series": names}
    )
    shaded = ""
    if is_single(summary):
        shade = names[1] if summary.attrs.get("agent") == "none" else f"{names[1]} on"
        data = data.assign(band=(("band", "end"), stretches(summary, 1)), band_name=shade)
        shaded = " The background is shaded while it was on."
    once = "; a stall of several ranks is drawn once" if raw.sizes["rank"] > 1 else ""
    thinned = (
        f" Only the {length.size} longest of {total} stalls are drawn, those of {format_duration(least)} or "
        f"more{once}."
        if length.size < total
        else ""
    )
    return Figure(
        "noise-stalls",
        "Stalls over the run",
        "Each point is one iteration that took far longer than usual. If a row of points at one height appears only "
        "in the blocks with the agent, the agent causes it; if it appears in all blocks, the machine does."
        f"{shaded}{thinned}",
        Kind.SCATTER,
        data,
        {"x": TIME, "y": Axis("length of the stall", "s", log=True)},
    )


def merged_stalls(raw: xr.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The stalls of all ranks as the test uses them: overlapping stalls are one, with the length of the longest.

    Returns
    -------
    block, time, length (stall,): index of the block, begin in s since the run began, s; in order of time.
    """
    ranks = range(raw.sizes["rank"])
    at = [np.asarray(raw["stall_block"].isel(rank=rank).values) for rank in ranks]
    time, length = (
        np.concatenate(
            [np.asarray(raw[name].isel(rank=rank).values, np.float64)[at[rank] >= 0] for rank in ranks]
        )
        for name in ("stall_t", "stall_length")
    )
    block = np.concatenate([mine[mine >= 0] for mine in at])
    known = np.isfinite(time) & (length > 0)
    order = np.flatnonzero(known)[np.argsort(time[known], kind="stable")]
    block, time, length = block[order], time[order], length[order]
    if not time.size:
        return block, time, length
    over = np.maximum.accumulate(time + length)
    first = np.flatnonzero(np.concatenate([[True], (time[1:] >= over[:-1]) | (block[1:] != block[:-1])]))
    return block[first], time[first], np.maximum.reduceat(length, first)


def stretches(summary: xr.Dataset, variant: int) -> np.ndarray:
    """(stretch, 2) s since the run began: begin and end of each series of blocks in which a variant was on."""
    begin, length = summary["block_begin"].values, summary["block_length"].values
    order = np.flatnonzero((summary["block_variant"].values >= 0) & np.isfinite(begin + length))
    on = summary["block_variant"].values[order] == variant
    change = np.flatnonzero(np.diff(on, prepend=False, append=False))
    first, last = order[change[::2]], order[change[1::2] - 1]
    return np.stack([begin[first], begin[last] + length[last]], axis=1)


def folded(summary: xr.Dataset) -> Figure | None:
    """The time of stalls within the period, with and without the agent."""
    count = summary.sizes.get("variant", 0)
    if not count or not np.isfinite(summary["fold_on"].values).any():
        return None
    period = np.array([fold_period(summary.isel(variant=k)) for k in range(count)])
    found = summary["effect_window"].values.astype(bool)
    edges = np.repeat(np.arange(CELLS + 1) / CELLS - 0.5, 2)[1:-1]  # steps, as in a histogram
    x = np.broadcast_to((edges * period[:, None])[:, None, :], (count, 2, edges.size))
    y = 100 * np.repeat(np.stack([summary["fold_off"].values, summary["fold_on"].values], axis=1), 2, axis=2)
    data = xr.Dataset(
        {
            "x": (("variant", "series", "point"), x),
            "y": (("variant", "series", "point"), y),
            "style": ("series", ["line", "line"]),
        },
        coords={"series": [CLEAN, "agent on"], "variant": case_names(summary)[1:]},
    )
    threshold = float(summary["fold_threshold"].values[0])
    around = (
        "around its wake-up"
        if found.all()
        else "around its wake-up where one was found, otherwise over a whole period of the run"
    )
    if count == 1:
        data = data.isel(variant=0, drop=True).assign_coords(series=case_names(summary))
        cell = float(period[0]) / CELLS
        before, after = (
            CELLS * float(summary[name][0]) if name in summary else cells
            for name, cells in (("window_before", WINDOW_BEFORE), ("window_after", WINDOW_AFTER))
        )
        if found[0]:
            # A window that reaches beyond the figure continues at its other end; only the part that fits is shown.
            ends = [[max(-0.5 * CELLS, -before) * cell, min(0.5 * CELLS, after) * cell]]
            data = data.assign(band=(("band", "end"), ends), band_name="counted as its wake-up")
        else:
            around = "over a whole period of the run"
    return Figure(
        "noise-fold",
        "Stalls over the period",
        f"The share of periods with a stall of {format_duration(threshold)} or longer at each time {around}. One high "
        "step is an agent that works at regular times; two level lines are stalls at random times, which the machine "
        "causes itself.",
        Kind.SCATTER,
        data,
        {"x": Axis("time within the period", "s"), "y": Axis("periods with a stall there", "%")},
        (VARIANT,) if count > 1 else (),
    )


def fold_period(row: xr.Dataset) -> float:
    """The period at which the stalls of a variant were folded, s."""
    if int(row["effect_window"]) and float(row["period"]) > 0:
        return float(row["period"])
    return float(row.attrs.get("period_s", 0) or 1.0)
