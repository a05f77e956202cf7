"""When time is over: on a clock that is handed in, never on the machine's."""

from __future__ import annotations

import math
import time

import pytest

from fake_clock import FakeClock
from sonde.core.deadline import Deadline, LeftOut, left_of, within


def at(seconds: float, clock: FakeClock) -> Deadline:
    return Deadline(clock.now + seconds, clock)


def test_time_that_is_left():
    clock = FakeClock()
    deadline = at(5, clock)
    assert deadline.left_s() == 5
    assert deadline.fits(5)
    assert not deadline.fits(5.1)
    clock.move(6)
    assert deadline.left_s() == 0
    assert not deadline.fits(0), "nothing fits when the time is over"


def test_without_a_limit_everything_fits():
    deadline = within(None, 0.0)
    assert deadline.never
    assert deadline.left_s() == math.inf
    assert deadline.fits(1e9)
    assert deadline.part(0.5).never
    assert deadline.earlier(10).never
    assert all(deadline.pieces(1e9).fits() for _ in range(3))


def test_a_budget_counts_from_when_the_program_began():
    assert within(60.0, 1000.0).end_s == 1060.0


def test_parts_and_earlier_ends_report_to_the_same_list():
    clock = FakeClock()
    deadline = at(10, clock)
    assert deadline.earlier(3).left_s() == 7
    assert deadline.part(0.25).left_s() == pytest.approx(2.5)
    deadline.part(0.5).earlier(1).leave_out("cells", 3, 8)
    assert deadline.left_out == [LeftOut("cells", 3, 8)]
    assert Deadline().left_out == [], "each deadline of its own has a list of its own"


def test_a_part_of_time_that_is_over_is_over():
    clock = FakeClock()
    deadline = at(-1, clock)
    assert deadline.part(0.5).left_s() == 0


def test_pieces_that_take_longer_than_forecast_end_in_time():
    clock = FakeClock()
    pieces, done = at(10, clock).pieces(first_s=0.1), 0
    while pieces.fits():
        clock.move(3)
        done += 1
    assert done == 3, "a fourth would end 2 s late"
    assert pieces.forecast_s == 3


def test_the_longest_piece_is_the_forecast():
    clock = FakeClock()
    pieces = at(10, clock).pieces()
    for seconds in (1, 4, 1):
        assert pieces.fits()
        clock.move(seconds)
    assert pieces.fits()
    assert pieces.forecast_s == 4
    clock.move(1)
    assert not pieces.fits(), "3 s are left, and a piece may take 4"


def test_a_first_piece_whose_forecast_is_too_long_is_not_begun():
    assert not at(10, FakeClock()).pieces(first_s=11).fits()


def test_what_is_left_out_is_reported_with_both_numbers():
    assert LeftOut("laws of cells", 3, 8).text() == ("laws of cells: 3 of 8 were computed in time")


def test_programs_leave_time_for_saving_a_quarter_of_a_short_budget_at_most():
    before = time.monotonic()
    left = left_of(60.0, before, reserve_s=1.0)
    assert 59.0 - (time.monotonic() - before) <= left <= 59.0
    assert left_of(2.0, time.monotonic()) <= 1.5
    assert left_of(1.0, time.monotonic() - 10) == 0.2, "whoever is late works for a moment all the same"
