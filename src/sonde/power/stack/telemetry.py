"""What daemons say on the bus, as Python takes it: topics, types, and samples as values. Pure.

`native/power/messages.hpp` says what each field means; `power.idl` is the same for the bus. All power in W, energy in
J, times in ns of CLOCK_REALTIME unless a name says otherwise. NaN: not known.
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
"""Topics of telemetry, and their types."""

SERVICES = {
    "NodeManager_get": ("sonde::power::NodeQuery", "sonde::power::NodeAnswer"),
    "NodeManager_set": ("sonde::power::NodeCommand", "sonde::power::NodeAnswer"),
    "SystemPowerManager_get": ("sonde::power::SystemQuery", "sonde::power::SystemAnswer"),
    "SystemPowerManager_set": ("sonde::power::SystemCommand", "sonde::power::SystemAnswer"),
}
"""Services, and the types of their requests and replies."""

ACTIVE = "active"  # the system manager that leads answers to this name

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
"""Codes of replies beyond those of the bus."""

SIMULATED = "simulated"
_SOURCES = "SOURCE_"


def source_of(word: str) -> str:
    """ "simulated" of "SOURCE_SIMULATED"."""
    return word.removeprefix(_SOURCES).lower()


MOST = 1e18
"""Beyond it is nothing that a cluster draws (W), has used (J) or waits (s). Whoever may write to the bus can say it,
and sums of it overflow.
"""


def known(value: Any) -> float:
    """A number as it came; NaN for what is none, no finite one, or above MOST."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return NAN
    return number if abs(number) <= MOST else NAN


@dataclass(frozen=True)
class NodeSample:
    """One report of a node. left_s: of its lease. cap_since_ns: since when it has cap_w; 0 where that is not known.
    sensors, frequencies, domains: as on the bus.
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
    def of(cls, said: Mapping[str, Any]) -> NodeSample:
        lease = said["lease"]
        return cls(
            str(said["node"]),
            int(said["at_ns"]),
            known(said["period_s"]),
            source_of(str(said["source"])),
            known(said["power_w"]),
            known(said["energy_j"]),
            known(lease["cap_w"]),
            known(lease["lease_w"]),
            known(lease["left_s"]),
            bool(lease["leased"]),
            int(lease["seen_epoch"]),
            str(lease["seen_manager"]),
            str(said["trouble"]),
            tuple(said["domains"]),
            tuple(said["frequencies"]),
            tuple(said["sensors"]),
            int(said.get("cap_since_ns", 0)),
        )


@dataclass(frozen=True)
class JobSample:
    """One report of a job. progress: 0 to 1. iteration_s: how long a turn of its loop takes, node_iteration_s: each
    node's own part of it, in the order of nodes; empty where that is not told.
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
    def of(cls, said: Mapping[str, Any]) -> JobSample:
        return cls(
            str(said["job"]),
            int(said["at_ns"]),
            str(said["user"]),
            str(said["name"]),
            tuple(str(node) for node in said["nodes"]),
            known(said["power_w"]),
            known(said["energy_j"]),
            known(said["iteration_s"]),
            known(said["progress"]),
            str(said["state"]),
            tuple(known(s) for s in said.get("node_iteration_s", ())),
        )


STALE_S = 60.0
ENDED = ("ended", "failed", "cancelled")  # states of a job that is over


@dataclass(frozen=True)
class ClusterSample:
    """One report of a system manager. committed_w: what its nodes may be at, at most. unknown_nodes: of one that took
    over, whose leases it does not know yet; in committed_w they are at their safe caps, and may be at unknown_w more.
    restored_w: while a part of the budget is shed, what it will be again, in shed_left_s.
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
    def of(cls, said: Mapping[str, Any]) -> ClusterSample:
        return cls(
            str(said["cluster"]),
            int(said["at_ns"]),
            str(said["manager"]),
            int(said["epoch"]),
            int(said["budget_version"]),
            str(said["state"]),
            str(said["policy"]),
            known(said["period_s"]),
            known(said["lease_s"]),
            known(said["budget_w"]),
            known(said["safe_w"]),
            known(said["committed_w"]),
            known(said["power_w"]),
            int(said["nodes"]),
            int(said["heard"]),
            int(said["leased"]),
            known(said["restored_w"]),
            known(said["shed_left_s"]),
            int(said.get("unknown_nodes", 0)),
            known(said.get("unknown_w", 0.0)),
        )


AnySample = NodeSample | JobSample | ClusterSample
_OF: dict[str, Callable[[Mapping[str, Any]], AnySample]] = {
    NODE: NodeSample.of,
    JOB: JobSample.of,
    CLUSTER: ClusterSample.of,
}


def read(topic: str, said: Mapping[str, Any]) -> AnySample:
    """A sample of one of the topics as a value."""
    return _OF[topic](said)


@dataclass
class Latest:
    """What was heard last of every node, job and manager, and how much was heard. Not for several threads.

    Of one node a sample that is older than the one that is there is left out: readers of several writers may get them
    in any order. What was not heard for STALE_S is replaced by whatever comes, so that one wrong time, or an epoch that
    nobody has, does not silence the rest.
    """

    nodes: dict[str, NodeSample] = field(default_factory=dict)
    jobs: dict[str, JobSample] = field(default_factory=dict)
    clusters: dict[str, ClusterSample] = field(default_factory=dict)
    heard_s: dict[str, float] = field(default_factory=dict)
    samples: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TYPES, 0))

    def take(self, sample: AnySample, now_s: float) -> bool:
        """False: it was older than what is known. now_s: of any clock that goes on steadily."""
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
        """How long ago it was heard; infinite where it never was."""
        return now_s - self.heard_s.get(f"{topic} {name}", -math.inf)

    def forget(self, now_s: float, after_s: float) -> None:
        """Drops jobs that are over, or were not heard, for so long."""
        for name in [name for name in self.jobs if self.age_s(JOB, name, now_s) > after_s]:
            del self.jobs[name], self.heard_s[f"{JOB} {name}"]


def _older(sample: AnySample, before: AnySample) -> bool:
    """A later epoch counts whatever clocks say; of one, the time does."""
    if isinstance(sample, ClusterSample) and isinstance(before, ClusterSample):
        return (sample.epoch, sample.at_ns) < (before.epoch, before.at_ns)
    return sample.at_ns < before.at_ns


def total(values: Mapping[str, float] | list[float]) -> float:
    """The sum of what is known; NaN where nothing is."""
    numbers = list(values.values()) if isinstance(values, Mapping) else values
    there = [number for number in numbers if math.isfinite(number)]
    return math.fsum(there) if there else NAN
