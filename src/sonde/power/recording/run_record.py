"""Records a power stack's telemetry over a stretch of time, as a dataset of power/1."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sonde.core import hostlist, provenance, run_folder, seal
from sonde.core.blocks import BlockWriter
from sonde.core.deadline import Deadline
from sonde.core.errors import EnvironmentFailure, UsageError, Warning, typed
from sonde.core.events import Progress
from sonde.core.interrupt import signals
from sonde.core.launch import session
from sonde.core.launch.measured import Measured
from sonde.power.monitor.budget import since_s
from sonde.power.monitor.run_monitor import Subscriber
from sonde.power.recording.schema import CLUSTER, EVENT, JOB, NAME, NODE, RECORD, SOURCES, TRAFFIC
from sonde.power.recording.sealing import SCHEMA
from sonde.power.stack import run_bus
from sonde.power.stack.config import Stack
from sonde.power.stack.telemetry import AnySample, ClusterSample, JobSample, NodeSample

TICK_S = 0.5
MAX_COUNT = 2**31 - 1


@dataclass(frozen=True)
class Request:
    """A recording. attrs: the room's own root attributes. kind: "run" or "demo". deadline: when everything is over."""

    stack: Stack
    out: Path
    command: Sequence[str]
    duration_s: float
    kind: str = "run"
    seed: int = 0
    attrs: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[Warning, ...] = ()
    deadline: Deadline = field(default_factory=Deadline)


def output_path(output: Path | None, cluster: str) -> Path:
    """The path of the dataset: as requested, or a new name here.

    Raises
    ------
    UsageError  power.bad_output. EnvironmentFailure  core.cannot_write.
    """
    if output is None:
        return Path(run_folder.dataset_name("power", cluster))
    if output.is_dir():
        raise UsageError(
            "power.bad_output",
            f"--output {output} is a folder",
            f"give a file name: {typed('-o', output / 'power.nc')}",
        )
    if not output.parent.is_dir():
        raise EnvironmentFailure(
            "core.cannot_write",
            f"cannot write {output}: there is no folder {output.parent}",
            "create it, or choose another with --output",
        )
    return output if output.suffix == ".nc" else output.with_name(output.name + ".nc")


def demo_path(output: Path | None) -> Path:
    """The path of a demonstration's dataset: as requested, or in a new folder of this user's among the temporary files.

    Raises
    ------
    UsageError, EnvironmentFailure  as output_path.
    """
    if output is not None:
        return output_path(output, "demo")
    return Path(tempfile.mkdtemp(prefix="sonde-power-demo-")) / "demo.nc"


class Recorder:
    """Writes received samples into a block file. began_ns: CLOCK_REALTIME of t = 0."""

    def __init__(self, path: Path, cluster: str) -> None:
        self.began_ns, self._began = time.time_ns(), time.monotonic()
        self.cluster = cluster
        self._file = BlockWriter(path, RECORD, {"schema": NAME, "began_ns": self.began_ns})
        self._events: list[tuple[float, str, str]] = []
        self._lock = threading.Lock()
        self.samples = 0

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began

    def event(self, who: str, what: str) -> None:
        """Record an event that happened just now. Any thread."""
        with self._lock:
            self._events.append((self.now_s, who, what))

    def add(self, samples: Sequence[AnySample], traffic: Mapping[str, tuple[int, int]]) -> None:
        t = self.now_s
        with self._lock:
            events, self._events = self._events, []
        accepted = [
            one for one in samples if not isinstance(one, ClusterSample) or one.cluster == self.cluster
        ]
        records = np.zeros(len(accepted) + len(traffic) + len(events), RECORD)
        for record, sample in zip(records, accepted):
            self._fill(record, sample, t)
        for record, (topic, (count, size)) in zip(records[len(accepted) :], traffic.items()):
            record["kind"], record["t"], record["at"] = TRAFFIC, t, t
            record["who"], record["count"], record["bytes"] = topic.encode(), count, size
        for record, (at, who, what) in zip(records[len(accepted) + len(traffic) :], events):
            record["kind"], record["t"], record["at"] = EVENT, at, at
            record["who"], record["state"] = who.encode()[:64], what.encode()[:32]
        self.samples += len(accepted)
        self._file.write(records)

    def _fill(self, record: Any, sample: AnySample, t: float) -> None:
        """Counts have 31 bits in a record, but 32 on the bus, where anybody may send them: they are limited here."""
        record["t"], record["at"] = t, (sample.at_ns - self.began_ns) * 1e-9
        record["power"] = sample.power_w
        match sample:
            case NodeSample():
                record["kind"], record["who"], record["whom"] = (
                    NODE,
                    sample.node.encode(),
                    sample.manager.encode(),
                )
                record["source"] = SOURCES.index(sample.source) if sample.source in SOURCES else 0
                record["leased"], record["epoch"], record["energy"] = (
                    sample.leased,
                    sample.epoch,
                    sample.energy_j,
                )
                record["cap"], record["lease"], record["left"] = sample.cap_w, sample.lease_w, sample.left_s
                record["since"] = since_s(sample.cap_since_ns, self.began_ns)
            case JobSample():
                record["kind"], record["who"], record["whom"] = JOB, sample.job.encode(), sample.user.encode()
                record["state"], record["energy"] = sample.state.encode()[:32], sample.energy_j
                record["nodes"] = len(sample.nodes)
            case ClusterSample():
                record["kind"], record["who"] = CLUSTER, sample.manager.encode()
                record["state"], record["epoch"], record["lease"] = (
                    sample.state.encode()[:32],
                    sample.epoch,
                    sample.lease_s,
                )
                record["cap"], record["budget"], record["safe"] = (
                    sample.committed_w,
                    sample.budget_w,
                    sample.safe_w,
                )
                record["left"], record["unknown"] = sample.period_s, sample.unknown_w
                counts = (sample.nodes, sample.heard, sample.leased)
                record["nodes"], record["heard"], record["leases"] = (min(one, MAX_COUNT) for one in counts)

    def close(self) -> None:
        self.add((), {})
        self._file.close()


