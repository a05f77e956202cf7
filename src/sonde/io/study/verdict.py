"""The verdict, tables and data of a study. Pure: from /summary alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.comparison import MATTERS
from sonde.core.errors import Warning
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_share, format_size
from sonde.io.study.analyse import DIRECTIONS
from sonde.io.study.plan import LEAST_ROUNDS
from sonde.io.study.schema import LIMITS
from sonde.io.trace.verdict import counted

if TYPE_CHECKING:
    import xarray as xr

FUNCTIONS_SHOWN = 10
NAMES_SHOWN = 6  # of a layer
COLUMNS_SHOWN = 3  # configurations side by side on a terminal
LONGEST_HEAD = 12  # of a configuration's name at the head of a column
SLOWED = "Slowdown of the benchmark's I/O by the tracer"
SPENT = "Time of a rank in functions themselves"
VERBS = {"write": "writes", "read": "reads"}
SLOWS = 1.1  # slowdown by the tracer from which on it may hide differences between configurations
WIDEST = 4.0  # an interval with a wider ratio of its ends is too uncertain to draw


@dataclass(frozen=True)
class Grid:
    """Cells as benchmarks by configurations: the cell at each place, -1 for none."""

    benchmarks: tuple[str, ...]
    configurations: tuple[str, ...]
    cell: np.ndarray


def grid(summary: xr.Dataset) -> Grid:
    """Arrange cells. A configuration is a stack, and a place and a cluster if there are several."""
    columns = [
        [str(value) for value in summary[f"cell_{name}"].values] for name in ("stack", "place", "cluster")
    ]
    stacks, places, clusters = columns
    several_places, several_clusters = len(set(places)) > 1, len(set(clusters)) > 1
    ios, hints = ([str(value) for value in summary[f"cell_{name}"].values] for name in ("io", "hints"))
    if len(set(ios)) == 1 and len(set(hints)) > 1:  # a part that all have in common is left out
        stacks = [text.replace(",", ", ") or "no hints" for text in hints]
    names = []
    for stack, place, cluster in zip(stacks, places, clusters):
        parts = [stack] + ([f"in {place}"] if several_places else [])
        names.append(" ".join(parts) + (f" on {cluster or 'this host'}" if several_clusters else ""))
    of = [str(benchmark) for benchmark in summary["cell_benchmark"].values]
    benchmarks, configurations = tuple(dict.fromkeys(of)), tuple(dict.fromkeys(names))
    cell = np.full((len(benchmarks), len(configurations)), -1)
    for k, (benchmark, name) in enumerate(zip(of, names)):
        cell[benchmarks.index(benchmark), configurations.index(name)] = k
    return Grid(benchmarks, configurations, cell)


def name_of(summary: xr.Dataset, cell: int) -> str:
    """The name of a cell's configuration."""
    made = grid(summary)
    return made.configurations[int(np.argwhere(made.cell == cell)[0][1])]


def rate_text(rate: float) -> str:
    """ "672 MiB/s" """
    return f"{format_size(round(rate))}/s" if math.isfinite(rate) else "–"


def _ends_text(rate: float, low: float, high: float) -> str:
    """ "532 to 884", in the unit of `rate_text`."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "–"
    unit = 1.0
    while rate >= 1024 * unit:
        unit *= 1024
    return f"{_short(low / unit)} to {_short(high / unit)}"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 999.5 else f"{value:.3g}"


def _between(low: float, high: float, text: Any) -> str:
    return f"{text(low)} to {text(high)}" if math.isfinite(low) and math.isfinite(high) else "–"


def _factor(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "–"


def settled(summary: xr.Dataset) -> list[tuple[float, int, int]]:
    """Significant and relevant differences from the baseline: (ratio, cell, direction), the surest first."""
    ratio, low, high = (summary[f"ratio{end}"].values for end in ("", "_low", "_high"))
    found = [
        (float(ratio[cell, d]), cell, d)
        for cell in range(summary.sizes["cell"])
        for d in range(len(DIRECTIONS))
        if (low[cell, d] > 1 or high[cell, d] < 1) and abs(math.log(ratio[cell, d])) > math.log1p(MATTERS)
    ]

    def least(one: tuple[float, int, int]) -> float:
        """The distance of the interval's nearer end from no difference."""
        return min(abs(math.log(float(end[one[1], one[2]]))) for end in (low, high))

    return sorted(found, key=least, reverse=True)


