"""Two runs against each other: what differs, what chance alone makes differ, and what cannot be compared."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sonde.core.comparison import (
    MOST_FINDINGS,
    Difference,
    changed,
    compare,
    cut_short,
)
from sonde.core.errors import Exit, Finding, Warning
from sonde.core.outcome import Table

NONE = np.zeros(4, bool)
TABLE = Table("Median", ("cell",), [])


def times(*values: float) -> np.ndarray:
    return np.array(values)


def test_only_what_is_surely_and_noticeably_apart_differs():
    x = times(1e-6, 1e-6, 1e-6, 1e-6)
    y = times(1.3e-6, 0.7e-6, 1.02e-6, 1.3e-6)
    cells = compare(x, y, times(0.01, 0.01, 0.001, 0.5), NONE)
    assert cells.slower.tolist() == [True, False, False, False]  # the last is apart, but no one can be sure
    assert cells.faster.tolist() == [False, True, False, False]  # the third is sure, and matters to nobody
    assert cells.ratio == pytest.approx([1.3, 0.7, 1.02, 1.3])
    assert cells.median_ratio == pytest.approx(1.16)
    assert compare(x, y, times(0.01, 0.01, 0.001, 0.5), NONE, matters=0.01).slower.tolist()[2]


def test_a_cell_that_drifted_or_has_no_median_or_no_error_is_not_compared():
    x = times(1e-6, np.nan, 1e-6, 1e-6)
    y = times(2e-6, 2e-6, 2e-6, 1e-6)
    cells = compare(x, y, times(0.01, 0.01, np.nan, 0.01), np.array([True, True, False, False]))
    assert cells.compared.tolist() == [False, False, False, True]
    assert cells.drifted == 1  # one without a median is none that drifted
    assert not cells.slower.any()


def test_a_median_of_zero_has_no_ratio():
    cells = compare(times(0.0, 1e-6), times(1e-6, 0.0), times(0.01, 0.01), NONE[:2])
    assert not cells.compared.any()


def test_nothing_to_compare_is_reported_and_is_no_number():
    cells = compare(times(np.nan), times(1e-6), times(0.01), NONE[:1])
    told = Difference.of(cells, [], TABLE)
    assert np.isnan([cells.median_ratio, cells.detectable]).all()
    assert told.sentence("b.nc") == "no cell could be compared: 0 drifted"
    assert json.loads(json.dumps(told.values(), allow_nan=False))["median_ratio"] is None


def test_no_cell_at_all():
    empty = np.empty((0, 3))
    cells = compare(empty, empty, empty, np.zeros((0, 3), bool))
    assert cells.ratio.shape == (0, 3)
    assert Difference.of(cells, [], TABLE).cells == 0


@pytest.mark.parametrize("runs", [200, pytest.param(1000, marks=pytest.mark.soak)])
def test_chance_alone_rarely_makes_a_difference_among_many_cells(runs):
    """Of runs that differ by chance only, about LEVEL may show any cell that differs."""
    error, hits = 0.05, 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        y = np.exp(rng.normal(0, error, 200))
        cells = compare(np.ones(200), y, np.full(200, error), np.zeros(200, bool), matters=0)
        hits += bool((cells.slower | cells.faster).any())
    assert 0.02 * runs <= hits <= 0.08 * runs


@pytest.mark.parametrize(
    ("runs", "tolerance"), [(100, 0.1), pytest.param(1000, 0.05, marks=pytest.mark.soak)]
)
def test_the_detectable_difference_is_found_four_times_in_five(runs, tolerance):
    error, n, found = 0.05, 50, 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        log_y = rng.normal(0, error, n)
        still = compare(np.ones(n), np.ones(n), np.full(n, error), np.zeros(n, bool))
        log_y[0] += np.log1p(still.detectable)
        cells = compare(np.ones(n), np.exp(log_y), np.full(n, error), np.zeros(n, bool), matters=0)
        found += bool(cells.slower[0])
    assert found / runs == pytest.approx(0.8, abs=tolerance)


def test_a_difference_becomes_an_outcome():
    cells = compare(times(1e-6, 1e-6), times(2e-6, 1e-6), times(0.01, 0.01), NONE[:2])
    finding, warning = Finding("x.slower", "one is slower", {}, ""), Warning("x.odd", "odd", "")
    told = Difference.of(cells, [finding], TABLE, [warning]).outcome("net", "diff", Path("b.nc"))
    assert (told.room, told.schema, told.dataset, told.exit) == ("net", "net/1", "b.nc", Exit.FINDING)
    assert told.verdict.startswith("1 of 2 cells are slower in b.nc, 0 faster")
    assert (told.findings, told.warnings, told.tables) == ([finding], [warning], [TABLE])
    assert told.values["slower"] == 1
    assert Difference.of(cells, [], TABLE).outcome("net", "diff", Path("b.nc")).exit == Exit.DONE


@pytest.mark.parametrize(("error", "exit_"), [(0.01, Exit.DONE), (0.2, Exit.DONE), (1.0, Exit.INCOMPLETE)])
def test_that_nothing_was_found_says_something_only_where_something_would_have_been(error, exit_):
    cells = compare(times(1e-6, 1e-6), times(1e-6, 1e-6), times(error, error), NONE[:2])
    difference = Difference.of(cells, [], TABLE)
    told = difference.outcome("net", "diff", Path("b.nc"))
    assert (told.exit, told.sound, difference.blunt) == (exit_, exit_ == Exit.DONE, exit_ != Exit.DONE)
    assert ("%" in told.verdict) == (exit_ == Exit.DONE)  # nobody wants to read of 1787.2 %
    assert ("too short or too unsteady" in told.verdict) == (exit_ != Exit.DONE)
    assert difference.exit([Finding("x.slower", "one is", {}, "")]) == Exit.FINDING


def test_without_a_cell_to_compare_there_is_no_clean_bill():
    cells = compare(times(np.nan), times(1e-6), times(0.01), NONE[:1])
    told = Difference.of(cells, [], TABLE).outcome("net", "diff", Path("b.nc"))
    assert (told.exit, told.sound) == (Exit.INCOMPLETE, False)


def test_what_changed_in_the_machine_is_named_and_only_that():
    a = {"kernel": "6.1", "governor": "powersave", "created_utc": "1", "mpi": "ompi", "cores": 4}
    b = {"kernel": "6.1", "governor": "performance", "created_utc": "2", "mpi": "mpich"}
    assert changed((a, b)) == {"governor": "powersave → performance"}
    assert changed((a, b), ("mpi",)) == {"governor": "powersave → performance", "mpi": "ompi → mpich"}
    assert changed(None) == {}


def test_very_many_findings_are_counted_instead_of_told():
    found = [Finding("x.slower", str(k), {}, "") for k in range(MOST_FINDINGS + 3)]
    told = cut_short(found, "cells are slower", "show them")
    assert told[:-1] == found[:MOST_FINDINGS]
    assert (told[-1].code, told[-1].text, told[-1].next) == (
        "x.slower",
        "3 more cells are slower",
        "show them",
    )
    assert cut_short(found[:MOST_FINDINGS], "", "") == found[:MOST_FINDINGS]
    assert cut_short([], "", "") == []
