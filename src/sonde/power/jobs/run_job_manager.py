"""The job manager: starts jobs on their nodes, sees them end, meters what they draw, and steers them to their targets.

Each job has a job shim (run_job_shim.py), a process of its own. The job manager may be killed; it finds the shim again
by its process id and its start time. At each instant a job's folder shows whether it runs, ran, or never did
(run_job_folder.py).
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonde.bus.errors import Refused
from sonde.core.errors import SondeError, UsageError
from sonde.core.owned_files import write_whole
from sonde.core.processes import began
from sonde.power.jobs import job_start, jobs, run_jobs_bus, run_proof
from sonde.power.jobs.job_target import of_job, shares, steering_for
from sonde.power.jobs.jobs import RUNNING, STOPPING, Part, Spec, Target, to_plain
from sonde.power.jobs.run_job_archive import GONE, Archive, remove
from sonde.power.jobs.run_job_cgroup import protections, removed
from sonde.power.jobs.run_job_end import take_result
from sonde.power.jobs.run_job_folder import Job, boot, digest_of, grace_of, meter_text, sample, stored_job
from sonde.power.jobs.run_job_nodes import Nodes
from sonde.power.jobs.run_job_settings import NAME, Settings
from sonde.power.jobs.run_job_shim import write_durably
from sonde.power.jobs.run_job_start import launch, not_admitted, prepare
from sonde.power.jobs.run_job_turns import TurnReader
from sonde.power.stack import run_bus, run_state
from sonde.power.stack.config import Stack
from sonde.power.stack.run_events import Ending, line, notify, until_ended
from sonde.power.stack.telemetry import JOB, NAN, known

if TYPE_CHECKING:
    from sonde.bus.client import Writer

SHIM_S = 20.0  # time that a shim has beyond a job's grace to end it and to write the result


class JobManager:
    """All jobs; threads of the bus handle requests, and one thread supervises the jobs."""

    def __init__(self, stack: Stack, settings: Settings) -> None:
        self.stack, self.settings = stack, settings
        self.mutex = threading.RLock()
        self.jobs: dict[str, Job] = {}
        self.limits = {node.name: node for node in stack.nodes}
        self._events: list[bytes] = []
        self._reader = TurnReader()
        self._groups: set[str] = set()  # cgroups of jobs that are over, in which a process was still ending
        self._poll = select.poll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._wake, select.POLLIN)
        # A job cannot have this name; each job has a folder next to it.
        self._lock = run_state.held(settings.state, NAME, 0o711, lock=".lock")
        self.archive = Archive(self.jobs, settings)
        for folder in sorted(settings.state.iterdir()):
            if folder.name.startswith(GONE):  # left by a manager that was killed meanwhile
                remove([folder])
            elif (folder / "job.json").is_file():
                self._find(folder)
        remove(self._surplus())

    # ---- requests

    def query(self, body: dict[str, Any]) -> dict[str, Any]:
        job = str(body["job"])
        with self.mutex:
            if not job:
                return {"runs": [to_plain(one.run()) for one in self.jobs.values() if not one.forgotten]}
            return self._answer(self._job(job))

    def order(self, body: dict[str, Any]) -> dict[str, Any]:
        """Raises Refused."""
        run_jobs_bus.check_proof(self.stack.users, jobs.JOB_SET, body)
        job = str(body["job"]) or str(body["spec"]["job"])
        # Asked before the lock is taken: a directory that PAM asks may not answer for a while.
        refusal = (
            not_admitted(str(body["spec"]["user"]), self.settings) if body["order"] == "START_JOB" else ""
        )
        with self.mutex:
            try:
                if refusal and job not in self.jobs:
                    raise UsageError("power.not_allowed", refusal)
                if body["order"] == "START_JOB":
                    return self._answer(self._start(body))
                one = self._job(job)
                self._obey(one, body)
                return self._answer(one)
            except UsageError as error:
                raise run_jobs_bus.refused(error.code.removeprefix("power."), error.what) from None
            except OSError as error:
                where = error.filename or self.settings.state
                raise run_jobs_bus.refused("cannot_keep", f"{where}: {error.strerror}") from None

    def _obey(self, job: Job, body: dict[str, Any]) -> None:
        """Carry out an order about a job that exists. Raises Refused, UsageError, OSError."""
        match body["order"]:
            case "STOP_JOB":
                self._stop(job, known(body["grace_s"]), str(body["reason"]))
            case "SET_TARGET":
                job.target = Target.of(body["target"])
                write_durably(job.folder / "target.json", json.dumps(asdict(job.target)))
                self._aim(job)
            case _:
                if not job.over:
                    raise run_jobs_bus.refused(
                        "wrong_state", f"job '{job.spec.job}' is {job.state}: it is not over"
                    )
                job.forgotten = True
                write_durably(job.folder / "forgotten", f"{time.time_ns()}\n")

    def _job(self, name: str) -> Job:
        if name not in self.jobs:
            raise run_jobs_bus.refused("no_job", f"no job is called '{name}'")
        return self.jobs[name]

    @staticmethod
    def _answer(job: Job) -> dict[str, Any]:
        return {"runs": [to_plain(job.run())]}

    # ---- starting

    def _start(self, body: dict[str, Any]) -> Job:
        spec = Spec.of(body["spec"])
        parts = tuple(Part.of(part) for part in body["parts"])
        before = self.jobs.get(spec.job)
        if before is not None:
            if before.digest != digest_of(spec):
                raise run_jobs_bus.refused(
                    "other_job", f"job '{spec.job}' is another one: its command or user differs"
                )
            return before
        job_start.check(spec, parts, list(self.limits))
        job = prepare(spec, parts, self.settings)
        try:
            launch(job)
        except OSError:
            self._emptied(job.cgroup)
            raise
        self._hold(job)
        job.state = RUNNING
        self.jobs[spec.job] = job
        self._aim(job)
        self._say(job)
        self.wake()
        return job

    def _hold(self, job: Job) -> None:
        """Watch the shim, so that its end wakes this thread. The next look finds a shim that is gone by now."""
        with suppress(OSError):
            job.pidfd = os.pidfd_open(job.pid)
            self._poll.register(job.pidfd, select.POLLIN)

    def _aim(self, job: Job) -> None:
        limits = [self.limits[node] for node in job.nodes if node in self.limits]
        job.steering = steering_for(job.spec, job.target, limits)

    # ---- after a restart

    def _find(self, folder: Path) -> None:
        try:
            found = stored_job(folder)
        except ValueError as error:
            self._events.append(line("trouble", code="power.damaged", what=str(error)))
            return
        if found is None:
            # No command was started, and nobody got the answer that one was.
            shutil.rmtree(folder, ignore_errors=True)
            return
        job, shim, damaged = found
        self._events += [line("trouble", code="power.damaged", what=what) for what in damaged]
        job.forgotten = (folder / "forgotten").exists()
        self.jobs[job.spec.job] = job
        alive = shim["boot"] == boot() and began(job.pid) == shim["began"]
        if alive:
            self._hold(job)
        if alive and job.pidfd >= 0 and began(job.pid) == shim["began"]:
            job.state = STOPPING if (folder / "stop.json").exists() else RUNNING
            if job.state == STOPPING:
                job.kill_at_s = time.monotonic() + grace_of(folder) + SHIM_S
                # The manager that wrote it may have been killed before it sent the signal; a second one does no harm.
                self._signal(job)
            self._aim(job)
            self._events.append(
                line("job", job=job.spec.job, state=job.state, user=job.spec.user, why="found again")
            )
            return
        self._let_go(job)
        job.published = "known" if job.forgotten else ""
        self._settle(job)

    # ---- ending jobs

    def _stop(self, job: Job, grace_s: float, reason: str) -> None:
        if job.over or job.state == STOPPING:
            return
        grace = (
            grace_s if grace_s > 0 else job.spec.grace_s if job.spec.grace_s > 0 else self.settings.grace_s
        )
        write_durably(job.folder / "stop.json", json.dumps({"grace_s": grace, "reason": reason}))
        job.state = STOPPING
        job.kill_at_s = time.monotonic() + grace + SHIM_S
        self._signal(job)
        self._say(job)

    @staticmethod
    def _signal(job: Job) -> None:
        with suppress(OSError):
            signal.pidfd_send_signal(job.pidfd, signal.SIGTERM)

    def _let_go(self, job: Job) -> None:
        if job.pidfd >= 0:
            with suppress(KeyError):
                self._poll.unregister(job.pidfd)
            os.close(job.pidfd)
            job.pidfd = -1

    def _settle(self, job: Job) -> None:
        """Take over the result of a job whose shim is gone."""
        job.steering = None
        take_result(job)
        self._emptied(job.cgroup)
        self.archive.add(job, job.cgroup in self._groups)
        self._say(job)

    def _surplus(self) -> list[Path]:
        """Drop the oldest jobs that exceed the bounds. Returns the folders to remove."""
        folders, events = self.archive.surplus()
        self._events += events
        return folders

    def _emptied(self, cgroup: str) -> None:
        """Remove a job's cgroup, now or when the last of its processes is gone."""
        if cgroup and not removed(cgroup):
            self._groups.add(cgroup)

    def _say(self, job: Job) -> None:
        if job.published not in (job.state, "known"):
            job.published = job.state
            why = {"why": job.reason} if job.reason else {}
            status = {"exit_status": job.exit_status, "signal": job.signal} if job.over else {}
            self._events.append(
                line("job", job=job.spec.job, state=job.state, user=job.spec.user, **status, **why)
            )

    # ---- supervision

    def wake(self) -> None:
        os.eventfd_write(self._wake, 1)

    def wait(self, seconds: float) -> None:
        """Wait until a shim is gone, wake() is called, or the time is over."""
        self._poll.poll(max(0.0, seconds) * 1000)
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def add_event(self, event: bytes) -> None:
        with self.mutex:
            self._events.append(event)

    def look(self) -> tuple[list[bytes], list[Job]]:
        """Check all jobs. Returns events, and the jobs that are over since the last call."""
        over = []
        with self.mutex:
            for job in self.jobs.values():
                if job.over:
                    continue
                if time.monotonic() > job.kill_at_s and job.pidfd >= 0:
                    # The job's processes die with its shim, and the next look searches for leftovers.
                    with suppress(OSError):
                        signal.pidfd_send_signal(job.pidfd, signal.SIGKILL)
                if job.process is not None:
                    gone = job.process.poll() is not None
                else:
                    gone = job.pidfd < 0 or _readable(job.pidfd)
                if gone:
                    self._let_go(job)
                    over.append(job)
            self._groups = {cgroup for cgroup in self._groups if not removed(cgroup)}
            events, self._events = self._events, []
        return events, over

    def settle(self, job: Job) -> None:
        with self.mutex:
            self._settle(job)
            self._keep_meters([(job, meter_text(job))])
            gone = self._surplus()
        remove(gone)

    def meter(self, node: str, counter_j: float, power_w: float) -> None:
        """Record a node's energy counter and power."""
        with self.mutex:
            present = [job for job in self.jobs.values() if not job.over and node in job.nodes]
            if not present:
                return
            cores = {
                job.spec.job: 0 if part.whole else len(part.cores)
                for job in present
                for part in job.parts
                if part.node == node
            }
            share = shares({node: cores})[node]
            for job in present:
                after_s = max(0.0, (time.time_ns() - job.started_ns) / 1e9)
                job.meter.take(node, counter_j, power_w, share[job.spec.job], after_s)

    @staticmethod
    def _keep_meters(texts: Iterable[tuple[Job, bytes]]) -> None:
        for job, text in texts:
            with suppress(OSError):  # the next write may succeed
                write_whole(job.folder / "meter.json", text, 0o600)

    def report(self) -> list[tuple[Job, dict[str, Any]]]:
        """Telemetry of running jobs, and the demand that their targets lead to. Files are read and written without the
        lock.
        """
        with self.mutex:
            running = [job for job in self.jobs.values() if not job.over]
        self._reader.look((job.spec.user, job.progress) for job in running)
        out, meters = [], []
        with self.mutex:
            for job in running:
                if job.over:
                    continue
                meters.append((job, meter_text(job)))
                iteration, progress = of_job(job.turns)
                if job.steering is not None:
                    before = job.steering.demand_w
                    energy = job.meter.energy_j if job.meter.known else NAN
                    now = job.steering.look(job.target, iteration, energy, progress)
                    if now != before:
                        event = line("target", job=job.spec.job, demand_w=now, iteration_s=iteration)
                        self._events.append(event.replace(b"NaN", b"null"))
                out.append((job, sample(job)))
        self._keep_meters(meters)
        return out

    def sweep(self) -> None:
        """Remove the folders of forgotten jobs that were stored long enough."""
        with self.mutex:
            gone = self.archive.late()
        remove(gone)


