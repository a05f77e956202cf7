"""The daemons' messages on the bus as Python values: topics, types, and samples. Pure.

`native/power/messages.hpp` documents each field; `power.idl` defines the same for the bus. All power in W, energy in J,
times in ns of CLOCK_REALTIME unless a name states another unit. NaN: unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAN = float("nan")

IDL = Path(__file__).with_name("power.idl")
NODE = "Monitor_report_node_telemetry"
JOB = "Monitor_report_job_telemetry"
CLUSTER = "Monitor_report_cluster_telemetry"
TYPES = {
    NODE: "sonde::power::NodeTelemetry",
    JOB: "sonde::power::JobTelemetry",
    CLUSTER: "sonde::power::ClusterTelemetry",
}
"""Topics of telemetry, with their types."""

SERVICES = {
    "NodeManager_get": ("sonde::power::NodeQuery", "sonde::power::NodeAnswer"),
    "NodeManager_set": ("sonde::power::NodeCommand", "sonde::power::NodeAnswer"),
    "SystemPowerManager_get": ("sonde::power::SystemQuery", "sonde::power::SystemAnswer"),
    "SystemPowerManager_set": ("sonde::power::SystemCommand", "sonde::power::SystemAnswer"),
}
"""Services, with the types of their requests and replies."""

ACTIVE = "active"  # the leading system manager answers to this name

CODES = {
    1000: "stale_epoch",
    1001: "stale_sequence",
    1002: "void_ticket",
    1003: "lease_expired",
    1004: "bad_lease",
    1005: "out_of_range",
    1006: "read_only",
    1007: "hardware_failed",
    1008: "not_active",
    1009: "budget_too_small",
}
"""Codes of replies in addition to those of the bus."""

SIMULATED = "simulated"
_SOURCES = "SOURCE_"


def source_of(word: str) -> str:
    """ "simulated" of "SOURCE_SIMULATED"."""
    return word.removeprefix(_SOURCES).lower()


MOST = 1e18
"""No cluster draws more (W), has used more (J) or waits longer (s). Anybody who can write to the bus can send larger
numbers, and their sums overflow.
"""


def known(value: Any) -> float:
    """A number as it was received; NaN for anything that is not a finite number up to MOST."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return NAN
    return number if abs(number) <= MOST else NAN


@dataclass(frozen=True)
class NodeSample:
    """One report of a node. left_s: of its lease. cap_since_ns: since when it has cap_w; 0 if unknown. sensors,
    frequencies, domains: as on the bus.
    """

    node: str
    at_ns: int
    period_s: float = NAN
    source: str = "none"
    power_w: float = NAN
    energy_j: float = NAN
    cap_w: float = NAN
    lease_w: float = NAN
    left_s: float = NAN
    leased: bool = False
    epoch: int = 0
    manager: str = ""
    trouble: str = ""
    domains: tuple[Mapping[str, Any], ...] = ()
    frequencies: tuple[Mapping[str, Any], ...] = ()
    sensors: tuple[Mapping[str, Any], ...] = ()
    cap_since_ns: int = 0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> NodeSample:
        lease = values["lease"]
        return cls(
            str(values["node"]),
            int(values["at_ns"]),
            known(values["period_s"]),
            source_of(str(values["source"])),
            known(values["power_w"]),
            known(values["energy_j"]),
            known(lease["cap_w"]),
            known(lease["lease_w"]),
            known(lease["left_s"]),
            bool(lease["leased"]),
            int(lease["seen_epoch"]),
            str(lease["seen_manager"]),
            str(values["trouble"]),
            tuple(values["domains"]),
            tuple(values["frequencies"]),
            tuple(values["sensors"]),
            int(values.get("cap_since_ns", 0)),
        )


@dataclass(frozen=True)
class JobSample:
    """One report of a job. progress: 0 to 1. iteration_s: the time of one turn of its loop; node_iteration_s: each
    node's own part of it, in the order of nodes; empty if unknown.
    """

    job: str
    at_ns: int
    user: str = ""
    name: str = ""
    nodes: tuple[str, ...] = ()
    power_w: float = NAN
    energy_j: float = NAN
    iteration_s: float = NAN
    progress: float = NAN
    state: str = ""
    node_iteration_s: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> JobSample:
        return cls(
            str(values["job"]),
            int(values["at_ns"]),
            str(values["user"]),
            str(values["name"]),
            tuple(str(node) for node in values["nodes"]),
            known(values["power_w"]),
            known(values["energy_j"]),
            known(values["iteration_s"]),
            known(values["progress"]),
            str(values["state"]),
            tuple(known(s) for s in values.get("node_iteration_s", ())),
        )


STALE_S = 60.0
ENDED = ("ended", "failed", "cancelled")  # states of a job that is over


