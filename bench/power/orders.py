"""How long it takes until a budget that was set, or shed, is held: with few and with many node managers on one machine.

All of them are processes of this machine over simulated hardware, and share its cores: with a hundred of them the time
is that of the machine more than that of the stack, which is said in the row.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.power.stack import ACTIVE, SAFE_W, Stack, Times
from bench.rows import Row, row
from sonde.bus.errors import BusError
from sonde.power.stack import run_bus

NODES = (4, 64, 110)  # a host has ports for 119 participants of a domain
ROUNDS = 3
WAIT_S = 20.0
PER_NODE_BYTES = 24e6  # of a node manager and its guardian, measured with 64
UP_S = {4: 30.0, 64: 60.0, 110: 90.0}
TIMES = Times(lease=15.0, renew=5.0, period=1.0, takeover=3.0, telemetry=5.0)


def available_bytes() -> float:
    """Memory that can be had."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def cluster(bus: Any) -> dict[str, Any]:
    """What the leading manager tells of the cluster; nothing where none answers."""
    with run_bus.client(bus, "SystemPowerManager_get") as asking:
        try:
            return dict(asking.call({"ask": "GET_INFO"}, ACTIVE, 5).body["cluster"])
        except BusError:
            return {}


def brought_up(stack: Stack, bus: Any, within_s: float) -> float | None:
    """All node managers and a system manager, which has lent to all. Returns after how long, s; None: not in time."""
    began = time.monotonic()
    stack.start("system-manager", "m")
    for node in stack.nodes:
        stack.start("node-manager", node, wait=False)
        time.sleep(0.01)
    while time.monotonic() - began < within_s:
        if cluster(bus).get("leased") == len(stack.nodes):
            return time.monotonic() - began
        time.sleep(0.5)
    return None


def complied(ordering: Any, order: dict[str, Any]) -> float:
    """How long nodes took to hold to it, by the manager's own clock, s; NaN: not within its wait, or no answer."""
    try:
        answer = ordering.call({"wait_s": WAIT_S, "user": "bench", **order}, ACTIVE, WAIT_S + 5).body
    except BusError:
        return float("nan")
    return float(answer["comply_s"])


def measured(count: int) -> list[Row]:
    """Rows of one size."""
    what, bar = f"{count} simulated node managers", "(reported)"
    need = count * PER_NODE_BYTES
    if need > 0.8 * available_bytes():
        return [row(f"{what}: set-budget", bar, None, None, None, f"needs {need / 1e9:.1f} GB of memory")]
    high = count * 150.0
    took: dict[str, list[float]] = {
        "set-budget, lower by a fifth: until held, s": [],
        "shed 20 %: until held, s": [],
    }
    setting, shedding = took
    with tempfile.TemporaryDirectory(prefix="sonde-bench-orders-") as name:
        # As docs/howto/bus-many.md has it: all meet the manager and who orders, and no other.
        stack = Stack(Path(name), [f"n{k}" for k in range(count)], high, TIMES, "simulated", first=2)
        try:
            with ExitStack() as stays:
                bus = stays.enter_context(stack.joined())
                up = brought_up(stack, bus, UP_S[count])
                if up is None:
                    told = cluster(bus)
                    leased = told.get("leased", "none")
                    note = f"within {UP_S[count]:g} s {leased} of them were leased: not measurable here"
                    return [row(f"{what}: set-budget", bar, None, None, None, note)]
                ordering = stays.enter_context(run_bus.client(bus, "SystemPowerManager_set"))
                for _ in range(ROUNDS):
                    took[setting].append(complied(ordering, {"order": "SET_POWER", "budget_w": high * 0.8}))
                    complied(ordering, {"order": "SET_POWER", "budget_w": high})
                    time.sleep(2 * TIMES.period)  # it is lent
                    took[shedding].append(complied(ordering, {"order": "SHED", "share": 0.2, "for_s": 300.0}))
                    complied(ordering, {"order": "SET_POWER", "budget_w": high})
                    time.sleep(2 * TIMES.period)
        finally:
            stack.close()
    assert SAFE_W * count < 0.8 * high
    out = []
    for verb, times in took.items():
        good = [t for t in times if t == t]
        value = statistics.median(good) if len(good) == len(times) else None
        note = (
            f"median of {len(times)} orders"
            if value is not None
            else f"{len(times) - len(good)} not held in {WAIT_S:g} s"
        )
        note += f"; all leased {up:.0f} s after the start; {count + 1} daemons share {os.cpu_count()} cores"
        out.append(row(f"{what}: {verb}", bar, value, [min(good), max(good)] if good else None, None, note))
    return out


def rows() -> list[Row]:
    """Rows of this bench."""
    out = []
    for count in NODES:
        print(f"  {count} node managers …", file=sys.stderr, flush=True)
        out += measured(count)
    return out
