"""Levels of the noise source: the lowest that is detected."""

from __future__ import annotations

from sonde.noise.detector.levels import threshold


def test_the_threshold_needs_all_higher_levels():
    levels = [0.01, 0.005, 0.003, 0.001]
    assert threshold(levels, [True, True, False, True]) == 0.005
    assert threshold(levels, [True] * 4) == 0.001
    assert threshold(levels, [False, True, True, True]) is None
    assert threshold([0.001, 0.01], [False, True]) == 0.01  # whatever their order
    assert threshold([], []) is None