@dataclass(frozen=True)
class ClusterSample:
    """One report of a system manager. committed_w: the most that its nodes may draw. unknown_nodes: after a takeover,
    nodes whose leases it does not know yet; committed_w counts them at their safe caps, and they may draw unknown_w
    more. restored_w: while a part of the budget is shed, the budget after shed_left_s.
    """

    cluster: str
    at_ns: int
    manager: str = ""
    epoch: int = 0
    budget_version: int = 0
    state: str = ""
    policy: str = ""
    period_s: float = NAN
    lease_s: float = NAN
    budget_w: float = NAN
    safe_w: float = NAN
    committed_w: float = NAN
    power_w: float = NAN
    nodes: int = 0
    heard: int = 0
    leased: int = 0
    restored_w: float = NAN
    shed_left_s: float = 0.0
    unknown_nodes: int = 0
    unknown_w: float = 0.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ClusterSample:
        return cls(
            str(values["cluster"]),
            int(values["at_ns"]),
            str(values["manager"]),
            int(values["epoch"]),
            int(values["budget_version"]),
            str(values["state"]),
            str(values["policy"]),
            known(values["period_s"]),
            known(values["lease_s"]),
            known(values["budget_w"]),
            known(values["safe_w"]),
            known(values["committed_w"]),
            known(values["power_w"]),
            int(values["nodes"]),
            int(values["heard"]),
            int(values["leased"]),
            known(values["restored_w"]),
            known(values["shed_left_s"]),
            int(values.get("unknown_nodes", 0)),
            known(values.get("unknown_w", 0.0)),
        )


AnySample = NodeSample | JobSample | ClusterSample
_OF: dict[str, Callable[[Mapping[str, Any]], AnySample]] = {
    NODE: NodeSample.of,
    JOB: JobSample.of,
    CLUSTER: ClusterSample.of,
}


def read(topic: str, values: Mapping[str, Any]) -> AnySample:
    """A sample of one of the topics as a value."""
    return _OF[topic](values)


@dataclass
class Latest:
    """The latest sample of every node, job and manager, and the number of samples. Not for several threads.

    A node's sample that is older than the present one is ignored: readers of several writers may get samples in any
    order. A sample that was not renewed for STALE_S is replaced by any new one, so that one wrong time, or an epoch
    that no manager has, does not silence the rest.
    """

    nodes: dict[str, NodeSample] = field(default_factory=dict)
    jobs: dict[str, JobSample] = field(default_factory=dict)
    clusters: dict[str, ClusterSample] = field(default_factory=dict)
    heard_s: dict[str, float] = field(default_factory=dict)
    samples: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TYPES, 0))

    def take(self, sample: AnySample, now_s: float) -> bool:
        """Add a sample. False: it was older than the known one. now_s: of any monotonic clock."""
        before: AnySample | None
        match sample:
            case NodeSample():
                topic, name, before = NODE, sample.node, self.nodes.get(sample.node)
            case JobSample():
                topic, name, before = JOB, sample.job, self.jobs.get(sample.job)
            case _:
                topic, name, before = CLUSTER, sample.cluster, self.clusters.get(sample.cluster)
        self.samples[topic] += 1
        stale = self.age_s(topic, name, now_s) > STALE_S
        if before is not None and not stale and _older(sample, before):
            return False
        match sample:
            case NodeSample():
                self.nodes[name] = sample
            case JobSample():
                self.jobs[name] = sample
            case _:
                self.clusters[name] = sample
        self.heard_s[f"{topic} {name}"] = now_s
        return True

    def age_s(self, topic: str, name: str, now_s: float) -> float:
        """How long ago it was heard; infinite if it never was."""
        return now_s - self.heard_s.get(f"{topic} {name}", -math.inf)

    def forget(self, now_s: float, after_s: float) -> None:
        """Drop jobs that are over, or were not heard, for this time."""
        for name in [name for name in self.jobs if self.age_s(JOB, name, now_s) > after_s]:
            del self.jobs[name], self.heard_s[f"{JOB} {name}"]


def _older(sample: AnySample, before: AnySample) -> bool:
    """Whether a sample is older. A later epoch counts whatever the clocks show; within one epoch the time counts."""
    if isinstance(sample, ClusterSample) and isinstance(before, ClusterSample):
        return (sample.epoch, sample.at_ns) < (before.epoch, before.at_ns)
    return sample.at_ns < before.at_ns


def total(values: Mapping[str, float] | list[float]) -> float:
    """The sum of the known values; NaN if none is known."""
    numbers = list(values.values()) if isinstance(values, Mapping) else values
    finite = [number for number in numbers if math.isfinite(number)]
    return math.fsum(finite) if finite else NAN
