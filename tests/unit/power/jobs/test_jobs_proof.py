"""Which order a credential is for: the same over the bus and back, and another for anything else that is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sonde.power.jobs import proof
from sonde.power.jobs.jobs import JOB_ID, SCHEDULER_SET, Spec, Target, to_plain
from sonde.power.workflows.run_workflow_bus import SET as WORKFLOW_SET
from sonde.power.workflows.workflow_run import id_of

SPEC = Spec(
    "j1", ("solve", "x.dat"), "ada", "solve", "", ("A=1",), "/home/ada", limit_s=60, guaranteed_w=250.0
)
ENGINE = {"order": "RUN_WORKFLOW", "run": "r1", "user": "ada", "path": "/a.toml", "text": "x = 1"}


def submit(spec: Spec) -> str:
    return proof.digest(SCHEDULER_SET, {"order": "SUBMIT_JOB", "spec": to_plain(spec)})


def test_what_is_left_out_is_what_the_bus_puts_there():
    whole = {"job": "", "user": "", "reason": "", "credential": "MUNGE:x:"}
    there = proof.digest(SCHEDULER_SET, {"order": "SUBMIT_JOB", "spec": to_plain(SPEC), **whole})
    assert submit(SPEC) == there
    assert proof.digest(WORKFLOW_SET, ENGINE) == proof.digest(WORKFLOW_SET, {**ENGINE, "reason": ""})
    # Of an order that is about a job its specification says nothing.
    cancel = {"order": "CANCEL_JOB", "job": "j1", "user": "ada"}
    assert proof.digest(SCHEDULER_SET, cancel) == proof.digest(
        SCHEDULER_SET, {**cancel, "spec": to_plain(Spec(""))}
    )


def test_whole_numbers_come_back_as_others():
    assert submit(SPEC) == submit(replace(SPEC, limit_s=60.0, guaranteed_w=250))
    assert submit(SPEC) != submit(replace(SPEC, limit_s=60.5))


@pytest.mark.parametrize(
    "changed",
    [
        {"job": "j2"},
        {"user": "bob"},
        {"command": ("solve", "y.dat")},
        {"command": ("solve x.dat",)},
        {"environment": ("A=2",)},
        {"environment": ()},
        {"folder": "/home/bob"},
        {"output": "/home/ada/.profile"},
        {"hosts": ("n1",)},
        {"nodes": 2},
        {"memory_bytes": 2**63},
        {"target": Target(slowdown=0.1)},
        {"weight": float("nan")},
        {"weight": float("inf")},
    ],
)
def test_anything_else_that_is_reported_is_another_order(changed):
    assert submit(replace(SPEC, **changed)) != submit(SPEC)


def test_an_order_to_one_service_is_none_to_the_other():
    both = {"order": "CANCEL", "job": "", "run": "", "user": "ada"}
    assert proof.digest(SCHEDULER_SET, both) != proof.digest(WORKFLOW_SET, both)


def test_a_job_that_is_handed_in_is_its_users():
    order = {"order": "SUBMIT_JOB", "user": "bob", "spec": to_plain(SPEC)}
    assert proof.claimed(SCHEDULER_SET, order) == "ada"
    assert proof.claimed(SCHEDULER_SET, {**order, "order": "CANCEL_JOB"}) == "bob"
    assert proof.claimed(WORKFLOW_SET, ENGINE) == "ada"


def test_the_job_of_a_step_has_a_name_that_nobody_knows_before():
    assert id_of("r", 3, 1) == "r.3.1"
    names = {id_of("r", 3, 1, secret) for secret in ("a", "b")} | {id_of("r", 3, 2, "a")}
    assert len(names) == 3
    assert all(JOB_ID.fullmatch(name) for name in names)
    assert JOB_ID.fullmatch(id_of("r" * 40, 10_000, 9999, "a"))
    assert id_of("r", 3, 1, "a") == id_of("r", 3, 1, "a")


def test_a_submission_that_is_sent_again_has_the_same_digest():
    spec = Spec("j", ("a", "b"), "ada", limit_s=60.0)
    assert proof.of_spec(spec) == proof.of_spec(replace(spec, limit_s=60))
    assert proof.of_spec(spec) == proof.of_spec(Spec.of(to_plain(spec)))
    others = {
        proof.of_spec(replace(spec, **{name: value})) for name, value in (("command", ("ab",)), ("nodes", 2))
    }
    assert len(others | {proof.of_spec(spec)}) == 3
