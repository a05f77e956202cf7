"""Node managers and system managers as processes on a bus of their own, and what their hardware has."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from power_daemons import Daemon, Rapl, make_bus, powerd, until
from sonde.power.stack import run_bus
from sonde.power.stack.telemetry import ACTIVE, NODE

SAFE_W, MIN_W, MAX_W = 80.0, 60.0, 190.0


@dataclass(frozen=True)
class Times:
    """Of the configuration, s."""

    lease: float = 15.0
    renew: float = 5.0
    period: float = 2.0
    takeover: float = 6.0
    telemetry: float = 1.0


class Stack:
    """Daemons of one power.toml. hardware: "tree", a powercap tree a node, or "simulated"."""

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[str],
        budget_w: float,
        times: Times,
        hardware: str = "tree",
        first: int = 0,
    ) -> None:
        self.folder, self.nodes, self.budget_w, self.times = folder, list(nodes), budget_w, times
        self.hardware = hardware
        self.daemons: dict[str, Daemon] = {}
        folder.mkdir(exist_ok=True)
        make_bus(folder, first=first)
        self.trees = [Rapl(folder / node) for node in nodes] if hardware == "tree" else []

    def config(self, name: str, takeover_s: float | None = None) -> Path:
        """The file of one daemon: its hardware and its folder are its own."""
        t, path = self.times, self.folder / f"{name}.toml"
        hardware = {
            "tree": f'kind = "powercap"\nroot = "{self.folder / name}"\n',
            "simulated": f'kind = "simulated"\nidle = 55\nbusy = {MAX_W}\nload = 0.9\nmin = {MIN_W}\nmax = {MAX_W}\n',
        }[self.hardware]
        path.write_text(
            f'cluster = "bench"\n[bus]\nprofile = "bus.xml"\n[budget]\npower_limit = {self.budget_w}\n'
            f'lease = "{t.lease}s"\nrenew = "{t.renew}s"\nperiod = "{t.period}s"\n'
            f'[[nodes]]\nhosts = "{",".join(self.nodes)}"\nmin = {MIN_W}\nmax = {MAX_W}\nsafe = {SAFE_W}\n'
            f'[node-manager]\ntelemetry = "{t.telemetry}s"\nstate = "state-{name}"\n'
            f"[[node-manager.hardware]]\n{hardware}"
            f'[system-manager]\nstate = "state-{name}"\naudit = "{name}.jsonl"\n'
            f'takeover = "{takeover_s or t.takeover}s"\n'
        )
        return path

    def start(self, role: str, name: str, takeover_s: float | None = None, wait: bool = True) -> Daemon:
        words = powerd(role, self.config(name, takeover_s), "--name", name)
        made = self.daemons[name] = Daemon(words, self.folder / f"{name}.log")
        if wait:
            made.said("ready")
        return made

    def kill(self, name: str) -> None:
        """kill -9."""
        self.daemons.pop(name).end(signal.SIGKILL)

    def caps_w(self) -> list[float]:
        """The limits in the trees."""
        return [tree.cap_w for tree in self.trees]

    @contextmanager
    def joined(self) -> Iterator[Any]:
        """A bus client of this stack."""
        path = self.config("bench")
        with run_bus.open_bus(run_bus.load(path), "bench") as bus:
            yield bus

    def close(self) -> None:
        """All at once: one after the other would wait for each."""
        for daemon in self.daemons.values():
            with suppress(OSError):
                daemon.process.kill()
        for daemon in self.daemons.values():
            daemon.end(signal.SIGKILL)
        self.daemons.clear()


class Listener:
    """What nodes tell, taken once a second as a monitor does."""

    def __init__(self, bus: Any) -> None:
        self.reader, self.samples, self.ended = run_bus.reader(bus, NODE), 0, threading.Event()
        self.thread = threading.Thread(target=self._take)
        self.thread.start()

    def _take(self) -> None:
        while not self.ended.wait(1):
            self.samples += sum(sample.has_data for sample in self.reader.take())

    def close(self) -> None:
        self.ended.set()
        self.thread.join()
        self.reader.close()


def scheduled(pids: Sequence[int]) -> tuple[float, int]:
    """CPU, s, and slices of time of all threads of these processes, by the scheduler's own count."""
    cpu_ns = slices = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            ran, _, times = Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()
            cpu_ns, slices = cpu_ns + int(ran), slices + int(times)
    return cpu_ns / 1e9, slices


__all__ = ["ACTIVE", "Daemon", "Listener", "Stack", "Times", "scheduled", "until"]
