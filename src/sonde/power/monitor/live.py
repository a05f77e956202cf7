"""The present state of a cluster, for the live page, `top` and `status`. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sonde.core.errors import Finding
from sonde.core.units import format_duration, format_power, format_share
from sonde.power.monitor.openmetrics import LEAST_S, UNHEARD, heard
from sonde.power.stack.telemetry import (
    CLUSTER,
    JOB,
    NAN,
    NODE,
    SIMULATED,
    ClusterSample,
    Latest,
    known,
    total,
)

MOST_POINTS = 3600  # of the curves: an hour, one point a second


def number(value: float) -> float | None:
    """A number for JSON: an unknown one is null."""
    return round(value, 6) if math.isfinite(value) else None


def leading(latest: Latest, cluster: str) -> ClusterSample | None:
    """The latest sample of the manager that leads this cluster."""
    return latest.clusters.get(cluster)


def managed(latest: Latest, cluster: str, now_s: float) -> bool:
    """Whether a manager was heard lately."""
    leader = leading(latest, cluster)
    if leader is None:
        return False
    period = leader.period_s if leader.period_s > 0 else 2.0
    return latest.age_s(CLUSTER, cluster, now_s) <= max(LEAST_S, UNHEARD * period)


def sums(latest: Latest, now_s: float) -> tuple[float, float, int]:
    """Sums of caps and power of the nodes that are heard, and their number."""
    up = [n for n in latest.nodes.values() if heard(n, latest.age_s(NODE, n.node, now_s))]
    return total([n.cap_w for n in up]), total([n.power_w for n in up]), len(up)


def present(latest: Latest, cluster: str, now_s: float, expected: Sequence[str] = ()) -> dict[str, Any]:
    """All current values, for JSON. expected: nodes of the configuration; those that were never heard are
    listed, too.
    """
    leader = leading(latest, cluster)
    caps, power, up = sums(latest, now_s)
    job_of = {node: job.job for job in latest.jobs.values() if job.state == "running" for node in job.nodes}
    nodes = []
    for name in sorted({*latest.nodes, *expected}):
        node = latest.nodes.get(name)
        if node is None:
            nodes.append(
                {"node": name, "up": False, "age_s": None, "source": "none", "trouble": "", "job": ""}
            )
            continue
        age = latest.age_s(NODE, name, now_s)
        nodes.append(
            {
                "node": name,
                "up": heard(node, age),
                "age_s": number(age),
                "source": node.source,
                "power_w": number(node.power_w),
                "cap_w": number(node.cap_w),
                "energy_j": number(node.energy_j),
                "leased": node.leased,
                "left_s": number(node.left_s - age) if node.leased else None,
                "epoch": node.epoch,
                "trouble": node.trouble,
                "job": job_of.get(name, ""),
            }
        )
    jobs = [
        {
            "job": job.job,
            "user": job.user,
            "name": job.name,
            "state": job.state,
            "nodes": len(job.nodes),
            "power_w": number(job.power_w),
            "energy_j": number(job.energy_j),
            "progress": number(job.progress),
            "age_s": number(latest.age_s(JOB, job.job, now_s)),
        }
        for job in latest.jobs.values()
    ]
    of_cluster: dict[str, Any] = {
        "cluster": cluster,
        "managed": managed(latest, cluster, now_s),
        "sum_caps_w": number(caps),
        "power_w": number(power),
        "up": up,
        "simulated": any(n.source == SIMULATED for n in latest.nodes.values()),
    }
    if leader is not None:
        of_cluster |= {
            "manager": leader.manager,
            "state": leader.state,
            "policy": leader.policy,
            "epoch": leader.epoch,
            "budget_w": number(leader.budget_w),
            "committed_w": number(leader.committed_w),
            "unknown_nodes": leader.unknown_nodes,
            "unknown_w": number(leader.unknown_w),
            "safe_w": number(leader.safe_w),
            "lease_s": number(leader.lease_s),
            "nodes": leader.nodes,
            "heard": leader.heard,
            "leased": leader.leased,
            "age_s": number(latest.age_s(CLUSTER, cluster, now_s)),
        }
    return {"cluster": of_cluster, "nodes": nodes, "jobs": jobs}


def informed(now: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """The present state with the leading manager's answer: a listener of some seconds misses nodes that report rarely.

    now: from present(). answer: the body of a manager's reply to GET_POWER.
    """
    table = {str(share["node"]): share for share in answer["nodes"]}
    cluster = answer["cluster"]
    nodes = []
    for node in now["nodes"]:
        share = table.get(node["node"])
        if share is None:
            nodes.append(node)
            continue
        trouble = str(share["trouble"])
        of_manager = {
            "up": bool(share["heard"]),
            "age_s": number(known(share["age_s"])),
            "leased": bool(share["leased"]),
            "power_w": number(known(share["power_w"])),
            "cap_w": number(known(share["cap_w"])),
            "committed_w": number(known(share["committed_w"])),
            "trouble": trouble or node["trouble"],
            "job": str(share["job"]) or node["job"],
        }
        nodes.append({"energy_j": None, "left_s": None, "epoch": None, **node, **of_manager})
    up = [node for node in nodes if node["up"]]
    of_cluster = {
        **now["cluster"],
        "managed": True,
        "up": len(up),
        "power_w": number(known(cluster["power_w"])),
        "sum_caps_w": number(total([node["cap_w"] for node in up if node.get("cap_w") is not None])),
        "age_s": 0.0,
        "manager": str(cluster["manager"]),
        "state": str(cluster["state"]),
        "policy": str(cluster["policy"]),
        **{key: int(cluster[key]) for key in ("epoch", "nodes", "heard", "leased", "unknown_nodes")},
        **{
            key: number(known(cluster[key]))
            for key in ("budget_w", "committed_w", "unknown_w", "safe_w", "lease_s")
        },
    }
    return {**now, "cluster": of_cluster, "nodes": nodes}


COUNTED_AT_MOST = ("power.name_twice", "power.disobeys", "power.stuck")


def found(now: Mapping[str, Any]) -> list[Finding]:
    """The present faults that need attention: because of them `status` ends with exit code 1."""
    of, out = now["cluster"], []
    look = "sonde power status --within 20s"
    if not of["managed"]:
        out.append(
            Finding("power.no_manager", "no system manager is heard: nodes go to their safe caps", {}, look)
        )
    names = [node["node"] for node in now["nodes"] if not node["up"]]
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        text = f"{len(names)} of {len(now['nodes'])} nodes not heard: {', '.join(names[:5])}{more}"
        out.append(Finding("power.not_heard", text, {"nodes": names}, look))
    caps, budget = of.get("sum_caps_w"), of.get("budget_w")
    if caps is not None and budget is not None and caps > budget * 1.000001:
        text = f"caps of {format_power(caps)} are above the budget of {format_power(budget)}"
        out.append(Finding("power.above_budget", text, {"sum_caps_w": caps, "budget_w": budget}))
    for node in now["nodes"]:
        code, _, text = node["trouble"].partition(": ")
        if code in COUNTED_AT_MOST:
            out.append(Finding(code, f"{node['node']}: {text}", {"node": node["node"]}))
    return out


def verdict(now: Mapping[str, Any]) -> str:
    """One sentence on the present state."""
    of = now["cluster"]
    budget, power, caps = of.get("budget_w"), of.get("power_w"), of.get("sum_caps_w")
    if budget is None:
        up = sum(node["up"] for node in now["nodes"])
        return (
            f"{up} of {len(now['nodes'])} nodes are heard, but no system manager"
            if now["nodes"]
            else "No node and no system manager is heard"
        )
    if power is None:
        return f"No node is heard; the budget is {format_power(budget)}"
    text = f"{format_power(power)} of {format_power(budget)} drawn"
    if caps is not None:
        text += f", caps {format_power(caps)}"
        if caps > budget * 1.000001:
            text += f": above the budget by {format_power(caps - budget)}"
    if not of["managed"]:
        text += "; no system manager is heard"
    return text + (" (simulated)" if of["simulated"] else "")


def summary(now: Mapping[str, Any]) -> str:
    """The verdict, the number of nodes heard, and the leading manager."""
    of, text = now["cluster"], verdict(now)
    if of.get("budget_w") is None:
        return text
    text += f"; {sum(node['up'] for node in now['nodes'])} of {len(now['nodes'])} nodes heard"
    if of["managed"] and of.get("manager"):
        text += f"; {of['manager']} {'leads' if of['state'] == 'active' else 'is ' + of['state']}"
    return text


@dataclass
class Course:
    """The last hour, one row a second, for the page's curves: rows of `COLUMNS`."""

    points: deque[list[float | None]] = field(default_factory=lambda: deque(maxlen=MOST_POINTS))

    COLUMNS = ("at_s", "power_w", "sum_caps_w", "committed_w", "budget_w", "up")

    def add(self, latest: Latest, cluster: str, now_s: float, at_s: float) -> list[float | None]:
        """Add one point; at_s: wall-clock time in seconds, for the axis."""
        leader = leading(latest, cluster) if managed(latest, cluster, now_s) else None
        caps, power, up = sums(latest, now_s)
        budget = leading(latest, cluster)
        row = [
            round(at_s, 3),
            number(power),
            number(caps),
            number(leader.committed_w if leader else NAN),
            number(budget.budget_w if budget else NAN),
            float(up),
        ]
        self.points.append(row)
        return row


