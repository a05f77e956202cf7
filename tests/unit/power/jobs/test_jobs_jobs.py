"""What is said about jobs: values and IDL are the same, and values come back as they were."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from sonde.power.jobs import jobs
from sonde.power.stack.telemetry import CODES

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
    assert jobs.JobState.of(jobs.to_plain(state)) == state
    run = jobs.Run("j1", jobs.ENDED, exit_status=3)
    assert jobs.Run.of({**jobs.to_plain(run), "later": 1}) == run
    assert (state.active, state.over, run.over) == (True, False, True)


def test_a_command_that_is_long_is_cut_and_says_so():
    short = ("solver", "x" * (jobs.MAX_SHOWN - 6))
    assert jobs.shortened(short) == short
    for words in (("x" * (1 << 20),), ("a",) * 4096, ("",) * 4096, ("a", "x" * 5000, "b"), ("x" * 1000,) * 3):
        cut = jobs.shortened(words)
        assert cut[-1] == f"[cut: {len(words)} words, {sum(map(len, words))} characters]"
        assert len(cut) <= jobs.MAX_SHOWN_WORDS
        assert sum(map(len, cut)) <= jobs.MAX_SHOWN
        assert cut[0][:200] == words[0][:200]
        assert jobs.shortened(cut) == cut
    assert jobs.shortened(()) == ()


def test_a_listing_shows_the_beginning_of_a_first_word():
    brief = jobs.Spec("j", ("x" * (1 << 20), "y"), hosts=("n1",) * 5, nodes=5, environment=("A=1",)).brief
    (word,) = brief.command
    assert (len(word), word[-1]) == (jobs.MAX_FIRST, "…")
    assert (brief.hosts, brief.nodes, brief.environment) == ((), 5, ())
    assert jobs.Spec("j", ("a", "b")).brief.command == ("a",)


def test_what_a_job_takes_counts_all_that_it_brings():
    plain = jobs.Spec("j", ("a",))
    assert jobs.Spec("j", ("a",), environment=("A=",) * 1000).size_b > plain.size_b + 50_000
    assert jobs.Spec("j", ("a",), hosts=("n1",) * 1000).size_b > plain.size_b + 50_000
    part = jobs.Part("n1", False, tuple(range(100)))
    assert jobs.JobState(plain, parts=(part,)).size_b > plain.size_b + 3000
