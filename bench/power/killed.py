"""A system manager killed by kill -9: when nodes are at their safe caps, and what the dead one's word is worth then.

Four node managers over powercap trees in a folder: what counts are the limits in those trees. They are read all the
time, and their sum is held against the budget.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.power.stack import SAFE_W, Stack, Times, until
from bench.rows import Row, row
from sonde.power.stack import run_bus

NODES = ("n1", "n2", "n3", "n4")
BUDGET_W, REPETITIONS = 500.0, 5
STALE = 1000  # PowerCode::stale_epoch
TIMES = Times(lease=2.0, renew=0.7, period=0.5, takeover=1.5, telemetry=0.5)
STANDBY_S = 3.0  # more than a lease: every node is at its safe cap before another one lends


class Watch:
    """The limits, as often as they can be read: the most that they add up to."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.most_w, self.reads, self.ended = stack, 0.0, 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def _watch(self) -> None:
        while not self.ended.wait(0.002):
            before = self.stack.caps_w()
            if before == self.stack.caps_w():  # else they were not so at one time
                self.most_w, self.reads = max(self.most_w, sum(before)), self.reads + 1

    def close(self) -> None:
        self.ended.set()
        self.thread.join()


def lent(stack: Stack) -> None:
    """Until the budget is lent, and then a part of a renewal's time: the kill is to meet each moment of a lease."""
    until(lambda: sum(stack.caps_w()) > BUDGET_W - 0.1, "the budget is lent")
    time.sleep(random.random() * TIMES.renew)


def safe_after_kill(stack: Stack, leader: str) -> float:
    """Kills it. Returns after how long the last node was at its safe cap, s."""
    left = set(range(len(NODES)))
    began = time.monotonic()
    os.kill(stack.daemons[leader].process.pid, signal.SIGKILL)
    while left:
        caps = stack.caps_w()
        left -= {k for k in left if abs(caps[k] - SAFE_W) < 0.01}
        if time.monotonic() - began > 30:
            raise TimeoutError(f"nodes {left} are above their safe caps 30 s after the kill")
        time.sleep(0.001)
    took = time.monotonic() - began
    stack.kill(leader)
    return took


def refused(bus: Any, epoch: int, manager: str) -> tuple[int, int]:
    """Orders of a manager that was replaced, of each kind to each node: refused as stale, and sent."""
    counted = sent = 0
    with run_bus.client(bus, "NodeManager_get") as asking, run_bus.client(bus, "NodeManager_set") as ordering:
        for node in NODES:
            lease = asking.call({"ask": "GET_POWERCAP_NODE"}, node, 20).body["lease"]
            assert lease["seen_epoch"] > epoch, f"{node} has not heard of who took over"
            order = {
                "epoch": epoch,
                "manager": manager,
                "sequence": 1 << 40,
                "instance": lease["instance"],
                "ticket_ns": lease["ticket_ns"],
                "lease_s": TIMES.lease,
                "cap_w": 150.0,
            }
            for kind in ("SET_POWER_NODE", "FENCE_NODE"):
                answers = ordering.call_all({"order": kind, **order}, node, 20, 1)
                sent += 1
                counted += [int(answer["number"]) for answer in answers] == [STALE]
    return counted, sent


def alone(stack: Stack) -> list[float]:
    """Nobody stands by."""
    took = []
    for _ in range(REPETITIONS):
        stack.start("system-manager", "m1")
        lent(stack)
        took.append(safe_after_kill(stack, "m1"))
    return took


def with_standby(stack: Stack, bus: Any) -> tuple[list[float], int, int]:
    """One stands by, and takes over later than leases end."""
    took, stale, sent = [], 0, 0
    with run_bus.client(bus, "NodeManager_get") as asking:
        for k in range(REPETITIONS):
            first, second = f"m{2 * k + 1}", f"m{2 * k + 2}"
            stack.start("system-manager", first).said("leading")
            stack.start("system-manager", second, takeover_s=STANDBY_S).said("following")
            lent(stack)
            before = asking.call({"ask": "GET_POWERCAP_NODE"}, NODES[0], 20).body["lease"]
            took.append(safe_after_kill(stack, first))
            stack.daemons[second].said("leading")
            lent(stack)
            counted, tried = refused(bus, before["seen_epoch"], before["seen_manager"])
            stale, sent = stale + counted, sent + tried
            stack.kill(second)
            until(lambda: stack.caps_w() == [SAFE_W] * len(NODES), "safe caps")
    return took, stale, sent


def rows() -> list[Row]:
    """Rows of this bench."""
    with tempfile.TemporaryDirectory(prefix="sonde-bench-killed-") as name:
        stack = Stack(Path(name), NODES, BUDGET_W, TIMES)
        watch = None
        try:
            for node in NODES:
                stack.start("node-manager", node)
            watch = Watch(stack)
            with stack.joined() as bus:
                after = {"nobody stands by": alone(stack)}
                after["one stands by"], stale, sent = with_standby(stack, bus)
        finally:
            if watch:
                watch.close()
            stack.close()
    out = []
    for what, took in after.items():
        note = f"longest of {len(took)} kills, four nodes over powercap trees, median {statistics.median(took):.2f} s; "
        note += f"lease {TIMES.lease:g} s"
        out.append(
            row(
                f"kill -9 of who leads, {what}: all nodes at their safe caps after, s",
                f"<= lease + 1 s = {TIMES.lease + 1:g}",
                max(took),
                [min(took), max(took)],
                lambda v: v <= TIMES.lease + 1,
                note,
            )
        )
    out.append(
        row(
            "orders under the epoch of who was killed: refused, share",
            "1",
            stale / sent,
            None,
            lambda v: v == 1,
            f"{stale} of {sent}, caps and fences to each node after {REPETITIONS} takeovers, else all right",
        )
    )
    assert watch
    out.append(
        row(
            "sum of limits meanwhile, share of the budget, at most",
            "<= 1",
            watch.most_w / BUDGET_W,
            None,
            lambda v: v <= 1 + 1e-5,
            f"{watch.reads} readings of all trees; {BUDGET_W:g} W",
        )
    )
    return out
