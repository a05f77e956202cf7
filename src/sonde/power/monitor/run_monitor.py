"""The monitor: receives the telemetry of a cluster, stores it, and shows it to people and scrapers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import sonde
from sonde.core.errors import SondeError
from sonde.power.monitor import live, openmetrics
from sonde.power.monitor.run_history import History
from sonde.power.monitor.run_http import Content, Site, as_json
from sonde.power.stack import run_bus
from sonde.power.stack.run_events import line, notify, until_ended
from sonde.power.stack.telemetry import TYPES, AnySample, ClusterSample, JobSample, Latest, NodeSample, read

if TYPE_CHECKING:
    from sonde.bus.client import Bus, Reader
    from sonde.power.stack.config import Stack

TICK_S = 1.0
SWEEP_S = 60.0
FORGET_JOB_S = 600.0
FARTHEST_S = 3600.0  # a sender's clock may be wrong by this time; beyond it our time replaces the sample's
# most that are remembered: a writer on the bus must not fill the memory
MOST_NODES, MOST_JOBS = 100_000, 100_000
_QUEUE = 200_000


class Subscriber:
    """Readers of all telemetry, each in a thread of its own; take() returns the samples that arrived since."""

    def __init__(self, bus: Bus, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._queue: SimpleQueue[AnySample] = SimpleQueue()
        self._ended = threading.Event()
        self.readers = {topic: run_bus.reader(bus, topic) for topic in TYPES}
        self.foreign = 0  # samples with an impossible time or name
        self.dropped = 0
        self._threads = [
            threading.Thread(target=self._receive, args=(topic, reader), daemon=True)
            for topic, reader in self.readers.items()
        ]
        for thread in self._threads:
            thread.start()

    def _receive(self, topic: str, reader: Reader) -> None:
        while not self._ended.is_set():
            with suppress(SondeError):
                for sample in reader.samples(0.5):
                    if sample.has_data and sample.state == "alive":
                        self._take(topic, sample.value)
                    if self._ended.is_set():
                        return

    def _take(self, topic: str, value: dict[str, Any]) -> None:
        try:
            sample = read(topic, value)
        except (KeyError, TypeError, ValueError, OverflowError):
            self.foreign += 1
            return
        now = self._now_ns()
        if abs(sample.at_ns - now) > FARTHEST_S * 1e9:
            # Stored under its own time it would be swept at once, or never.
            self.foreign += 1
            sample = replace(sample, at_ns=now)
        if self._queue.qsize() >= _QUEUE:
            self.dropped += 1
            return
        self._queue.put(sample)

    def take(self) -> list[AnySample]:
        out: list[AnySample] = []
        with suppress(Empty):
            while True:
                out.append(self._queue.get_nowait())
        return out

    def traffic(self) -> dict[str, tuple[int, int]]:
        """Samples and bytes of each topic up to now."""
        out = {}
        for topic, reader in self.readers.items():
            status = reader.status()
            out[topic] = int(status["samples"]), int(status["bytes"])
        return out

    @property
    def malformed(self) -> int:
        return self.foreign + sum(int(reader.status()["malformed"]) for reader in self.readers.values())

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(2)
        for reader in self.readers.values():
            reader.close()


class Monitor:
    """The current state; one thread feeds it, many read it.

    Raises
    ------
    The errors of `History`.
    """

    def __init__(self, stack: Stack, subscriber: Subscriber, history: History | None) -> None:
        self.stack, self.subscriber, self.history = stack, subscriber, history
        self.latest, self.course = Latest(), live.Course()
        self._changed = threading.Condition()
        self._number, self._text = 0, ""
        self._swept_s = time.monotonic()
        self.site: Site | None = None

    def tick(self) -> str:
        """Read new samples, and build the next event. Returns the history's trouble, "" if there is none."""
        samples = self.subscriber.take()
        now = time.monotonic()
        with self._changed:
            for sample in samples:
                if self._room_for(sample):
                    self.latest.take(sample, now)
            self.latest.forget(now, FORGET_JOB_S)
            point = self.course.add(self.latest, self.stack.cluster, now, time.time())
            present = self._present(now)
            self._number += 1
            self._text = as_json({**present, "point": point})
            self._changed.notify_all()
        if self.history is None:
            return ""
        self.history.add(samples)
        if self.history.behind or now - self._swept_s > SWEEP_S:
            self._swept_s = now
            self._sweep(self.history, len(samples))
        return self.history.trouble

    def _sweep(self, history: History, added: int) -> None:
        """Remove more rows than arrived, so that the sweep catches up; new samples are written before more rows are
        removed.
        """
        removed = history.sweep(time.time_ns())
        while history.behind and removed < 2 * added:
            removed += history.sweep(time.time_ns())

    def _room_for(self, sample: AnySample) -> bool:
        match sample:
            case NodeSample():
                return sample.node in self.latest.nodes or len(self.latest.nodes) < MOST_NODES
            case JobSample():
                return sample.job in self.latest.jobs or len(self.latest.jobs) < MOST_JOBS
            case ClusterSample():
                return sample.cluster in self.latest.clusters or len(self.latest.clusters) < 100

    def _present(self, now: float) -> dict[str, Any]:
        expected = [node.name for node in self.stack.nodes]
        present = live.present(self.latest, self.stack.cluster, now, expected)
        return {"now": present, "verdict": live.verdict(present)}

    # ---- requests of the site, from its threads

    def metrics(self, wanted: bool) -> str:
        with self._changed:
            history = self.history
            own = openmetrics.OfMonitor(
                written=history.written if history else 0,
                waiting=history.waiting if history else 0,
                lost=(history.lost if history else 0) + self.subscriber.dropped,
                watchers=self.site.watchers if self.site else 0,
                malformed=self.subscriber.malformed,
                version=sonde.__version__,
            )
            families = openmetrics.families(self.latest, self.stack.cluster, time.monotonic(), own)
        return openmetrics.render(families, wanted)

    def first(self) -> tuple[int, str]:
        with self._changed:
            course = list(self.course.points)
            return self._number, as_json({**self._present(time.monotonic()), "course": course})

    def wait(self, number: int, seconds: float) -> tuple[int, str] | None:
        """A slow browser misses events; they do not wait for it."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._number > number, seconds):
                return None
            return self._number, self._text

    def now(self) -> str:
        with self._changed:
            return as_json(self._present(time.monotonic()))

    def content(self) -> Content:
        return Content(self.metrics, self.first, self.wait, self.now)


def serve(stack: Stack, name: str = "", with_parent: bool = False, tick_s: float = TICK_S) -> Iterator[bytes]:
    """Run until a signal to end; yields events, "ready" first, as JSON lines.

    Raises
    ------
    UsageError  power.bad_token, a fault in the bus profile. EnvironmentFailure  power.cannot_listen, power.cannot_keep,
    bus.open. DataError  power.not_a_history.
    """
    with ExitStack() as open_ones, until_ended(with_parent) as ending:
        history = History(Path(stack.history), stack.keep_s)
        open_ones.callback(history.close)
        bus = open_ones.enter_context(run_bus.open_bus(stack, name or "monitor"))
        subscriber = Subscriber(bus)
        open_ones.callback(subscriber.close)
        monitor = Monitor(stack, subscriber, history)
        site = monitor.site = Site(stack.listen, monitor.content())
        open_ones.callback(site.close)
        scheme = "https" if stack.listen.tls_certificate else "http"
        host = f"[{stack.listen.host}]" if ":" in stack.listen.host else stack.listen.host
        yield line(
            "ready",
            role="monitor",
            name=name or "monitor",
            address=f"{scheme}://{host}:{site.port}/",
            history=stack.history,
            token=site.asks_token,
        )
        notify("READY=1")
        reported = ""
        while not ending.wait(tick_s):
            trouble = monitor.tick()
            if trouble != reported:
                reported = trouble
                event = "trouble" if trouble else "mended"
                yield line(event, code="power.cannot_keep", what=trouble)
        notify("STOPPING=1")
        monitor.tick()
        yield line("end", role="monitor", why=ending.why, written=history.written, lost=history.lost)
