"""sonde noise sensitivity and stability as a user starts them, with a real MPI. No timing is asserted."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

import pytest

import noise_runs
from sonde.core.blocks import BlockFile
from sonde.core.errors import DataError
from sonde.noise.detector.plan import LOOK_PAIRS
from sonde_shell import finish
from watching import wait_for

pytestmark = pytest.mark.mpi

QUICK = ("--ntasks", "2", "--block-s", "0.2s", "--seed", "7")


@pytest.mark.slow
@pytest.mark.alone
def test_a_small_sensitivity(sonde, typed):
    ran = sonde(
        *("noise", "sensitivity", "--levels", "20%,1%", "--period", "100ms", "--budget", "26s", *QUICK),
        *("-o", "s.nc", "--json"),
    )
    told = ran.json
    assert told["study"] == "sensitivity"
    assert [level["level_pct"] for level in told["levels"]] == [20, 1]
    assert not (sonde.cwd / "s.run").exists()
    assert sonde.left() == []
    if noise_runs.ran_out_of_time(told):
        ran.expect(4)
        return
    for level in told["levels"]:
        assert level["blocks"] >= 6
        assert level["mean_s"] > 0
        assert level["ci99_s"][0] <= level["mean_s"] <= level["ci99_s"][1]
        assert 0 < level["sonde"]["p"] <= 1
        assert isinstance(level["source_rule"]["detected"], bool)
        assert level["duty_pct"] > 0  # its own record is in the dataset
    assert told["clean"]["blocks"] >= 6
    assert told["threshold_pct"] in (None, 1, 20)
    ran.expect(4 if told["threshold_pct"] is None else 0)  # too noisy a machine for any of it

    again = typed("noise", "show", "s.nc", "--json").expect(0)
    assert again.json["levels"] == told["levels"]
    shown = typed("noise", "show", "s.nc", COLUMNS="80").expect(0)
    assert "Detection of each level" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


def test_the_plan_of_the_whole_study(typed):
    told = typed("noise", "sensitivity", "--ntasks", "2", "--dry-run", "--json").expect(0).json
    assert told["shares"] == [3, *[1] * 7]
    assert told["rounds"][0] == LOOK_PAIRS[0]  # where a run of one level alone would look first
    assert told["expected_s"] < 300
    assert list(typed.cwd.iterdir()) == []


@pytest.mark.slow
@pytest.mark.alone
def test_a_small_stability_of_two_operations(sonde, typed):
    ran = sonde(
        *("noise", "stability", "--op", "alltoall,barrier", "--groups", "2", "--budget", "36s", *QUICK),
        *("-o", "t.nc", "--json"),
    )
    assert [each["op"] for each in ran.json["datasets"]] == ["alltoall", "barrier"]
    assert all((sonde.cwd / each["dataset"]).exists() for each in ran.json["datasets"])
    assert sonde.left() == []
    if noise_runs.ran_out_of_time(ran.json):
        ran.expect(4)
        return
    ran.expect(0)
    for each in ran.json["datasets"]:
        assert len(each["groups"]) == 2
        assert all(group["blocks"] >= 3 for group in each["groups"])
        assert isinstance(each["stable"], bool)
    assert typed("noise", "show", "t-barrier.nc", "--json").expect(0).json["op"] == "barrier"


@pytest.mark.slow
@pytest.mark.alone
def test_a_small_sweep(sonde):
    ran = sonde(
        *("noise", "sensitivity", "--sweep", "sync,placement", "--levels", "20%", "--period", "100ms"),
        *("--budget", "32s", *QUICK, "-o", "w.nc", "--json"),
    )
    told = ran.json
    assert told["study"] == "sweep"
    names = [variant["variant"] for variant in told["variants"]]
    assert names[-2:] == ["pinned", "free"]
    questions = [answer["question"] for answer in told["answers"]]
    assert questions[-1] == "placement"
    assert ("sync" in questions) == ("together" in names)  # not where all ranks share a core
    assert sonde.left() == []
    if noise_runs.ran_out_of_time(told):
        ran.expect(4)
        return
    ran.expect(0)
    assert all(answer["ci_pct"][0] is not None for answer in told["answers"])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("sensitivity", "--levels", "1%,0"), 2, "'0' is not a share"),
        (("sensitivity", "--levels", "1%,0.01"), 2, "given twice"),
        (("sensitivity", "--levels", "120%"), 2, "is not a share"),
        (("sensitivity", "--sweep", "moon"), 2, "there is no sweep 'moon'"),
        (("sensitivity", "--op", "barrier,barrier"), 2, "given twice"),
        (("sensitivity", "--op", "sort"), 2, "there is no op 'sort'"),
        (("sensitivity", "--budget", "20s"), 4, "give --budget 7"),
        (("sensitivity", "--op", "alltoall,barrier", "--budget", "2min"), 4, "for each of the 2 operations"),
        (("stability", "--budget", "10s"), 4, "give --budget"),
        (("stability", "--groups", "1"), 2, "from 2 up"),
        (("stability", "--ntasks", "1"), 2, "a collective needs at least two ranks"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_bad_input_is_refused_before_anything_starts(typed, words, code, said):
    ran = typed("noise", *words).expect(code)
    assert said in ran.said
    assert list(typed.cwd.iterdir()) == []


def test_an_interrupted_study_keeps_what_it_has_and_leaves_no_source(sonde):
    process = sonde.start(
        *("noise", "sensitivity", "--levels", "20%,1%", "--period", "100ms", "--budget", "2min", *QUICK),
        *("-o", "i.nc", "--json"),
    )
    assert wait_for(lambda: len(sources(sonde)) == 2)  # one a level, all through the run
    assert wait_for(lambda: measured(sonde.cwd / "i.run"))
    process.send_signal(signal.SIGINT)
    ran = finish(process).expect(130)
    assert ran.json["levels"]
    assert sonde.left() == []
    assert not (sonde.cwd / "i.run").exists()


def sources(sonde):
    return [pid for pid, name in sonde.processes().items() if Path(name).name == "sonde-agent"]


def measured(folder):
    """Whether rank 0 has written a block."""
    with suppress(FileNotFoundError, DataError):
        return any((records["kind"] == 0).any() for records in BlockFile(folder / "rank-00000.blk"))
    return False
