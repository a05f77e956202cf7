"""What is said about jobs: values and IDL are the same, and values come back as they were."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from sonde.power import jobs
from sonde.power.telemetry import CODES

TEXT = jobs.IDL.read_text("utf-8")
STRUCTS = {
    name: re.findall(r"(\w+)(?:\[\d+\])?;", body)
    for name, body in re.findall(r"struct (\w+) \{(.*?)\};", TEXT, re.S)
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (jobs.Target, "JobTarget"),
        (jobs.Spec, "JobSpec"),
        (jobs.Part, "NodePart"),
        (jobs.JobState, "JobState"),
        (jobs.Run, "JobRun"),
    ],
)
def test_values_have_the_fields_of_the_idl(kind, name):
    assert {one.name for one in fields(kind)} == set(STRUCTS[name])


def test_services_have_types_of_the_idl_and_codes_are_nobody_elses():
    for types in jobs.SERVICES.values():
        assert {kind.rpartition(":")[2] for kind in types} <= set(STRUCTS)
    assert not set(jobs.CODES) & set(CODES)
    assert len(jobs.NUMBERS) == len(jobs.CODES)


def test_a_job_comes_back_as_it_was():
    spec = jobs.Spec(
        "j1", ("a", "b"), "ada", hosts=("n1",), cores=2, guaranteed_w=90.5, target=jobs.Target(slowdown=0.1)
    )
    state = jobs.JobState(spec, jobs.RUNNING, "why", parts=(jobs.Part("n1", False, (0, 3), 5, (1,), ()),))
    assert jobs.JobState.of(jobs.said(state)) == state
    run = jobs.Run("j1", jobs.ENDED, exit_status=3)
    assert jobs.Run.of({**jobs.said(run), "later": 1}) == run
    assert (state.active, state.over, run.over) == (True, False, True)
