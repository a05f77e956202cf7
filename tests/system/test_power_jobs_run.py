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
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from power_cluster import NODES, SONDE, STAND_IN, Cluster, pytestmark
from power_daemons import powerd, until

assert pytestmark


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
