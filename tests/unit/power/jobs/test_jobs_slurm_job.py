"""What Slurm's hooks make of a job's environment and comment."""

from __future__ import annotations

import math

import pytest

from sonde.core.errors import UsageError
from sonde.power.jobs.slurm_job import LONGEST_S, SPARE_S, Wish, command, job_of, wish_of

ENVIRONMENT = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_USER": "ada",
    "SLURM_JOB_NODELIST": "n[1-3],x7",
    "SLURM_JOB_COMMENT": "for the paper power=350W",
    "SLURM_JOB_START_TIME": "1000",
    "SLURM_JOB_END_TIME": "4600",
}


def test_a_job_is_what_its_environment_says():
    job = job_of(ENVIRONMENT)
    assert (job.job, job.user, job.nodes, job.limit_s) == ("slurm-17", "ada", ("n1", "n2", "n3", "x7"), 3600)
    order = command(job, wish_of(job.comment, Wish(300, 100, 1))[0], ["n1", "n2", "n3"])
    assert order is not None
    assert order["nodes"] == ["n1", "n2", "n3"]  # x7 is not of the stack
    assert (order["order"], order["demand_w"], order["guaranteed_w"]) == ("SET_JOB", 350, 100)
    assert order["for_s"] == 3600 + SPARE_S


def test_a_job_without_nodes_of_the_stack_is_not_reported():
    assert command(job_of(ENVIRONMENT), Wish(), ["elsewhere"]) is None
    assert command(job_of({"SLURM_JOB_ID": "1"}), Wish(), ["n1"]) is None


def test_what_is_not_known_is_not_said():
    order = command(job_of({"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1"}), Wish(), ["n1"])
    assert order is not None
    assert math.isnan(float(str(order["demand_w"])))
    assert order["for_s"] == LONGEST_S


@pytest.mark.parametrize("number", ["", "x", "1; reboot", "-1"])
def test_no_hook_of_slurm_is_refused(number):
    with pytest.raises(UsageError) as error:
        job_of({"SLURM_JOB_ID": number})
    assert error.value.code == "power.not_in_slurm"


@pytest.mark.parametrize(
    ("comment", "wish", "wrong"),
    [
        ("", Wish(300, 100, 1), ""),
        ("power=1.2kW,guaranteed=250W;weight=2", Wish(1200, 250, 2), ""),
        ("see power.txt", Wish(300, 100, 1), ""),
        ("power=", Wish(300, 100, 1), "power=; allowed: a power such as 350W"),
        ("power=-3W", Wish(300, 100, 1), "power=-3W; allowed"),
        ("weight=0", Wish(300, 100, 1), "weight=0; allowed: a number"),
        ("powr=350W", Wish(300, 100, 1), "powr=350W, which is not a known word (nearest: power)"),
        ("power=90W", Wish(90, 90, 1), "guarantees more than its power"),
    ],
)
def test_a_comment_is_read_and_what_cannot_be_is_reported(comment, wish, wrong):
    found, said = wish_of(comment, Wish(300, 100, 1))
    assert found == wish
    assert any(wrong in one for one in said) if wrong else said == []
