"""Which differences are a fault of this machine."""

from __future__ import annotations

import pytest

from sonde.core.errors import Finding
from sonde.survey import blame
from sonde.survey.result import RoomResult


def link(src: int, dst: int, **more: object) -> Finding:
    return Finding("net.slower", "text", {"src": src, "dst": dst, "ratio": 1.5, "q": 0.01, **more})


def test_a_subject_is_the_place_and_not_the_numbers():
    assert blame.subject(link(0, 1, ratio=9.0, size=8)) == blame.subject(link(0, 1, size=64))
    assert blame.subject(link(0, 1)) != blame.subject(link(1, 0))
    assert blame.subject(link(0, 1, hosts=["a", "b"])) != blame.subject(link(0, 1, hosts=["a", "c"]))
    assert blame.subject(Finding("bus.slower", "", {"variant": "tcp"})) != blame.subject(
        Finding("bus.slower", "", {"variant": "shm"})
    )


@pytest.mark.parametrize(
    ("found", "left"),
    [([], 0), ([[link(0, 1)]], 1), ([[link(0, 1), link(1, 2)], [link(1, 2)]], 1), ([[link(0, 1)], []], 0)],
)
def test_what_stands_in_all(found, left):
    assert len(blame.in_all(found)) == left


@pytest.mark.parametrize(
    ("shares", "busy"),
    [
        ([0, 0], set()),
        ([0.02, 0.15], set()),
        ([0.02, 0.3], {"bus"}),
        ([0.2, 0.3], {"net", "bus"}),
        ([0.06, 0], {"net", "bus"}),
    ],
)
def test_rooms_beside_which_others_were_at_work(shares, busy):
    net, bus = RoomResult("net", others=shares[0], seconds=30), RoomResult("bus", others=shares[1], seconds=3)
    skipped = RoomResult("io", skipped="no time")
    assert blame.busy_rooms([net, bus, skipped]) == busy


def test_one_warning_of_all_rooms_that_were_busy():
    net, bus = RoomResult("net", others=0.2), RoomResult("bus", others=0.4)
    net.suspects = [link(0, 1), link(1, 0)]
    warning = blame.busy_warning([net, bus])
    assert "up to 40 % of the processors' time while net, bus were measured" in warning.evidence
    assert "2 differences from the earlier surveys may be caused by them" in warning.evidence


@pytest.mark.parametrize(
    ("baselines", "spread", "left"), [(1, 1.4, 1), (1, 1.6, 0), (2, float("inf"), 0), (3, float("inf"), 1)]
)
def test_few_baselines_do_not_show_how_runs_differ(baselines, spread, left):
    assert len(blame.beyond([link(0, 1, ratio=1.5)], spread, baselines)) == left
    warning = blame.within_warning("net", 2, spread, baselines)
    assert warning.evidence.startswith(
        "net: 2 differences from the earlier surveys may be ordinary differences between runs of this machine"
    )


def test_a_count_of_further_findings_blames_nobody():
    more = Finding("store.slower", "5 more cells are slower", {"more": 5})
    assert blame.single([link(0, 1), more]) == [link(0, 1)]
