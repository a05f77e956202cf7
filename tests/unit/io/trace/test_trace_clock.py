"""Ticks of several hosts to one time."""

from __future__ import annotations

import numpy as np
import pytest

from sonde.io.trace.clock import Clocks

DAY = 1_800_000_000_000_000_000


def test_a_tick_is_as_long_as_the_readings_furthest_apart_say():
    clocks = Clocks()
    clocks.add("a", 1000, 0, DAY)
    clocks.add("a", 1000 + 2_400_000, 1_000_100)  # a reading that came 100 ns late
    clocks.add("a", 1000 + 2_400_000_000, 1_000_000_000)
    clocks.settle(["a"])
    assert float(clocks.ns("a", 1000 + 2400)) == pytest.approx(1000, abs=1e-6)
    assert clocks.zero_utc_ns == DAY
    assert clocks.warnings == []


def test_large_counts_lose_nothing():
    """A counter of 3 GHz after a year, and the time of the day in ns: both need more digits than a float has."""
    ticks = 95_000_000_000_000_000
    clocks = Clocks()
    clocks.add("a", ticks, 7, DAY)
    clocks.add("a", ticks + 3_000_000_000, 1_000_000_007)
    clocks.settle(["a"])
    given = np.array([ticks, ticks + 3, ticks + 3_000_000_000], np.uint64)
    assert np.allclose(clocks.ns("a", given), [0, 1, 1e9], atol=1e-6)


def test_the_first_process_on_any_host_is_time_zero():
    clocks = Clocks()
    for host, ticks, ns, utc in (("a", 0, 50, DAY + 300), ("b", 0, 9000, DAY), ("a", 100, 150, DAY + 400)):
        clocks.add(host, ticks, ns, utc)
    for host, ns in (("a", 50), ("b", 9000)):
        clocks.add(host, 10**9, 10**9 + ns)
    clocks.settle(["a", "b"])
    assert float(clocks.ns("b", 0)) == 0
    assert float(clocks.ns("a", 0)) == 300


def test_a_host_whose_ticks_cannot_be_told_takes_those_of_others_and_says_so():
    clocks = Clocks()
    clocks.add("a", 0, 0, DAY)
    clocks.add("a", 2 * 10**9, 10**9)
    clocks.add("b", 0, 0, DAY)
    clocks.settle(["a", "b"])
    assert float(clocks.ns("b", 2000)) == 1000
    (warning,) = clocks.warnings
    assert warning.code == "io.tick_unknown"
    assert "b was traced for less than 1 ms" in warning.evidence
    assert "0.5 ns" in warning.evidence