def sentence(summary: xr.Dataset) -> str:
    """The verdict."""
    made, found = grid(summary), settled(summary)
    if found:
        ratio, cell, d = found[0]
        low, high = (float(summary[f"ratio_{end}"].values[cell, d]) for end in ("low", "high"))
        faster, slower = name_of(summary, cell), name_of(summary, int(summary["baseline"].values[cell]))
        if ratio < 1:
            faster, slower, ratio, low, high = slower, faster, 1 / ratio, 1 / high, 1 / low
        more = f"; {counted(len(found) - 1, 'more difference')}, below" if len(found) > 1 else ""
        return (
            f"{summary['cell_benchmark'].values[cell]}: {faster} {VERBS[DIRECTIONS[d]]} {_factor(ratio)} "
            f"times as fast as {slower} (95 %: {_between(low, high, _factor)}){more}"
        )
    if len(made.configurations) > 1:
        others = len(made.configurations) - 1
        return (
            f"no significant difference of more than {format_share(MATTERS, trim=True)} between "
            f"{made.configurations[0]} and {made.configurations[1] if others == 1 else f'{others} others'}, "
            f"in {len(made.benchmarks)} benchmark{'s' * (len(made.benchmarks) > 1)}"
        )
    rates = [
        f"{VERBS[name]} {rate_text(float(summary['rate'].values[0, d]))}"
        for d, name in enumerate(DIRECTIONS)
        if math.isfinite(summary["rate"].values[0, d])
    ]
    verdict = f"{made.benchmarks[0]}: {made.configurations[0]} {' and '.join(rates) or 'has no rate'}"
    if summary["traced_runs"].values.any() or summary["failed_runs"].values.any():  # warnings report these
        return verdict
    return f"{verdict}; no run was traced: a longer --budget shows where its time goes"


def sound(summary: xr.Dataset) -> bool:
    """Whether every compared cell has enough runs for an interval."""
    compared = len(grid(summary).configurations) > 1
    return bool((summary["runs"].values >= (LEAST_ROUNDS if compared else 2)).all())


def warnings(summary: xr.Dataset) -> list[Warning]:
    """Warnings for a reader of the numbers, as far as /summary alone supports them."""
    runs = summary["runs"].values
    found = _hidden(summary)
    if not sound(summary) and runs.any():
        few = (
            f"cells have {_span(runs)} run{'s' * bool(runs.max() != 1)}; intervals of ratios need "
            f"{LEAST_ROUNDS}"
        )
        more = (
            f"use a longer --budget, fewer cells, or a smaller --size; --repetitions {LEAST_ROUNDS} or more"
        )
        found.insert(0, Warning("io.few_repetitions", few, more))
    return found


def _hidden(summary: xr.Dataset) -> list[Warning]:
    """For each benchmark a warning about the configuration that the tracer slows most, if that hides differences."""
    made = grid(summary)
    slow, low, high = (summary[f"slowdown{end}"].values for end in ("", "_low", "_high"))
    found = []
    for b, benchmark in enumerate(made.benchmarks):
        cells = [int(cell) for cell in made.cell[b] if cell >= 0]
        apart = _apart(summary, cells)
        hidden = [
            cell
            for cell in cells
            if slow[cell] > SLOWS and not low[cell] <= 1 and math.log(slow[cell]) > apart[cell] / 2
        ]
        if not hidden:
            continue
        worst = max(hidden, key=lambda cell: slow[cell])
        between = (
            f" (95 %: {_between(low[worst], high[worst], _factor)})" if math.isfinite(low[worst]) else ""
        )
        others = (
            f", and more than {_factor(SLOWS)} times as long in {len(hidden) - 1} more" if hidden[1:] else ""
        )
        by_that = "; configurations do not differ by more than that" if len(cells) > 1 else ""
        found.append(
            Warning(
                "io.tracer_slows",
                f"{benchmark}: under the tracer I/O takes {_factor(slow[worst])} times as long{between} in "
                f"{made.configurations[int(np.argwhere(made.cell[b] == worst)[0][0])]}{others}{by_that}: "
                "its times in functions include this slowdown. Rates are without the tracer",
                "trust the calls and bytes of functions, not their times; with a larger --size the tracer "
                "costs less",
            )
        )
    return found


def _apart(summary: xr.Dataset, cells: list[int]) -> dict[int, float]:
    """The factor between a cell's rates and the baseline's, as a log; for the baseline, that of the nearest cell."""
    ratio = summary["ratio"].values
    logs = {
        cell: max((abs(math.log(one)) for one in ratio[cell].tolist() if one > 0), default=0.0)
        for cell in cells
        if cell != summary["baseline"].values[cell]
    }
    nearest = min(logs.values(), default=0.0)
    return {cell: logs.get(cell, nearest) for cell in cells}


