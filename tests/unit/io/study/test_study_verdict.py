"""What a study says: the verdict, the tables of a terminal, JSON, and what is told of too few runs."""

from __future__ import annotations

import json

import pytest

import sonde
import studies
from sonde.io.study import verdict as words

MIB = 1 << 20


def summary_of(path):
    with sonde.open(path) as tree:
        return tree["summary"].to_dataset().load()


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    return summary_of(studies.two_stacks(tmp_path_factory.mktemp("two")))


def made(tmp_path, plan, *runs, rounds=8):
    """runs: rate of each cell in MiB/s."""
    folder = studies.Folder(tmp_path / "a.run", plan).begin()
    for number in range(rounds):
        for cell, rate in enumerate(runs):
            folder.both(cell, number, rate, studies.ROMIO)
    return summary_of(folder.sealed(stop_reason="repetitions"))


def test_the_verdict_names_the_faster_one(summary):
    assert words.sentence(summary) == (
        "ior -a MPIIO -t 1m, 4 MiB: romio321 writes 2 times as fast as ompio (95 %: 2 to 2); 1 more difference, below"
    )
    assert words.sound(summary)
    assert words.warnings(summary) == []


def test_a_difference_that_matters_to_nobody_is_none(tmp_path):
    found = made(tmp_path, studies.plan(), 100, 102)
    assert words.settled(found) == []
    assert words.sentence(found) == (
        "no significant difference of more than 5 % between romio321 and ompio, in 1 benchmark"
    )


def test_of_one_configuration_the_rates_are_reported(tmp_path):
    found = made(tmp_path, studies.plan(ios=("romio321",)), 100)
    assert words.sentence(found) == "ior -a MPIIO -t 1m, 4 MiB: romio321 writes 100 MiB/s and reads 100 MiB/s"
    (write, read, _, functions) = words.tables(found)
    assert (write.title, read.title) == (
        "ior -a MPIIO -t 1m, 4 MiB: writing",
        "ior -a MPIIO -t 1m, 4 MiB: reading",
    )
    assert write.rows == [("romio321", "100 MiB/s", "100 to 100")]
    assert functions.columns == ("function", "layer", "romio321")


def test_that_no_time_was_left_for_the_tracer_is_reported(tmp_path):
    folder = studies.Folder(tmp_path / "a.run", studies.plan(ios=("romio321",))).begin()
    folder.run(0, 0)
    found = summary_of(folder.sealed(stop_reason="budget"))
    assert words.sentence(found).endswith("; no run was traced: a longer --budget shows where its time goes")
    assert "writes" in words.sentence(found)


def test_a_run_that_failed_under_the_tracer_is_no_lack_of_time(tmp_path):
    folder = studies.Folder(tmp_path / "a.run", studies.plan(ios=("romio321",))).begin()
    folder.run(0, 0)
    folder.run(0, 0, traced=True, status=1, write=None, read=None, io_s=None)
    found = summary_of(folder.sealed(stop_reason="budget"))
    assert (found["traced_runs"].item(), found["failed_runs"].item()) == (0, 1)
    assert "--budget" not in words.sentence(found)


@pytest.mark.parametrize(
    ("rates", "slower", "told"),
    [
        ((100, 120), (1.0, 3.0), ["(95 %: 3 to 3) in ompio; configurations do not differ by more than that"]),
        ((100, 120), (2.0, 3.0), ["3 to 3) in ompio, and more than 1.1 times as long in 1 more"]),
        ((100, 120), (1.05, 1.05), []),
        ((100, 900), (1.05, 2.0), []),  # of nine times as fast the tracer hides little
        ((100,), (1.5,), ["1.5 times as long (95 %: 1.5 to 1.5) in romio321: its times"]),
    ],
)  # fmt: skip
def test_a_tracer_that_hides_what_configurations_differ_by_is_warned_of(tmp_path, rates, slower, told):
    folder = studies.Folder(tmp_path / "a.run", studies.plan(ios=("romio321", "ompio")[: len(rates)])).begin()
    for number in range(8):
        for cell, rate in enumerate(rates):
            folder.both(cell, number, rate, studies.ROMIO, slower[cell])
    warnings = words.warnings(summary_of(folder.sealed(stop_reason="repetitions")))
    assert [one.code for one in warnings] == ["io.tracer_slows"] * len(told)
    for warning, text in zip(warnings, told):
        assert text in warning.evidence


def test_a_tracer_whose_cost_is_not_settled_is_not_blamed(tmp_path):
    folder = studies.Folder(tmp_path / "a.run", studies.plan(ios=("romio321",))).begin()
    for number in range(8):
        folder.both(0, number, 100, studies.ROMIO, 3.0 if number % 2 else 0.5)
    assert words.warnings(summary_of(folder.sealed(stop_reason="repetitions"))) == []


def test_too_few_runs_are_warned_of_and_prove_nothing(tmp_path):
    found = made(tmp_path, studies.plan(), 100, 200, rounds=3)
    assert not words.sound(found)
    (warning,) = words.warnings(found)
    assert (warning.code, "cells have 3 runs" in warning.evidence) == ("io.few_repetitions", True)
    assert "no significant difference" in words.sentence(found)


