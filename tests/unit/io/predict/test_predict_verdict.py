"""What a prediction says of itself, and what it was made without."""

from __future__ import annotations

import json

import pytest
from replays import FILE, calls, together, trace

from io_traces import KIB, MIB, US, Call
from sonde.cli.console import plain
from sonde.io.predict import replay, verdict


def said(found: replay.Prediction) -> list[str]:
    return [warning.code for warning in verdict.warnings(found, "a.nc")]


@pytest.fixture
def found() -> replay.Prediction:
    """Of 10 calls one is too large; one call was not measured; 100 µs there against 60 here."""
    a = trace([
        *calls("pwrite", [64 * KIB] * 9 + [MIB], lambda _: 5 * US), Call("pread", 10 * MIB, 10 * US, KIB, FILE),
    ])  # fmt: skip
    y = trace(calls("pwrite", [32 * KIB, 128 * KIB] * 10, lambda _: 9 * US))
    return replay.predict(a, [y], None, trace(calls("pwrite", [KIB], lambda _: 200 * US)))


def test_the_sentence_calls_it_a_model(found):
    told = verdict.sentence(found, "a.nc", ["y.nc"])
    assert told == (
        "Model: a.nc would take 10.5 ms on the configuration of y.nc instead of 10.5 ms; of this, traced calls would "
        "take 100 µs instead of 60.0 µs, summed over ranks; measured there: 200 µs"
    )
    assert "would take 10.5 ms there instead" in verdict.sentence(found, "a.nc", ["y.nc", "z.nc"])


def test_tables_fit_a_terminal(found):
    layers, functions = verdict.tables(found)
    assert layers.columns == ("layer", "A", "modelled", "95 %", "measured", "ratio")
    assert list(layers.rows) == [
        ("POSIX and C library", "60.0 µs", "100 µs", "100 µs", "200 µs", "0.50"),
        ("all layers, all ranks", "60.0 µs", "100 µs", "100 µs", "200 µs", "0.50"),
        ("elapsed", "10.5 ms", "10.5 ms", "10.5 ms", "200 µs", "52.68"),
    ]
    assert "Replayed at POSIX and C library" in layers.note
    assert "10 %" in layers.note
    assert functions.note == "outside the sizes measured there: 9.1 % of the calls, 64 % of the bytes"
    assert list(functions.rows) == [
        ("pwrite", "10", "64 KiB to 1 MiB", "32 KiB to 128 KiB", "50.0 µs", "90.0 µs"),
        ("pread", "1", "1 KiB", "no", "10.0 µs", "10.0 µs"),
    ]


def test_what_was_not_measured_is_named_with_what_to_type(found):
    larger, missing = verdict.findings(found, "a.nc")
    assert (larger.code, missing.code) == ("io.outside_measured", "io.not_measured")
    assert larger.text == (
        "10 % of the calls of pwrite, 64 % of its bytes, have sizes outside those measured there: A has 64 KiB to "
        "1 MiB, the traces have 32 KiB to 128 KiB"
    )
    assert larger.next == "sonde io run -o more.nc -- mpirun -n 1 sonde-ioload -w -t 1048576 -b 16777216"
    assert missing.text.startswith("pread was not measured there: 1 call with 10.0 µs in A, 10 %")
    assert missing.next.endswith("sonde-ioload -t 1024 -b 16777216")


def test_warnings_say_what_is_worse_than_usual(found):
    assert said(found) == ["io.modelled"]
    ranks = together(10 * US, [[0, 0]] * 10)
    y = trace(calls("MPI_File_write_at_all", [KIB] * 3, lambda _: 10 * US))
    assert said(replay.predict(trace(*ranks), [y])) == ["io.modelled", "io.other_ranks", "io.few_calls"]
    more = trace(ranks[0], [*ranks[1], Call("MPI_File_write_at_all", 10 * MIB, US, KIB, FILE)])
    assert "io.ranks_not_matched" in said(replay.predict(more, [trace(*ranks)]))


def test_another_program_is_noticed():
    a, c = trace(calls("pwrite", [KIB] * 4)), trace(calls("pwrite", [KIB] * 2))
    (told,) = verdict.other_program(a.summary, c.summary, "posix")
    assert told.code == "io.other_program"
    assert "2 requests instead of 4 and 2048 bytes instead of 4096" in told.evidence
    assert verdict.other_program(a.summary, a.summary, "posix") == []


def test_values_are_json(found):
    told = json.loads(json.dumps(plain(verdict.values(found)), allow_nan=False))
    assert (told["model"], told["at"], told["ranks"]) == (True, "posix", {"a": 1, "on": [1]})
    assert told["total"]["modelled_s"] == pytest.approx(100e-6)
    assert told["total"]["ratio"] == pytest.approx(0.5)
    assert told["total"]["kept_s"] == pytest.approx(10e-6)
    assert [one["layer"] for one in told["layers"]] == ["posix"]
    assert told["outside"] == pytest.approx(
        {"calls": 1, "calls_share": 1 / 11, "bytes": MIB, "bytes_share": 1024 / (9 * 64 + 1024 + 1)}
    )
    assert told["not_measured"] == ["pread"]
    pwrite, pread = told["functions"]
    assert (pwrite["kind"], pwrite["outside"]) == ("write", {"calls": 1, "bytes": MIB})
    assert pwrite["measured_B"] == [32 * KIB, 128 * KIB]
    assert pwrite["ci95_s"] == pytest.approx([90e-6, 90e-6])
    assert (pread["measured_calls"], pread["measured_B"]) == (0, [None, None])
    alone = verdict.values(replay.predict(trace(calls("pwrite", [KIB])), [trace(calls("pwrite", [KIB]))]))
    assert (alone["total"]["measured_s"], alone["total"]["ratio"], alone["total"]["ci95_s"]) == (None,) * 3