def tables(summary: xr.Dataset) -> list[Table]:
    """The tables below the verdict."""
    made = grid(summary)
    out = [table for b in range(len(made.benchmarks)) for table in _rates(summary, made, b)]
    if summary.sizes["place"]:
        out.append(limits_table(summary))
    if np.isfinite(summary["slowdown"].values).any():
        out.append(_slowdowns(summary, made))
    out += [table for b in range(len(made.benchmarks)) if (table := functions_table(summary, made, b))]
    return out


def _rates(summary: xr.Dataset, made: Grid, benchmark: int) -> list[Table]:
    """A table of writing and one of reading; without a table for a direction that did not occur."""
    cells = [int(cell) for cell in made.cell[benchmark] if cell >= 0]
    several = len(cells) > 1
    runs, failed = summary["runs"].values[cells], int(summary["failed_runs"].values[cells].sum())
    note = f"{_span(runs)} run{'s' * bool(runs.max() != 1)} each, without the tracer"
    note += f"; {counted(failed, 'run')} failed" if failed else ""
    out = []
    for d, direction in enumerate(DIRECTIONS):
        if not np.isfinite(summary["rate"].values[cells, d]).any():
            continue
        rows = []
        for cell in cells:
            rate, low, high = (float(summary[f"rate{end}"].values[cell, d]) for end in ("", "_low", "_high"))
            row = [label(summary, made, cell), rate_text(rate), _ends_text(rate, low, high)]
            if several:
                ratios = [float(summary[f"ratio{end}"].values[cell, d]) for end in ("", "_low", "_high")]
                first = cell == int(summary["baseline"].values[cell])
                row.append("1" if first else _factor(ratios[0]))
                row.append("" if first else _between(ratios[1], ratios[2], _factor))
            rows.append(tuple(row))
        head = ("configuration", "rate", "95 %", *(("to first", "95 %") if several else ()))
        title = f"{made.benchmarks[benchmark]}: {direction.removesuffix('e')}ing"
        out.append(Table(title, head, rows, right=tuple(range(1, len(head))), note=note))
    return out


def _span(runs: np.ndarray) -> str:
    return f"{runs.min()}{f' to {runs.max()}' if runs.max() > runs.min() else ''}"


def label(summary: xr.Dataset, made: Grid, cell: int) -> str:
    """A configuration's name, preceded by its number if tables use numbers for names."""
    column = int(np.argwhere(made.cell == cell)[0][1])
    name = made.configurations[column]
    return f"{column + 1}: {name}" if numbered(made) else name


def numbered(made: Grid) -> bool:
    """Whether the names of configurations are too long for the heads of columns."""
    return len(made.configurations) > 1 and max(map(len, made.configurations)) > LONGEST_HEAD


def limits_table(summary: xr.Dataset) -> Table:
    """The limits of places and networks alone, and the configurations that were faster than a disk."""
    rows = []
    for k in range(summary.sizes["place"]):
        place, cluster = str(summary["place_name"].values[k]), str(summary["place_cluster"].values[k])
        values = [rate_text(float(summary["limit"].values[k, w])) for w in range(len(LIMITS))]
        by = next((str(text) for text in summary["limit_by"].values[k] if text), "")
        rows.append((place or f"network of {cluster}", *values, by))
    cached = [
        f"{name_of(summary, cell)} {VERBS[direction]}"
        for cell in range(summary.sizes["cell"])
        for d, direction in enumerate(DIRECTIONS)
        if faster_than_disk(summary, cell, d)
    ]
    note = (
        "Faster than the disk alone, because of memory: "
        f"{', '.join(dict.fromkeys(cached[:4]))}{' and more' if len(dict.fromkeys(cached)) > 4 else ''}"
        if cached
        else ""
    )
    return Table(
        "Raw limits, measured between the runs",
        ("place", "writes", "reads", "network", "by"),
        rows,
        right=(1, 2, 3),
        note=note,
    )


def limit_of(summary: xr.Dataset, cell: int, what: str) -> tuple[float, float, float]:
    """The rate of the cell's place ("write", "read") or its cluster's network alone, and the interval; NaN if
    unknown."""
    place, cluster = str(summary["cell_place"].values[cell]), str(summary["cell_cluster"].values[cell])
    wanted = ("", cluster) if what == "network" else (place, "")
    for k in range(summary.sizes["place"]):
        if (str(summary["place_name"].values[k]), str(summary["place_cluster"].values[k])) == wanted:
            at = (k, LIMITS.index(what))
            return tuple(float(summary[f"limit{end}"].values[at]) for end in ("", "_low", "_high"))  # type: ignore[return-value]
    return (math.nan,) * 3


