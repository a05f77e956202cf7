"""Figures of a dataset of kind `host`, and its section of a report. Specifications only: nothing is drawn here."""

from __future__ import annotations

import numpy as np
import xarray as xr

from sonde.core.dataset import summary_of
from sonde.core.figure import Axis, Figure, Kind
from sonde.core.section import Fact, Method, Section
from sonde.core.units import format_duration, format_share
from sonde.noise.host import analyse as host

# Limits of a figure: the scatter shows the longest detours and some of the others; only the worst cores are shown.
MAX_POINTS, MAX_CORES, CDF_POINTS = 4000, 8, 400

METHODS = (
    Method(
        "selfish detour",
        "A loop only reads the tick counter. If two readings are further apart than the threshold, this is a detour.",
        "Beckman, Iskra, Yoshii, Coghlan, Cluster 2006",
    ),
    Method(
        "fixed work quantum",
        "The same arithmetic is repeated. The time of a quantum beyond the shortest quantum was lost to others.",
        "Sottile and Minnich, Cluster 2004",
    ),
    Method(
        "spectrum of interruptions",
        "Welch's average over windows of the number of detours in bins of 0.2 ms. A rhythm must exceed the median "
        "power significantly by the gamma distribution, adjusted for the number of frequencies.",
        "Welch, IEEE Trans. Audio Electroacoust. 15, 1967",
    ),
)


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """The section of a report for one dataset.

    Parameters
    ----------
    tree : groups /summary and, where it is stored, /raw; opened lazily
    dataset : the file's name, for the hints

    Returns
    -------
    Section. Figures that the data cannot fill are left out.

    Raises
    ------
    DataError  core.no_summary.
    """
    summary = summary_of(tree, "noise", dataset)
    tracer = str(summary.attrs.get("osnoise", ""))
    return Section(
        "noise",
        "Interruptions of the host",
        host.sentence(summary),
        tables=host.tables(summary),
        figures=figures(tree),
        facts=facts(summary),
        method=list(METHODS),
        warnings=host.warnings(summary),
        runs={"osnoise tracer": tracer} if tracer.startswith("absent") else {},
    )


def facts(summary: xr.Dataset) -> list[Fact]:
    """The most important numbers."""
    share = summary["share"].values
    out = []
    if np.isfinite(share).any():
        row = int(np.nanargmax(share))
        out.append(
            Fact("time lost, worst core", format_share(float(share[row])), f"core {int(summary['cpu'][row])}")
        )
        longest = summary["length_quantile"].values[:, -1]
        if np.isfinite(longest).any():
            row = int(np.nanargmax(longest))
            out.append(
                Fact(
                    "longest detour", format_duration(float(longest[row])), f"core {int(summary['cpu'][row])}"
                )
            )
        out.append(
            Fact(
                "shortest visible detour",
                format_duration(float(np.nanmax(summary["threshold"].values))),
                f"a turn of the loop takes {format_duration(float(np.nanmin(summary['loop'].values)))}",
            )
        )
    for row in range(summary.sizes["cpu"]):
        if (text := host.rhythms(summary, row)) != "–":
            out.append(Fact("rhythm", text, f"core {int(summary['cpu'][row])}"))
            break
    return out


def figures(tree: xr.DataTree) -> list[Figure]:
    """All figures that this dataset can fill, in reading order."""
    summary = tree["summary"].to_dataset().load()
    drawn: list[Figure | None] = []
    if "raw" in tree.children:
        raw = tree["raw"].to_dataset()
        cores = worst_cores(summary)
        drawn += [detours_over_time(raw, cores), lengths(raw, cores)]
    drawn += [lost_by_length(summary), spectrum(summary)]
    return [figure for figure in drawn if figure is not None]


def worst_cores(summary: xr.Dataset) -> list[int]:
    """The rows of the cores that lose most, at most MAX_CORES, in the order of their numbers."""
    share = np.nan_to_num(summary["share"].values, nan=-1.0)
    return sorted(np.argsort(-share, kind="stable")[:MAX_CORES].tolist())


def _names(raw: xr.Dataset, rows: list[int]) -> list[str]:
    return [f"core {int(raw['cpu'][row])}" for row in rows]


