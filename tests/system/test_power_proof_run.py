"""Who orders, proven by MUNGE: a real munged, the scheduler and the workflow engine as processes on one bus."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from power_cluster import SONDE, Cluster, pytestmark
from power_daemons import until
from sonde.core.errors import EnvironmentFailure, UsageError
from sonde.power.jobs import jobs, proof, run_jobs_bus
from sonde.power.jobs.jobs import Spec, to_plain
from sonde.power.stack import run_bus
from sonde.power.stack.run_bus import _power
from sonde.power.workflows import run_workflow_bus
from sonde_shell import Typed

assert pytestmark
ALICE, GATE = "nobody", "daemon"
"""Two users that are everywhere. The second may speak for others."""
WORKFLOW = 'name = "study"\n[jobs.a]\ncommand = ["true"]\n'
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv") or not _power.munge_built(),
    reason="needs root, setpriv and a build with MUNGE",
)


class Proving(Cluster):
    socket = ""

    def settings(self, name: str) -> str:
        return (
            super().settings(name)
            + f'[users]\nproof = "munge"\nmay_speak_for_others = ["{GATE}"]\n'
            + '[workflow-engine]\nstate = "workflows"\nlook = "200ms"\n'
        )

    def credential(self, user: str, service: str, body: Mapping[str, Any], text: str = "") -> str:
        """What munged gives a process of that user, for the order, or for any text."""
        text = text or f"sonde power order 1\nt\n{proof.digest(service, body)}"
        one = pwd.getpwnam(user)
        words = ["setpriv", f"--reuid={one.pw_uid}", f"--regid={one.pw_gid}", "--clear-groups", "munge"]
        return subprocess.run(
            [*words, f"--socket={self.socket}"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()


@pytest.fixture
def cluster(
    tmp_path: Path, munge: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Proving]:
    monkeypatch.setenv("SONDE_MUNGE_SOCKET", str(munge))
    made = Proving(tmp_path, capfd)
    made.socket = str(munge)
    yield made
    made.close()


def order(job: str, user: str = ALICE) -> dict[str, Any]:
    return {"order": "SUBMIT_JOB", "spec": to_plain(Spec(job, ("true",), user, folder="/"))}


@needs_root
@pytest.mark.timeout(300)
def test_a_job_is_its_users_and_nobody_elses(cluster: Proving, munge: Path, monkeypatch: pytest.MonkeyPatch):
    cluster.role("job-scheduler").said("ready")
    stack = run_bus.load(cluster.config("m1"))

    with run_jobs_bus.open_bus(stack, "test") as bus:

        def told(body: Mapping[str, Any], credential: str) -> str:
            answer = run_jobs_bus.ask(bus, jobs.SCHEDULER_SET, {**body, "credential": credential}, 20.0)
            return str(answer.body["jobs"][0]["state"])

        def refused(body: Mapping[str, Any], credential: str, code: str = "power.not_proven") -> str:
            with pytest.raises((UsageError, EnvironmentFailure)) as no:
                told(body, credential)
            assert no.value.code == code, no.value.what
            return no.value.what

        def of(user: str, body: Mapping[str, Any]) -> str:
            return cluster.credential(user, jobs.SCHEDULER_SET, body)

        mine = order("a1")
        once = of(ALICE, mine)
        assert told(mine, once) == "waiting"
        assert "Replayed" in refused(mine, once)
        assert "no credential" in refused(order("a2"), "")
        assert "refused" in refused(order("a2"), "MUNGE:nonsense:")
        # Another's credential, and one's own for something else.
        assert f"belongs to '{ALICE}', but the order is in the name of 'root'" in refused(
            order("a2", "root"), of(ALICE, order("a2", "root"))
        )
        assert "for something else" in refused(order("a2"), of(ALICE, order("a3")))
        # What others have signed, as a server of the store has its clients sign its nonce; and for another cluster.
        digest = proof.digest(jobs.SCHEDULER_SET, order("a2"))
        for text in (digest, f"sonde power order 1\nother\n{digest}"):
            signed = cluster.credential(ALICE, jobs.SCHEDULER_SET, order("a2"), text)
            assert "for something else" in refused(order("a2"), signed)
        # One that may speak for others does, and so does root.
        assert told(order("a4"), of(GATE, order("a4"))) == "waiting"
        assert told(order("a5"), of("root", order("a5"))) == "waiting"
        # It says who it is, and not what they may.
        assert told(order("r1", "root"), of("root", order("r1", "root"))) in ("waiting", "starting", "failed")
        hold = {"order": "HOLD_JOB", "job": "r1", "user": ALICE}
        refused(hold, of(ALICE, hold), "power.not_allowed")
        hold = {"order": "HOLD_JOB", "job": "a1", "user": ALICE}
        refused({**hold, "user": "root"}, of(ALICE, {**hold, "user": "root"}))
        assert told(hold, of(ALICE, hold)) == "held"

        # The commands make it by themselves, and say so where they cannot.
        code, answer = cluster.sonde("submit", "--id", "c1", "--", "true")
        assert code == 0, answer
        assert answer["job"] == "c1"
        with monkeypatch.context() as away:
            away.setenv("SONDE_MUNGE_SOCKET", "/nonexistent")
            code, answer = cluster.sonde("submit", "--id", "c2", "--", "true")
        assert (code, answer["error"]["code"]) == (3, "power.cannot_prove")
        assert "munged" in answer["error"]["hint"]

        # Nobody is taken at their word where munged has gone.
        late = of(ALICE, order("a6"))
        munge.rename(munge.with_name("gone"))
        assert "cannot check" in refused(order("a6"), late, "power.cannot_prove")
        munge.with_name("gone").rename(munge)
        known = run_jobs_bus.ask(bus, jobs.SCHEDULER_GET, {"ask": "GET_QUEUE", "over": True}, 20.0).body
    assert {one["spec"]["job"] for one in known["jobs"]} == {"a1", "a4", "a5", "r1", "c1"}


@needs_root
@pytest.mark.timeout(300)
def test_a_workflow_is_its_users_and_its_jobs_too(cluster: Proving):
    for role in ("job-scheduler", "workflow-engine"):
        cluster.role(role).said("ready")
    stack = run_bus.load(cluster.config("m1"))
    begin = {"order": "RUN_WORKFLOW", "run": "w1", "user": ALICE, "path": "/w.toml", "text": WORKFLOW}
    with run_workflow_bus.open_bus(stack, "test") as bus:

        def tell(
            body: Mapping[str, Any], by: str = "", over: Mapping[str, Any] | None = None
        ) -> dict[str, Any]:
            made = cluster.credential(by, run_workflow_bus.SET, over or body) if by else ""
            return run_workflow_bus.ask(bus, run_workflow_bus.SET, {**body, "credential": made}, 20.0)[0]

        def refused(*words: Any) -> None:
            with pytest.raises(UsageError) as no:
                tell(*words)
            assert no.value.code == "power.not_proven", no.value.what

        refused(begin)
        refused({**begin, "user": GATE}, ALICE)
        refused(begin, ALICE, {**begin, "text": WORKFLOW.replace("true", "id")})
        assert tell(begin, ALICE)["user"] == ALICE
        # Its jobs are handed in by the engine, for their user.
        question = {"ask": "GET_QUEUE", "user": ALICE, "over": True}
        with run_jobs_bus.client(bus, jobs.SCHEDULER_GET) as asking:
            (job,) = until(
                lambda: run_jobs_bus.call(asking, jobs.SCHEDULER_GET, question, 20.0).body["jobs"], "a job"
            )
        assert job["spec"]["user"] == ALICE
        assert re.fullmatch(r"w1\.1\.1-[0-9a-f]{8}", job["spec"]["job"])  # which nobody could take before
        end = {"order": "CANCEL_WORKFLOW", "run": "w1", "user": ALICE, "reason": ""}
        refused(end)
        refused(end, ALICE, {**end, "run": "w2"})
        assert tell(end, ALICE)["state"] in ("cancelling", "cancelled")

    # Whether its job has ended by now, which nobody waited for, or not.
    typed = Typed(cluster.folder, dict(os.environ), cluster.capture)
    again = typed("power", "workflow", "cancel", "w1", "--json", "--config", cluster.config("m1"))
    code, told = again.code, again.json
    assert (code, told["error"]["code"]) == (2, "power.workflow_over")


@needs_root
@pytest.mark.parametrize("role", ["job-scheduler", "workflow-engine"])
def test_a_role_does_not_start_where_nobody_could_prove_anything(
    cluster: Proving, role: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SONDE_MUNGE_SOCKET", "/nonexistent")
    words = [*SONDE, "power", "serve", role, "--config", str(cluster.config("m1"))]
    ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 3
    assert "MUNGE gave no credential" in ran.stderr