def faster_than_disk(summary: xr.Dataset, cell: int, direction: int) -> bool:
    """Whether the whole interval of a cell's rate is above the rate of its disk alone."""
    high = limit_of(summary, cell, DIRECTIONS[direction])
    return bool(float(summary["rate_low"].values[cell, direction]) > high[2])


def _slowdowns(summary: xr.Dataset, made: Grid) -> Table:
    rows = []
    for b, benchmark in enumerate(made.benchmarks):
        for cell in made.cell[b]:
            if cell >= 0 and math.isfinite(summary["slowdown"].values[cell]):
                values = [float(summary[f"slowdown{end}"].values[cell]) - 1 for end in ("", "_low", "_high")]
                rows.append(
                    (
                        benchmark,
                        name_of(summary, int(cell)),
                        f"{summary['traced_runs'].values[cell]}",
                        format_share(values[0]),
                        _between(values[1], values[2], format_share),
                    )
                )
    return Table(
        SLOWED,
        ("benchmark", "configuration", "traced runs", "slowdown", "95 %"),
        rows,
        right=(2, 3, 4),
    )


def order_of_functions(summary: xr.Dataset, cells: list[int]) -> list[int]:
    """Functions that cells called, ordered by their largest own time in any of them."""
    own = np.nan_to_num(summary["function_self_time"].values[cells]).max(axis=0, initial=0.0)
    called = np.nan_to_num(summary["function_calls"].values[cells]).max(axis=0, initial=0.0) > 0
    return [int(k) for k in np.argsort(-own, kind="stable") if called[k]]


def _traced(summary: xr.Dataset, made: Grid, benchmark: int) -> list[int]:
    """A benchmark's cells with traced runs."""
    return [int(cell) for cell in made.cell[benchmark] if cell >= 0 and summary["traced_runs"].values[cell]]


def functions_table(
    summary: xr.Dataset, made: Grid, benchmark: int, most: int = FUNCTIONS_SHOWN, columns: int = COLUMNS_SHOWN
) -> Table | None:
    """A rank's time by function, with a column for each configuration; None if nothing was called."""
    cells = _traced(summary, made, benchmark)
    order = order_of_functions(summary, cells) if cells else []
    if not order:
        return None
    shown = cells[:columns]
    layer = summary["layer_name"].values[summary["function_layer"].values]
    rows = []
    for k in order[:most]:
        times = [
            format_duration(float(summary["function_self_time"].values[cell, k]))
            if summary["function_calls"].values[cell, k] > 0
            else ""
            for cell in shown
        ]
        rows.append((str(summary["function_name"].values[k]), str(layer[k]), *times))
    left = [f"{len(order) - most} more functions with less time"] if len(order) > most else []
    left += [counted(len(cells) - len(shown), "more configuration")] if len(cells) > len(shown) else []
    names = _heads(summary, made, shown)
    return Table(
        f"{SPENT}: {made.benchmarks[benchmark]}",
        ("function", "layer", *names),
        rows,
        right=tuple(range(2, 2 + len(names))),
        note=_note_of_times(summary, cells)
        + (f" And {' and '.join(left)}: in the report and in --json." if left else ""),
        names=tuple(range(2, 2 + len(names))),
    )


def _note_of_times(summary: xr.Dataset, cells: list[int]) -> str:
    """The runs that the times come from."""
    runs = summary["traced_runs"].values[cells]
    return f"Medians over {_span(runs)} run{'s' * bool(runs.max() != 1)} under the tracer."


def _heads(summary: xr.Dataset, made: Grid, cells: list[int]) -> list[str]:
    """The names of configurations for the heads of columns."""
    names = [name_of(summary, cell) for cell in cells]
    return [str(made.configurations.index(name) + 1) for name in names] if numbered(made) else names