def detours_over_time(raw: xr.Dataset, rows: list[int]) -> Figure | None:
    """The time and length of each detour. If there are too many: the longest, and an even selection of the others."""
    per_core = max(1, MAX_POINTS // max(1, len(rows)))
    x, y = (np.full((len(rows), per_core), np.nan) for _ in range(2))
    left_out = 0
    begin = np.nanmin(raw["window_begin"].values) if raw["window_begin"].size else 0.0
    for k, row in enumerate(rows):
        n = int(raw["detour_n"][row])
        times, spans = raw["detour_begin"][row, :n].values, raw["detour_length"][row, :n].values
        chosen = np.arange(n)
        if n > per_core:
            order = np.argsort(-spans, kind="stable")
            rest = np.sort(order[per_core // 2 :])
            even = rest[np.linspace(0, len(rest) - 1, per_core - per_core // 2).astype(int)]
            chosen = np.unique(np.concatenate([order[: per_core // 2], even]))
            left_out += n - len(chosen)
        x[k, : len(chosen)], y[k, : len(chosen)] = times[chosen] - begin, spans[chosen]
    if not np.isfinite(y).any():
        return None
    caption = (
        "Each point is one interruption. Bands show causes: the timer is at the bottom, time slices of other programs "
        "are at the top."
    )
    if left_out:
        caption += f" The longest interruptions are all shown; {left_out} of the others are left out, evenly."
    data = xr.Dataset(
        {
            "x": (("series", "point"), x),
            "y": (("series", "point"), y),
            "style": ("series", ["points"] * len(rows)),
        },
        coords={"series": _names(raw, rows)},
    )
    axes = {"x": Axis("time since the begin", "s"), "y": Axis("length", "s", log=True)}
    return Figure("noise-host-detours", "Interruptions over time", caption, Kind.SCATTER, data, axes)


def lengths(raw: xr.Dataset, rows: list[int]) -> Figure | None:
    """The distribution of lengths, one line for each core."""
    x = np.full((len(rows), CDF_POINTS), np.nan)
    p = np.tile(np.linspace(0, 1, CDF_POINTS), (len(rows), 1))
    for k, row in enumerate(rows):
        spans = np.sort(raw["detour_length"][row, : int(raw["detour_n"][row])].values)
        if spans.size:
            x[k] = spans[np.linspace(0, spans.size - 1, CDF_POINTS).astype(int)]
    if not np.isfinite(x).any():
        return None
    data = xr.Dataset(
        {
            "x": (("series", "point"), x),
            "p": (("series", "point"), p),
            "style": ("series", ["steps"] * len(rows)),
        },
        coords={"series": _names(raw, rows)},
    )
    axes = {"x": Axis("length", "s", log=True), "p": Axis("share of interruptions")}
    caption = (
        "The lengths of interruptions. A step means a kind of interruption that always takes the same time."
    )
    return Figure("noise-host-lengths", "Lengths of interruptions", caption, Kind.CDF, data, axes)


def lost_by_length(summary: xr.Dataset) -> Figure | None:
    """The share of the time that each class of length takes, with a bar for each core."""
    rows = worst_cores(summary)
    share = summary["class_share"].values[rows]
    if not np.isfinite(share).any():
        return None
    names = []
    for low, high in zip(summary["class_low"].values, summary["class_high"].values):
        text = f"{format_duration(float(low))} to {format_duration(float(high))}"
        if low == 0:
            text = f"up to {format_duration(float(high))}"
        elif not np.isfinite(high):
            text = f"above {format_duration(float(low))}"
        names.append(text)
    data = xr.Dataset(
        {"y": (("bar", "series"), 100 * share.T)},
        coords={"bar": names, "series": [f"core {int(summary['cpu'][row])}" for row in rows]},
    )
    axes = {"bar": Axis("length of an interruption", labels=tuple(names)), "y": Axis("time lost, %")}
    caption = "Shows whether the time is lost in many short interruptions or in a few long ones."
    return Figure("noise-host-share", "Time lost by length", caption, Kind.BAR, data, axes)


def spectrum(summary: xr.Dataset) -> Figure | None:
    """The power of the number of interruptions over frequency, one line for each core."""
    rows = worst_cores(summary)
    power = summary["spectrum"].values[rows]
    if not np.isfinite(power).any():
        return None
    rhythm = np.concatenate([summary[name].values[rows] for name in ("rhythm", "second_rhythm")])
    marks = np.unique(rhythm[np.isfinite(rhythm)])
    data = xr.Dataset(
        {
            "y": (("series", "x"), power),
            "mark": ("mark", marks),
            "mark_name": ("mark", [f"{mark:.4g} Hz" for mark in marks]),
        },
        coords={
            "x": summary["frequency"].values,
            "series": [f"core {int(summary['cpu'][row])}" for row in rows],
        },
    )
    axes = {"x": Axis("frequency", "Hz"), "y": Axis("power over its median", log=True)}
    caption = (
        "A peak means interruptions that recur at this frequency, as those of the timer do. Peaks at its multiples are "
        "the same interruptions."
    )
    return Figure("noise-host-spectrum", "Rhythm of interruptions", caption, Kind.SERIES, data, axes)
