"""The energy counters, power, caps and frequencies of nodes, as the job manager reads them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Protocol

from sonde.core.errors import SondeError
from sonde.power.stack import run_bus
from sonde.power.stack.run_events import line
from sonde.power.stack.telemetry import NODE, known

if TYPE_CHECKING:
    from sonde.bus.client import Bus, Client, Reader

NODE_S = 1.0  # timeout of a request to a node
ASKING = 8  # nodes that are asked at the same time
SILENT_S = (
    30.0  # a node that gave no answer is asked again after this time, or when a message from it arrives
)


class Listener(Protocol):
    """Gets what nodes report, in any thread."""

    def meter(self, node: str, counter_j: float, power_w: float) -> None: ...

    def add_event(self, event: bytes) -> None: ...

    def wake(self) -> None: ...


class Nodes:
    """Reads data of nodes: telemetry as it arrives, and by requests."""

    def __init__(self, bus: Bus, listener: Listener, open_ones: ExitStack) -> None:
        self._listener = listener
        self._reader: Reader = open_ones.enter_context(run_bus.reader(bus, NODE))
        self._client: Client = open_ones.enter_context(run_bus.client(bus, "NodeManager_get"))
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(ASKING)
        self._looker = ThreadPoolExecutor(1)
        self._looking: Future[None] | None = None
        self._silent: dict[str, float] = {}  # until when nodes that gave no answer are not asked again
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()
        open_ones.callback(self.close)

    def _hear(self) -> None:
        while not self._ended.is_set():
            with suppress(SondeError):
                for sample in self._reader.samples(0.5):
                    if self._ended.is_set():
                        return
                    if sample.has_data and sample.state == "alive":
                        value = sample.value
                        self._silent.pop(str(value["node"]), None)
                        self._listener.meter(
                            str(value["node"]), known(value["energy_j"]), known(value["power_w"])
                        )

    def _ask(self, node: str, what: str) -> dict[str, Any]:
        if time.monotonic() < self._silent.get(node, 0.0):
            return {}
        with suppress(SondeError, RuntimeError):
            try:
                reply = dict(self._client.call({"ask": what}, node, NODE_S).body)
            except (SondeError, RuntimeError):
                self._silent[node] = time.monotonic() + SILENT_S
                raise
            self._silent.pop(node, None)
            return reply
        return {}

    def _ask_all(self, nodes: Sequence[str], what: str) -> dict[str, dict[str, Any]]:
        return dict(zip(nodes, self._pool.map(lambda node: self._ask(node, what), nodes)))

    def meter(self, nodes: Iterable[str]) -> None:
        """Ask nodes for their energy counters now, at the start or end of a job: telemetry comes at its own pace."""
        for node, reply in self._ask_all(sorted(set(nodes)), "GET_POWER_NODE").items():
            if reply:
                self._listener.meter(node, known(reply["energy_j"]), known(reply["power_w"]))

    def look(self, nodes_of: Mapping[str, Sequence[str]]) -> None:
        """Publish caps and frequencies of jobs' nodes as events. A silent node delays only the next look."""
        if nodes_of and (self._looking is None or self._looking.done()):
            with suppress(RuntimeError):
                self._looking = self._looker.submit(self._look, nodes_of)

    def _look(self, nodes_of: Mapping[str, Sequence[str]]) -> None:
        every = sorted({node for nodes in nodes_of.values() for node in nodes})
        with suppress(RuntimeError):  # the thread pool is shutting down
            caps, freqs = self._ask_all(every, "GET_POWERCAP_NODE"), self._ask_all(every, "GET_FREQ_NODE")
            for job, nodes in nodes_of.items():
                found = [known(caps[node]["lease"]["cap_w"]) for node in nodes if caps[node]]
                hertz = [
                    known(one["current_hz"])
                    for node in nodes
                    if freqs[node]
                    for one in freqs[node]["frequencies"]
                ]
                out: dict[str, Any] = {"nodes": len(nodes), "answered": len(found)}
                for key, values in (("cap_w", found), ("frequency_hz", hertz)):
                    finite = [value for value in values if math.isfinite(value)]
                    if finite:
                        out[key] = {"least": min(finite), "most": max(finite)}
                self._listener.add_event(line("nodes", job=job, **out))
            self._listener.wake()

    def close(self) -> None:
        self._ended.set()
        self._thread.join(2)
        for pool in (self._looker, self._pool):
            pool.shutdown(wait=False, cancel_futures=True)