def called_table(summary: xr.Dataset, made: Grid, benchmark: int) -> Table:
    """Functions of each layer that each configuration calls, those with most time first: Figure 3 of the source."""
    cells = _traced(summary, made, benchmark)
    layer_of = summary["function_layer"].values
    rows = []
    for k, title in enumerate(summary["layer_title"].values):
        name = str(title)
        for cell in cells:
            mine = [f for f in order_of_functions(summary, [cell]) if layer_of[f] == k]
            if mine:
                named = ", ".join(str(summary["function_name"].values[f]) for f in mine[:NAMES_SHOWN])
                more = f", and {len(mine) - NAMES_SHOWN} more" if len(mine) > NAMES_SHOWN else ""
                rows.append((name, label(summary, made, cell), named + more))
                name = ""
    return Table(
        f"Functions of each layer that are called: {made.benchmarks[benchmark]}",
        ("layer", "configuration", "functions"),
        rows,
        note="Those with the most own time first; all of them, with their counts, are below.",
    )


def counts_table(summary: xr.Dataset, made: Grid, benchmark: int) -> Table:
    """All functions and their calls in a run, from the application's side down."""
    cells = _traced(summary, made, benchmark)
    count = np.nan_to_num(summary["function_calls"].values)
    layer = summary["layer_name"].values[summary["function_layer"].values]
    rows = []
    for k in np.flatnonzero(count[cells].any(axis=0)).tolist():  # functions are in the order of layers
        counts = []
        for cell in cells:
            n, moved = count[cell, k], float(summary["function_bytes"].values[cell, k])
            counts.append(
                (f"{n:g}" + (f" × {format_size(round(moved / n))}" if moved > 0 else "")) if n > 0 else ""
            )
        rows.append((str(layer[k]), str(summary["function_name"].values[k]), *counts))
    heads = _heads(summary, made, cells)
    return Table(
        f"Calls of all ranks in a run: {made.benchmarks[benchmark]}",
        ("layer", "function", *heads),
        rows,
        right=tuple(range(2, 2 + len(heads))),
        names=tuple(range(2, 2 + len(heads))),
    )


def values(summary: xr.Dataset) -> dict[str, Any]:
    """The study as data: `cells`, `limits`."""
    return {
        "ranks": int(summary.attrs.get("ranks", 0)) or None,
        "cells": [_cell_value(summary, cell) for cell in range(summary.sizes["cell"])],
        "limits": [
            {
                "place": str(summary["place_name"].values[k]) or None,
                "cluster": str(summary["place_cluster"].values[k]) or None,
                "what": what,
                "by": str(summary["limit_by"].values[k, w]),
                "runs": int(summary["limit_runs"].values[k, w]),
                **_triple(summary, "limit", (k, w), "rate_B_per_s"),
            }
            for k in range(summary.sizes["place"])
            for w, what in enumerate(LIMITS)
            if summary["limit_runs"].values[k, w]
        ],
    }


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _triple(summary: xr.Dataset, name: str, at: Any, key: str) -> dict[str, Any]:
    return {
        key: _finite(summary[name].values[at]),
        "ci95": [_finite(summary[f"{name}_{end}"].values[at]) for end in ("low", "high")],
    }


def _cell_value(summary: xr.Dataset, cell: int) -> dict[str, Any]:
    layer = summary["layer_name"].values[summary["function_layer"].values]
    rates = {
        direction: _triple(summary, "rate", (cell, d), "rate_B_per_s")
        | {"to_baseline": _triple(summary, "ratio", (cell, d), "ratio")}
        for d, direction in enumerate(DIRECTIONS)
    }
    size = int(summary["cell_size"].values[cell])
    return {
        **{
            name: str(summary[f"cell_{name}"].values[cell])
            for name in ("benchmark", "workload", "stack", "io", "hints", "place")
        },
        "cluster": str(summary["cell_cluster"].values[cell]) or None,
        "size_B": size if size >= 0 else None,
        "runs": int(summary["runs"].values[cell]),
        "traced_runs": int(summary["traced_runs"].values[cell]),
        "failed_runs": int(summary["failed_runs"].values[cell]),
        "baseline": int(summary["baseline"].values[cell]),
        **rates,
        "slowdown": _triple(summary, "slowdown", cell, "ratio")
        if math.isfinite(summary["slowdown"].values[cell])
        else None,
        "layers": {
            str(name): _finite(summary["layer_self_time"].values[cell, k])
            for k, name in enumerate(summary["layer_name"].values)
        },
        "functions": [
            {
                "function": str(summary["function_name"].values[k]),
                "layer": str(layer[k]),
                "calls": _finite(summary["function_calls"].values[cell, k]),
                "bytes": _finite(summary["function_bytes"].values[cell, k]),
                "time_s": _finite(summary["function_time"].values[cell, k]),
                "self_s": _finite(summary["function_self_time"].values[cell, k]),
            }
            for k in order_of_functions(summary, [cell])
        ],
    }
