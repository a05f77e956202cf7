"""Rates, ratios and times of studies, from runs whose answer is known; and functions of one trace."""

from __future__ import annotations

import math

import numpy as np
import pytest

import io_traces
import sonde
import studies
from io_traces import Call
from sonde.io.study.analyse import functions_of, middle
from sonde.io.study.schema import SUMMARY, WHOLE
from sonde.io.trace.analyse import analyse as analyse_trace
from sonde.io.trace.ratios import ratio_of_pairs

MIB = 1 << 20


def summary_of(path):
    with sonde.open(path) as tree:
        return tree["summary"].to_dataset().load()


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    return summary_of(studies.two_stacks(tmp_path_factory.mktemp("two"), rounds=8))


def test_every_variable_is_described(summary):
    assert set(summary.variables) == set(SUMMARY)
    for name, what in SUMMARY.items():
        assert summary[name].dims == what.dims, name


def test_ratios_are_of_rounds(summary):
    # Rates drift by 14 % over the study, the same in both stacks: that is no error of their ratio.
    assert summary["baseline"].values.tolist() == [0, 0]
    assert summary["ratio"].values[1].tolist() == pytest.approx([0.5, 0.5])
    assert summary["ratio_low"].values[1, 0] == pytest.approx(0.5)
    assert summary["ratio_high"].values[1, 0] == pytest.approx(0.5)
    assert summary["ratio"].values[0].tolist() == pytest.approx([1, 1])


def test_rates_are_medians_of_runs_without_the_tracer_with_intervals(summary):
    levels = [1 + 0.02 * k for k in range(8)]
    assert summary["rate"].values[0, 0] == pytest.approx(np.median([100 * MIB / level for level in levels]))
    assert summary["rate_low"].values[0, 0] < summary["rate"].values[0, 0] < summary["rate_high"].values[0, 0]
    assert summary["runs"].values.tolist() == summary["traced_runs"].values.tolist() == [8, 8]


def test_what_the_tracer_does_to_one_configuration_alone_changes_no_rate(tmp_path):
    """Its ranks wait in one and not in the other: with it the slower configuration is the faster one."""
    made = studies.Folder(tmp_path / "a.run", studies.plan()).begin()
    for number in range(8):
        made.both(0, number, 100.0, studies.ROMIO, slower=10.0)
        made.both(1, number, 50.0, studies.OMPIO)
    found = summary_of(made.sealed(stop_reason="repetitions"))
    assert found["rate"].values[:, 0].tolist() == [100 * MIB, 50 * MIB]
    assert found["ratio"].values[1].tolist() == pytest.approx([0.5, 0.5])
    assert found["slowdown"].values.tolist() == pytest.approx([10, 1])


def test_the_tracers_cost_is_of_rounds_too(summary):
    assert summary["slowdown"].values == pytest.approx([1.1, 1.1])
    assert summary["slowdown_low"].values == pytest.approx([1.1, 1.1])


def test_times_are_of_a_rank(summary):
    k = summary["function_name"].values.tolist().index("pwrite")
    assert summary["function_self_time"].values[:, k] == pytest.approx([0.05, 0.1])
    assert summary["function_time"].values[:, k] == pytest.approx([0.1, 0.2])
    assert summary["function_calls"].values[:, k].tolist() == [4, 8]
    posix = summary["layer_name"].values.tolist().index("posix")
    assert summary["layer_self_time"].values[:, posix] == pytest.approx([0.05, 0.1])
    own = summary["function_self_time"].values.sum(axis=1)
    assert summary["layer_self_time"].values.sum(axis=1) == pytest.approx(own)


def test_the_limits_of_a_place(summary):
    assert summary["place_name"].values.tolist() == ["/scratch"]
    assert summary["limit"].values[0, :2] == pytest.approx([300 * MIB, 350 * MIB])
    assert math.isnan(summary["limit"].values[0, 2])
    assert summary["limit_runs"].values[0].tolist() == [8, 8, 0]


def test_failed_runs_do_not_count(tmp_path):
    made = studies.Folder(tmp_path / "a.run", studies.plan()).begin()
    for number in range(3):
        made.run(0, number)
    made.run(0, 3, write=1.0, read=1.0, status=9)
    made.run(1, 0, write=None, read=None, status=1)
    found = summary_of(made.sealed(stop_reason="repetitions"))
    assert found["runs"].values.tolist() == [3, 0]
    assert found["failed_runs"].values.tolist() == [1, 1]
    assert found["rate"].values[0, 0] == 100 * MIB
    assert np.isnan(found["rate"].values[1]).all()
    assert np.isnan(found["ratio"].values[1]).all()


def test_a_study_without_limits_and_without_functions(tmp_path):
    made = studies.Folder(tmp_path / "a.run", studies.plan(limits=False)).begin()
    made.run(0, 0)
    found = summary_of(made.sealed(stop_reason="repetitions"))
    assert (found.sizes["place"], found.sizes["function"]) == (0, 0)
    assert found["runs"].values.tolist() == [1, 0]


