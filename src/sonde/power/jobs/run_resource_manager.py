"""The resource manager: allocates nodes, cores, memory, disks and NICs to jobs, within the power limits of racks."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from sonde.power.jobs import jobs, run_jobs_bus, run_proof
from sonde.power.jobs.jobs import Part, Spec, to_plain
from sonde.power.jobs.resources import Conflict, Held, Lack, Node, Resources
from sonde.power.jobs.run_jobs_store import CannotKeep, Store
from sonde.power.jobs.schedule import never
from sonde.power.stack.config import Stack
from sonde.power.stack.run_events import line, notify, until_ended

SERVICE_NAME = "resource-manager"


def empty(stack: Stack, at_least_w: Mapping[str, float] | None = None) -> Resources:
    """The configured cluster with nothing in use."""
    nodes = (
        Node(n.name, n.safe_w, n.max_w, n.rack, n.cores, n.memory_bytes, n.disks, n.nics) for n in stack.nodes
    )
    return Resources(nodes, stack.racks, at_least_w)


def held_of(row: dict[str, Any]) -> Held:
    return Held(str(row["job"]), tuple(Part.of(part) for part in row["parts"]), float(row["guaranteed_w"]))


class Allocations:
    """The allocations; each is on disk before its request is answered. Any thread may call it."""

    def __init__(self, stack: Stack, store: Store) -> None:
        self._mutex, self._users = threading.Lock(), stack.users
        self._store, self._empty, self._now = store, empty(stack), empty(stack)
        self.left_out: dict[str, Held] = {}
        """Jobs some of whose parts are no longer configured, with their allocations."""
        with store.decoding():
            for name, row in store.load().items():
                allocated = held_of(row)
                left = self._now.present(allocated.parts)
                if left != allocated.parts:
                    self.left_out[name] = allocated
                try:
                    if left:
                        self._now.take(allocated.job, left, allocated.guaranteed_w)
                except Conflict:
                    self.left_out[name] = allocated

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
            raise run_jobs_bus.refused(
                "bad_job", f"guaranteed power is {spec.guaranteed_w} W; allowed: 0 W or more"
            )
        before = self._now.held.get(job)
        if before is not None:
            if job in self.left_out:
                raise run_jobs_bus.refused("unknown_node", f"some parts of the job {job} no longer exist")
            return {"allocations": [to_plain(before)]}
        spec = replace(spec, job=job, nodes=len(spec.hosts) or spec.nodes)
        found = self._now.find(spec) if spec.nodes else Lack("nodes", "nodes: the job requests none")
        if isinstance(found, Lack):
            why = never(spec, self._empty, math.inf)
            unknown = why.startswith("there is no node")
            code = "unknown_node" if unknown else "above_limit" if why else "no_room"
            raise run_jobs_bus.refused(code, why or f"the job {job} waits for {found.what}")
        allocated = Held(job, found, spec.guaranteed_w)
        self._keep({job: to_plain(allocated)})
        self._now.take(job, found, spec.guaranteed_w)
        self.left_out.pop(job, None)
        return {"allocations": [to_plain(allocated)]}

    def _release(self, job: str) -> dict[str, Any]:
        # Left-out jobs too: a node that comes back must not belong to a dead job.
        allocated = self._now.held.get(job) or self.left_out.get(job)
        if allocated is None:
            raise run_jobs_bus.refused("no_job", f"the job {job} has nothing")
        self._keep({}, (job,))
        self._now.give_back(job)
        self.left_out.pop(job, None)
        return {"allocations": [to_plain(allocated)]}

    def _keep(self, changed: dict[str, Any], gone: tuple[str, ...] = ()) -> None:
        try:
            self._store.save(changed, gone)
        except CannotKeep as error:
            raise run_jobs_bus.refused("cannot_keep", f"nothing was done: {error}") from None

    def query(self, body: dict[str, Any]) -> dict[str, Any]:
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
        allocated = [to_plain(one) for one in self._now.held.values()]
        return {"nodes": nodes, "racks": racks, "allocations": allocated}


def serve(stack: Stack, name: str = "", with_parent: bool = False) -> Iterator[bytes]:
    """Run until a signal to end; yields events, "ready" first, as JSON lines.

    Raises
    ------
    UsageError: a fault in the bus profile. EnvironmentFailure  power.cannot_keep, power.already_running,
    power.cannot_prove, bus.open.
    DataError  power.not_a_store.
    """
    with ExitStack() as open_ones, until_ended(with_parent) as ending:
        run_proof.trial(stack.users)
        store = Store(stack.jobs.resources_state, SERVICE_NAME)
        open_ones.callback(store.close)
        allocations = Allocations(stack, store)
        bus = open_ones.enter_context(run_jobs_bus.open_bus(stack, name or SERVICE_NAME))
        called, threads = name or SERVICE_NAME, run_proof.threads(stack.users)
        open_ones.enter_context(run_jobs_bus.serve(bus, jobs.RESOURCES_GET, allocations.query, called))
        open_ones.enter_context(
            run_jobs_bus.serve(bus, jobs.RESOURCES_SET, allocations.order, called, threads)
        )
        yield line("ready", role=SERVICE_NAME, name=called, nodes=len(stack.nodes))
        for job in allocations.left_out:
            yield line(
                "trouble",
                code="power.left_out",
                job=job,
                what="its allocation has parts that are not configured",
            )
        notify("READY=1")
        while not ending.wait(3600):
            pass
        notify("STOPPING=1")
        yield line("end", role=SERVICE_NAME, why=ending.why)
