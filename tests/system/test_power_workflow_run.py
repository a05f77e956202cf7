"""Workflows as they are run: every role of the stack as a process, simulated nodes, commands that leave their marks.

Workflow engine and job manager are killed while jobs run.
"""

from __future__ import annotations

import getpass
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from power_cluster import Cluster, pytestmark
from power_daemons import DAEMON, Daemon, until
from sonde.core.processes import began
from sonde_shell import Typed

NODES = ("n1", "n2", "n3")
assert pytestmark


class Whole(Cluster):
    """With a job manager, which serves no bus that lets in everybody, and a workflow engine."""

    keys = True

    def settings(self, name: str) -> str:
        return (
            super().settings(name)
            + f'[job-manager]\nstate = "runs"\nreport = "300ms"\ngrace = "2s"\nusers = ["{getpass.getuser()}"]\n'
            + '[workflow-engine]\nstate = "workflows"\nlook = "200ms"\n'
        )

    def up(self) -> None:
        for name in NODES:
            words = ["node-manager", "--config", str(self.config(name)), "--with-parent"]
            self.start(name, [str(DAEMON), *words])
        self.start("m1", [str(DAEMON), "system-manager", "--config", str(self.config("m1")), "--with-parent"])
        for role in ("resource-manager", "job-manager", "job-scheduler", "workflow-engine"):
            self.role(role)
        for daemon in list(self.daemons.values()):
            daemon.said("ready")
        self.daemons["m1"].said("leading")

    def workflow(self, verb: str, *words: str) -> tuple[int, dict[str, Any]]:
        typed = Typed(self.folder, dict(os.environ), self.capture)
        told = typed("power", "workflow", verb, "--json", "--config", self.config("m1"), *words)
        return told.code, told.json

    def again(self, role: str) -> Daemon:
        assert self.daemons[role].end(signal.SIGKILL) == -signal.SIGKILL
        return self.role(role)

    def close(self) -> None:
        super().close()
        for mark in self.folder.glob("runs/*/keeper.json"):  # jobs outlive who started them: not this test
            told = json.loads(mark.read_text())
            if began(told["pid"]) == told["began"]:
                os.kill(told["pid"], signal.SIGTERM)
                until(lambda told=told: began(told["pid"]) != told["began"], "the job ends")

    def marks(self) -> Counter[str]:
        path = self.folder / "marks"
        return Counter(path.read_text().split()) if path.exists() else Counter()


@pytest.fixture
def whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Whole]:
    made = Whole(tmp_path, capfd)
    yield made
    made.close()


WORKFLOW = """
name = "study"

[defaults]
on_failure = "continue"

[jobs.mesh]
command = "echo mesh >> marks"

[jobs.solve]
command = "echo solve-{n} >> marks; while ! [ -e gate ]; do echo 0.5 >> $SONDE_JOB_PROGRESS; sleep 0.05; done"
foreach = { n = [1, 2] }
after = ["mesh"]
power = "280W"
guaranteed = "110W"
target = { iteration = "10s" }

[jobs.shaky]
command = "echo shaky >> marks; mkdir tried 2>/dev/null && exit 7; exit 0"
after = ["mesh"]
on_failure = "retry 1"

[jobs.bad]
command = "echo bad >> marks; exit 3"
after = ["mesh"]

[jobs.never]
command = "echo never >> marks"
after = ["bad"]

[jobs.tell]
command = "echo tell >> marks"
after = ["solve", "shaky"]
after_any = ["bad"]
"""


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.timeout(300)
def test_a_workflow_goes_to_its_end_though_engine_and_job_manager_are_killed(whole: Whole):
    whole.up()
    file = whole.folder / "study.toml"
    file.write_text(WORKFLOW)
    code, told = whole.workflow("run", str(file), "--id", "w1", "--detach")
    assert (code, told["state"], told["total"]) == (0, "running", 7)
    until(lambda: whole.marks() >= Counter({"solve-1": 1, "solve-2": 1, "bad": 1}), "jobs run")

    # Killed while jobs run, both: what runs goes on, and is known again.
    whole.again("workflow-engine").said("ready", running=1)
    assert whole.again("job-manager").said("ready")["running"] >= 2
    # The same once more is the same; another one under its name is not.
    assert whole.workflow("run", str(file), "--id", "w1", "--detach")[1]["state"] == "running"
    other = whole.folder / "other.toml"
    other.write_text('[jobs.a]\ncommand = ["true"]\n')
    assert (
        whole.workflow("run", str(other), "--id", "w1", "--detach")[1]["error"]["code"]
        == "power.other_workflow"
    )

    # Turns that are far below the target's: power is given back, and the system manager is told so.
    steered = whole.daemons["job-manager"].said("target")["job"]
    assert steered.startswith("w1.2.1-")

    def demands() -> list[float]:
        lines = [json.loads(line) for line in (whole.folder / "m1.jsonl").read_text().splitlines()]
        return [one["demand_w"] for one in lines if one["what"] == "SET_JOB" and one["job"] == steered]

    until(lambda: min(demands()) < 280, "less is demanded")
    (whole.folder / "gate").touch()
    code, told = whole.workflow("run", str(file), "--id", "w1")  # waits for its end
    assert (code, told["state"]) == (4, "failed")
    states = {job["name"]: job["state"] for job in told["jobs"]}
    assert states.pop("never") == "skipped"
    assert states.pop("bad") == "failed"
    assert set(states.values()) == {"ended"}
    assert {job["name"]: job["attempt"] for job in told["jobs"]}["shaky"] == 2
    expected = {"mesh": 1, "solve-1": 1, "solve-2": 1, "shaky": 2, "bad": 1, "tell": 1}
    assert whole.marks() == Counter(expected)
    solved = [job for job in told["jobs"] if job["name"].startswith("solve")]
    assert all(job["energy_j"] > 0 for job in solved), solved
    assert told["energy_j"] == pytest.approx(sum(job["energy_j"] for job in told["jobs"] if job["energy_j"]))

    # A job whose keeper is killed is told as lost, and nothing of it is left; it is not started again.
    pids = whole.folder / "pids"
    words = f"echo lost >> marks; (setsid sleep 300 & echo $! >> {pids}); echo $$ >> {pids}; sleep 300"
    assert whole.sonde("submit", "--id", "lost", "--", "/bin/sh", "-c", words)[0] == 0
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "it runs")
    keeper = json.loads((whole.folder / "runs/lost/keeper.json").read_text())["pid"]
    os.kill(keeper, signal.SIGKILL)
    whole.daemons["job-scheduler"].said("job", job="lost", state="failed")
    reason = whole.sonde("queue", "lost")[1]["jobs"][0]["reason"]
    assert "job shim was killed" in reason
    until(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()), "nothing is left of it")

    # Cancelled: TERM, then KILL for what does not hear.
    pids.unlink()
    deaf = f"trap '' TERM; echo $$ >> {pids}; while :; do sleep 0.1; done"
    assert whole.sonde("submit", "--id", "deaf", "--", "/bin/sh", "-c", deaf)[0] == 0
    until(lambda: pids.exists() and pids.read_text().strip(), "it runs")
    assert whole.sonde("cancel", "deaf")[0] == 0
    whole.daemons["job-scheduler"].said("job", job="deaf", state="cancelled")
    assert not alive(int(pids.read_text()))
    assert whole.marks() == Counter({**expected, "lost": 1})
