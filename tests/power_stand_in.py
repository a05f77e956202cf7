"""Publishes telemetry in place of daemons: over the bus, by DDS."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sonde.power.stack import run_bus
from sonde.power.stack.telemetry import CLUSTER, JOB, NODE

NODES = ("n1", "n2", "n3", "n4")


def folder_of(where: Path, domain: int, monitor: str = "", nodes: str = "n[1-4]") -> Path:
    """A configuration in a folder. Returns its path."""
    (where / "bus.xml").write_text(
        f'<sonde-bus version="1"><profile name="default" domain="{domain}"/></sonde-bus>'
    )
    path = where / "power.toml"
    path.write_text(
        'cluster = "demo"\n[bus]\nprofile = "bus.xml"\n'
        '[budget]\npower_limit = "1kW"\npolicy = "fair"\nlease = "3s"\nrenew = "1s"\nperiod = "500ms"\n'
        f'[[nodes]]\nhosts = "{nodes}"\nmin = "100W"\nmax = "400W"\nsafe = "150W"\n'
        '[node-manager]\ntelemetry = "1s"\nstate = "state"\n'
        f'[monitor]\nlisten = "127.0.0.1:0"\nhistory = "history.sqlite"\n{monitor}\n'
    )
    return path


def node(name: str, at_ns: int, power_w: float = 180.0, cap_w: float = 230.0, **more: Any) -> dict[str, Any]:
    lease = {"instance": 1, "leased": True, "left_s": 2.5, "lease_w": cap_w, "cap_w": cap_w, "seen_epoch": 3}
    lease["seen_manager"] = "m1"
    return {
        "node": name,
        "at_ns": at_ns,
        "period_s": 1.0,
        "source": "SOURCE_SIMULATED",
        "power_w": power_w,
        "energy_j": 100.0,
        "lease": lease,
        "domains": [{"name": "package-0", "source": "SOURCE_SIMULATED", "power_w": 100.0}],
        "frequencies": [{"name": "policy0", "current_hz": 2e9}],
        "sensors": [
            {"name": "inlet", "kind": "SENSOR_TEMPERATURE", "value": 24.5},
            {"name": "fan1", "kind": "SENSOR_FAN", "value": 5400.0},
        ],
        **more,
    }


def cluster(at_ns: int, **more: Any) -> dict[str, Any]:
    return {
        "cluster": "demo",
        "manager": "m1",
        "at_ns": at_ns,
        "epoch": 3,
        "budget_version": 1,
        "state": "active",
        "policy": "fair",
        "period_s": 0.5,
        "lease_s": 3.0,
        "budget_w": 1000.0,
        "safe_w": 600.0,
        "committed_w": 920.0,
        "power_w": 720.0,
        "nodes": 4,
        "heard": 4,
        "leased": 4,
        "restored_w": math.nan,
        **more,
    }


def job(at_ns: int, **more: Any) -> dict[str, Any]:
    return {
        "job": "17",
        "user": "ada",
        "name": "lbm",
        "at_ns": at_ns,
        "nodes": ["n1", "n2"],
        "power_w": 360.0,
        "energy_j": 4000.0,
        "iteration_s": 0.5,
        "progress": 0.25,
        "state": "running",
        **more,
    }


@contextmanager
def publishing(
    config: Path, period_s: float = 0.3, nodes: Sequence[str] = NODES, also: Sequence[dict[str, Any]] = ()
) -> Iterator[dict[str, float]]:
    """Four nodes, a job and a manager, until the end. Yields the power of each node, W: a value that is put there is
    published next.

    also: further node samples, published once.
    """
    stack = run_bus.load(config)
    draws = {name: 170.0 + 10 * k for k, name in enumerate(nodes)}
    ended = threading.Event()
    with run_bus.open_bus(stack, "stand-in") as bus:
        writers = {topic: run_bus.writer(bus, topic) for topic in (NODE, JOB, CLUSTER)}

        def publish() -> None:
            told = list(also)
            while not ended.is_set():
                at = time.time_ns()
                for name, power in list(draws.items()):
                    writers[NODE].write(node(name, at, power))
                while told and writers[NODE].wait_matched(1, 0):
                    writers[NODE].write(told.pop())
                writers[CLUSTER].write(cluster(at, power_w=sum(draws.values())))
                writers[JOB].write(job(at))
                ended.wait(period_s)

        thread = threading.Thread(target=publish, daemon=True)
        thread.start()
        try:
            yield draws
        finally:
            ended.set()
            thread.join(10)
