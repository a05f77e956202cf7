"""The figures of a study, and its section of a report. Specifications only: nothing is drawn here.

They follow the source: the time in functions, configurations or clusters side by side (its Figures 5 and 6), together
with the raw limits of each place, which the source did not measure. The called functions of each layer (its Figure 3)
are a list, and so a table.
"""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from sonde.core.dataset import summary_of
from sonde.core.figure import Axis, Figure, Kind, Slider
from sonde.core.section import MEDIAN, Fact, Method, Section
from sonde.core.units import format_share
from sonde.io.study import verdict as words
from sonde.io.study.analyse import DIRECTIONS

MIB = 1 << 20
FUNCTIONS = 12  # functions whose time is drawn
SETTLED = 0.5  # maximum width of the interval of a slowdown that is shown as a fact

METHODS = (
    MEDIAN,
    Method(
        "Configurations compared",
        "Every round has each cell once, in random order. Ratios are taken round by round; their typical "
        "value is the Hodges-Lehmann shift of the logs with the signed-rank interval. Each interval is for "
        "one comparison: of twenty, one may miss.",
        "Hollander & Wolfe, Nonparametric Statistical Methods, 1999, 3.3",
    ),
    Method(
        "Time in functions",
        "Rates are from runs without the tracer, times in functions from runs with it, in the same rounds. "
        "The tracer costs each call some nanoseconds and each loaded library some milliseconds, so it "
        "slows one configuration more than another; the numbers show how much. Start-up of programs and "
        "libraries is left out: only calls within calls of MPI-IO or HDF5 count; for a benchmark without "
        "these, calls on its own files. Time is that of a rank, mean over ranks, median over runs.",
    ),
    Method(
        "The raw limits",
        "Between the runs, files are written and read sequentially past the page cache, by as many writers "
        "as there are ranks, in the same folders; and data goes through one connection between two nodes. "
        "Recently written data is read from memory unless the benchmark or the file system prevents it, "
        "and is then faster than any disk.",
    ),
)


def section(tree: xr.DataTree, dataset: str = "FILE") -> Section:
    """A report's section about one study. Raises DataError  core.no_summary."""
    summary = summary_of(tree, "io", dataset)
    made = words.grid(summary)
    tables = words.tables(summary)
    slowed = any(table.title == words.SLOWED for table in tables)
    split = next(
        (k for k, table in enumerate(tables) if table.title.startswith((words.SLOWED, words.SPENT))),
        len(tables),
    )
    everything = [
        table
        for b in range(len(made.benchmarks))
        if (
            table := words.functions_table(
                summary, made, b, summary.sizes["function"], len(made.configurations)
            )
        )
    ]
    called = [words.called_table(summary, made, b) for b in range(len(made.benchmarks))]
    counts = [words.counts_table(summary, made, b) for b in range(len(made.benchmarks))]
    return Section(
        "io",
        f"I/O study of {len(made.benchmarks)} benchmark{'s' * (len(made.benchmarks) > 1)} in "
        f"{len(made.configurations)} configuration{'s' * (len(made.configurations) > 1)}",
        f"{words.sentence(summary)}.",
        tables=[*tables[:split], *called],
        numbers=[*tables[split : split + slowed], *everything, *counts],
        figures=list(figures(summary)),
        facts=facts(summary),
        method=list(METHODS),
        warnings=words.warnings(summary),
        runs={
            label: str(text)
            for key, label in (("ranks", "ranks"), ("clusters", "clusters"))
            if (text := tree.attrs.get(key)) not in (None, "", "none")
        },
        doubt="" if words.sound(summary) else "cells have too few runs for a comparison",
    )


def facts(summary: xr.Dataset) -> list[Fact]:
    """The few numbers that a reader looks for first."""
    out = []
    rate = summary["rate"].values
    for d, direction in enumerate(DIRECTIONS):
        if not np.isfinite(rate[:, d]).any():
            continue
        best = int(np.nanargmax(rate[:, d]))
        out.append(
            Fact(
                f"{words.VERBS[direction]} at most",
                words.rate_text(float(rate[best, d])),
                f"{words.name_of(summary, best)}, {summary['cell_benchmark'].values[best]}",
            )
        )
    for k in range(summary.sizes["place"]):
        if math.isfinite(alone := float(summary["limit"].values[k, 0])):
            reads = words.rate_text(float(summary["limit"].values[k, 1]))
            note = f"{summary['place_name'].values[k]}, reads {reads}"
            out.append(Fact("a disk alone writes", words.rate_text(alone), note))
    slow, low, high = (summary[f"slowdown{end}"].values - 1 for end in ("", "_low", "_high"))
    known = np.flatnonzero(high - low < SETTLED)  # less certain values are left out
    if known.size:
        worst = int(known[np.argmax(slow[known])])
        note = f"{format_share(float(low[worst]))} to {format_share(float(high[worst]))}"
        out.append(Fact("the tracer slows I/O by at most", format_share(float(slow[worst])), note))
    return out


def figures(summary: xr.Dataset) -> tuple[Figure, ...]:
    """All figures that the summary has data for, in reading order."""
    made = (rates(summary), times(summary), layers(summary))
    return tuple(figure for figure in made if figure is not None)


