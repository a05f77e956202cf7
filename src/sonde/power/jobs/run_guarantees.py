"""The power that the system manager guarantees to jobs: sent to it, repeated before it lapses, and ended."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from sonde.bus.errors import Refused
from sonde.core.errors import SondeError
from sonde.power.jobs.clock import Clock
from sonde.power.jobs.cluster_power import ClusterPower
from sonde.power.jobs.entry import Entry
from sonde.power.jobs.run_role_requests import Requests
from sonde.power.jobs.run_stored_queue import StoredQueue
from sonde.power.jobs.shares import Share, name_of_node

REPEAT_S, COUNTS_S = 20.0, 90.0  # how often each order is repeated, and how long it is valid
REFUSED = "the system manager refuses a job's guarantee"
SET = "SystemPowerManager_set"


class Guarantees:
    """The shares at the system manager. nodes: those of the configuration. One thread calls this."""

    def __init__(self, nodes: Iterable[str], stored: StoredQueue, requests: Requests, clock: Clock) -> None:
        self._nodes = set(nodes)
        self._names_of_nodes = {name_of_node(node) for node in self._nodes}
        self._stored, self._requests, self._clock = stored, requests, clock
        self._power = ClusterPower()
        self._present: set[str] = set()  # names of shares that the system manager has
        self._sent: dict[str, tuple[Share | None, float]] = {}  # as last confirmed; None: unknown

    def see(self, power: ClusterPower) -> None:
        """Take over what the system manager reported."""
        if power.manager != self._power.manager:
            self._sent.clear()  # a new leader got no shares yet
        self._power, self._present = power, set(power.shares)

    def send_for(self, entry: Entry) -> bool:
        """Have the system manager guarantee a job's power on its nodes, before the job starts. False: no answer.

        Raises
        ------
        Refused.
        """
        nodes = {part.node for part in entry.state.parts}
        gone = next((node for node in sorted(nodes) if not self._exists(node)), "")
        if gone:
            raise Refused("bus.not_found", f"no node is called '{gone}'")
        for name, share in self._wanted().items():
            if nodes & set(share.nodes):
                sent = self._sent.get(name)
                if sent is not None and sent[0] == share:
                    continue
                try:
                    self._send(name, share)
                except Refused:
                    raise
                except SondeError as error:
                    self._requests.troubles["orders"] = f"{REFUSED}: {error.what}"
                    return False
        return True

    def end_others(self) -> None:
        """End the guarantees of jobs that are over. The state of the system manager counts, not this process's memory
        of what it sent: an earlier scheduler or manager may have been killed between a job's end and its END_JOB.
        """
        wanted = self._wanted()
        with self._stored.mutex:
            entries = self._stored.queue.entries
            own = {name for name in self._present if name in entries or name in self._names_of_nodes}
        for name in sorted((own | self._sent.keys()) - wanted.keys()):
            self._sent[name] = None, -math.inf
            try:
                self._requests.roles.system(SET, {"order": "END_JOB", "job": name})
            except Refused:
                pass  # it does not know the job, which is the wanted state
            except SondeError:
                return
            del self._sent[name]
            self._present.discard(name)

    def refresh(self, now_s: float) -> None:
        """Send the changed shares of running jobs, and repeat those that would lapse."""
        refused = ""
        for name, share in self._wanted().items():
            sent = self._sent.get(name)
            if sent is not None and sent[0] == share and now_s - sent[1] < REPEAT_S:
                continue
            try:
                self._send(name, share)
            except Refused as no:
                # The guarantees of the other jobs must not lapse because of this one.
                refused = refused or f"{REFUSED}: {no.what}"
            except SondeError as error:
                self._requests.troubles["orders"] = f"{REFUSED}: {error.what}"
                return
        self._requests.note("orders", refused)

    def _wanted(self) -> dict[str, Share]:
        """The shares that the system manager should have. Only nodes that exist: it refuses a job's whole order for one
        that does not.
        """
        out = {}
        for name, share in self._stored.shares().items():
            nodes = tuple(node for node in share.nodes if self._exists(node))
            if nodes:
                out[name] = replace(share, nodes=nodes)
        return out

    def _exists(self, node: str) -> bool:
        managed = self._power.managed
        return node in self._nodes and (managed is None or node in managed)

    def _send(self, name: str, share: Share) -> None:
        """Raises SondeError: no answer; Refused: the system manager refused."""
        body = {
            "order": "SET_JOB",
            "job": name,
            "user": share.user,
            "nodes": list(share.nodes),
            "guaranteed_w": share.guaranteed_w,
            "demand_w": share.demand_w,
            "weight": share.weight,
            "for_s": COUNTS_S,
        }
        # until the answer comes, its state at the system manager is unknown
        self._sent[name] = None, -math.inf
        # A manager that only observes accepts no guarantee either, and jobs must run meanwhile.
        if not self._power.observes:
            self._requests.roles.system(SET, body)
        self._sent[name] = share, self._clock.monotonic()
