"""Jobs under a budget, as they are run: node managers over simulated hardware, a system manager, the resource manager
and the scheduler, all as processes on one bus. A stand-in starts the jobs' commands.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from sonde_shell import Typed

import sonde.bus.client as bus
from power_daemons import DAEMON, Daemon, make_bus, powerd, until

ROLES = json.loads(subprocess.run([DAEMON, "--list"], capture_output=True).stdout)["roles"]
SONDE = [sys.executable, "-c", "import sys; from sonde.cli.entry import main; sys.exit(main())"]
STAND_IN = Path(__file__).parents[1] / "power_job_stand_in.py"
NODES = ("n1", "n2", "n3")
pytestmark = [
    pytest.mark.skipif("cyclonedds" not in bus.implementations(), reason="no Cyclone DDS is here"),
    pytest.mark.skipif(
        not {"node-manager", "system-manager"} <= set(ROLES), reason="this build lacks a manager"
    ),
]


class Cluster:
    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capture = folder, capture
        make_bus(folder)
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
        """Of each job whose guarantee is over by the manager's audit log: why."""
        lines = (self.folder / "m1.jsonl").read_text().splitlines(keepends=True)
        audit = [json.loads(line) for line in lines if line.endswith("\n")]  # it may be writing one
        return {line["job"]: line["why"] for line in audit if line["what"] == "job_ends"}

    def close(self) -> None:
        for daemon in self.daemons.values():
            daemon.end(signal.SIGTERM)


@pytest.fixture
def cluster(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Cluster]:
    made = Cluster(tmp_path, capfd)
    yield made
    made.close()


@pytest.mark.timeout(300)
def test_jobs_start_in_order_under_the_budget_and_outlive_their_scheduler(cluster: Cluster):
    everybody = [cluster.start(name, powerd("node-manager", cluster.config(name))) for name in NODES]
    everybody.append(cluster.start("m1", powerd("system-manager", cluster.config("m1"))))
    config = str(cluster.config("m1"))
    everybody.append(cluster.start("jobs", [sys.executable, str(STAND_IN), config, str(cluster.folder)]))
    everybody.append(cluster.role("resource-manager"))
    scheduler = cluster.role("job-scheduler")
    for daemon in (*everybody, scheduler):
        daemon.said("ready")
    assert scheduler.said("ready")["guarantees_held"] is True
    cluster.daemons["m1"].said("leading")

    gate = cluster.folder / "gate"

    def waits_for(file: Path) -> list[str]:
        return ["--", "/bin/sh", "-c", f"while ! [ -e {file} ]; do sleep 0.05; done"]

    # Refused: a queue that there is not, one that is for others, more than there ever is.
    for words, code in (
        (("--queue", "urgnet"), "power.no_queue"),
        (("--queue", "closed"), "power.not_allowed"),
        (("--power", "250W", "--nodes", "3"), "power.above_limit"),
        (("--time", "2h"), "power.above_limit"),
    ):
        exit_code, told = cluster.sonde("submit", *words, "--", "true")
        assert (exit_code, told["error"]["code"]) == (2, code)

    # 250 + 250 + 100 W are the budget: two wait for power, and one that costs none starts before them.
    first = cluster.sonde("submit", "--id", "first", "--nodes", "2", "--power", "250W", *waits_for(gate))
    assert first[0] == 0
    scheduler.said("job", job="first", state="running")
    assert cluster.sonde("submit", "--id", "second", "--power", "260W", "--", "true")[1]["state"] == "waiting"
    assert (
        cluster.sonde("submit", "--id", "urgent", "--queue", "urgent", "--power", "250W", "--", "true")[0]
        == 0
    )

    def reason(job: str) -> str:
        return str(cluster.sonde("queue", job)[1]["jobs"][0]["reason"])

    until(
        lambda: "waits for power: it needs 150 W, 0 W of 600 W are left" in reason("urgent"), "why it waits"
    )
    assert cluster.sonde("submit", "--id", "free", "--time", "1s", "--", "/bin/sh", "-c", "exit 3")[0] == 0
    scheduler.said("job", job="free", state="failed")
    assert "exit status 3" in reason("free")
    assert [one["job"] for one in cluster.starts()] == ["first", "free"]

    # Killed, and there again: what waits waits, what runs runs.
    assert scheduler.end(signal.SIGKILL) == -signal.SIGKILL
    scheduler = cluster.role("job-scheduler")
    again = scheduler.said("ready")
    assert (again["waiting"], again["running"]) == (2, 1)
    same = cluster.sonde("submit", "--id", "first", "--nodes", "2", "--power", "250W", *waits_for(gate))
    assert same[1]["state"] == "running"
    # Killed once more, and meanwhile a job ends: what it was guaranteed is given back by one that never told it.
    assert scheduler.end(signal.SIGKILL) == -signal.SIGKILL
    gate.touch()
    scheduler = cluster.role("job-scheduler")
    scheduler.said("job", job="first", state="ended")
    scheduler.said("job", job="urgent", state="ended")
    scheduler.said("job", job="second", state="ended")
    # Both at once are more than the budget: the higher queue is first.
    assert [one["job"] for one in cluster.starts()] == ["first", "free", "urgent", "second"]

    # Cancelled while it runs, and while it waits.
    never = cluster.folder / "never"
    for job in ("one", "two"):
        cluster.sonde("submit", "--id", job, "--nodes", "3", *waits_for(never))
    scheduler.said("job", job="one", state="running")
    for job in ("two", "one"):
        assert cluster.sonde("cancel", job)[0] == 0
        scheduler.said("job", job=job, state="cancelled")
    assert Counter(one["job"] for one in cluster.starts())["two"] == 0
    assert max(Counter(one["job"] for one in cluster.starts()).values()) == 1
    # An END_JOB whose answer came too late is said again while the scheduler runs.
    until(lambda: {"first", "urgent", "one"} <= cluster.ends().keys(), "guarantees end with their jobs")
    assert scheduler.end() == 0
    # Guarantees were said to the system manager before jobs were started.
    audit = [json.loads(line) for line in (cluster.folder / "m1.jsonl").read_text().splitlines()]
    said = {line["job"]: line["guaranteed_w"] for line in audit if line["what"] == "SET_JOB"}
    assert (said["first"], said["urgent"]) == (250, 250)


def test_where_slurm_schedules_no_jobs_are_taken_in(cluster: Cluster):
    """Slurm is a program here that says what scontrol does of a controller that is up, or that is down."""
    scontrol = cluster.folder / "scontrol"
    scontrol.write_text("#!/bin/sh\necho 'Slurmctld(primary) at here is UP'\n")
    scontrol.chmod(0o755)
    config = cluster.config("m1")
    config.write_text(config.read_text().replace('kind = "built-in"', 'kind = "slurm"'))
    words = [*SONDE, "power", "serve", "job-scheduler", "--config", str(config), "--with-parent"]
    beside = {**os.environ, "PATH": f"{cluster.folder}:{os.environ['PATH']}"}
    with_it = cluster.start("job-scheduler", ["/usr/bin/env", f"PATH={beside['PATH']}", *words])
    assert with_it.said("ready")["kind"] == "slurm"
    code, told = cluster.sonde("submit", "--", "true")
    assert (code, told["error"]["code"]) == (3, "power.unsupported")
    assert "sbatch" in told["error"]["what"]
    assert with_it.end() == 0
    scontrol.write_text("#!/bin/sh\necho 'Slurmctld(primary) at here is DOWN'\nexit 1\n")
    done = subprocess.run(
        words, env=beside, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 3
    assert "power.no_slurm" in done.stdout + done.stderr or "no Slurm controller answers" in done.stderr
