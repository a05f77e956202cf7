"""Checks a run against limits, or against an earlier run. Pure: summaries in, findings out.

`core.comparison` decides whether two medians differ. The errors of their logarithms come from the 95 % confidence
intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

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
from sonde.core.errors import DataError, Finding, Warning, typed
from sonde.core.outcome import Table
from sonde.core.status import DRIFT
from sonde.core.units import format_duration
from sonde.store import verdict
from sonde.store.plan import TCP

MAX_ROWS = 24
MARK = "!"
Z95 = 1.959964
MACHINE = ("backend", "safety", "servers", "server", "sonde_version")  # these may also explain a difference


@dataclass(frozen=True)
class Checked:
    """The result of a check against a minimum ratio to tcp.

    findings: cells below the limit. cells: cells with data. judged: the number of them that could be judged.
    """

    findings: list[Finding]
    judged: int
    cells: int


def below(summary: xr.Dataset, min_ratio: float, dataset: str = "FILE") -> Checked:
    """The cells whose ratio to tcp is significantly below a limit: their whole interval is below it.

    All regular variants are judged, including those that the user named, but not raw limits and variants that are slow
    on purpose. A ratio without an interval (fewer than six epochs) cannot be judged.
    """
    out = []
    names, cases = verdict.names_of(summary), verdict.cases_of(summary)
    ratio, high = summary["ratio_to_tcp"].values, summary["ratio_to_tcp_high"].values
    own = [v for v in verdict.real(summary) if names[v] != TCP]
    for v in own:
        for c, case in enumerate(cases):
            if np.isfinite(high[v, c]) and high[v, c] < min_ratio:
                out.append(
                    Finding(
                        "store.below_limit",
                        f"{verdict.label(summary, v)} has {verdict.ratio_text(float(ratio[v, c]))} the rate of tcp in "
                        f"{case.title}; the limit is {min_ratio:g}",
                        {"name": names[v], "case": case.spec, "ratio_to_tcp": float(ratio[v, c])},
                        typed("sonde", "store", "show", dataset, "--case", case.spec),
                    )
                )
    out.sort(key=lambda finding: float(finding.evidence["ratio_to_tcp"]))
    out = cut_short(out, "cells are below the limit", typed("sonde", "store", "show", dataset))
    return Checked(out, int(np.isfinite(high[own]).sum()), int((summary["n"].values[own] > 0).sum()))


def diff(
    a: xr.Dataset,
    b: xr.Dataset,
    names: tuple[str, str] = ("A", "B"),
    matters: float = MATTERS,
    machine: Machines | None = None,
) -> Difference:
    """The cells in which run B is slower or faster than run A, among those that both have.

    Cells that drifted in either run, or whose median has no interval, are left out. machine : root attributes of both;
    the differences between them become evidence of the findings.

    Raises
    ------
    DataError  store.not_comparable: no variant or no case in common.
    """
    a, b = _aligned(a, b, names)
    x, y = a["median"].values, b["median"].values
    drifted = (a["status"].values == DRIFT) | (b["status"].values == DRIFT)
    cells = compare(x, y, np.hypot(_log_error(a), _log_error(b)), drifted, matters)
    evidence = {"machine": differing} if (differing := changed(machine, MACHINE)) else {}
    found = []
    variants, cases = verdict.names_of(a), verdict.cases_of(a)
    for v, c in sorted(np.argwhere(cells.slower).tolist(), key=lambda vc: -cells.ratio[vc[0], vc[1]]):
        ratio = float(cells.ratio[v, c])
        found.append(
            Finding(
                "store.slower",
                f"{variants[v]} is {ratio - 1:.0%} slower in {names[1]} in {cases[c].title}: "
                f"{format_duration(float(y[v, c]))} against {format_duration(float(x[v, c]))}",
                {
                    "name": variants[v],
                    "case": cases[c].spec,
                    "ratio": ratio,
                    "q": float(cells.q[v, c]),
                    **evidence,
                },
                typed("sonde", "store", "show", names[1], "--case", cases[c].spec),
            )
        )
    found = cut_short(found, f"cells are slower in {names[1]}", typed("sonde", "store", "show", names[1]))
    return Difference.of(cells, found, _table(a, x, y, cells, names), _warnings(a, b, names))


def _aligned(a: xr.Dataset, b: xr.Dataset, names: tuple[str, str]) -> tuple[xr.Dataset, xr.Dataset]:
    common = {}
    for dim in ("variant", "case"):
        others = set(map(str, b[dim].values))
        common[dim] = [str(name) for name in a[dim].values if str(name) in others]
        if not common[dim]:
            raise DataError(
                "store.not_comparable",
                f"{names[0]} and {names[1]} have no {dim} in common",
                "compare runs of the same cases; 'sonde store show' lists the cases of a run",
            )
    return a.sel(common), b.sel(common)


def _log_error(summary: xr.Dataset) -> np.ndarray:
    """Standard error of the log median of each cell; NaN where it has no interval."""
    with np.errstate(invalid="ignore", divide="ignore"):
        width = np.log(summary["median_high"].values / summary["median_low"].values)
    return np.asarray(np.where(np.isfinite(width), np.maximum(width / (2 * Z95), LEAST_ERROR), np.nan))


def _warnings(a: xr.Dataset, b: xr.Dataset, names: tuple[str, str]) -> list[Warning]:
    out = []
    for v, name in enumerate(verdict.names_of(a)):
        before, after = (str(s["provider"].values[v]) for s in (a, b))
        if before != after:
            out.append(
                Warning(
                    "store.other_provider",
                    f"{name} ran over '{before}' in {names[0]} and over '{after}' in {names[1]}",
                    f"choose the provider in both runs: --variant {name}/PROVIDER",
                )
            )
    return out


def _table(summary: xr.Dataset, x: np.ndarray, y: np.ndarray, cells: Cells, names: tuple[str, str]) -> Table:
    """The table of the cells that changed most. Significant changes come first."""
    variants, cases = verdict.names_of(summary), verdict.cases_of(summary)
    significant = cells.slower | cells.faster
    where = [tuple(vc) for vc in np.argwhere(cells.compared).tolist()]
    where.sort(key=lambda vc: (not significant[vc], -abs(np.log(cells.ratio[vc]))))
    rows = [
        (
            variants[v],
            cases[c].title,
            format_duration(float(x[v, c])),
            format_duration(float(y[v, c])),
            f"{cells.ratio[v, c]:.3f}",
            MARK if significant[v, c] else "",
        )
        for v, c in where[:MAX_ROWS]
    ]
    note = f"A: {names[0]}\nB: {names[1]}"
    if any(row[-1] for row in rows):
        note += f"\n{MARK} at the end of a row: significantly slower or faster, and by more than --matters"
    if len(where) > MAX_ROWS:
        note += f"\nand {len(where) - MAX_ROWS} cells that changed less"
    return Table("Median duration", ("variant", "case", "A", "B", "ratio", ""), rows, (2, 3, 4), note)
