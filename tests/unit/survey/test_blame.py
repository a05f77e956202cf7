"""Which differences are a fault of this machine."""

from __future__ import annotations

import pytest

from sonde.core.errors import Finding
from sonde.survey import blame
from sonde.survey.rooms import RoomResult


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


def test_one_warning_of_all_rooms_that_were_busy():
    quiet, net, bus = RoomResult("power"), RoomResult("net", others=0.2), RoomResult("bus", others=0.4)
    net.suspects = [link(0, 1), link(1, 0)]
    assert blame.busy([quiet]) is None
    warning = blame.busy([quiet, net, bus])
    assert warning is not None
    assert "up to 40 % of the processors' time while net, bus were measured" in warning.evidence
    assert "2 differences to the earlier surveys may be theirs" in warning.evidence
