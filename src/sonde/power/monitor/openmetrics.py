"""A monitor's values for scrapers: OpenMetrics 1.0, or Prometheus' text format 0.0.4. Pure.

Source: https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sonde.power.stack.telemetry import CLUSTER, NODE, ClusterSample, JobSample, Latest, NodeSample

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"

UNHEARD = 3.0  # reports that may be missing before a node counts as not heard
LEAST_S = 5.0  # shortest such time: one late report must not make a node look dead

_SENSORS = {
    "SENSOR_POWER": ("sensor_watts", "watts", "A power sensor of a node."),
    "SENSOR_TEMPERATURE": ("sensor_celsius", "celsius", "A temperature of a node."),
    "SENSOR_VOLTAGE": ("sensor_volts", "volts", "A voltage of a node."),
    "SENSOR_FAN": ("sensor_rpm", "", "Speed of a fan of a node, turns a minute."),
    "SENSOR_UTILISATION": ("sensor_utilisation_ratio", "ratio", "Utilisation of a part of a node."),
}

Labels = Mapping[str, str]


class _Maker(Protocol):
    """Creates a family, or returns the existing one of that name."""

    def __call__(self, name: str, unit: str, help: str, kind: str = "gauge") -> Family: ...


@dataclass
class Family:
    """One metric: name without the suffix of its samples, "gauge" or "counter", unit, help, and its samples."""

    name: str
    kind: str
    unit: str
    help: str
    samples: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, value: float, **labels: str) -> None:
        """Add a sample; an unknown value adds none."""
        if math.isfinite(value):
            self.samples.append((labels, value))


def accepted(accept: str) -> bool:
    """Whether a scraper that sends this header wants OpenMetrics."""
    return "application/openmetrics-text" in accept


def render(families: Iterable[Family], openmetrics: bool) -> str:
    """The text of a scrape. Families without samples are left out; of samples with the same labels the last
    one counts.
    """
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        suffix = "_total" if family.kind == "counter" else ""
        head = family.name if openmetrics else family.name + suffix
        lines.append(f"# HELP {head} {_escaped(family.help, quotes=openmetrics)}")
        lines.append(f"# TYPE {head} {family.kind}")
        if openmetrics and family.unit:
            lines.append(f"# UNIT {head} {family.unit}")
        values = {tuple(sorted(labels.items())): value for labels, value in family.samples}
        for labels, value in values.items():
            text = ",".join(f'{name}="{_escaped(label)}"' for name, label in labels)
            lines.append(
                f"{family.name}{suffix}{{{text}}} {value!r}" if text else f"{family.name}{suffix} {value!r}"
            )
    if openmetrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _escaped(text: str, quotes: bool = True) -> str:
    out = text.replace("\\", "\\\\").replace("\n", "\\n")
    return out.replace('"', '\\"') if quotes else out


@dataclass(frozen=True)
class OfMonitor:
    """The monitor's own numbers."""

    written: int = 0
    waiting: int = 0
    lost: int = 0
    watchers: int = 0
    malformed: int = 0
    version: str = ""


def heard(sample: NodeSample, age_s: float) -> bool:
    """Whether a node's report is new enough to count as current."""
    period = sample.period_s if sample.period_s > 0 else 30.0
    return age_s <= max(LEAST_S, UNHEARD * period)


def families(latest: Latest, cluster: str, now_s: float, own: OfMonitor) -> list[Family]:
    """All current metrics. now_s: on the clock with which `latest` was fed."""
    found: dict[str, Family] = {}

    def family(name: str, unit: str, help: str, kind: str = "gauge") -> Family:
        return found.setdefault(name, Family(f"sonde_power_{name}", kind, unit, help))

    for cluster_sample in latest.clusters.values():
        _of_cluster(family, cluster_sample, latest.age_s(CLUSTER, cluster_sample.cluster, now_s))
    for node in latest.nodes.values():
        _of_node(family, node, cluster, latest.age_s(NODE, node.node, now_s))
    for job in latest.jobs.values():
        _of_job(family, job, cluster)
    samples = family("monitor_samples", "", "Samples received, by topic.", "counter")
    for topic, count in latest.samples.items():
        samples.add(float(count), topic=topic)
    of = "monitor_history"
    family(f"{of}_written", "", "Samples written to the history.", "counter").add(float(own.written))
    family(f"{of}_lost", "", "Samples that could not be stored.", "counter").add(float(own.lost))
    family(f"{of}_waiting", "", "Samples waiting to be written.").add(float(own.waiting))
    family("monitor_malformed", "", "Samples that were refused.", "counter").add(float(own.malformed))
    family("monitor_watchers", "", "Browsers that follow the live page.").add(float(own.watchers))
    family("monitor_build_info", "", "Version of this Sonde.").add(1.0, version=own.version)
    return list(found.values())


