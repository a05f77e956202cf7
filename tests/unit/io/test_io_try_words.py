"""What is said of tried hints: a gain, none, a loss, or that nothing is settled; and why something was not tried."""

from __future__ import annotations

import pytest

from sonde.io import try_words
from sonde.io.hints import Trial, Untried
from sonde.io.run_try import HINTS, Result, Seen, Tried, told

DS = Trial("io.read_to_write", "no data sieving", (("romio_ds_write", "disable"),))
FCOLL = Trial("io.collective_exchange", "each rank by itself", (), (("OMPI_MCA_fcoll", "individual"),))


def tried(trial, factor, rounds=6, gone=True, read=(f"/tmp/{HINTS}0",)):
    """factor: how many times as fast I/O is with it."""
    one = Tried(trial)
    for k in range(rounds):
        level = 1 + 0.1 * k
        codes = set() if gone else {trial.code}
        one.add(Seen(level, 2.0, {trial.code}, set()), Seen(level / factor, 2.0, codes, set(read)))
    return one


def test_a_gain():
    result = Result([tried(DS, 2.0)], [])
    assert try_words.answer(result.tried[0].gain) == "faster"
    (line,) = try_words.lines(result)
    assert line == (
        "romio_ds_write=disable, the file of ROMIO_HINTS: I/O is 2 times as fast (2 to 2); io.read_to_write is gone "
        "with it."
    )
    table = try_words.table(result)
    assert table.rows == [("romio_ds_write=disable", "1.25 s", "625 ms", "2", "2 to 2", "1")]
    assert "6 rounds" in table.note


def test_no_gain_and_a_loss():
    (none,) = try_words.lines(Result([tried(DS, 1.0, gone=False)], []))
    assert "no gain: 1 to 1 times as fast; io.read_to_write stays" in none
    (loss,) = try_words.lines(Result([tried(FCOLL, 0.5)], []))
    assert loss.startswith("fcoll=individual, parameters of Open MPI")
    assert "no gain: I/O takes 2 times as long (2 to 2)" in loss


def test_too_few_rounds_settle_nothing():
    result = Result([tried(DS, 2.0, rounds=5)], [], interrupted=True)
    first, second = try_words.lines(result)
    assert "no gain is settled by 5 rounds" in first
    assert "interrupted" in second


@pytest.mark.parametrize(
    ("gain", "word"),
    [((2.0, 1.5, 3.0), "faster"), ((0.5, 0.4, 0.6), "slower"), ((1.0, 0.99, 1.01), "no gain"),
     ((1.2, 0.9, 1.6), "not settled"),
     ((1.2, float("nan"), float("nan")), "not settled")],
)  # fmt: skip
def test_answers(gain, word):
    assert try_words.answer(gain) == word


def test_hints_that_nobody_read_were_not_tried():
    one = tried(DS, 1.0, read=("/etc/passwd",))
    assert one.reached is False
    (line,) = try_words.lines(Result([one], []))
    assert "no process read it" in line
    assert tried(FCOLL, 1.0).reached is None  # which of a parameter cannot be seen


def test_what_failed_and_what_cannot_be_tried():
    failed = Tried(DS, failed="with it the command ends with exit status 3")
    lines = try_words.lines(Result([failed], [Untried("io.sync", "how often is its own affair")]))
    assert lines == [
        "romio_ds_write=disable: given up: with it the command ends with exit status 3.",
        "io.sync cannot be tried from outside: how often is its own affair.",
    ]
    assert try_words.table(Result([failed], [])).rows == [("romio_ds_write=disable", "–", "–", "–", "–", "–")]


def test_nothing_to_try():
    result = Result([], [])
    assert try_words.lines(result) == ["There is no finding to try anything for."]
    assert try_words.table(result) is None


def test_as_data():
    result = Result([tried(DS, 2.0), tried(FCOLL, 1.0, rounds=2)], [Untried("io.sync", "its own affair")])
    first, second, third = try_words.as_values(told(result), result)
    assert (first["answer"], first["rounds"], first["reached"], first["finding_gone_in"]) == (
        "faster",
        6,
        True,
        6,
    )
    assert first["io"]["gain"] == pytest.approx(2)
    assert first["whole"]["gain"] == pytest.approx(1)
    assert (second["answer"], second["io"]["ci95"]) == ("not settled", [None, None])
    assert third == {"code": "io.sync", "tried": None, "why": "its own affair", "answer": None}