# ---- 80 columns

BAR = 20


def lines(now: Mapping[str, Any], width: int = 80, height: int = 24) -> list[str]:
    """The present state on a terminal of at least 60 columns."""
    of = now["cluster"]
    out = [_fit(f"sonde power · {of['cluster']} · {verdict(now)}", width)]
    if of.get("manager"):
        manager = f"manager {of['manager']} ({of['state']}, epoch {of['epoch']}), policy {of['policy']}"
        if of["lease_s"] is not None:
            manager += f", lease {format_duration(of['lease_s'])}"
        unknown = f", {of['unknown_nodes']} not known yet" if of.get("unknown_nodes") else ""
        out.append(_fit(f"{manager}; {of['leased']} of {of['nodes']} nodes leased{unknown}", width))
    if (budget := of.get("budget_w")) and of.get("power_w") is not None:
        out.append(
            _fit(
                f"power   {bar(of['power_w'] / budget, width - 26)} {format_share(of['power_w'] / budget)}",
                width,
            )
        )
        if of.get("committed_w") is not None:
            share = of["committed_w"] / budget
            out.append(_fit(f"lent    {bar(share, width - 26)} {format_share(share)}", width))
    out.append("")
    name = max([4, *(len(node["node"]) for node in now["nodes"])])
    name = min(name, max(8, width - 60))
    head = f"{'node':{name}} {'power':>9} {'cap':>9} {'of cap':{BAR}} {'lease':>7} job"
    out.append(_fit(head, width))
    shown = now["nodes"][: max(1, height - len(out) - 1 - min(len(now["jobs"]), 5))]
    for node in shown:
        out.append(_fit(_node_line(node, name), width))
    if (rest := len(now["nodes"]) - len(shown)) > 0:
        out.append(f"and {rest} more nodes")
    for job in now["jobs"][:5]:
        power = format_power(job["power_w"]) if job["power_w"] is not None else "–"
        done = f", {format_share(job['progress'])} done" if job["progress"] is not None else ""
        out.append(
            _fit(f"job {job['job']} {job['user']} {job['name']}: {job['state']}, {power}{done}", width)
        )
    return out


def _node_line(node: Mapping[str, Any], name: int) -> str:
    label = _fit(node["node"], name)
    if not node["up"]:
        age = node.get("age_s")
        return f"{label:{name}} not heard" + (f" for {format_duration(age)}" if age is not None else "")
    power, cap = node["power_w"], node["cap_w"]
    share = power / cap if power is not None and cap else NAN
    lease = f"{max(0.0, node['left_s']):.0f} s" if node["left_s"] is not None else "safe"
    text = f"{label:{name}} {_watts(power):>9} {_watts(cap):>9} {bar(share, BAR)} {lease:>7} {node['job']}"
    return text + (f" ! {node['trouble']}" if node["trouble"] else "")


def _watts(value: float | None) -> str:
    return format_power(value) if value is not None else "–"


def bar(share: float, cells: int) -> str:
    """A share as a bar; a share above 1 ends in a mark."""
    if not math.isfinite(share):
        return "·" * cells
    if share > 1.000001:
        return "█" * (cells - 1) + "!"
    full = round(max(0.0, share) * cells)
    return "█" * full + "░" * (cells - full)


def _fit(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