def _of_cluster(family: _Maker, cluster: ClusterSample, age_s: float) -> None:
    of = {"cluster": cluster.cluster}
    family("cluster_age_seconds", "seconds", "Time since a system manager was last heard.").add(age_s, **of)
    family("budget_watts", "watts", "Power that all nodes together may draw.").add(cluster.budget_w, **of)
    family("committed_watts", "watts", "Most that nodes may draw, according to the leading manager.").add(
        cluster.committed_w, **of
    )
    family("unknown_nodes", "", "Nodes whose leases a manager that took over does not know yet.").add(
        float(cluster.unknown_nodes), **of
    )
    family("unknown_watts", "watts", "Most that these may draw beyond committed_watts; it is not lent.").add(
        cluster.unknown_w, **of
    )
    family("safe_watts", "watts", "Sum of the safe caps, which hold when no manager leads.").add(
        cluster.safe_w, **of
    )
    family("cluster_watts", "watts", "Power of the nodes heard, according to the leading manager.").add(
        cluster.power_w, **of
    )
    family("epoch", "", "Epoch of the leading manager.").add(float(cluster.epoch), **of)
    family("lease_seconds", "seconds", "How long a node holds a lent cap without renewal.").add(
        cluster.lease_s, **of
    )
    nodes = family("nodes", "", "Nodes: configured, heard, with a lease.")
    for state, count in (("configured", cluster.nodes), ("heard", cluster.heard), ("leased", cluster.leased)):
        nodes.add(float(count), state=state, **of)
    family("manager_info", "", "The leading manager, its state and its policy.").add(
        1.0, manager=cluster.manager, state=cluster.state, policy=cluster.policy, **of
    )


def _of_node(family: _Maker, node: NodeSample, cluster: str, age_s: float) -> None:
    of = {"cluster": cluster, "node": node.node}
    up = heard(node, age_s)
    family("node_up", "", "Whether a node is heard.").add(float(up), **of)
    family("node_age_seconds", "seconds", "Time since a node was last heard.").add(age_s, **of)
    if not up:
        return  # the last report is not the present state
    family("node_watts", "watts", "Power of a node.").add(node.power_w, source=node.source, **of)
    family("node_energy_joules", "joules", "Energy of a node since its node manager began.", "counter").add(
        node.energy_j, source=node.source, **of
    )
    family("node_cap_watts", "watts", "Cap read back from a node's hardware.").add(node.cap_w, **of)
    family("node_leased", "", "Whether a node's cap is a lease.").add(float(node.leased), **of)
    if node.leased:
        family("node_lease_left_seconds", "seconds", "Time until a node's lease ends.").add(node.left_s, **of)
    family("node_trouble", "", "Whether something is wrong with a node's hardware.").add(
        float(bool(node.trouble)), **of
    )
    for domain, called in _named(node.domains):
        family("domain_watts", "watts", "Power of a part of a node.").add(
            float(domain["power_w"]), domain=called, **of
        )
    for one, called in _named(node.frequencies):
        family("frequency_hertz", "hertz", "Frequency of a node's cores.").add(
            float(one["current_hz"]), policy=called, **of
        )
    for kind, (name, unit, help) in _SENSORS.items():
        for sensor, called in _named([s for s in node.sensors if str(s["kind"]) == kind]):
            family(f"node_{name}", unit, help).add(float(sensor["value"]), sensor=called, **of)


def _named(parts: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Each part with a unique name: two sockets or two drives may share one, and a scraper would only take the last."""
    used: set[str] = set()
    for part in parts:
        name = str(part["name"])
        called = next(c for k in itertools.count(1) if (c := name if k == 1 else f"{name}#{k}") not in used)
        used.add(called)
        yield part, called


def _of_job(family: _Maker, job: JobSample, cluster: str) -> None:
    of = {"cluster": cluster, "job": job.job, "user": job.user}
    family("job_watts", "watts", "Power of a job's nodes.").add(job.power_w, **of)
    family("job_energy_joules", "joules", "Energy of a job since it began.", "counter").add(
        job.energy_j, **of
    )
    family("job_progress_ratio", "ratio", "Progress of a job.").add(job.progress, **of)
    family("job_nodes", "", "Nodes of a job.").add(float(len(job.nodes)), state=job.state, **of)


def names(text: str) -> Sequence[str]:
    """Names of the metrics of a scrape."""
    return [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