def _readable(fd: int) -> bool:
    one = select.poll()  # select() takes no descriptor above 1023
    one.register(fd, select.POLLIN)
    return bool(one.poll(0))


def serve(stack: Stack, name: str = "", with_parent: bool = False) -> Iterator[bytes]:
    """Run until a signal to end; yields events, "ready" first, as JSON lines. Running jobs go on without the manager.

    Raises
    ------
    UsageError  power.open_bus; a fault in the bus profile. EnvironmentFailure  power.cannot_keep,
    power.already_running, power.cannot_prove, bus.open.
    """
    called = name or NAME
    settings = Settings(stack.path)
    if stack.users.proof == "none" and not run_bus.asks_who_joins(stack):
        raise UsageError(
            "power.open_bus",
            f"the {NAME} starts jobs that are ordered on its bus, and this bus checks no identity: each user of this "
            f"machine could run anything as '{run_state.own_user()}'",
            "add <security> to the profile of [bus], with keys that 'sonde bus keys init' makes, or have MUNGE prove "
            'the sender of each order: proof = "munge" under [users]',
        )
    run_proof.trial(stack.users)
    with ExitStack() as open_ones, until_ended(with_parent) as ending:
        manager = JobManager(stack, settings)
        bus = open_ones.enter_context(run_jobs_bus.open_bus(stack, called))
        nodes = Nodes(bus, manager, open_ones)
        writer: Writer = open_ones.enter_context(run_bus.writer(bus, JOB))
        open_ones.enter_context(run_jobs_bus.serve(bus, jobs.JOB_GET, manager.query, called))
        threads = run_proof.threads(stack.users)
        open_ones.enter_context(run_jobs_bus.serve(bus, jobs.JOB_SET, manager.order, called, threads))
        running = sum(not job.over for job in manager.jobs.values())
        ready = {"state": str(settings.state), "running": running, **protections(settings)}
        yield line("ready", role=NAME, name=called, **ready)
        notify("READY=1")
        # poll() itself goes on after a signal; this thread ends the wait.
        threading.Thread(target=_wake_when, args=(ending, manager), daemon=True).start()
        yield from _look_after(manager, nodes, writer, ending)
        notify("STOPPING=1")
        running = sum(not job.over for job in manager.jobs.values())
        yield line("end", role=NAME, why=ending.why, running=running)


