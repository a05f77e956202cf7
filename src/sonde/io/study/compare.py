"""Compare two studies cell by cell: the same benchmarks before and after, or on two clusters. Pure.

`core.comparison` decides whether two rates differ; the errors of their logarithms come from the 95 % confidence
intervals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sonde.core.comparison import (
    LEAST_ERROR,
    MATTERS,
    Cells,
    Difference,
    Machines,
    changed,
    compare,
    cut_short,
)
from sonde.core.errors import DataError, Finding, typed
from sonde.core.outcome import Table
from sonde.io.study import verdict as words
from sonde.io.study.analyse import DIRECTIONS

if TYPE_CHECKING:
    import xarray as xr

Z95 = 1.959964
MARK = "!"
MOST_ROWS = 24


def diff(
    a: xr.Dataset,
    b: xr.Dataset,
    names: tuple[str, str] = ("A", "B"),
    matters: float = MATTERS,
    machine: Machines | None = None,
) -> Difference:
    """Cells in which study B writes or reads more slowly than A, among those that both have.

    Raises
    ------
    DataError  io.not_comparable: they have no cell in common.
    """
    here, theirs = _cells(a), _cells(b)
    common = [key for key in here if key in theirs]
    if not common:
        raise DataError(
            "io.not_comparable",
            f"{names[0]} and {names[1]} have no benchmark in the same configuration",
            "compare studies of the same --workload, --size, --io and --hints; sonde io show lists their "
            "cells",
        )
    first, second = [here[key] for key in common], [theirs[key] for key in common]
    # Seconds per byte: the comparison is about times, and a longer time is slower.
    x, y = 1 / a["rate"].values[first], 1 / b["rate"].values[second]
    error = np.hypot(_log_error(a)[first], _log_error(b)[second])
    cells = compare(x, y, error, np.zeros(x.shape, bool), matters)
    evidence = (
        {"machine": differing} if (differing := changed(machine, ("mpi_version", "file_systems"))) else {}
    )
    found = []
    for k, d in sorted(np.argwhere(cells.slower).tolist(), key=lambda at: -cells.ratio[at[0], at[1]]):
        benchmark, configuration = common[k]
        before, after = (words.rate_text(1 / float(rate[k, d])) for rate in (x, y))
        found.append(
            Finding(
                "io.study_slower",
                f"{benchmark}: {configuration} {words.VERBS[DIRECTIONS[d]]} {after} in {names[1]}, "
                f"{before} in {names[0]}",
                {
                    "benchmark": benchmark,
                    "configuration": configuration,
                    "direction": DIRECTIONS[d],
                    "ratio": float(1 / cells.ratio[k, d]),
                    "q": float(cells.q[k, d]),
                    **evidence,
                },
                typed("sonde", "io", "show", names[1]),
            )
        )
    found = cut_short(found, f"cells are slower in {names[1]}", typed("sonde", "io", "show", names[1]))
    return Difference.of(cells, found, _table(common, x, y, cells, names))


def _cells(summary: xr.Dataset) -> dict[tuple[str, str], int]:
    made = words.grid(summary)
    return {
        (made.benchmarks[b], made.configurations[c]): int(cell)
        for (b, c), cell in np.ndenumerate(made.cell)
        if cell >= 0
    }


def _log_error(summary: xr.Dataset) -> np.ndarray:
    """Standard error of the log of each rate; NaN if it has no interval."""
    with np.errstate(invalid="ignore", divide="ignore"):
        width = np.log(summary["rate_high"].values / summary["rate_low"].values)
    return np.asarray(np.where(np.isfinite(width), np.maximum(width / (2 * Z95), LEAST_ERROR), np.nan))


def _table(
    common: list[tuple[str, str]], x: np.ndarray, y: np.ndarray, cells: Cells, names: tuple[str, str]
) -> Table:
    """The most changed cells, the relevant ones first."""
    changed = cells.slower | cells.faster
    where = [(int(k), int(d)) for k, d in np.argwhere(cells.compared)]
    where.sort(key=lambda at: (not changed[at], -abs(np.log(cells.ratio[at]))))
    rows = [
        (
            common[k][0],
            common[k][1],
            DIRECTIONS[d],
            words.rate_text(1 / float(x[k, d])),
            words.rate_text(1 / float(y[k, d])),
            f"{1 / cells.ratio[k, d]:.3f}",
            MARK if changed[k, d] else "",
        )
        for k, d in where[:MOST_ROWS]
    ]
    note = f"A: {names[0]}\nB: {names[1]}"
    if any(row[-1] for row in rows):
        note += f"\n{MARK} at the end of a row: significantly slower or faster, and by more than matters"
    return Table(
        "Median rate", ("benchmark", "configuration", "", "A", "B", "B/A", ""), rows, (3, 4, 5), note
    )
