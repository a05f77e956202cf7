"""The verdict, the warnings and the tables of a dataset of kind `source`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.errors import Warning
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_share

if TYPE_CHECKING:
    import xarray as xr

TOLERANCE = 0.10  # share of the requested level
# Others wanted the core when the wall time exceeds the CPU time by this factor, and by this time in each burst.
_SHARED, _SHARED_S = 1.1, 20e-6


def sentence(summary: xr.Dataset) -> str:
    """The verdict. summary: /summary of a dataset of kind `source`."""
    ran = summary["bursts"].values > 0
    if not ran.any():
        return "no burst was recorded"
    requested, used = summary["asked"].values[ran], summary["duty_cpu"].values[ran]
    bursts, skipped = int(summary["bursts"].values[ran].sum()), int(summary["skipped"].values[ran].sum())
    wall, work = summary["duty_wall"].values[ran], summary["duty_work"].values[ran]
    where = "" if len(used) == 1 else f"{len(used)} hosts: "
    text = f"{where}requested {_range(requested)}, used {_range(used)} of CPU time in {bursts} "
    text += _plural("burst", bursts)
    if skipped:
        text += f", {skipped} {_plural('point', skipped)} of the grid skipped"
    text += f"; wall {_range(wall)}"
    period, points = summary["period"].values[ran], (summary["bursts"] + summary["skipped"]).values[ran]
    excess_s = (wall - work) * points * period / summary["bursts"].values[ran]
    if ((wall > _SHARED * work) & (excess_s > _SHARED_S)).any():
        text += ": another program used the same core"
    return text


def warnings(summary: xr.Dataset) -> list[Warning]:
    """A warning for each source whose load differs from the requested level."""
    out = []
    for row in range(summary.sizes["source"]):
        requested, used = float(summary["asked"][row]), float(summary["duty_cpu"][row])
        if np.isnan(used) or abs(used / requested - 1) <= TOLERANCE:
            continue
        skipped, truncated = int(summary["skipped"][row]), int(summary["truncated"][row])
        overhead = float(summary["overhead"][row])
        why, hint = "", "give it a free core with --core"
        if skipped:
            why = f"; it skipped {skipped} points of the grid, because it was stopped or did not get the core"
        elif truncated:
            why = f"; {truncated} bursts did not end within their period"
        elif used > requested:
            why = f"; waking up and bookkeeping alone take {format_duration(overhead)} in each burst"
            hint = "use a longer period or a higher level"
        out.append(
            Warning(
                "noise.duty_off",
                f"the source on {summary['host'].values[row]} used {format_share(used, 3, trim=True)} of CPU time, "
                f"not {format_share(requested, 3, trim=True)}{why}",
                hint,
            )
        )
    return out


def tables(summary: xr.Dataset) -> list[Table]:
    """A table with one row for each source."""
    rows = []
    middle = int(np.argmin(np.abs(summary["quantile"].values - 0.5)))
    for row in range(summary.sizes["source"]):
        core = int(summary["core"][row])
        rows.append(
            (
                str(summary["host"].values[row]),
                "free" if core < 0 else str(core),
                format_share(float(summary["asked"][row]), 3, trim=True),
                format_share(float(summary["duty_cpu"][row]), 3, trim=True),
                format_share(float(summary["duty_wall"][row]), 3, trim=True),
                str(int(summary["bursts"][row])),
                str(int(summary["skipped"][row])),
                format_duration(float(summary["wall_quantile"][row, middle])),
                format_duration(float(summary["late_quantile"][row, middle])),
            )
        )
    columns = ("host", "core", "requested", "CPU", "wall", "bursts", "skipped", "burst", "late")
    return [
        Table(
            "Noise sources",
            columns,
            rows,
            right=tuple(range(2, 9)),
            note="burst: median length of a burst; late: median delay of its begin after its point of the grid",
        )
    ]


def values(summary: xr.Dataset) -> dict[str, Any]:
    """The values for --json: one object for each source."""
    names = ("asked", "duty_cpu", "duty_work", "duty_wall", "jitter", "overhead")
    counts = ("bursts", "skipped", "truncated", "preempted", "core")
    sources = []
    for row in range(summary.sizes["source"]):
        one: dict[str, Any] = {"host": str(summary["host"].values[row])}
        one |= {
            name: None if np.isnan(value := float(summary[name][row])) else value
            for name in (*names, "period", "phase")
        }
        one |= {name: int(summary[name][row]) for name in counts}
        sources.append(one)
    return {"sources": sources}


def _range(shares: np.ndarray) -> str:
    low, high = (
        format_share(float(shares.min()), 3, trim=True),
        format_share(float(shares.max()), 3, trim=True),
    )
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"