def _wake_when(ending: Ending, manager: JobManager) -> None:
    while not ending.wait(3600):
        pass
    manager.wake()


def _look_after(manager: JobManager, nodes: Nodes, writer: Writer, ending: Ending) -> Iterator[bytes]:
    next_s = time.monotonic()
    seen: set[str] = set()
    while not ending.asked:
        events, over = manager.look()
        if over:
            # Before they count as over: the energy drawn until now is theirs.
            nodes.meter(node for job in over for node in job.nodes)
        for job in over:
            manager.settle(job)
            with suppress(SondeError, Refused):
                writer.write(sample(job))
        yield from events
        fresh = [job for name, job in list(manager.jobs.items()) if name not in seen and not job.over]
        seen |= {job.spec.job for job in fresh}
        if fresh:
            nodes.meter(node for job in fresh for node in job.nodes)
        if fresh or time.monotonic() >= next_s:
            next_s = time.monotonic() + manager.settings.report_s
            reports = manager.report()
            for _, telemetry in reports:
                with suppress(SondeError, Refused):
                    writer.write(telemetry)
            nodes.look({job.spec.job: job.nodes for job, _ in reports})
            manager.sweep()
            seen &= set(manager.jobs)
        if over or fresh:
            continue
        manager.wait(next_s - time.monotonic())
