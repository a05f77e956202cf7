"""A job of the job manager, and the folder that shows whether it runs, ran, or never did.

start.json and job.json are written before the shim starts; keeper.json is written before the shim may start any
command; the shim writes `begun` and exit.json; the manager writes target.json, stop.json, meter.json, lost.json and
`forgotten`.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import time
from pathlib import Path
from typing import Any

from sonde.power.jobs import jobs
from sonde.power.jobs.job_target import Meter, Steering, Turns, of_job
from sonde.power.jobs.jobs import ENDED, FAILED, Part, Run, Spec, Target, to_plain
from sonde.power.jobs.run_job_turns import Progress
from sonde.power.stack.telemetry import NAN, known

_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def digest_of(spec: Spec) -> str:
    """Distinguishes a job from another one of the same name: its command and its user."""
    return hashlib.sha256(json.dumps([spec.command, spec.user]).encode()).hexdigest()


class Job:
    """A job of this manager."""

    def __init__(self, folder: Path, spec: Spec, parts: tuple[Part, ...]) -> None:
        self.folder, self.spec, self.parts = folder, spec, parts
        self.digest = digest_of(spec)
        self.target = spec.target
        self.state, self.reason = jobs.STARTING, ""
        self.started_ns = self.ended_ns = 0
        self.exit_status, self.signal = jobs.NO_STATUS, 0
        self.pid, self.pidfd = 0, -1
        self.process: subprocess.Popen[bytes] | None = None
        self.meter = Meter()
        self.progress = Progress(folder, len(parts))
        self.steering: Steering | None = None
        self.cgroup = ""
        self.kill_at_s = math.inf  # from then on the shim, which should have ended the job, is killed itself
        self.published = ""  # the state in the last telemetry sample
        self.forgotten = False
        self.counted_b = -1  # its size in the count of jobs that are over; -1: it is not over

    @property
    def over(self) -> bool:
        return self.state in jobs.OVER

    @property
    def nodes(self) -> list[str]:
        return [part.node for part in self.parts]

    @property
    def turns(self) -> list[Turns]:
        return self.progress.turns

    def run(self) -> Run:
        _, progress = of_job(self.turns)
        power = self.meter.power(self.nodes)
        return Run(
            self.spec.job,
            self.state,
            self.reason[:1000],
            self.started_ns,
            self.ended_ns,
            self.exit_status,
            self.signal,
            0.0 if self.over or math.isnan(power) else power,
            self.meter.energy_j,
            0.0 if math.isnan(progress) else progress,
            self.target,
            self.steering.demand_w if self.steering and not self.over else 0.0,
        )


def job_text(job: Job) -> str:
    return json.dumps({"spec": to_plain(job.spec), "parts": to_plain(job.parts), "digest": job.digest})


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; {} if the file is missing or holds no object."""
    try:
        read = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def stored_job(folder: Path) -> tuple[Job, dict[str, Any], list[str]] | None:
    """The job of a folder, the stored data of its shim, and what else is damaged; None if it never had a shim.

    The manager follows the job without its target, its cgroup or its meter if these files are damaged: the job may run.

    Raises
    ------
    ValueError  job.json or keeper.json is not what was written there.
    """
    stored = _object(folder / "job.json")
    try:
        job = Job(folder, Spec.of(stored["spec"]), tuple(Part.of(part) for part in stored["parts"]))
    except _DAMAGE:
        raise ValueError(f"{folder}/job.json is damaged") from None
    job.digest = str(stored.get("digest") or job.digest)
    if job.spec.job != folder.name:
        raise ValueError(f"{folder}/job.json belongs to another job")
    path = folder / "keeper.json"
    if not path.exists():
        return None
    shim = _object(path)
    try:
        job.started_ns, job.pid = int(shim["at_ns"]), int(shim["pid"])
        began_at = shim["began"] if shim["boot"] else 0
        if not (0 < job.pid < 1 << 31 and isinstance(began_at, int) and began_at > 0):
            raise ValueError
    except _DAMAGE:
        raise ValueError(f"{path} is damaged") from None
    damaged = []
    for name, load in (("target", _load_target), ("start", _load_cgroup), ("meter", _load_meter)):
        path = folder / f"{name}.json"
        try:
            if path.exists():
                if not (stored := _object(path)):
                    raise ValueError
                load(job, stored)
        except _DAMAGE:
            damaged.append(f"{path} is damaged: the job runs on without it")
    return job, shim, damaged


def _load_target(job: Job, stored: dict[str, Any]) -> None:
    job.target = Target.of(stored)


def _load_cgroup(job: Job, stored: dict[str, Any]) -> None:
    job.cgroup = str(stored.get("cgroup", ""))


def _load_meter(job: Job, stored: dict[str, Any]) -> None:
    energy_j = float(stored.get("energy_j", 0.0))
    job.meter.at_j = {str(node): float(value) for node, value in stored.get("at_j", {}).items()}
    job.meter.energy_j = energy_j


def grace_of(folder: Path) -> float:
    """The grace period of a job that is being stopped, s, as stored in its folder; 0: not stored."""
    try:
        grace = known(_object(folder / "stop.json").get("grace_s"))
    except _DAMAGE:
        return 0.0
    return grace if math.isfinite(grace) and grace >= 0 else 0.0


def meter_text(job: Job) -> bytes:
    """The content of meter.json."""
    return json.dumps({"energy_j": job.meter.energy_j, "at_j": job.meter.at_j}).encode()


def sample(job: Job) -> dict[str, Any]:
    """JobTelemetry."""
    iteration, progress = of_job(job.turns)
    state = FAILED if job.state == ENDED and (job.exit_status or job.signal) else job.state
    own = [] if job.over else [turns.own_s for turns in job.turns]
    return {
        "job": job.spec.job,
        "user": job.spec.user,
        "name": job.spec.name or job.spec.job,
        "at_ns": time.time_ns(),
        "nodes": job.nodes,
        "power_w": 0.0 if job.over else job.meter.power(job.nodes),
        "energy_j": job.meter.energy_j if job.meter.known else NAN,
        "iteration_s": iteration,
        "progress": progress,
        "state": state,
        "node_iteration_s": own if any(map(math.isfinite, own)) else [],
    }
