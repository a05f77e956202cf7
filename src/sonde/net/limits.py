"""A run compared with limits, with an earlier run, or with another network. Pure: summaries in, findings out.

`core.comparison` decides when two medians differ; the errors of their logarithms come from the differences between
epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from sonde.core.comparison import (
    LEAST_ERROR,
    MATTERS,
    MOST_FINDINGS,
    Cells,
    Difference,
    Machines,
    changed,
    compare,
    cut_short,
)
from sonde.core.errors import DataError, Finding, Warning, typed
from sonde.core.outcome import Table
from sonde.core.status import CONVERGED, DRIFT, NOT_MEASURED
from sonde.core.units import format_duration, format_size
from sonde.net import verdict
from sonde.net.pairs import centre, log_errors

WIDEST_NAMES = 34  # columns for two file names as heads of a table of 80 columns
LISTED = 6  # message sizes that a finding lists
UNKNOWN_LOG_ERROR = 0.05  # for a median without an interval, as in files of other tools


@dataclass(frozen=True)
class Limits:
    """The requirements for a network. None: not checked.

    max_median_s : of every cell at or below `size_b` (all sizes if None). max_ratio : slowest over fastest link of one
    class at one size. min_converged : share of converged cells. slow_links : whether a slow link, rank or host is a
    finding.
    """

    max_median_s: float | None = None
    size_b: int | None = None
    max_ratio: float | None = None
    min_converged: float | None = None
    slow_links: bool = True


def check(summary: xr.Dataset, limits: Limits, dataset: str = "FILE") -> list[Finding]:
    """Violations of the limits by a run, worst first."""
    found = list(verdict.findings(summary, dataset)) if limits.slow_links else []
    found += _medians(summary, limits, dataset)
    found += _ratios(summary, limits, dataset)
    found += _converged(summary, limits, dataset)
    return found


def single_link(summary: xr.Dataset) -> Warning | None:
    """The warning that two ranks have one link: it can only be compared with a limit, not with other links."""
    if summary.sizes["src"] != 2:
        return None
    return Warning(
        "net.single_link",
        "2 ranks have one link, and no other to compare it with: slow links were not searched",
        "possible checks: --max-median TIME, --max-ratio R, --min-converged SHARE, --against BASE.nc",
    )


def _medians(summary: xr.Dataset, limits: Limits, dataset: str) -> list[Finding]:
    """One finding for each link over the limit, at the size that exceeds it most."""
    if limits.max_median_s is None:
        return []
    cells = centre(summary)
    size = summary["size"].values
    asked = np.ones(len(size), bool) if limits.size_b is None else size <= limits.size_b
    over = (cells > limits.max_median_s) & asked
    worst = np.where(over, cells, -np.inf)
    links = sorted(np.argwhere(over.any(axis=2)).tolist(), key=lambda ab: -worst[ab[0], ab[1]].max())
    limit = format_duration(limits.max_median_s)
    out = []
    for a, b in links:
        s = int(worst[a, b].argmax())
        sizes = [int(one) for one in size[over[a, b]]]
        out.append(
            Finding(
                "net.median_over_limit",
                f"link {a}→{b} takes {format_duration(float(cells[a, b, s]))} for "
                f"{format_size(int(size[s]), exact=True)}; the limit is {limit}{_also(sizes, int(size[s]))}",
                {
                    "src": a,
                    "dst": b,
                    "size": int(size[s]),
                    "sizes": sizes,
                    "median_s": float(cells[a, b, s]),
                    **_hosts(summary, a, b),
                },
                typed("sonde", "net", "show", dataset, "--pair", f"{a},{b}"),
            )
        )
    return cut_short(out, f"links are over {limit}", typed("sonde", "report", dataset))


def _also(sizes: Sequence[int], named: int) -> str:
    """Text such as " (also at 8 B, 64 B)" for the sizes besides the named one; more than LISTED are counted."""
    others = [format_size(size, exact=True) for size in sizes if size != named]
    if not others:
        return ""
    more = f" and {len(others) - LISTED} more" if len(others) > LISTED else ""
    return f" (also at {', '.join(others[:LISTED])}{more})"


def _ratios(summary: xr.Dataset, limits: Limits, dataset: str) -> list[Finding]:
    """One finding for each class whose links differ too much, at the size with the largest difference."""
    if limits.max_ratio is None:
        return []
    cells = centre(summary)
    size = summary["size"].values
    label = summary["class"].values if "class" in summary else np.zeros(cells.shape[:2], int)
    out = []
    for k in np.unique(label[label >= 0]):
        inside = np.where((label == k)[..., None], cells, np.nan)
        ratio = np.array([_spread(inside[..., s]) for s in range(len(size))])
        if not (ratio > limits.max_ratio).any():
            continue
        s = int(np.nanargmax(ratio))
        a, b = (int(end) for end in np.unravel_index(np.nanargmax(inside[..., s]), cells.shape[:2]))
        sizes = [int(one) for one in size[ratio > limits.max_ratio]]
        out.append(
            Finding(
                "net.class_uneven",
                f"links of class {k} differ by a factor of {ratio[s]:.2f} at "
                f"{format_size(int(size[s]), exact=True)} (slowest {a}→{b}); the limit is {limits.max_ratio:g}"
                f"{_also(sizes, int(size[s]))}",
                {
                    "class": int(k),
                    "size": int(size[s]),
                    "sizes": sizes,
                    "ratio": float(ratio[s]),
                    "src": a,
                    "dst": b,
                    **_hosts(summary, a, b),
                },
                typed("sonde", "net", "show", dataset, "--pair", f"{a},{b}"),
            )
        )
    return sorted(out, key=lambda f: -f.evidence["ratio"])[:MOST_FINDINGS]


def _spread(column: np.ndarray) -> float:
    """Slowest over fastest; 1 with fewer than two values."""
    known = column[np.isfinite(column)]
    return float(known.max() / known.min()) if known.size > 1 else 1.0


def _converged(summary: xr.Dataset, limits: Limits, dataset: str) -> list[Finding]:
    if limits.min_converged is None or "status" not in summary:
        return []
    status = summary["status"].values
    measured = int((status != NOT_MEASURED).sum())
    share = float((status == CONVERGED).sum()) / measured if measured else 0.0
    if share >= limits.min_converged:
        return []
    return [
        Finding(
            "net.not_converged",
            f"{share:.0%} of {measured} cells converged; the limit is {limits.min_converged:.0%}",
            {"share": share, "cells": measured},
            "measure again with a longer --budget, or a coarser --precision",
        )
    ]


# Settings of a run that may explain a difference, besides the machine.
MACHINE = ("mpi", "mpi_version", "mpi_library", "transport", "binding", "pairing", "oversubscribed")


def diff(
    a: xr.Dataset,
    b: xr.Dataset,
    names: tuple[str, str] = ("A", "B"),
    matters: float = MATTERS,
    machine: Machines | None = None,
) -> Difference:
    """Differences between run B and run A, cell by cell, at the sizes of both.

    A cell that drifted in either run is left out: its interval holds only for its own time. If half of the links or
    more became slower, that is one finding about the run, not one for each link.

    Parameters
    ----------
    a, b : summaries
    names : their names in texts
    matters : the largest relative difference of medians that is not reported
    machine : root attributes of both; their differences become the findings' evidence

    Raises
    ------
    DataError  net.not_comparable: other ranks, no common size, or samples of another kind.
    """
    a, b = _aligned(a, b, names)
    x, y = centre(a), centre(b)
    cells = compare(x, y, np.hypot(_log_error(a), _log_error(b)), _drifted(a) | _drifted(b), matters)
    evidence = changed(machine, MACHINE)
    links, links_slower = np.any(cells.compared, axis=2), np.any(cells.slower, axis=2)
    if links_slower.sum() >= max(FEWEST_MOVED, links.sum() / 2):
        found = [_moved(cells, links, names, evidence)]
    else:
        found = _told(a, x, y, cells, names, evidence)
    return Difference.of(cells, found, _by_size(a, x, y, cells, names), _of_both(a, b, cells.drifted, names))


# The share of links that must have become slower together for a finding about the run.
FEWEST_MOVED = 3


def _drifted(summary: xr.Dataset) -> np.ndarray:
    """Cells whose level kept moving during the measurement."""
    if "status" not in summary:
        return np.zeros(centre(summary).shape, bool)
    return np.asarray(summary["status"].transpose("src", "dst", "size").values == DRIFT)


def _of_both(a: xr.Dataset, b: xr.Dataset, drifted: int, names: tuple[str, str]) -> list[Warning]:
    """Reasons why two runs cannot be compared well."""
    out = []
    if drifted:
        text = f"{drifted} cells drifted while {names[0]} or {names[1]} was measured, and were not compared"
        out.append(Warning("net.drifted_cells", text, "measure again when the machine is quiet"))
    shared = [name for name, summary in zip(names, (a, b), strict=True) if verdict.oversubscribed(summary)]
    if shared:
        out.append(
            Warning(
                "net.oversubscribed_runs",
                f"ranks shared cores in {' and '.join(shared)}: the kernel places them differently in each run, and "
                "delays change with it",
                "use no more ranks than cores to compare networks",
            )
        )
    return out


def _moved(cells: Cells, links: np.ndarray, names: tuple[str, str], evidence: dict[str, str]) -> Finding:
    moved = int(cells.slower.any(axis=2).sum())
    middle = float(np.median(cells.ratio[cells.slower]))
    return Finding(
        "net.slower",
        f"{moved} of {int(links.sum())} links are slower in {names[1]}, by {middle - 1:.0%} in the median: the run, "
        "not a link",
        {
            "links": moved,
            "links_compared": int(links.sum()),
            "ratio": middle,
            **({"machine": evidence} if evidence else {}),
        },
        typed("sonde", "data", "diff", *names),
    )


def _aligned(a: xr.Dataset, b: xr.Dataset, names: tuple[str, str]) -> tuple[xr.Dataset, xr.Dataset]:
    hint = "compare runs of the same ranks and mode; sonde net show describes each"
    if a.sizes["src"] != b.sizes["src"]:
        raise DataError(
            "net.not_comparable",
            f"{names[0]} has {a.sizes['src']} ranks and {names[1]} {b.sizes['src']}",
            hint,
        )
    kinds = [str(s.attrs.get("value", "unknown")) for s in (a, b)]
    if kinds[0] != kinds[1]:
        raise DataError(
            "net.not_comparable",
            f"samples of {names[0]} are {kinds[0]}, those of {names[1]} are {kinds[1]}",
            hint,
        )
    common = np.intersect1d(a["size"].values, b["size"].values)
    if not len(common):
        raise DataError(
            "net.not_comparable", f"{names[0]} and {names[1]} have no message length in common", hint
        )
    return a.sel(size=common), b.sel(size=common)


def _log_error(summary: xr.Dataset) -> np.ndarray:
    """Standard error of the log median of each cell; UNKNOWN_LOG_ERROR if a file does not contain it."""
    error, _ = log_errors(summary)
    return np.where(np.isfinite(error), np.maximum(error, LEAST_ERROR), UNKNOWN_LOG_ERROR)


def _told(
    summary: xr.Dataset,
    x: np.ndarray,
    y: np.ndarray,
    cells: Cells,
    names: tuple[str, str],
    evidence: dict[str, str],
) -> list[Finding]:
    """One finding for each link that became slower, at the size with the largest change."""
    out = []
    ratio, slower = cells.ratio, cells.slower
    links = np.argwhere(slower.any(axis=2))
    worst = np.where(slower, ratio, -np.inf)
    for a, b in sorted(links.tolist(), key=lambda ab: -worst[ab[0], ab[1]].max()):
        s = int(worst[a, b].argmax())
        size = int(summary["size"].values[s])
        out.append(
            Finding(
                "net.slower",
                f"link {a}→{b} is {ratio[a, b, s] - 1:.0%} slower in {names[1]} at {format_size(size, exact=True)}: "
                f"{format_duration(float(y[a, b, s]))} against {format_duration(float(x[a, b, s]))}",
                {
                    "src": a,
                    "dst": b,
                    "size": size,
                    "sizes_slower": int(slower[a, b].sum()),
                    "ratio": float(ratio[a, b, s]),
                    "q": float(cells.q[a, b, s]),
                    **_hosts(summary, a, b),
                    **({"machine": evidence} if evidence else {}),
                },
                typed("sonde", "net", "show", names[1], "--pair", f"{a},{b}"),
            )
        )
    return cut_short(out, f"links are slower in {names[1]}", typed("sonde", "report", names[1]))


def _by_size(
    summary: xr.Dataset,
    x: np.ndarray,
    y: np.ndarray,
    cells: Cells,
    names: tuple[str, str],
) -> Table:
    rows = []
    for s, size in enumerate(summary["size"].values):
        compared = cells.compared[..., s]
        if not compared.any():
            continue
        rows.append(
            (
                format_size(int(size), exact=True),
                format_duration(float(np.median(x[..., s][compared]))),
                format_duration(float(np.median(y[..., s][compared]))),
                f"{np.median(cells.ratio[..., s][compared]):.3f}",
                str(int(cells.slower[..., s].sum())),
                str(int(cells.faster[..., s].sum())),
            )
        )
    short = sum(map(len, names)) <= WIDEST_NAMES
    a, b = names if short else ("A", "B")
    note = "" if short else f"A: {names[0]}\nB: {names[1]}"
    head = ("size", a, b, "ratio", "slower", "faster")
    return Table("Median delay, cells compared one by one", head, rows, (0, 1, 2, 3, 4, 5), note)


def _hosts(summary: xr.Dataset, a: int, b: int) -> dict[str, Any]:
    if "host" not in summary:
        return {}
    host = summary["host"].values
    return {"hosts": sorted({str(host[a]), str(host[b])} - {""})}