def test_an_interval_takes_three_runs():
    assert math.isnan(middle(np.array([]))[0])
    assert middle(np.array([2.0, math.nan])) == (
        2.0,
        pytest.approx(math.nan, nan_ok=True),
        pytest.approx(math.nan, nan_ok=True),
    )
    assert math.isnan(middle(np.array([1.0, 2.0]))[1])
    median, low, high = middle(np.array([1.0, 2.0, 3.0]))
    assert (median, low < 2.0 < high) == (2.0, True)


def test_a_ratio_has_an_interval_from_six_pairs_on():
    one, two = np.array([1.0, 2, 3, 4, 5, 6]), np.array([2.0, 4, 6, 8, 10, 12])
    assert ratio_of_pairs(one, two) == pytest.approx((2, 2, 2))
    estimate, low, high = ratio_of_pairs(one[:5], two[:5])
    assert estimate == pytest.approx(2)
    assert math.isnan(low)
    assert math.isnan(high)
    assert all(map(math.isnan, ratio_of_pairs(np.array([0.0]), np.array([1.0]))))
    assert ratio_of_pairs(np.append(one, math.nan), np.append(two, 1.0))[0] == pytest.approx(2)


# ---- from one trace


def of_trace(*calls, folder="/scratch/x"):
    raw = io_traces.raw([(0, list(calls))], [0])
    found, records = functions_of(analyse_trace(raw), raw, folder)
    assert WHOLE not in records["function"]
    return {name: record for (_, name, _), record in zip(found, records)}, found


def test_only_what_is_within_mpi_io_counts():
    inner = Call("pwrite", 20, 60, 4096)
    found, keys = of_trace(
        Call("open", 0, 5),
        Call("MPI_File_write_at_all", 10, 100, 8192, within=[inner]),
        Call("pwrite", 200, 1000, 99),
    )
    assert set(found) == {"MPI_File_write_at_all", "pwrite"}
    assert (found["pwrite"]["calls"], found["pwrite"]["bytes"]) == (1, 4096)
    assert found["pwrite"]["self_time"] == pytest.approx(60e-9)
    assert found["MPI_File_write_at_all"]["time"] == pytest.approx(100e-9)
    assert found["MPI_File_write_at_all"]["self_time"] == pytest.approx(40e-9)
    assert {layer for layer, _, _ in keys} == {"mpiio", "posix"}


def test_a_function_within_itself_has_the_time_of_the_outer_call():
    inner = Call("pwrite", 30, 20, 1)
    outer = Call("pwrite", 20, 60, 1, within=[inner])
    found, _ = of_trace(Call("MPI_File_write_at_all", 10, 100, 1, within=[outer]))
    assert found["pwrite"]["calls"] == 2
    assert found["pwrite"]["time"] == pytest.approx(60e-9)
    assert found["pwrite"]["self_time"] == pytest.approx(60e-9)


def test_without_mpi_io_calls_on_the_benchmarks_own_files_count():
    found, _ = of_trace(
        Call("pwrite", 0, 100, 10, path="/scratch/x/data"),
        Call("pwrite", 200, 50, 5, path="data"),  # where it was started
        Call("pread", 300, 1000, 7, path="/etc/passwd"),
        Call("lseek", 2000, 10),
    )
    assert set(found) == {"pwrite"}
    assert (found["pwrite"]["calls"], found["pwrite"]["bytes"]) == (2, 15)
    assert found["pwrite"]["time"] == pytest.approx(150e-9)


def test_the_tracers_own_work_is_left_out():
    own = Call(io_traces.OWN_NAME, 20, 30)
    found, _ = of_trace(Call("MPI_File_write_at_all", 10, 100, 1, within=[own]))
    assert set(found) == {"MPI_File_write_at_all"}
    assert found["MPI_File_write_at_all"]["self_time"] == pytest.approx(70e-9)


def test_functions_that_were_watched_and_never_called_shift_nothing():
    """/raw has a number for each function that a process had, /summary for those that were called."""
    raw = io_traces.raw(
        [(0, [Call("pwrite", 0, 100, 10, path="data"), Call("pread", 200, 50, 4, path="data")])], [0]
    )
    more = raw.isel(function=[0, *range(raw.sizes["function"])]).load()
    more["function_index"] = raw["function_index"] + 1
    names = more["function_name"].values.copy()
    names[0] = "MPI_File_never"
    more["function_name"] = ("function", names)
    more.attrs = raw.attrs
    found, records = functions_of(analyse_trace(more), more, "/scratch/x")
    told = {name: (int(one["calls"]), int(one["bytes"])) for (_, name, _), one in zip(found, records)}
    assert told == {"pwrite": (1, 10), "pread": (1, 4)}
