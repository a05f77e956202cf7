"""What a node manager costs its node at 1 s telemetry: CPU and wake-ups of all its threads, its guardian's too."""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from bench.power.stack import Listener, Stack, Times, scheduled
from bench.rows import Row, row

SECONDS = 60.0
BAR = 0.1  # % of a core


def feed(stack: Stack, ended: threading.Event) -> None:
    """Energy of 90 W into the counters of its trees, in place as sysfs gives it."""
    began = time.monotonic()
    while not ended.wait(0.1):
        for node in stack.nodes:
            counter = stack.folder / node / "class/powercap/intel-rapl:0/energy_uj"
            with counter.open("r+") as out:
                out.write(f"{1_000_000 + int(90e6 * (time.monotonic() - began)):<14d}\n")


def rows() -> list[Row]:
    """Rows of this bench. All of them run at once, each on a bus of its own."""
    out = []
    with tempfile.TemporaryDirectory(prefix="sonde-bench-node-") as name, ExitStack() as stays:
        told: dict[str, tuple[list[int], Listener | None]] = {}
        for hardware in ("simulated", "tree"):
            for managed in (True, False):
                stack = Stack(Path(name) / f"{hardware}-{managed}", ["node"], 180.0, Times(), hardware)
                stays.callback(stack.close)
                ready = stack.start("node-manager", "node").said("ready")
                listener = None
                if managed:
                    stack.start("system-manager", "m").said("leading")
                    listener = Listener(stays.enter_context(stack.joined()))
                    stays.callback(listener.close)
                if hardware == "tree":
                    ended = threading.Event()
                    feeding = threading.Thread(target=feed, args=(stack, ended))
                    feeding.start()
                    stays.callback(feeding.join)
                    stays.callback(ended.set)
                what = "a powercap tree" if hardware == "tree" else "simulated hardware"
                what += ", leased and listened to" if managed else ", alone on its bus"
                told[what] = ([ready["pid"], ready["guardian"]], listener)
        time.sleep(5)  # what it does once, at its beginning, is not what it costs
        began = time.monotonic()
        before = {what: scheduled(pids) for what, (pids, _) in told.items()}
        heard = {what: one.samples for what, (_, one) in told.items() if one}
        time.sleep(SECONDS)
        took = time.monotonic() - began
        for what, (pids, listener) in told.items():
            cpu_s, slices = (b - a for a, b in zip(before[what], scheduled(pids), strict=True))
            note = f"{cpu_s * 1e3:.1f} ms in {took:.0f} s, all threads and the guardian; {slices / took:.1f} wake-ups/s"
            if listener:
                note += f"; {listener.samples - heard[what]} samples heard, lease {Times().lease:g} s"
            value = cpu_s / took * 100
            full = f"node manager at 1 s telemetry, {what}: % of a core"
            out.append(row(full, f"<= {BAR}", value, None, lambda v: v <= BAR, note))
    return out