Meanwhile = Callable[[Recorder, threading.Event], None]


def measure(request: Request, progress: Progress, meanwhile: Meanwhile | None = None) -> Measured:
    """Record until the time is over or the user interrupts, and save the data.

    meanwhile : runs in a thread of its own during the recording, until its event is set; the recording ends with it

    Raises
    ------
    EnvironmentFailure: the bus, the disk; power.nothing_heard. Errors of `meanwhile`, after saving.
    """
    run_dir = run_folder.folder_of(request.out)
    attrs = provenance.attrs(
        command=request.command, seed=request.seed, hostlist=hostlist.listed([socket.gethostname()])
    )
    nodes = [node.name for node in request.stack.nodes]
    begin = partial(
        run_folder.start,
        run_dir,
        room="power",
        schema=NAME,
        attrs={**attrs, **request.attrs},
        plan={"nodes": nodes, "cluster": request.stack.cluster, "kind": request.kind},
        warnings=request.warnings,
    )
    ended, asked = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def ask(_signal: int, _frame: Any) -> None:
        asked.set()
        ended.set()

    def work(recorder: Recorder) -> None:
        try:
            assert meanwhile is not None
            meanwhile(recorder, ended)
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    with session.unless_interrupted(run_dir, "power", begin) as made, run_folder.hold(run_dir, made) as held:
        try:
            with run_bus.open_bus(request.stack, "recorder") as bus:
                subscriber = Subscriber(bus)
                recorder = Recorder(run_dir / "telemetry.blk", request.stack.cluster)
                try:
                    with signals(ask), progress:
                        _record(request, recorder, subscriber, ended, progress, work if meanwhile else None)
                finally:
                    subscriber.close()
                    recorder.close()
        except BaseException:
            if session.nothing_in(run_dir):
                session.forget(run_dir)
            raise
        if not recorder.samples:
            session.forget(run_dir)
            if failed:
                raise failed[0]
            if asked.is_set():
                raise session.interrupted("power")
            raise EnvironmentFailure(
                "power.nothing_heard",
                "no telemetry was received, so there is nothing to save",
                "are daemons running, and on this bus? 'sonde power status' shows which daemons are heard",
            )
        reason = "interrupted" if asked.is_set() else "failed" if failed else "budget"
        with session.saving(run_dir, "power") as late:
            files = seal.seal(
                run_dir,
                request.out,
                SCHEMA,
                attrs={"stop_reason": reason, "samples": recorder.samples, "elapsed_s": recorder.now_s},
                held=held,
                progress=late.leave,
                deadline=request.deadline,
            )
    if failed and not asked.is_set():
        raise failed[0]
    return Measured(files, reason, asked.is_set() or late.came, None)


def _record(
    request: Request,
    recorder: Recorder,
    subscriber: Subscriber,
    ended: threading.Event,
    progress: Progress,
    work: Callable[[Recorder], None] | None,
) -> None:
    thread = None
    if work is not None:
        thread = threading.Thread(target=work, args=(recorder,), daemon=True)
        thread.start()
    try:
        while not ended.wait(TICK_S):
            recorder.add(subscriber.take(), subscriber.traffic())
            progress.show({"event": "progress", "elapsed_s": recorder.now_s, "samples": recorder.samples})
            if work is None and recorder.now_s >= request.duration_s:
                break
        recorder.add(subscriber.take(), subscriber.traffic())
    finally:
        ended.set()
        if thread is not None:
            thread.join()


def cluster() -> str:
    """Name of the cluster for new datasets: Slurm's cluster name, else this host's name."""
    with suppress(OSError):
        return os.environ.get("SLURM_CLUSTER_NAME") or socket.gethostname()
    return "local"
