"""Jobs of a real Slurm at a real system manager: deploy/slurm's prolog and epilog tell it what begins and ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from test_slurm import asked, cluster

from power_cluster import pytestmark
from power_daemons import Daemon, make_bus, powerd, until

pytestmark = [*pytestmark, pytest.mark.root]
SLURM = Path(__file__).parents[2] / "deploy" / "slurm"
HOST = socket.gethostname().split(".")[0]


class Stack:
    """A node manager of this host, simulated, and a system manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_bus(folder)
        self.config = folder / "power.toml"
        self.config.write_text(
            'cluster = "t"\n[bus]\nprofile = "bus.xml"\n'
            '[budget]\npower_limit = 500\npolicy = "proportional"\nlease = "3s"\nrenew = "1s"\nperiod = "300ms"\n'
            f'[[nodes]]\nhosts = "{HOST}"\nmin = 60\nmax = 300\nsafe = 100\n'
            f'[node-manager]\nname = "{HOST}"\ntelemetry = "500ms"\nstate = "node"\n'
            '[[node-manager.hardware]]\nkind = "simulated"\n'
            '[system-manager]\nname = "m1"\nstate = "system"\naudit = "audit.jsonl"\ntakeover = "1s"\n'
        )
        self.daemons = [
            Daemon(powerd(role, self.config), folder / f"{role}.log")
            for role in ("node-manager", "system-manager")
        ]

    def audit(self, what: str) -> list[dict[str, Any]]:
        path = self.folder / "audit.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if line["what"] == what]

    def end(self) -> None:
        for daemon in self.daemons:
            daemon.end()
        self.daemons.clear()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(tmp_path)
    for daemon in made.daemons:
        daemon.said("ready")
    made.daemons[1].said("leading")
    yield made
    made.end()


def hooks(stack: Stack) -> str:
    """Lines of slurm.conf. Slurm gives its hooks no environment of ours: two scripts do."""
    lines = ""
    for hook in ("prolog", "epilog"):
        script = stack.folder / f"{hook}.sh"
        sonde = stack.folder / "sonde"
        sonde.write_text(
            f"#!/bin/sh\nexec {sys.executable} -c "
            "'import sys; from sonde.cli.entry import main; sys.exit(main())' \"$@\"\n"
        )
        script.write_text(
            f"#!/bin/sh\nexec 2>>{stack.folder}/{hook}.said\n"
            f"export SONDE={sonde} SONDE_POWER_CONFIG={stack.config} SONDE_POWER_JOB=140W\nexec {SLURM}/power-{hook}\n"
        )
        for made in (script, sonde):
            made.chmod(0o755)
        lines += f"{hook.capitalize()}Slurmctld={script}\n"
    return lines


@pytest.fixture
def config(stack: Stack) -> Iterator[Path]:
    with cluster(hooks(stack)) as path:
        yield path


@pytest.mark.timeout(300)
def test_a_job_of_slurm_sets_its_power_and_ends_it_and_runs_without_the_stack_too(stack: Stack, config: Path):
    environment = os.environ | {"SLURM_CONF": str(config)}
    gate = stack.folder / "gate"
    line = f"while ! [ -e {gate} ]; do sleep 0.05; done"
    words = ["srun", "--time=5", "--comment=for the paper power=150W guaranteed=120W", "/bin/sh", "-c", line]
    job = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL)
    try:
        (said,) = until(lambda: stack.audit("SET_JOB"), "the job is told")
        number = asked(config, "squeue", "--noheader", "--format=%i").split()
        assert [said["job"]] == [f"slurm-{one}" for one in number]
        assert said["nodes"] == [HOST]
        assert (said["demand_w"], said["guaranteed_w"]) == (150, 120)
        assert 300 < said["for_s"] <= 30 * 86400
        assert stack.audit("END_JOB") == stack.audit("job_ends") == []
    finally:
        gate.touch()
        assert job.wait(60) == 0
    (ended,) = until(lambda: stack.audit("job_ends"), "its end is told")
    assert (ended["job"], ended["why"]) == (said["job"], "END_JOB")

    # One that says nothing has what the site says.
    assert subprocess.run(["srun", "true"], env=environment, timeout=100).returncode == 0
    second = until(lambda: stack.audit("SET_JOB")[1:], "the second")[0]
    assert (second["demand_w"], second["guaranteed_w"]) == (140, 0)
    until(lambda: len(stack.audit("job_ends")) == 2, "its end")

    # Nobody there to be told: the job runs, and what happened is said.
    stack.end()
    assert subprocess.run(["srun", "true"], env=environment, timeout=100).returncode == 0
    log = stack.folder / "prolog.said"
    assert "the job goes on without" in log.read_text()
    assert "no system manager was found within 5 s" in log.read_text()
    until(lambda: asked(config, "squeue", "--noheader") == "", "no job is left")
    until(
        lambda: "the job goes on without" in (stack.folder / "epilog.said").read_text(), "the epilog is done"
    )
