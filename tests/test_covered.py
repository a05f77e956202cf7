"""covered.py: rooms, shares, and regressions of coverage."""

from __future__ import annotations

import pytest

import covered


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("src/sonde/net/analyse.py", "net"),
        ("src/sonde/core/launch/mpirun.py", "core"),
        ("src/sonde/__init__.py", "(beside)"),
        ("native/bus/module/fastdds/endpoint.cpp", "bus"),
    ],
)
def test_a_room_is_the_folder_below_the_language(path, room):
    assert covered.room_of(path) == room


def counts(reached: int, total: int) -> covered.Counts:
    return {"lines": [reached, total], "branches": [0, 0]}


def test_each_room_has_a_row_and_says_of_how_many():
    rows = covered.table({"Python": {"net": counts(1, 3)}, "C++": {"net": counts(2, 2), "mpi": counts(0, 5)}})
    assert [row.split("  ")[0] for row in rows] == ["room", "mpi", "net"]
    assert "33.3 % of 3" in rows[2]
    assert "100.0 % of 2" in rows[2]
    assert rows[1].split() == ["mpi", "-", "-", "0.0", "%", "of", "5", "-"]


@pytest.mark.parametrize(
    ("now", "regressed"),
    [(counts(80, 100), False), (counts(791, 1000), False), (counts(79, 100), True), (None, True)],
)
def test_a_room_that_falls_by_a_point_or_goes_is_named(now, regressed):
    summary = {"C++": {} if now is None else {"io": now}}
    found = covered.regressed(summary, {"C++": {"io": counts(80, 100)}})
    assert [line.split(":")[0] for line in found] == (["io, C++ lines"] if regressed else [])


def test_a_language_that_was_not_measured_has_not_fallen():
    assert covered.regressed({"Python": {}}, {"C++": {"io": counts(80, 100)}}) == []
