"""Starts planned jobs: resources are allocated, power is guaranteed, then the job manager gets the order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sonde.bus.errors import Refused
from sonde.core.errors import EnvironmentFailure, SondeError, UsageError
from sonde.power.jobs import jobs
from sonde.power.jobs.clock import Clock
from sonde.power.jobs.entry import Entry
from sonde.power.jobs.jobs import STARTING, Run, to_plain
from sonde.power.jobs.refused_starts import RefusedStarts
from sonde.power.jobs.run_guarantees import Guarantees
from sonde.power.jobs.run_resource_manager import held_of
from sonde.power.jobs.run_role_requests import Requests
from sonde.power.jobs.run_stored_queue import StoredQueue


class Starter:
    """refused: gets the starts that are refused. One thread calls start()."""

    def __init__(
        self,
        stored: StoredQueue,
        requests: Requests,
        guarantees: Guarantees,
        refused: RefusedStarts,
        clock: Clock,
    ) -> None:
        self._stored, self._requests, self._guarantees = stored, requests, guarantees
        self._refused, self._clock = refused, clock

    def start(self, without: Collection[str]) -> None:
        """Start the jobs that are `starting`, without these. Raises CannotKeep."""
        those = sorted(self._stored.in_state(STARTING), key=lambda one: -one.state.priority)
        for one in those:
            job = one.state.job
            if job in without or (not one.asked and not self._allocate(one)):
                continue
            with self._stored.mutex:
                one = self._stored.queue.entries[job]
            if one.state.state != STARTING or not one.asked:
                continue
            try:
                if not self._guarantees.send_for(one):
                    continue
            except Refused as no:
                self._refuse(job, f"the system manager refuses its guarantee: {no.what}")
                continue
            if not self._order(one):
                return

    def _allocate(self, one: Entry) -> bool:
        """Have the resource manager allocate what was planned. True: it did, and that is on disk."""
        job, stored = one.state.job, self._stored
        hosts = tuple(part.node for part in one.state.parts)
        spec = to_plain(replace(one.spec, hosts=hosts, command=(), environment=()))
        try:
            answer = self._requests.roles.ask(
                jobs.RESOURCES_SET, {"order": "ALLOCATE", "job": job, "spec": spec}
            )
        except SondeError as error:
            if isinstance(error, EnvironmentFailure) and error.code != "power.no_room":
                self._requests.troubles["resources"] = error.what
                return False
            with stored.mutex:
                stored.queue.back(job, f"waits: {error.what}")
                stored.keep()
            return False
        parts = held_of(answer["allocations"][0]).parts
        with stored.mutex:
            if stored.queue.entries[job].state.state != STARTING:
                return False  # cancelled meanwhile: the allocation is given back
            stored.queue.given(job, parts)
            stored.keep()
        return True

    def _order(self, one: Entry) -> bool:
        """Order the start of the job manager. False: no answer."""
        job, stored = one.state.job, self._stored
        body = {
            "order": "START_JOB",
            "job": job,
            "spec": to_plain(one.spec),
            "parts": to_plain(one.state.parts),
            "target": to_plain(one.spec.target),
            "grace_s": one.spec.grace_s,
        }
        try:
            answer = self._requests.ask("job-manager", jobs.JOB_SET, body)
        except UsageError as no:
            runs = [Run(job, jobs.FAILED, f"the job manager refuses it: {no.what}"[:1024])]
        except SondeError as no:
            self._refuse(job, f"the job manager refuses to start it: {no.what}")
            return True
        else:
            if answer is None:
                return False
            self._refused.accepted_s = self._clock.monotonic()
            runs = [Run.of(run) for run in answer["runs"] if run["job"] == job]
        with stored.mutex:
            for run in runs:
                stored.queue.take_run(run, self._clock.time_ns())
            stored.keep()
        return True

    def _refuse(self, job: str, why: str) -> None:
        self._refused.add(job, why, self._clock.monotonic())