def rates(summary: xr.Dataset) -> Figure | None:
    """Rate by configuration, as groups of bars, next to its disk and network alone."""
    made = words.grid(summary)
    series = ["benchmark", "disk alone", "network alone"]
    shape = (len(made.configurations), len(series), len(made.benchmarks), len(DIRECTIONS))
    y, low, high = (np.full(shape, np.nan) for _ in range(3))
    for (b, c), cell in np.ndenumerate(made.cell):
        if cell < 0:
            continue
        for d, direction in enumerate(DIRECTIONS):
            cells_ = [
                tuple(float(summary[f"rate{end}"].values[cell, d]) for end in ("", "_low", "_high")),
                words.limit_of(summary, int(cell), direction),
                words.limit_of(summary, int(cell), "network"),
            ]
            for s, ends in enumerate(cells_):
                y[c, s, b, d], low[c, s, b, d], high[c, s, b, d] = (value / MIB for value in ends)
    if not np.isfinite(y[:, 0]).any():
        return None
    present = [s for s in range(len(series)) if np.isfinite(y[:, s]).any()]
    dims = ("bar", "series", "benchmark", "direction")
    _without_wide(low, high)
    data = xr.Dataset(
        {name: (dims, values[:, present]) for name, values in (("y", y), ("low", low), ("high", high))},
        coords={
            "bar": list(made.configurations),
            "series": [series[s] for s in present],
            "benchmark": list(made.benchmarks),
            "direction": [f"{direction.removesuffix('e')}ing" for direction in DIRECTIONS],
        },
    )
    return Figure(
        "io-study-rates",
        "Rate of each configuration",
        "Medians over runs without the tracer, with 95 % confidence intervals, next to the rates of the "
        "place's disk alone, and of the cluster's network alone if there is one. A bar above the disk's "
        "was served from memory; a bar far below it loses its time above the disk, and the figures below "
        "show in which layer.",
        Kind.BAR,
        data,
        {"bar": Axis("Configuration"), "y": Axis("rate, MiB/s")},
        (Slider("benchmark", "benchmark"), Slider("direction", "direction")),
    )


def _without_wide(low: np.ndarray, high: np.ndarray) -> None:
    """Remove intervals that are too wide: they say little, and would fill the scale."""
    with np.errstate(invalid="ignore"):
        wide = ~(high <= words.WIDEST * np.maximum(low, 1e-300))
    low[wide] = high[wide] = np.nan


def times(summary: xr.Dataset) -> Figure | None:
    """Time of a rank in functions, configurations side by side: the source's Figures 5 and 6."""
    made = words.grid(summary)
    cells = [int(cell) for cell in made.cell.ravel() if cell >= 0 and summary["traced_runs"].values[cell]]
    ways = {"own time": "function_self_time", "with calls within": "function_time"}
    order = words.order_of_functions(summary, cells)[:FUNCTIONS] if cells else []
    if not order:
        return None
    shape = (len(order), len(made.configurations), len(made.benchmarks), len(ways))
    y, low, high = (np.full(shape, np.nan) for _ in range(3))
    for (b, c), cell in np.ndenumerate(made.cell):
        if cell < 0:
            continue
        for w, name in enumerate(ways.values()):
            for array, end in ((y, ""), (low, "_low"), (high, "_high")):
                array[:, c, b, w] = summary[f"{name}{end}"].values[cell, order]
        y[summary["function_calls"].values[cell, order] == 0, c, b] = np.nan
    _without_wide(low, high)
    layer = summary["layer_name"].values[summary["function_layer"].values[order]]
    dims = ("bar", "series", "benchmark", "time")
    data = xr.Dataset(
        {name: (dims, values) for name, values in (("y", y), ("low", low), ("high", high))},
        coords={
            "bar": [f"{summary['function_name'].values[k]} ({of})" for k, of in zip(order, layer)],
            "series": list(made.configurations),
            "benchmark": list(made.benchmarks),
            "time": list(ways),
        },
    )
    left = summary.sizes["function"] - len(order)
    return Figure(
        "io-study-times",
        "Time in each function",
        "Time of a rank, mean over ranks and median over traced runs, with 95 % confidence intervals. Own "
        "time: without the traced calls that a function made. With calls within, bars of nested functions "
        "contain the same time twice. A missing bar is a function that the configuration does not call."
        + (f" {left} functions with less time are left out here, and stand below." if left > 0 else ""),
        Kind.BAR,
        data,
        {"bar": Axis("Function"), "y": Axis("time of a rank", "s")},
        (Slider("benchmark", "benchmark"), Slider("time", "time")),
    )


def layers(summary: xr.Dataset) -> Figure | None:
    """Own time of a rank in each layer, one stacked bar for each configuration."""
    made = words.grid(summary)
    own = np.nan_to_num(summary["layer_self_time"].values)
    parts = np.flatnonzero(own.any(axis=0))[::-1].tolist()
    if not parts:
        return None
    y = np.zeros((len(parts), len(made.configurations), len(made.benchmarks)))
    for (b, c), cell in np.ndenumerate(made.cell):
        if cell >= 0:
            y[:, c, b] = own[cell, parts]
    data = xr.Dataset(
        {"y": (("part", "x", "benchmark"), y), "hue": ("part", np.arange(len(parts))[::-1])},
        coords={
            "part": [str(summary["layer_title"].values[k]) for k in parts],
            "x": list(made.configurations),
            "benchmark": list(made.benchmarks),
        },
    )
    return Figure(
        "io-study-layers",
        "Time in each layer",
        "Own time of a rank in each layer, in traced runs, from the lowest layer up. If a configuration is "
        "faster because of a layer, its bar is smaller by that layer's part; if it only moved work to "
        "another layer, the bar is as large as before.",
        Kind.STACK,
        data,
        {"x": Axis("configuration"), "y": Axis("time of a rank in the layer itself", "s")},
        (Slider("benchmark", "benchmark"),),
    )
