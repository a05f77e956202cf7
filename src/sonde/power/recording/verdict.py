"""This room's judgement of a recording, as text: from a /summary of power/1. Pure."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from sonde.core.errors import Finding, typed
from sonde.core.outcome import Table
from sonde.core.units import format_duration, format_power, format_share, format_size
from sonde.power.monitor import verdict
from sonde.power.monitor.budget import Failover, Held
from sonde.power.monitor.live import number
from sonde.power.stack.telemetry import NAN

_UNTOLD = ("", "nan")
LEAST_REPORTS = 5  # for each node


def _number(summary: xr.Dataset, name: str) -> float:
    return float(summary[name]) if name in summary else NAN


def _count(summary: xr.Dataset, name: str) -> int:
    value = _number(summary, name)
    return int(value) if math.isfinite(value) else 0


def held_of(summary: xr.Dataset) -> Held:
    """The judgement that a dataset holds."""
    takeovers = []
    if "takeover_time" in summary:
        rows = zip(
            *(summary[f"takeover_{name}"].values for name in ("time", "gap", "epoch", "before", "after"))
        )
        takeovers = [Failover(float(t), float(gap), int(e), str(b), str(a)) for t, gap, e, b, a in rows]
    return Held(
        budget_w=_number(summary, "budget"),
        max_sum_caps_w=_number(summary, "max_sum_caps"),
        max_possible_w=_number(summary, "max_possible"),
        max_power_w=_number(summary, "max_power"),
        max_committed_w=_number(summary, "max_committed"),
        max_unknown_w=_number(summary, "max_unknown"),
        over_budget_s=_number(summary, "over_budget"),
        violations=_count(summary, "violations"),
        violation_s=_number(summary, "violation"),
        unknown_s=_number(summary, "unknown"),
        lease_s=_number(summary, "lease"),
        report_s=_number(summary, "report"),
        period_s=_number(summary, "period"),
        comply_s=_number(summary, "comply"),
        failovers=tuple(takeovers),
        expired=_count(summary, "expired"),
        energy_j=_number(summary, "energy"),
        seconds=_number(summary, "length"),
        nodes=summary.sizes.get("node", 0),
        reports=_count(summary, "reports"),
    )


def simulated(summary: xr.Dataset) -> bool:
    return _number(summary, "simulated") > 0


def sentence(summary: xr.Dataset) -> str:
    text = verdict.sentence(held_of(summary))
    return text + (" (simulated nodes)" if simulated(summary) else "")


def sound(summary: xr.Dataset) -> bool:
    """Whether "no violation" is meaningful: there were caps, a budget, and more than a few reports of each node."""
    held = held_of(summary)
    known = math.isfinite(held.budget_w) and math.isfinite(held.max_sum_caps_w)
    return known and held.reports >= LEAST_REPORTS * max(1, held.nodes)


def findings(summary: xr.Dataset, name: str = "FILE.nc") -> list[Finding]:
    """The faults, worst first."""
    held, found = held_of(summary), []
    look = typed("sonde", "power", "show", name)
    if held.violations:
        found.append(
            Finding(
                "power.above_budget",
                f"caps reached {format_power(held.max_sum_caps_w)}, above the budget of "
                f"{format_power(held.budget_w)}, for {format_duration(held.violation_s)}",
                {
                    "max_sum_caps_w": held.max_sum_caps_w,
                    "budget_w": held.budget_w,
                    "violations": held.violations,
                },
                look,
            )
        )
    if held.over_budget_s > 0 and held.max_power_w > held.budget_w * (1 + verdict.METER):
        found.append(
            Finding(
                "power.drawn_above_budget",
                f"nodes drew up to {format_power(held.max_power_w)}, above the budget, for "
                f"{format_duration(held.over_budget_s)}",
                {"max_power_w": held.max_power_w, "over_budget_s": held.over_budget_s},
                look,
            )
        )
    return found


def values(summary: xr.Dataset) -> dict[str, Any]:
    """The values for --json."""
    return {
        **verdict.values(held_of(summary)),
        "simulated": simulated(summary),
        "nodes": [
            {
                "node": str(node),
                **{
                    f"{key}": number(float(value)) for key, value in zip(("mean_w", "max_w", "energy_j"), row)
                },
            }
            for node, *row in zip(
                *(summary[f"node_{name}"].values for name in ("name", "mean", "max", "energy"))
            )
            if str(node) not in _UNTOLD
        ],
    }


def tables(summary: xr.Dataset) -> list[Table]:
    found_tables = [verdict.table(held_of(summary)), node_table(summary)]
    if "job_name" in summary:
        found_tables.append(job_table(summary))
    if "topic_name" in summary:
        found_tables.append(traffic_table(summary))
    return found_tables


def _watts(value: float) -> str:
    return format_power(value) if math.isfinite(value) else "–"


def node_table(summary: xr.Dataset) -> Table:
    keys = ("name", "source", "mean", "max", "cap_mean", "leased", "energy")
    rows = []
    for name, source, mean, most, cap, leased, energy in zip(
        *(summary[f"node_{key}"].values for key in keys)
    ):
        share = format_share(float(leased)) if np.isfinite(leased) else "–"
        numbers = (
            _watts(float(mean)),
            _watts(float(most)),
            _watts(float(cap)),
            share,
            verdict.joules(float(energy)),
        )
        if str(name) not in _UNTOLD:
            rows.append((str(name), *numbers, str(source)))
    head = ("node", "mean", "largest", "mean cap", "leased", "energy", "source")
    return Table("Nodes", head, rows, (1, 2, 3, 4, 5))


def job_table(summary: xr.Dataset) -> Table:
    keys = ("name", "user", "state", "nodes", "mean", "energy")
    rows = [
        (
            str(name),
            str(user),
            str(state),
            f"{int(nodes)}",
            _watts(float(mean)),
            verdict.joules(float(energy)),
        )
        for name, user, state, nodes, mean, energy in zip(*(summary[f"job_{key}"].values for key in keys))
    ]
    return Table("Jobs", ("job", "user", "state", "nodes", "mean power", "energy"), rows, (3, 4, 5))


def traffic_table(summary: xr.Dataset) -> Table:
    rows = [
        (str(name), f"{float(rate):.3g}/s", f"{format_size(round(float(size)))}/s")
        for name, rate, size in zip(
            *(summary[f"topic_{key}"].values for key in ("name", "rate", "bytes_rate"))
        )
        if np.isfinite(rate)
    ]
    return Table("Telemetry on the bus", ("topic", "samples", "bytes"), rows, (1, 2))