def test_tables(summary):
    write, _, limits, slowed, functions = words.tables(summary)
    assert write.rows[0][0] == "romio321"
    assert write.rows[0][3:] == ("1", "")
    assert write.rows[1][3:] == ("0.5", "0.5 to 0.5")
    assert write.note == "8 runs each, without the tracer"
    assert limits.rows == [("/scratch", "300 MiB/s", "350 MiB/s", "–", "fio")]
    assert limits.note.endswith("memory: romio321 reads")  # 400 MiB/s from a disk of 350
    assert [row[2:] for row in slowed.rows] == [("8", "10 %", "10 % to 10 %")] * 2
    assert functions.note == "Medians over 8 runs under the tracer."
    assert [row[:2] for row in functions.rows] == [
        ("pwrite", "posix"), ("mca_io_ompio_file_write_all", "ompio"), ("ADIOI_GEN_WriteStridedColl", "romio"),
        ("MPI_File_write_all", "mpiio"),
    ]  # fmt: skip
    assert functions.rows[1][2:] == ("", "15.0 ms")
    assert functions.rows[0][2:] == ("50.0 ms", "100 ms")


def test_names_that_are_too_long_for_a_head_become_numbers(tmp_path):
    plan = studies.plan(ios=("romio321",), hints=("none", "romio_cb_write=disable"))
    found = made(tmp_path, plan, 100, 100)
    assert words.grid(found).configurations == ("no hints", "romio_cb_write=disable")
    write, _, _, functions = words.tables(found)
    assert [row[0] for row in write.rows] == ["1: no hints", "2: romio_cb_write=disable"]
    assert functions.columns[2:] == ("1", "2")


def test_places_and_clusters_are_named_where_there_are_several(tmp_path):
    plan = studies.plan(ios=("romio321",), places=("/a", "/b"), clusters=("", "test"))
    found = made(tmp_path, plan, 100, 100, 100, 100)
    assert words.grid(found).configurations == (
        "romio321 in /a on this host", "romio321 in /b on this host", "romio321 in /a on test",
        "romio321 in /b on test",
    )  # fmt: skip
    assert found["baseline"].values.tolist() == [0] * 4


def test_failed_runs_are_reported(tmp_path):
    folder = studies.Folder(tmp_path / "a.run", studies.plan()).begin()
    for number in range(2):
        folder.run(0, number)
    folder.run(1, 0, status=1)
    found = summary_of(folder.sealed(stop_reason="repetitions"))
    write, *_ = words.tables(found)
    assert write.note == "0 to 2 runs each, without the tracer; 1 run failed"
    assert write.rows[1][:3] == ("ompio", "–", "–")


def test_every_function_and_what_it_moved(summary):
    table = words.counts_table(summary, words.grid(summary), 0)
    assert table.rows[0] == ("mpiio", "MPI_File_write_all", "8 × 1 MiB", "8 × 1 MiB")
    assert table.rows[-1] == ("posix", "pwrite", "4 × 1 MiB", "8 × 1 MiB")
    called = words.called_table(summary, words.grid(summary), 0)
    assert called.rows[:3] == [
        ("MPI-IO", "romio321", "MPI_File_write_all"),
        ("", "ompio", "MPI_File_write_all"),
        ("ROMIO (ADIO)", "romio321", "ADIOI_GEN_WriteStridedColl"),
    ]


def test_values_are_json_without_nan(summary, tmp_path):
    told = json.loads(json.dumps(words.values(summary), allow_nan=False))
    first, second = told["cells"]
    assert first["write"]["to_baseline"]["ratio"] == pytest.approx(1)
    assert second["read"]["to_baseline"]["ci95"] == pytest.approx([0.5, 0.5])
    assert (second["runs"], second["traced_runs"], second["slowdown"]["ratio"]) == (8, 8, pytest.approx(1.1))
    assert second["functions"][0] == {
        "function": "pwrite", "layer": "posix", "calls": 8, "bytes": 8 * MIB, "time_s": 0.2, "self_s": 0.1,
    }  # fmt: skip
    assert {one["what"] for one in told["limits"]} == {"write", "read"}
    few = made(tmp_path, studies.plan(), 100, 200, rounds=1)
    json.dumps(words.values(few), allow_nan=False)


@pytest.mark.parametrize(
    ("rate", "low", "high", "told"),
    [(693 * MIB, 532 * MIB, 884 * MIB, "532 to 884"),
     (9.33 * 1024 * MIB, 3.7 * 1024 * MIB, 12.7 * 1024 * MIB, "3.7 to 12.7"),
     (900 * MIB, 500 * MIB, 2048 * MIB, "500 to 2048"), (5.0, float("nan"), 6.0, "–")],
)  # fmt: skip
def test_an_interval_is_in_the_unit_of_its_rate(rate, low, high, told):
    assert words._ends_text(rate, low, high) == told


def test_the_surest_difference_is_reported_first(tmp_path):
    """Twenty times as fast with an interval from two on says less than three times beyond doubt."""
    folder = studies.Folder(
        tmp_path / "a.run", studies.plan(ios=("romio321",), hints=("none", "a=1", "b=1"))
    ).begin()
    for number in range(8):
        folder.run(0, number, 100.0 * MIB, None)
        folder.run(1, number, (300.0, 20_000.0)[number % 2] * MIB, None)
        folder.run(2, number, 400.0 * MIB, None)
    found = summary_of(folder.sealed(stop_reason="repetitions"))
    assert [cell for _, cell, _ in words.settled(found)] == [2, 1]
    assert "b=1 writes 4 times as fast as no hints (95 %: 4 to 4); 1 more difference" in words.sentence(found)
