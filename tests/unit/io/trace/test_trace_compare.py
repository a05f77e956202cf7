"""Two traces: longer, and different."""

from __future__ import annotations

import pytest
import traces
from traces import PREAD, PWRITE, WRITE_ALL, call

import sonde
from sonde.io.trace import compare


@pytest.fixture
def summary(tmp_path):
    def make(name, records):
        folder = traces.run(tmp_path / f"{name}.run")
        traces.add(folder, records)
        with sonde.open(traces.sealed(folder)) as tree:
            return tree["summary"].to_dataset().load()

    return make


def writes(n, each, size=4096):
    return [call(PWRITE, k * 10_000, k * 10_000 + each, size=size) for k in range(n)]


def test_a_layer_that_takes_longer_is_reported(summary):
    a, b = summary("a", writes(10, 1000)), summary("b", writes(10, 1500))
    (one,) = compare.findings(a, b, 0.05)
    assert one.code == "io.slower"
    assert one.text == "POSIX takes 15.0 µs instead of 10.0 µs, 1.5 times as long"
    assert compare.findings(a, b, 0.6) == []
    assert compare.findings(b, a, 0.05) == []
    assert compare.sentence(a, b) == "15.0 µs in traced calls instead of 10.0 µs: 50 % longer"
    assert compare.sentence(b, a).endswith("33 % less")


def test_what_takes_little_is_not_reported_however_much_longer(summary):
    a = summary("a", [*writes(10, 1000), call(WRITE_ALL, 500_000, 500_010)])
    b = summary("b", [*writes(10, 1000), call(WRITE_ALL, 500_000, 500_100)])
    assert compare.findings(a, b, 0.05) == []


def test_other_requests_are_reported_whatever_their_time(summary):
    a, b = summary("a", writes(10, 1000, 4096)), summary("b", writes(40, 250, 1024))
    (one,) = compare.findings(a, b, 0.05)
    assert one.code == "io.other_requests"
    assert one.text == "POSIX gets 40 requests of 1 KiB on average instead of 10 of 4 KiB"


def test_a_difference_that_does_not_matter_is_none(summary):
    a, b = summary("a", writes(100, 1000)), summary("b", writes(103, 1000))
    assert compare.findings(a, b, 0.05) == []
    assert [one.code for one in compare.findings(a, b, 0.02)] == ["io.other_requests"]
    larger = summary("c", writes(100, 1000, 5000))
    assert [one.code for one in compare.findings(a, larger, 0.05)] == ["io.other_requests"]
    assert compare.findings(a, larger, 0.3) == []


def test_layers_and_functions_of_one_alone_stand_in_the_tables(summary):
    a, b = (
        summary("a", writes(10, 1000)),
        summary("b", [call(PREAD, 0, 9000, size=5), call(WRITE_ALL, 10_000, 99_000)]),
    )
    layers, functions = compare.tables(a, b)
    assert [row[0] for row in layers.rows] == ["POSIX", "MPI-IO"]
    assert layers.rows[1][1:4] == ("–", "89.0 µs", "–")
    assert {row[0] for row in functions.rows} == {"pwrite", "pread", "MPI_File_write"}
    slower = compare.findings(a, b, 0.05)[-1]
    assert slower.text.endswith("and was not called before")


def test_nothing_called(summary):
    a, b = summary("a", []), summary("b", [])
    assert compare.findings(a, b, 0.05) == []
    assert compare.sentence(a, b) == "0 s in traced calls instead of 0 s"
    compare.tables(a, b)
