"""What is said of tried hints: a gain, none, a loss, or that nothing is settled; and why something was not tried."""

from __future__ import annotations

import pytest

import io_traces
import sonde
from sonde.core import dataset_file
from sonde.io.kinds import SCHEMA
from sonde.io.trace import whatif_verdict
from sonde.io.trace.analyse import analyse
from sonde.io.trace.hints import Attempt, Untried
from sonde.io.trace.schema import NAME
from sonde.io.trace.whatif import HINTS, RAW, Result, Seen, Tried, read, written

DS = Attempt("io.read_to_write", "no data sieving", (("romio_ds_write", "disable"),))
FCOLL = Attempt(
    "io.collective_exchange", "each rank by itself", (), (("OMPI_MCA_fcoll", "individual"),), "write"
)


def tried(attempt, factor, rounds=6, gone=True, read=(f"/tmp/{HINTS}0",)):
    """factor: how many times as fast I/O is with it."""
    one = Tried(attempt)
    for k in range(rounds):
        level = 1 + 0.1 * k
        there = {(attempt.code, attempt.direction)}
        one.add(
            Seen(level, 2.0, there, set()), Seen(level / factor, 2.0, set() if gone else there, set(read))
        )
    return one


def test_a_gain():
    result = Result([tried(DS, 2.0)], [])
    assert whatif_verdict.answer(result.tried[0].gain) == "faster"
    (line,) = whatif_verdict.lines(result)
    assert line == (
        "romio_ds_write=disable, the file of ROMIO_HINTS: I/O is 2 times as fast (2 to 2); io.read_to_write no "
        "longer occurs."
    )
    table = whatif_verdict.table(result)
    assert table.rows == [("romio_ds_write=disable", "1.25 s", "625 ms", "2", "2 to 2", "1")]
    first, second = table.note.splitlines()
    assert "6 traced rounds" in first
    assert second == line, "a sentence on a hint stands where its numbers do"


def test_no_gain_and_a_loss():
    (none,) = whatif_verdict.lines(Result([tried(DS, 1.0, gone=False)], []))
    assert "no gain: 1 to 1 times as fast; io.read_to_write stays" in none
    (loss,) = whatif_verdict.lines(Result([tried(FCOLL, 0.5)], []))
    assert loss.startswith("fcoll=individual, parameters of Open MPI")
    assert "do not set it: I/O takes 2 times as long (2 to 2)" in loss
    assert loss.endswith("io.collective_exchange of writes no longer occurs.")


def test_a_finding_of_the_other_direction_stays_its_own():
    """No aggregators for writing mends writing; that reading has the same finding is no failure of it."""
    one = Tried(FCOLL)
    both = {("io.collective_exchange", "write"), ("io.collective_exchange", "read")}
    for _ in range(6):
        one.add(Seen(1.0, 2.0, both, set()), Seen(0.5, 2.0, {("io.collective_exchange", "read")}, set()))
    assert one.gone == 6
    for _ in range(3):
        one.add(Seen(1.0, 2.0, both, set()), Seen(0.5, 2.0, both, set()))
    assert one.gone == 6


def test_too_few_rounds_settle_nothing():
    result = Result([tried(DS, 2.0, rounds=5)], [], interrupted=True)
    first, second = whatif_verdict.lines(result)
    assert "5 rounds show no significant gain" in first
    assert "interrupted" in second


@pytest.mark.parametrize(
    ("gain", "word"),
    [((2.0, 1.5, 3.0), "faster"), ((0.5, 0.4, 0.6), "slower"), ((1.0, 0.99, 1.01), "no gain"),
     ((1.2, 0.9, 1.6), "not settled"),
     ((1.2, float("nan"), float("nan")), "not settled")],
)  # fmt: skip
def test_answers(gain, word):
    assert whatif_verdict.answer(gain) == word


def test_hints_that_nobody_read_were_not_tried():
    one = tried(DS, 1.0, read=("/etc/passwd",))
    assert one.reached is False
    (line,) = whatif_verdict.lines(Result([one], []))
    assert "no process read the hint file" in line
    assert tried(FCOLL, 1.0).reached is None  # which of a parameter cannot be seen


def test_what_failed_and_what_cannot_be_tried():
    failed = Tried(DS, failed="with it the command ends with exit status 3")
    lines = whatif_verdict.lines(Result([failed], [Untried("io.sync", "how often is its own affair")]))
    assert lines == [
        "romio_ds_write=disable: ended early: with it the command ends with exit status 3.",
        "io.sync cannot be tried without changing the program: how often is its own affair.",
    ]
    assert whatif_verdict.table(Result([failed], [])).rows == [
        ("romio_ds_write=disable", "–", "–", "–", "–", "–")
    ]


def test_nothing_to_try():
    result = Result([], [])
    assert whatif_verdict.lines(result) == ["There is no finding that suggests a hint."]
    assert whatif_verdict.table(result) is None


def test_as_data():
    result = Result([tried(DS, 2.0), tried(FCOLL, 1.0, rounds=2)], [Untried("io.sync", "its own affair")])
    first, second, third = whatif_verdict.as_values(result)
    assert (first["answer"], first["rounds"], first["reached"], first["finding_gone_in"]) == (
        "faster",
        6,
        True,
        6,
    )
    assert (first["direction"], second["direction"]) == (None, "write")
    assert first["io"]["gain"] == pytest.approx(2)
    assert first["whole"]["gain"] == pytest.approx(1)
    assert (second["answer"], second["io"]["ci95"]) == ("not settled", [None, None])
    assert third == {"code": "io.sync", "tried": None, "why": "its own affair", "answer": None}


@pytest.mark.parametrize(
    "result",
    [
        Result([tried(DS, 2.0), tried(FCOLL, 0.5, rounds=2, gone=False)], [Untried("io.sync", "its own affair")]),
        Result([tried(DS, 1.0, read=("/etc/passwd",)), Tried(FCOLL, failed="it ends with 3")], []),
        Result([], [Untried("io.sync", "its own affair")]),
    ],
)  # fmt: skip
def test_a_dataset_keeps_all_that_is_reported(result, tmp_path):
    raw = io_traces.collective(2, 1)
    path = dataset_file.write_dataset(tmp_path / "a.nc", raw, analyse(raw), {"schema": NAME, "kind": "trace"})
    with sonde.open(path) as tree:
        assert read(tree["summary"].to_dataset()) is None
    found = written(result)
    assert set(found.variables) == set(RAW)
    dataset_file.add_variables(path, {"raw": found, "summary": found})
    with sonde.open(path) as tree:
        again = read(tree["summary"].to_dataset().load())
        assert read(analyse(tree["raw"].to_dataset().load())) is not None  # analysed anew, it stays
        assert SCHEMA.validate(tree) == []
    assert whatif_verdict.lines(again) == whatif_verdict.lines(result)
    assert whatif_verdict.table(again) == whatif_verdict.table(result)
    assert whatif_verdict.as_values(again) == whatif_verdict.as_values(result)
    assert [one.name for one in tmp_path.iterdir()] == ["a.nc"]
