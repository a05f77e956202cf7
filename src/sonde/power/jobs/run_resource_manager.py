"""The resource manager: gives jobs nodes, cores, memory, disks and NICs, within what racks can have of power."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from sonde.power.jobs import jobs, run_jobs_bus, run_proof
from sonde.power.jobs.jobs import Part, Spec, said
from sonde.power.jobs.resources import Conflict, Held, Lack, Node, Resources
from sonde.power.jobs.run_jobs_store import CannotKeep, Store
from sonde.power.jobs.schedule import never
from sonde.power.stack.config import Stack
from sonde.power.stack.run_events import line, notify, until_told

SERVICE_NAME = "resource-manager"


def empty(stack: Stack, at_least_w: dict[str, float] | None = None) -> Resources:
    """The cluster of a configuration with nothing in use."""
    nodes = (
        Node(n.name, n.safe_w, n.max_w, n.rack, n.cores, n.memory_bytes, n.disks, n.nics) for n in stack.nodes
    )
    return Resources(nodes, stack.racks, at_least_w)


def held_of(told: dict[str, Any]) -> Held:
    return Held(str(told["job"]), tuple(Part.of(part) for part in told["parts"]), float(told["guaranteed_w"]))


class Allocations:
    """What is allocated, on disk before it is answered. Any-thread."""

    def __init__(self, stack: Stack, store: Store) -> None:
        self._mutex, self._users = threading.Lock(), stack.users
        self._store, self._empty, self._now = store, empty(stack), empty(stack)
        self.left_out: dict[str, Held] = {}
        """Jobs of which the configuration no longer has all parts, with what they were given."""
        with store.decoding():
            for name, told in store.load().items():
                held = held_of(told)
                left = self._now.there(held.parts)
                if left != held.parts:
                    self.left_out[name] = held
                try:
                    if left:
                        self._now.take(held.job, left, held.guaranteed_w)
                except Conflict:
                    self.left_out[name] = held

    def order(self, body: dict[str, Any]) -> dict[str, Any]:
        """Raises Refused."""
        run_jobs_bus.check_proof(self._users, jobs.RESOURCES_SET, body)
        with self._mutex:
            job = str(body["job"])
            if body["order"] == "RELEASE":
                return self._release(job)
            return self._allocate(job, Spec.of(body["spec"]))

    def _allocate(self, job: str, spec: Spec) -> dict[str, Any]:
        if not jobs.JOB_ID.fullmatch(job):
            raise run_jobs_bus.refused("bad_job", f"the job's id is '{job}'")
        if not (math.isfinite(spec.guaranteed_w) and spec.guaranteed_w >= 0):
            raise run_jobs_bus.refused("bad_job", f"guaranteed are {spec.guaranteed_w} W; allowed: from 0 W")
        before = self._now.held.get(job)
        if before is not None:
            if job in self.left_out:
                raise run_jobs_bus.refused(
                    "unknown_node", f"not all that the job {job} has is there any more"
                )
            return {"allocations": [said(before)]}
        spec = replace(spec, job=job, nodes=len(spec.hosts) or spec.nodes)
        found = self._now.find(spec) if spec.nodes else Lack("nodes", "nodes: none is asked for")
        if isinstance(found, Lack):
            why = never(spec, self._empty, math.inf)
            unknown = why.startswith("there is no node")
            word = "unknown_node" if unknown else "above_limit" if why else "no_room"
            raise run_jobs_bus.refused(word, why or f"the job {job} waits for {found.what}")
        held = Held(job, found, spec.guaranteed_w)
        self._keep({job: said(held)})
        self._now.take(job, found, spec.guaranteed_w)
        self.left_out.pop(job, None)
        return {"allocations": [said(held)]}

    def _release(self, job: str) -> dict[str, Any]:
        # Also what is left out: a node that comes back is not to be a dead job's.
        held = self._now.held.get(job) or self.left_out.get(job)
        if held is None:
            raise run_jobs_bus.refused("no_job", f"the job {job} has nothing")
        self._keep({}, (job,))
        self._now.give_back(job)
        self.left_out.pop(job, None)
        return {"allocations": [said(held)]}

    def _keep(self, changed: dict[str, Any], gone: tuple[str, ...] = ()) -> None:
        try:
            self._store.save(changed, gone)
        except CannotKeep as error:
            raise run_jobs_bus.refused("cannot_keep", f"nothing was done: {error}") from None

    def told(self, body: dict[str, Any]) -> dict[str, Any]:
        with self._mutex:
            return self._told()

    def _told(self) -> dict[str, Any]:
        nodes = []
        for name, node in self._now.nodes.items():
            free = self._now.free(name)
            nodes.append(
                {
                    "node": name,
                    "rack": node.rack,
                    "cores": node.cores,
                    "memory_bytes": node.memory_bytes,
                    "disks": node.disks,
                    "nics": node.nics,
                    **dict(zip(("free_cores", "free_memory_bytes", "free_disks", "free_nics"), free)),
                    "guaranteed_w": self._now.guaranteed_w(name),
                    "jobs": self._now.jobs_of(name),
                }
            )
        racks = [
            {"rack": rack, "limit_w": limit, "guaranteed_w": self._now.rack_w(rack)}
            for rack, limit in self._now.racks.items()
        ]
        held = [said(one) for one in self._now.held.values()]
        return {"nodes": nodes, "racks": racks, "allocations": held}


def serve(stack: Stack, name: str = "", with_parent: bool = False) -> Iterator[bytes]:
    """Runs until told to end; gives events, "ready" first, as JSON lines.

    Raises
    ------
    UsageError: the profile. EnvironmentFailure  power.cannot_keep, power.already_running, power.cannot_prove, bus.open.
    DataError  power.not_a_store.
    """
    with ExitStack() as open_ones, until_told(with_parent) as ending:
        run_proof.trial(stack.users)
        store = Store(stack.jobs.resources_state, SERVICE_NAME)
        open_ones.callback(store.close)
        allocations = Allocations(stack, store)
        bus = open_ones.enter_context(run_jobs_bus.open_bus(stack, name or SERVICE_NAME))
        called, threads = name or SERVICE_NAME, run_proof.threads(stack.users)
        open_ones.enter_context(run_jobs_bus.serve(bus, jobs.RESOURCES_GET, allocations.told, called))
        open_ones.enter_context(
            run_jobs_bus.serve(bus, jobs.RESOURCES_SET, allocations.order, called, threads)
        )
        yield line("ready", role=SERVICE_NAME, name=called, nodes=len(stack.nodes))
        for job in allocations.left_out:
            yield line(
                "trouble", code="power.left_out", job=job, what="it has what the configuration does not"
            )
        notify("READY=1")
        while not ending.wait(3600):
            pass
        notify("STOPPING=1")
        yield line("end", role=SERVICE_NAME, why=ending.why)
