"""Node managers and system managers as processes on a bus of their own, and what their hardware has."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonde.core.launch import libexec
from sonde.power import run_bus
from sonde.power.telemetry import ACTIVE, NODE

SAFE_W, MIN_W, MAX_W = 80.0, 60.0, 190.0


def until(true: Callable[[], Any], what: str, timeout_s: float = 60, each_s: float = 0.02) -> Any:
    """Its value, when that is true.

    Raises
    ------
    TimeoutError  it was not within timeout_s.
    """
    end = time.monotonic() + timeout_s
    while not (value := true()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(each_s)
    return value


class Daemon:
    """One process of sonde-powerd, and the events that it told."""

    def __init__(self, role: str, config: Path, name: str) -> None:
        self.name, self.log = name, config.parent / f"{name}.log"
        words = [
            str(libexec() / "sonde-powerd"),
            role,
            "--config",
            str(config),
            "--name",
            name,
            "--with-parent",
        ]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.events: list[dict[str, Any]] = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout
        with suppress(ValueError):  # it was closed
            for line in self.process.stdout:
                self.events.append(json.loads(line))

    def said(self, event: str, timeout_s: float = 60) -> dict[str, Any]:
        """The first event of that kind, when it was told."""

        def told() -> dict[str, Any] | None:
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} ended: {self.log.read_text()[-2000:]}")
            return next((e for e in self.events if e["event"] == event), None)

        return dict(until(told, f"{self.name} says {event}", timeout_s))

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        with suppress(OSError):
            self.process.send_signal(how)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


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
        self, folder: Path, nodes: Sequence[str], budget_w: float, times: Times, hardware: str = "tree"
    ) -> None:
        self.folder, self.nodes, self.budget_w, self.times = folder, list(nodes), budget_w, times
        self.hardware = hardware
        self.daemons: dict[str, Daemon] = {}
        folder.mkdir(exist_ok=True)
        (folder / "bus.xml").write_text(
            f'<sonde-bus version="1"><profile name="power" domain="{random.randint(1, 100)}"/></sonde-bus>'
        )
        if hardware == "tree":
            for node in nodes:
                self._tree(node)

    def _tree(self, node: str) -> None:
        zone = self.folder / node / "class/powercap/intel-rapl:0"
        zone.mkdir(parents=True)
        for name, text in {
            "name": "package-0",
            "enabled": "1",
            "energy_uj": "1000000",
            "max_energy_range_uj": "262143328850",
            "constraint_0_name": "long_term",
            "constraint_0_max_power_uw": "200000000",
            "constraint_0_power_limit_uw": "180000000",
            "constraint_0_time_window_us": "999424",
        }.items():
            (zone / name).write_text(text + "\n")

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
        made = self.daemons[name] = Daemon(role, self.config(name, takeover_s), name)
        if wait:
            made.said("ready")
        return made

    def kill(self, name: str) -> None:
        """kill -9."""
        self.daemons.pop(name).end(signal.SIGKILL)

    def caps_w(self) -> list[float]:
        """The limits in the trees. A file that is being written is read again."""
        caps = []
        for node in self.nodes:
            limit = self.folder / node / "class/powercap/intel-rapl:0/constraint_0_power_limit_uw"
            while not (text := limit.read_text().strip()):
                pass
            caps.append(int(text) / 1e6)
        return caps

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
