"""/raw of power/1 to /summary: whether the budget was held, and what each node, job and topic came to. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from sonde.power.monitor.budget import ClusterSeries, Held, NodeSeries, Step, gained, held
from sonde.power.recording.schema import SUMMARY
from sonde.power.stack.telemetry import ENDED, NAN, SIMULATED

if TYPE_CHECKING:
    from collections.abc import Mapping

MOMENTS = 1000  # of the course
KILLED = "killed"  # what an event says of a daemon that is no more


def analyse(raw: xr.Dataset) -> xr.Dataset:
    """All of SUMMARY that the data can fill."""
    nodes = node_series_of(raw)
    cluster = _cluster(raw)
    told = held(nodes, cluster, _ended(raw))
    out: dict[str, Any] = {
        "budget": told.budget_w,
        "max_sum_caps": told.max_sum_caps_w,
        "max_possible": told.max_possible_w,
        "max_power": told.max_power_w,
        "max_committed": told.max_committed_w,
        "max_unknown": told.max_unknown_w,
        "over_budget": told.over_budget_s,
        "violations": float(told.violations),
        "violation": told.violation_s,
        "unknown": told.unknown_s,
        "lease": told.lease_s,
        "report": told.report_s,
        "period": told.period_s,
        "comply": told.comply_s,
        "expired": float(told.expired),
        "energy": told.energy_j,
        "length": told.seconds,
        "reports": float(told.reports),
        "simulated": float(any(str(source) == SIMULATED for source in raw["node_source"].values)),
    }
    if told.failovers:
        out |= {
            "takeover_time": [one.at_s for one in told.failovers],
            "takeover_gap": [one.gap_s for one in told.failovers],
            "takeover_epoch": [float(one.epoch) for one in told.failovers],
            "takeover_before": [one.before for one in told.failovers],
            "takeover_after": [one.after for one in told.failovers],
        }
    out |= _course(told, nodes, cluster) | _nodes(raw) | _jobs(raw) | _traffic(raw)
    made = {}
    for name, values in out.items():
        what = SUMMARY[name]
        array = np.array(values, object if what.dtype == "str" else float)
        made[name] = (what.dims, array, what.attrs())
    return xr.Dataset(made, attrs={key: raw.attrs[key] for key in ("cluster", "kind") if key in raw.attrs})


def node_series_of(raw: xr.Dataset) -> dict[str, NodeSeries]:
    """Nodes that said anything, by name."""
    names = [str(name) for name in raw["node_name"].values]
    return {name: one for k, name in enumerate(names) if name and len((one := _node(raw, k)).t)}


def _row(raw: xr.Dataset, name: str, row: int) -> np.ndarray:
    return np.asarray(raw[name].values[row], float)


def _node(raw: xr.Dataset, row: int) -> NodeSeries:
    t = _row(raw, "node_time", row)
    there = np.isfinite(t)
    names = ("power", "cap", "energy", "leased")
    power, cap, energy, leased = (_row(raw, f"node_{name}", row)[there] for name in names)
    since = _row(raw, "node_cap_since", row)[there] if "node_cap_since" in raw else None
    return NodeSeries(t[there], power, cap, energy, leased, since)


def _cluster(raw: xr.Dataset) -> ClusterSeries:
    t = np.asarray(raw["time"].values, float)
    there = np.isfinite(t)

    def words(name: str) -> tuple[str, ...]:
        return tuple(str(word) for word, good in zip(raw[name].values, there) if good)

    numbers = [
        np.asarray(raw[name].values, float)[there]
        for name in ("budget", "committed", "safe", "lease", "period", "epoch")
    ]
    budget, committed, safe, lease, period, epoch = numbers
    unknown = np.asarray(raw["unknown"].values, float)[there] if "unknown" in raw else None
    return ClusterSeries(
        t[there], budget, committed, safe, lease, period, epoch, words("manager"), words("state"), unknown
    )


def _ended(raw: xr.Dataset) -> dict[str, float]:
    if "event_time" not in raw:
        return {}
    rows = zip(raw["event_time"].values, raw["event_who"].values, raw["event_what"].values)
    return {str(who): float(t) for t, who, what in rows if str(what) == KILLED}


def _course(told: Held, nodes: Mapping[str, NodeSeries], cluster: ClusterSeries) -> dict[str, Any]:
    """Sums at even moments, and at each change where there are few."""
    changes = np.unique(np.concatenate([told.power.t, told.caps_low.t, told.limit.t, cluster.t]))
    if not len(changes):
        return {}
    t = changes if len(changes) <= MOMENTS else np.linspace(changes[0], changes[-1], MOMENTS)
    leased = np.zeros(len(t))
    for one in nodes.values():
        leased += np.nan_to_num(Step(one.t, one.leased).at(t))
    return {
        "course_time": t,
        "course_power": told.power.at(t),
        "course_caps": told.caps_low.at(t),
        "course_caps_most": told.caps_high.at(t),
        "course_budget": Step(cluster.t, cluster.budget_w).at(t),
        "course_committed": Step(cluster.t, cluster.committed_w).at(t),
        "course_unknown": Step(cluster.t, cluster.at_most_w).at(t),
        "course_leased": leased,
    }


def _mean(t: np.ndarray, values: np.ndarray) -> float:
    """Over time; of one report its value."""
    good = np.isfinite(t) & np.isfinite(values)
    t, values = t[good], values[good]
    if len(t) < 2 or t[-1] <= t[0]:
        return float(values[-1]) if len(values) else NAN
    return float(((values[1:] + values[:-1]) / 2 * np.diff(t)).sum() / (t[-1] - t[0]))


def _nodes(raw: xr.Dataset) -> dict[str, Any]:
    n = raw.sizes["node"]
    t = [_row(raw, "node_time", k) for k in range(n)]
    power = [_row(raw, "node_power", k) for k in range(n)]
    leased = [_row(raw, "node_leased", k) for k in range(n)]
    return {
        "node_name": [str(name) for name in raw["node_name"].values],
        "node_source": [str(name) for name in raw["node_source"].values],
        "node_mean": [_mean(*pair) for pair in zip(t, power)],
        "node_max": [float(np.nanmax(p)) if np.isfinite(p).any() else NAN for p in power],
        "node_energy": [gained(_row(raw, "node_energy", k)) for k in range(n)],
        "node_cap_mean": [_mean(t[k], _row(raw, "node_cap", k)) for k in range(n)],
        "node_leased": [float(np.nanmean(one)) if np.isfinite(one).any() else NAN for one in leased],
        "node_reports": [float(np.isfinite(one).sum()) for one in t],
    }


def _jobs(raw: xr.Dataset) -> dict[str, Any]:
    if "job_name" not in raw:
        return {}
    energy, mean = [], []
    for k in range(raw.sizes["job"]):
        known = _row(raw, "job_energy", k)
        known = known[np.isfinite(known)]
        energy.append(float(known.max()) if len(known) else NAN)
        t, power = _row(raw, "job_time", k), _row(raw, "job_power", k)
        if str(raw["job_state"].values[k]) in ENDED and (power > 0).any():
            # It is told of for a while when it is over, with no power: that is not its mean.
            drew = np.flatnonzero(power > 0)[-1] + 1
            t, power = t[:drew], power[:drew]
        mean.append(_mean(t, power))
    return {
        "job_name": [str(name) for name in raw["job_name"].values],
        "job_user": [str(name) for name in raw["job_user"].values],
        "job_state": [str(name) for name in raw["job_state"].values],
        "job_energy": energy,
        "job_mean": mean,
        "job_nodes": np.asarray(raw["job_nodes"].values, float),
    }


def _traffic(raw: xr.Dataset) -> dict[str, Any]:
    t = np.asarray(raw["traffic_time"].values, float)
    span = float(np.nanmax(t) - np.nanmin(t)) if np.isfinite(t).any() else 0.0
    if span <= 0:
        return {}

    def rates(name: str) -> list[float]:
        each = [gained(_row(raw, name, k)) for k in range(raw.sizes["topic"])]
        return [one / span if math.isfinite(one) else NAN for one in each]

    return {
        "topic_name": [str(name) for name in raw["topic_name"].values],
        "topic_rate": rates("traffic_samples"),
        "topic_bytes_rate": rates("traffic_bytes"),
    }
