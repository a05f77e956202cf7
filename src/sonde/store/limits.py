"""Holding a run against limits, or against an earlier run. Pure: summaries in, findings out.

Two medians differ when their difference passes Benjamini and Hochberg's step over all cells compared (1995), p from the
normal law on log medians whose errors come from the 95 % intervals, *and* is more than `matters`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats as sps

from sonde.core.errors import DataError, Finding, Warning, typed
from sonde.core.outcome import Table
from sonde.core.units import format_duration
from sonde.store import verdict
from sonde.store.schema import DRIFT

LEVEL = 0.05  # false-discovery level
MATTERS = 0.05
MOST_FINDINGS = 20
MOST_ROWS = 24
LEAST_ERROR = 0.002  # of a log median: two runs differ by more than one run's intervals tell
Z95 = 1.959964

# What may explain a difference; times, counters and names differ between any two runs.
_MACHINE = (
    "kernel", "governor", "cpufreq_driver", "turbo", "clock_source", "microcode", "cpu", "cores", "threads_per_core",
    "smt", "infiniband", "network", "virtualised", "mitigations", "hostlist", "backend", "safety", "servers", "server",
    "sonde_version",
)  # fmt: skip


def below(summary: xr.Dataset, min_ratio: float, dataset: str = "FILE") -> list[Finding]:
    """Cells of default variants whose rate over tcp is below a limit beyond doubt: their interval ends under it."""
    out = []
    names, cases = verdict.names_of(summary), verdict.cases_of(summary)
    ratio, high = summary["ratio_to_tcp"].values, summary["ratio_to_tcp_high"].values
    for v in verdict.styled(summary, "default"):
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
    return _cut(out, "store.below_limit", "cells are below the limit", dataset)


@dataclass(frozen=True)
class Difference:
    """What two runs differ in. `cells` counts those compared; `slower` and `faster` those of B that differ.

    detectable : the relative difference that the middle cell would have shown with 80 % power.
    """

    findings: list[Finding]
    table: Table
    cells: int
    slower: int
    faster: int
    drifted: int
    median_ratio: float
    detectable: float
    warnings: list[Warning]

    def sentence(self, b: str) -> str:
        if not self.cells:
            return f"no cell could be compared: {self.drifted} drifted"
        return (
            f"{self.slower} of {self.cells} cells are slower in {b}, {self.faster} faster; the middle one takes "
            f"{self.median_ratio:.3f} times as long (of the middle cell a change of {self.detectable:.1%} would have "
            "been found)"
        )

    def values(self) -> dict[str, Any]:
        return {
            "cells": self.cells,
            "drifted": self.drifted,
            "slower": self.slower,
            "faster": self.faster,
            "median_ratio": self.median_ratio if self.cells else None,
            "detectable": self.detectable if self.cells else None,
        }


def diff(
    a: xr.Dataset,
    b: xr.Dataset,
    names: tuple[str, str] = ("A", "B"),
    matters: float = MATTERS,
    machine: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
) -> Difference:
    """Where run B is slower or faster than run A, in the cells that both have.

    Cells that drifted in either, or whose median has no interval, are left out.

    Raises
    ------
    DataError  store.not_comparable: no variant or no case in common.
    """
    a, b = _aligned(a, b, names)
    x, y = a["median"].values, b["median"].values
    error = np.hypot(_log_error(a), _log_error(b))
    both = np.isfinite(x) & np.isfinite(y) & np.isfinite(error)
    drifted = both & ((a["status"].values == DRIFT) | (b["status"].values == DRIFT))
    both &= ~drifted
    log_ratio = np.full(x.shape, np.nan)
    log_ratio[both] = np.log(y[both] / x[both])
    told = np.zeros(x.shape, bool)
    q = np.full(x.shape, np.nan)
    if both.any():
        q[both] = sps.false_discovery_control(2 * sps.norm.sf(np.abs(log_ratio[both]) / error[both]))
        told[both] = (q[both] <= LEVEL) & (np.abs(log_ratio[both]) > np.log1p(matters))
    slower, faster = told & (log_ratio > 0), told & (log_ratio < 0)
    changed = _changed(machine) if machine else {}
    found = []
    variants, cases = verdict.names_of(a), verdict.cases_of(a)
    for v, c in sorted(np.argwhere(slower).tolist(), key=lambda vc: -log_ratio[vc[0], vc[1]]):
        ratio = float(np.exp(log_ratio[v, c]))
        found.append(
            Finding(
                "store.slower",
                f"{variants[v]} is {ratio - 1:.0%} slower in {names[1]} in {cases[c].title}: "
                f"{format_duration(float(y[v, c]))} against {format_duration(float(x[v, c]))}",
                {"name": variants[v], "case": cases[c].spec, "ratio": ratio, "q": float(q[v, c])}
                | ({"machine": changed} if changed else {}),
                typed("sonde", "store", "show", names[1], "--case", cases[c].spec),
            )
        )
    found = _cut(found, "store.slower", f"cells are slower in {names[1]}", names[1])
    middle = float(np.exp(np.median(log_ratio[both]))) if both.any() else float("nan")
    # 80 % power at the first step of the correction, which a single differing cell must pass.
    cut = sps.norm.isf(LEVEL / max(1, int(both.sum())) / 2) + sps.norm.isf(0.2)
    detectable = float(np.expm1(cut * np.median(error[both]))) if both.any() else float("nan")
    return Difference(
        found, _table(a, x, y, log_ratio, told, names), int(both.sum()), int(slower.sum()), int(faster.sum()),
        int(drifted.sum()), middle, detectable, _warnings(a, b, names),
    )  # fmt: skip


def _aligned(a: xr.Dataset, b: xr.Dataset, names: tuple[str, str]) -> tuple[xr.Dataset, xr.Dataset]:
    common = {}
    for dim in ("variant", "case"):
        there = set(map(str, b[dim].values))
        common[dim] = [str(name) for name in a[dim].values if str(name) in there]
        if not common[dim]:
            raise DataError(
                "store.not_comparable",
                f"{names[0]} and {names[1]} have no {dim} in common",
                "compare runs of the same cases; sonde store show tells what each holds",
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
                    f"hold it to one: --variant {name}/PROVIDER",
                )
            )
    return out


def _table(
    summary: xr.Dataset,
    x: np.ndarray,
    y: np.ndarray,
    log_ratio: np.ndarray,
    told: np.ndarray,
    names: tuple[str, str],
) -> Table:
    """The cells that changed most, those that count first."""
    variants, cases = verdict.names_of(summary), verdict.cases_of(summary)
    where = [tuple(vc) for vc in np.argwhere(np.isfinite(log_ratio)).tolist()]
    where.sort(key=lambda vc: (not told[vc], -abs(log_ratio[vc])))
    rows = [
        (
            variants[v],
            cases[c].title,
            format_duration(float(x[v, c])),
            format_duration(float(y[v, c])),
            f"{np.exp(log_ratio[v, c]):.3f}",
            "!" if told[v, c] else "",
        )
        for v, c in where[:MOST_ROWS]
    ]
    note = f"A: {names[0]}\nB: {names[1]}"
    if len(where) > MOST_ROWS:
        note += f"\nand {len(where) - MOST_ROWS} cells that changed less"
    return Table("Median duration", ("variant", "case", "A", "B", "ratio", ""), rows, (2, 3, 4), note)


def _cut(found: Sequence[Finding], code: str, what: str, dataset: str) -> list[Finding]:
    if len(found) <= MOST_FINDINGS:
        return list(found)
    rest = len(found) - MOST_FINDINGS
    more = Finding(code, f"{rest} more {what}", {"more": rest}, typed("sonde", "store", "show", dataset))
    return [*found[:MOST_FINDINGS], more]


def _changed(machine: tuple[Mapping[str, Any], Mapping[str, Any]]) -> dict[str, str]:
    """What is not the same in both machines: name -> "before → after"."""
    a, b = machine
    return {
        name: f"{a[name]} → {b[name]}" for name in _MACHINE if name in a and name in b and a[name] != b[name]
    }
