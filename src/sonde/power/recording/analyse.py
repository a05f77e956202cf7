"""/raw of power/1 to /summary: whether the budget was held, and the results of each node, job and topic. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from sonde.core.described import variables
from sonde.power.monitor.budget import ClusterSeries, Held, NodeSeries, Step, gained, held
from sonde.power.recording.schema import SUMMARY
from sonde.power.stack.telemetry import ENDED, NAN, SIMULATED

if TYPE_CHECKING:
    from collections.abc import Mapping

MOMENTS = 1000  # points of the curves
KILLED = "killed"  # the event of a daemon that was killed


def analyse(raw: xr.Dataset) -> xr.Dataset:
    """All variables of SUMMARY that the data can fill."""
    nodes = node_series_of(raw)
    cluster = _cluster(raw)
    judged = held(nodes, cluster, _ended(raw))
    out: dict[str, Any] = {
        "budget": judged.budget_w,
        "max_sum_caps": judged.max_sum_caps_w,
        "max_possible": judged.max_possible_w,
        "max_power": judged.max_power_w,
        "max_committed": judged.max_committed_w,
        "max_unknown": judged.max_unknown_w,
        "over_budget": judged.over_budget_s,
        "violations": float(judged.violations),
        "violation": judged.violation_s,
        "unknown": judged.unknown_s,
        "lease": judged.lease_s,
        "report": judged.report_s,
        "period": judged.period_s,
        "comply": judged.comply_s,
        "expired": float(judged.expired),
        "energy": judged.energy_j,
        "length": judged.seconds,
        "reports": float(judged.reports),
        "simulated": float(any(str(source) == SIMULATED for source in raw["node_source"].values)),
    }
    if judged.failovers:
        out |= {
            "takeover_time": [one.at_s for one in judged.failovers],
            "takeover_gap": [one.gap_s for one in judged.failovers],
            "takeover_epoch": [float(one.epoch) for one in judged.failovers],
            "takeover_before": [one.before for one in judged.failovers],
            "takeover_after": [one.after for one in judged.failovers],
        }
    out |= _course(judged, nodes, cluster) | _nodes(raw) | _jobs(raw) | _traffic(raw)
    return xr.Dataset(
        variables(SUMMARY, out),
        attrs={key: raw.attrs[key] for key in ("cluster", "kind") if key in raw.attrs},
    )


def node_series_of(raw: xr.Dataset) -> dict[str, NodeSeries]:
    """Nodes that sent a report, by name."""
    names = [str(name) for name in raw["node_name"].values]
    return {name: one for k, name in enumerate(names) if name and len((one := _node(raw, k)).t)}


def _row(raw: xr.Dataset, name: str, row: int) -> np.ndarray:
    return np.asarray(raw[name].values[row], float)


def _node(raw: xr.Dataset, row: int) -> NodeSeries:
    t = _row(raw, "node_time", row)
    present = np.isfinite(t)
    names = ("power", "cap", "energy", "leased")
    power, cap, energy, leased = (_row(raw, f"node_{name}", row)[present] for name in names)
    since = _row(raw, "node_cap_since", row)[present] if "node_cap_since" in raw else None
    return NodeSeries(t[present], power, cap, energy, leased, since)


def _cluster(raw: xr.Dataset) -> ClusterSeries:
    t = np.asarray(raw["time"].values, float)
    present = np.isfinite(t)

    def texts_of(name: str) -> tuple[str, ...]:
        return tuple(str(word) for word, good in zip(raw[name].values, present) if good)

    numbers = [
        np.asarray(raw[name].values, float)[present]
        for name in ("budget", "committed", "safe", "lease", "period", "epoch")
    ]
    budget, committed, safe, lease, period, epoch = numbers
    unknown = np.asarray(raw["unknown"].values, float)[present] if "unknown" in raw else None
    return ClusterSeries(
        t[present],
        budget,
        committed,
        safe,
        lease,
        period,
        epoch,
        texts_of("manager"),
        texts_of("state"),
        unknown,
    )


def _ended(raw: xr.Dataset) -> dict[str, float]:
    if "event_time" not in raw:
        return {}
    rows = zip(raw["event_time"].values, raw["event_who"].values, raw["event_what"].values)
    return {str(who): float(t) for t, who, what in rows if str(what) == KILLED}


def _course(judged: Held, nodes: Mapping[str, NodeSeries], cluster: ClusterSeries) -> dict[str, Any]:
    """Sums at even moments, or at each change if there are few."""
    changes = np.unique(np.concatenate([judged.power.t, judged.caps_low.t, judged.limit.t, cluster.t]))
    if not len(changes):
        return {}
    t = changes if len(changes) <= MOMENTS else np.linspace(changes[0], changes[-1], MOMENTS)
    leased = np.zeros(len(t))
    for one in nodes.values():
        leased += np.nan_to_num(Step(one.t, one.leased).at(t))
    return {
        "course_time": t,
        "course_power": judged.power.at(t),
        "course_caps": judged.caps_low.at(t),
        "course_caps_most": judged.caps_high.at(t),
        "course_budget": Step(cluster.t, cluster.budget_w).at(t),
        "course_committed": Step(cluster.t, cluster.committed_w).at(t),
        "course_unknown": Step(cluster.t, cluster.at_most_w).at(t),
        "course_leased": leased,
    }


def _mean(t: np.ndarray, values: np.ndarray) -> float:
    """The mean over time; with one report, its value."""
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
            # Reports go on for a while after the job's end, with no power: these must not count in the mean.
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
