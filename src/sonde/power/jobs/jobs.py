"""Jobs as values on the bus: services, their types and codes, and jobs. Pure.

`jobs.idl` defines the same for the bus, and docs/reference/power-jobs.md is its manual. Power in W, energy in J, memory
in bytes, times in ns of CLOCK_REALTIME (0: not yet). Where a job is meant, a per-node number applies to each of its
nodes. A value that is not set is "", 0, or None where 0 would mean something.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sonde.power.jobs.retention import size_of_text

IDL = Path(__file__).with_name("jobs.idl")

SCHEDULER_GET, SCHEDULER_SET = "JobScheduler_get", "JobScheduler_set"
RESOURCES_GET, RESOURCES_SET = "ResourceManager_get", "ResourceManager_set"
JOB_GET, JOB_SET = "JobManager_get", "JobManager_set"
SERVICES = {
    SCHEDULER_GET: ("sonde::power::SchedulerQuery", "sonde::power::SchedulerAnswer"),
    SCHEDULER_SET: ("sonde::power::SchedulerCommand", "sonde::power::SchedulerAnswer"),
    RESOURCES_GET: ("sonde::power::ResourceQuery", "sonde::power::ResourceAnswer"),
    RESOURCES_SET: ("sonde::power::ResourceCommand", "sonde::power::ResourceAnswer"),
    JOB_GET: ("sonde::power::JobQuery", "sonde::power::JobAnswer"),
    JOB_SET: ("sonde::power::JobCommand", "sonde::power::JobAnswer"),
}
"""Services, with the types of their requests and replies."""

CODES = {
    1100: "no_queue",  # there is no such queue; the answer names the nearest
    1101: "no_job",
    1102: "not_allowed",  # the queue is not for this user, or the job belongs to another user
    1103: "above_limit",  # more time, nodes or power than the queue or the cluster ever has
    1104: "bad_job",  # an invalid submission
    1105: "other_job",  # this id belongs to another job
    1106: "wrong_state",  # the job's state does not allow this order
    1107: "no_room",  # not now: resources are in use
    1108: "cannot_keep",  # the disk cannot be written: nothing was done
    1109: "unknown_node",
    1110: "queue_full",
    1111: "not_proven",  # no credential, or one of another user than the order names
    1112: "cannot_prove",  # MUNGE does not answer here
}
"""Codes of replies in addition to those of the bus and of telemetry.CODES."""
NUMBERS = {word: number for number, word in CODES.items()}

WAITING, HELD = "waiting", "held"
STARTING, RUNNING, STOPPING = "starting", "running", "stopping"
ENDED, FAILED, CANCELLED = "ended", "failed", "cancelled"
OVER = (ENDED, FAILED, CANCELLED)
"""States of a job that is over. A run is never cancelled: it ended, and the scheduler knows the reason."""
ACTIVE = (STARTING, RUNNING, STOPPING)
"""States of a job that has resources."""

JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", re.ASCII)
RESERVED = re.compile(r"on:.*|slurm-[0-9]+", re.ASCII)
"""Names that Sonde creates itself at the system manager: for shared nodes (queue.py), for Slurm's jobs
(slurm_job.py).
"""
NO_STATUS = -1  # exit_status while there is none
MAX_SHOWN, MAX_SHOWN_WORDS = 1024, 64  # characters and words of a command that is no longer needed
MAX_FIRST = 256  # characters of a command's first word in a listing of many jobs
JOB_B, PART_B, NUMBER_B = 3000, 300, 40  # about what Python needs for each, without texts


def _known(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    return {one.name: values[one.name] for one in fields(kind) if one.name in values}


@dataclass(frozen=True)
class Target:
    """A job's target; 0: not set. slowdown: 0.1 if it may take 10 % longer than at full power."""

    iteration_s: float = 0.0
    slowdown: float = 0.0
    energy_j: float = 0.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Target:
        return cls(**{name: float(value) for name, value in _known(cls, values).items()})


