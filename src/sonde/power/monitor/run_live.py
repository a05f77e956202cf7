"""Listens for a while, or as long as a user watches."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sonde.core.errors import SondeError
from sonde.power.monitor import live, run_history
from sonde.power.monitor.budget import Held, cluster_series, held, node_series
from sonde.power.monitor.run_monitor import Subscriber
from sonde.power.stack import run_bus
from sonde.power.stack.config import Stack
from sonde.power.stack.run_events import until_ended
from sonde.power.stack.telemetry import ClusterSample, Latest, NodeSample

POLL_S = 0.1
FIRST_S = 5.0
PAST_S = 3600.0


@contextmanager
def listening(stack: Stack) -> Iterator[tuple[Any, Subscriber]]:
    """The bus, and readers of all telemetry."""
    with run_bus.open_bus(stack, "sonde") as bus:
        subscriber = Subscriber(bus)
        try:
            yield bus, subscriber
        finally:
            subscriber.close()


def look(subscriber: Subscriber, stack: Stack, seconds: float) -> tuple[dict[str, Any], bool]:
    """The present state, and whether all nodes and a manager were heard. Returns as soon as they were."""
    latest, end = Latest(), time.monotonic() + seconds
    while True:
        now, whole = _receive(subscriber, latest, stack)
        if whole or now >= end:
            return live.present(latest, stack.cluster, now, _expected(stack)), whole
        time.sleep(POLL_S)


def _expected(stack: Stack) -> list[str]:
    return [node.name for node in stack.nodes]


def _receive(subscriber: Subscriber, latest: Latest, stack: Stack) -> tuple[float, bool]:
    """Read the samples that arrived. Returns the time by a monotonic clock, and whether all nodes and a manager were
    heard.
    """
    now = time.monotonic()
    for sample in subscriber.take():
        latest.take(sample, now)
    return now, set(_expected(stack)) <= set(latest.nodes) and live.leading(latest, stack.cluster) is not None


def past(stack: Stack, seconds: float = PAST_S) -> Held | None:
    """The judgement of the recent past from the monitor's history; None if no history can be read."""
    since = time.time_ns() - int(seconds * 1e9)
    with suppress(SondeError):
        nodes = [s for s in run_history.read(Path(stack.history), "node", since) if isinstance(s, NodeSample)]
        clusters = [
            s
            for s in run_history.read(Path(stack.history), "cluster", since, name=stack.cluster)
            if isinstance(s, ClusterSample)
        ]
        if nodes or clusters:
            return held(node_series(nodes), cluster_series(clusters))
    return None


def follow(
    stack: Stack, screen: Callable[[Sequence[str]], None], period_s: float, turns: int | None
) -> dict[str, Any]:
    """Show the present state until a signal ends it, or for this number of turns; returns the last state. The first is
    shown when all were heard, or after FIRST_S: until then a missing node means nothing.
    """
    latest, shown = Latest(), 0
    present: dict[str, Any] = {}
    with listening(stack) as (_, subscriber), until_ended(False) as ending:
        end = time.monotonic() + FIRST_S
        while not ending.asked and not (_receive(subscriber, latest, stack)[1] or time.monotonic() > end):
            ending.wait(POLL_S)
        while True:
            if shown:
                ending.wait(period_s)
            now, _ = _receive(subscriber, latest, stack)
            present = live.present(latest, stack.cluster, now, _expected(stack))
            size = shutil.get_terminal_size((80, 24))
            screen(live.lines(present, max(60, size.columns), size.lines))
            shown += 1
            if ending.asked or shown == turns:
                return present
