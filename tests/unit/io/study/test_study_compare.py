"""Two studies beside each other: slower cells are found, and what cannot be compared is refused."""

from __future__ import annotations

import numpy as np
import pytest

import sonde
import studies
from sonde.core.errors import DataError, Exit
from sonde.io.study import compare
from sonde.io.trace.compare import check_kinds

MIB = 1 << 20


def study(folder, rates, plan=None, rounds=10):
    """rates: MiB/s of each cell; runs differ by some per cent."""
    folder.mkdir()
    made = studies.Folder(folder / "a.run", plan or studies.plan()).begin()
    random = np.random.default_rng(1)
    for number in range(rounds):
        for cell, rate in enumerate(rates):
            now = rate * MIB * float(np.exp(random.normal(0, 0.01)))
            made.run(cell, number, now, now)
    with sonde.open(made.sealed(stop_reason="repetitions")) as tree:
        return tree["summary"].to_dataset().load()


def test_what_became_slower_is_found(tmp_path):
    a, b = study(tmp_path / "a", (100, 100)), study(tmp_path / "b", (100, 60))
    found = compare.diff(a, b, ("a.nc", "b.nc"))
    assert (found.cells, found.slower, found.faster) == (4, 2, 0)
    assert {one.evidence["configuration"] for one in found.findings} == {"ompio"}
    one = found.findings[0]
    assert one.code == "io.study_slower"
    assert one.evidence["ratio"] == pytest.approx(0.6, rel=0.05)
    assert "in b.nc" in one.text
    assert found.table.rows[0][-1] == compare.MARK
    assert found.outcome("io", "diff", tmp_path).exit == Exit.FINDING


def test_what_became_faster_is_no_finding(tmp_path):
    a, b = study(tmp_path / "a", (100, 100)), study(tmp_path / "b", (100, 180))
    found = compare.diff(a, b)
    assert (found.slower, found.faster, found.findings) == (0, 2, [])


def test_the_same_study_differs_in_nothing(tmp_path):
    a = study(tmp_path / "a", (100, 100))
    found = compare.diff(a, a)
    assert (found.slower, found.faster) == (0, 0)
    assert found.median_ratio == pytest.approx(1)
    assert not found.blunt


def test_places_of_other_names_are_compared(tmp_path):
    a = study(tmp_path / "a", (100, 100), studies.plan(places=("/scratch",)))
    b = study(tmp_path / "b", (100, 100), studies.plan(places=("/other",)))
    assert compare.diff(a, b).cells == 4


def test_nothing_in_common_is_refused(tmp_path):
    a = study(tmp_path / "a", (100, 100))
    b = study(tmp_path / "b", (100, 100), studies.plan(sizes=(8 * MIB,)))
    with pytest.raises(DataError) as caught:
        compare.diff(a, b)
    assert caught.value.code == "io.not_comparable"


def test_too_few_runs_clear_nothing(tmp_path):
    a, b = study(tmp_path / "a", (100, 100), rounds=1), study(tmp_path / "b", (100, 50), rounds=1)
    found = compare.diff(a, b)
    assert (found.cells, found.findings, found.blunt) == (0, [], True)


def test_a_trace_beside_a_study_is_refused():
    check_kinds("trace", "trace")
    with pytest.raises(DataError) as caught:
        check_kinds("trace", "study")
    assert caught.value.code == "io.not_comparable"
