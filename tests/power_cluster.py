"""A power stack with jobs as processes on one bus, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

import sonde.bus.client as bus
from power_daemons import DAEMON, Daemon, make_bus
from sonde_shell import Typed

ROLES = json.loads(subprocess.run([DAEMON, "--list"], capture_output=True).stdout)["roles"]
SONDE = [sys.executable, "-c", "import sys; from sonde.cli.entry import main; sys.exit(main())"]
STAND_IN = Path(__file__).with_name("power_job_stand_in.py")
NODES = ("n1", "n2", "n3")
pytestmark = [
    pytest.mark.skipif("cyclonedds" not in bus.implementations(), reason="no Cyclone DDS is here"),
    pytest.mark.skipif(
        not {"node-manager", "system-manager"} <= set(ROLES), reason="this build lacks a manager"
    ),
]


class Cluster:
    keys = False  # whether its bus admits no program without keys

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capture = folder, capture
        make_bus(folder, keys=self.keys)
        self.daemons: dict[str, Daemon] = {}

    def config(self, name: str) -> Path:
        """Written once: a daemon may be reading it."""
        path = self.folder / f"{name}.toml"
        if not path.exists():
            path.write_text(self.settings(name))
        return path

    def settings(self, name: str) -> str:
        return (
            f'cluster = "t"\n[bus]\nprofile = "bus.xml"\n'
            '[budget]\npower_limit = 600\npolicy = "fair"\nlease = "3s"\nrenew = "1s"\nperiod = "300ms"\n'
            '[[nodes]]\nhosts = "n[1-3]"\nmin = 60\nmax = 300\nsafe = 100\ncores = 4\n'
            f'[node-manager]\nname = "{name}"\ntelemetry = "500ms"\nstate = "{name}-state"\n'
            '[[node-manager.hardware]]\nkind = "simulated"\nidle = 50\nbusy = 280\n'
            f'[system-manager]\nname = "{name}"\nstate = "{name}-state"\naudit = "{name}.jsonl"\ntakeover = "1s"\n'
            '[job-scheduler]\nkind = "built-in"\nstate = "scheduler-state"\nperiod = "200ms"\n'
            '[[job-scheduler.queues]]\nname = "normal"\ndefault = true\nmax_time = "1h"\n'
            '[[job-scheduler.queues]]\nname = "urgent"\npriority = 10\nmax_time = "1h"\n'
            '[[job-scheduler.queues]]\nname = "closed"\nusers = ["nobody-here"]\n'
            '[resource-manager]\nstate = "resource-state"\n'
        )

    def start(self, name: str, words: Sequence[str | Path]) -> Daemon:
        self.daemons[name] = Daemon(words, self.folder / f"{name}.log")
        return self.daemons[name]

    def role(self, role: str) -> Daemon:
        words = ["power", "serve", role, "--config", str(self.config("m1")), "--with-parent"]
        return self.start(role, [*SONDE, *words])

    def sonde(self, *words: str) -> tuple[int, dict[str, Any]]:
        """`sonde power WORDS`, in this process."""
        typed = Typed(self.folder, dict(os.environ), self.capture)
        told = typed("power", *words[:1], "--json", "--config", self.config("m1"), *words[1:])
        return told.code, told.json

    def starts(self) -> list[dict[str, Any]]:
        path = self.folder / "starts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def ends(self) -> dict[str, str]:
        """For each job whose guarantee is over in the manager's audit log: the reason."""
        lines = (self.folder / "m1.jsonl").read_text().splitlines(keepends=True)
        # The manager may be writing a line.
        audit = [json.loads(line) for line in lines if line.endswith("\n")]
        return {line["job"]: line["why"] for line in audit if line["what"] == "job_ends"}

    def close(self) -> None:
        for daemon in self.daemons.values():
            daemon.end(signal.SIGTERM)
