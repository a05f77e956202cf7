"""What a monitor knows, for scrapers: OpenMetrics 1.0, or Prometheus' text format 0.0.4. Pure.

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
LEAST_S = 5.0  # and never sooner: a scrape must not see a node die of one late report

_SENSORS = {
    "SENSOR_POWER": ("sensor_watts", "watts", "A power sensor of a node."),
    "SENSOR_TEMPERATURE": ("sensor_celsius", "celsius", "A temperature of a node."),
    "SENSOR_VOLTAGE": ("sensor_volts", "volts", "A voltage of a node."),
    "SENSOR_FAN": ("sensor_rpm", "", "Speed of a fan of a node, turns a minute."),
    "SENSOR_UTILISATION": ("sensor_utilisation_ratio", "ratio", "Utilisation of a part of a node."),
}

Labels = Mapping[str, str]


class _Maker(Protocol):
    """Makes a family, or gives the one of that name."""

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
        """What is not known has no sample."""
        if math.isfinite(value):
            self.samples.append((labels, value))


def accepted(accept: str) -> bool:
    """Whether a scraper that sends this header wants OpenMetrics."""
    return "application/openmetrics-text" in accept


def render(families: Iterable[Family], openmetrics: bool) -> str:
    """The text of a scrape. Families without samples are left out, and of one name's labels the last sample counts."""
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
        told = {tuple(sorted(labels.items())): value for labels, value in family.samples}
        for labels, value in told.items():
            words = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            lines.append(
                f"{family.name}{suffix}{{{words}}} {value!r}" if words else f"{family.name}{suffix} {value!r}"
            )
    if openmetrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _escaped(text: str, quotes: bool = True) -> str:
    out = text.replace("\\", "\\\\").replace("\n", "\\n")
    return out.replace('"', '\\"') if quotes else out


@dataclass(frozen=True)
class OfMonitor:
    """What a monitor tells of itself."""

    written: int = 0
    waiting: int = 0
    lost: int = 0
    watchers: int = 0
    malformed: int = 0
    version: str = ""


def heard(sample: NodeSample, age_s: float) -> bool:
    """Whether a node's report is new enough to be told as the present."""
    period = sample.period_s if sample.period_s > 0 else 30.0
    return age_s <= max(LEAST_S, UNHEARD * period)


def families(latest: Latest, cluster: str, now_s: float, own: OfMonitor) -> list[Family]:
    """All that is known now. now_s: of the clock that `latest` was fed by."""
    made: dict[str, Family] = {}

    def family(name: str, unit: str, help: str, kind: str = "gauge") -> Family:
        return made.setdefault(name, Family(f"sonde_power_{name}", kind, unit, help))

    for told in latest.clusters.values():
        _of_cluster(family, told, latest.age_s(CLUSTER, told.cluster, now_s))
    for node in latest.nodes.values():
        _of_node(family, node, cluster, latest.age_s(NODE, node.node, now_s))
    for job in latest.jobs.values():
        _of_job(family, job, cluster)
    samples = family("monitor_samples", "", "Samples that were heard, by topic.", "counter")
    for topic, count in latest.samples.items():
        samples.add(float(count), topic=topic)
    of = "monitor_history"
    family(f"{of}_written", "", "Samples that are in the history.", "counter").add(float(own.written))
    family(f"{of}_lost", "", "Samples that could not be kept.", "counter").add(float(own.lost))
    family(f"{of}_waiting", "", "Samples that wait for the disk.").add(float(own.waiting))
    family("monitor_malformed", "", "Samples that were refused.", "counter").add(float(own.malformed))
    family("monitor_watchers", "", "Browsers that follow the live page.").add(float(own.watchers))
    family("monitor_build_info", "", "Version of this Sonde.").add(1.0, version=own.version)
    return list(made.values())


def _of_cluster(family: _Maker, told: ClusterSample, age_s: float) -> None:
    of = {"cluster": told.cluster}
    family("cluster_age_seconds", "seconds", "Time since a system manager was heard.").add(age_s, **of)
    family("budget_watts", "watts", "What all nodes together may draw.").add(told.budget_w, **of)
    family("committed_watts", "watts", "What nodes may be at, at most, by the leading manager.").add(
        told.committed_w, **of
    )
    family("unknown_nodes", "", "Nodes whose leases a manager that took over does not know yet.").add(
        float(told.unknown_nodes), **of
    )
    family(
        "unknown_watts", "watts", "What these may be at beyond committed_watts, at most; it is not lent."
    ).add(told.unknown_w, **of)
    family("safe_watts", "watts", "What nodes come to together when nobody manages them.").add(
        told.safe_w, **of
    )
    family("cluster_watts", "watts", "What nodes that were heard draw, by the leading manager.").add(
        told.power_w, **of
    )
    family("epoch", "", "Epoch of the leading manager.").add(float(told.epoch), **of)
    family("lease_seconds", "seconds", "How long a node keeps a cap by itself.").add(told.lease_s, **of)
    nodes = family("nodes", "", "Nodes: configured, heard, with a lease.")
    for state, count in (("configured", told.nodes), ("heard", told.heard), ("leased", told.leased)):
        nodes.add(float(count), state=state, **of)
    family("manager_info", "", "Who leads, its state and its policy.").add(
        1.0, manager=told.manager, state=told.state, policy=told.policy, **of
    )


def _of_node(family: _Maker, node: NodeSample, cluster: str, age_s: float) -> None:
    of = {"cluster": cluster, "node": node.node}
    up = heard(node, age_s)
    family("node_up", "", "Whether a node is heard.").add(float(up), **of)
    family("node_age_seconds", "seconds", "Time since a node was heard.").add(age_s, **of)
    if not up:
        return  # what was last heard is not what is
    family("node_watts", "watts", "What a node draws.").add(node.power_w, source=node.source, **of)
    family("node_energy_joules", "joules", "Energy of a node since its node manager began.", "counter").add(
        node.energy_j, source=node.source, **of
    )
    family("node_cap_watts", "watts", "The cap that a node's hardware was read back to have.").add(
        node.cap_w, **of
    )
    family("node_leased", "", "Whether a node's cap is a lease.").add(float(node.leased), **of)
    if node.leased:
        family("node_lease_left_seconds", "seconds", "Time until a node's lease ends.").add(node.left_s, **of)
    family("node_trouble", "", "Whether something is wrong with a node's hardware.").add(
        float(bool(node.trouble)), **of
    )
    for domain, called in _named(node.domains):
        family("domain_watts", "watts", "What a part of a node draws.").add(
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
    """Each with a name of its own, as two sockets and two drives do not have: a scraper would take the last alone."""
    used: set[str] = set()
    for part in parts:
        name = str(part["name"])
        called = next(c for k in itertools.count(1) if (c := name if k == 1 else f"{name}#{k}") not in used)
        used.add(called)
        yield part, called


def _of_job(family: _Maker, job: JobSample, cluster: str) -> None:
    of = {"cluster": cluster, "job": job.job, "user": job.user}
    family("job_watts", "watts", "What a job's nodes draw.").add(job.power_w, **of)
    family("job_energy_joules", "joules", "Energy of a job since it began.", "counter").add(
        job.energy_j, **of
    )
    family("job_progress_ratio", "ratio", "How much of a job is done.").add(job.progress, **of)
    family("job_nodes", "", "Nodes of a job.").add(float(len(job.nodes)), state=job.state, **of)


def names(text: str) -> Sequence[str]:
    """Names of the metrics of a scrape."""
    return [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