@dataclass(frozen=True)
class Spec:
    """A job as it is submitted. job: its id, created by the sender: sent twice it is one job. cores 0: whole nodes.

    hosts: these nodes and no others. limit_s: 0: what the queue allows. guaranteed_w: 0: nothing beyond safe caps.
    demand_w: 0: unknown. environment: NAME=value. output: a file for stdout and stderr, "": none.
    """

    job: str
    command: tuple[str, ...] = ()
    user: str = ""
    name: str = ""
    queue: str = ""
    environment: tuple[str, ...] = ()
    folder: str = ""
    output: str = ""
    nodes: int = 1
    hosts: tuple[str, ...] = ()
    cores: int = 0
    memory_bytes: int = 0
    disks: int = 0
    nics: int = 0
    limit_s: float = 0.0
    grace_s: float = 0.0
    guaranteed_w: float = 0.0
    demand_w: float = 0.0
    weight: float = 1.0
    target: Target = field(default_factory=Target)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Spec:
        known = _known(cls, values)
        for name in ("command", "environment", "hosts"):
            known[name] = tuple(str(one) for one in known.get(name, ()))
        known["target"] = Target.of(values.get("target", {}))
        return cls(**known)

    @property
    def whole(self) -> bool:
        return self.cores == 0

    @cached_property
    def size_b(self) -> int:
        """Its approximate size in memory, or on a disk."""
        texts = (self.job, self.user, self.name, self.queue, self.folder, self.output)
        return JOB_B + sum(
            map(size_of_text, (*texts, *self.command, *self.environment, *self.hosts))
        )  # each word counts, also an empty one

    @property
    def trimmed(self) -> Spec:
        """For a job that is over: no environment, and a shortened command."""
        return replace(self, environment=(), command=shortened(self.command))

    @property
    def brief(self) -> Spec:
        """For a list of many jobs: the beginning of the command's first word, and no names of nodes."""
        return replace(self, environment=(), command=tuple(map(_cut, self.command[:1])), hosts=())


@dataclass(frozen=True)
class Part:
    """A job's part of a node: cores, disks, NICs by number. whole: the job has the node alone."""

    node: str
    whole: bool = True
    cores: tuple[int, ...] = ()
    memory_bytes: int = 0
    disks: tuple[int, ...] = ()
    nics: tuple[int, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Part:
        known = _known(cls, values)
        for name in ("cores", "disks", "nics"):
            known[name] = tuple(int(one) for one in known.get(name, ()))
        return cls(**known)


@dataclass(frozen=True)
class JobState:
    """A job as the scheduler has it. reason: why it waits, or how it ended. expected_ns: the latest time at which it
    may start, 0: not predicted.
    """

    spec: Spec
    state: str = WAITING
    reason: str = ""
    priority: float = 0.0
    submitted_ns: int = 0
    started_ns: int = 0
    ended_ns: int = 0
    expected_ns: int = 0
    parts: tuple[Part, ...] = ()
    exit_status: int = NO_STATUS
    signal: int = 0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> JobState:
        known = _known(cls, values)
        known["spec"] = Spec.of(values["spec"])
        known["parts"] = tuple(Part.of(one) for one in values.get("parts", ()))
        return cls(**known)

    @property
    def job(self) -> str:
        return self.spec.job

    @property
    def over(self) -> bool:
        return self.state in OVER

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    @cached_property
    def size_b(self) -> int:
        """Its approximate size in memory, or on a disk."""
        return self.spec.size_b + size_of_parts(self.parts)


@dataclass(frozen=True)
class Run:
    """A job as the job manager has it. reason: why it could not be started or was lost. demand_w: what its target needs
    of each node, 0: unknown.
    """

    job: str
    state: str = STARTING
    reason: str = ""
    started_ns: int = 0
    ended_ns: int = 0
    exit_status: int = NO_STATUS
    signal: int = 0
    power_w: float = 0.0
    energy_j: float = 0.0
    progress: float = 0.0
    target: Target = field(default_factory=Target)
    demand_w: float = 0.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Run:
        known = _known(cls, values)
        known["target"] = Target.of(values.get("target", {}))
        return cls(**known)

    @property
    def over(self) -> bool:
        return self.state in OVER


def size_of_parts(parts: Sequence[Part]) -> int:
    """Their approximate size in memory, or on a disk, B."""
    numbers = sum(len(part.cores) + len(part.disks) + len(part.nics) for part in parts)
    return PART_B * len(parts) + NUMBER_B * numbers


def shortened(words: Sequence[str]) -> tuple[str, ...]:
    """A command of at most MAX_SHOWN characters and MAX_SHOWN_WORDS words; the last word of a cut command states the
    original length. A command that was shortened before stays as it is.
    """
    length = sum(map(len, words))
    if length <= MAX_SHOWN and len(words) <= MAX_SHOWN_WORDS:
        return tuple(words)
    room, out = MAX_SHOWN - MAX_FIRST, []
    for word in words[: MAX_SHOWN_WORDS - 1]:
        out.append(_cut(word, room))
        room -= len(out[-1])
        if room <= 0 or len(word) > len(out[-1]):
            break
    return (*out, f"[cut: {len(words)} words, {length} characters]")


def _cut(word: str, most: int = MAX_FIRST) -> str:
    return word if len(word) <= most else f"{word[: most - 1]}…"


def to_plain(value: Any) -> Any:
    """A value as plain lists and dictionaries, for a message or for JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: to_plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple | list):
        return [to_plain(one) for one in value]
    return value
