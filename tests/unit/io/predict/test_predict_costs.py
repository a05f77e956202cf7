"""Costs by size: on a line between what was measured, on its end's line beyond."""

from __future__ import annotations

import numpy as np
import pytest

import io_traces
from io_traces import KIB, US, Call
from sonde.io.maps.layers import KINDS
from sonde.io.predict.calls import Key
from sonde.io.predict.costs import FEW, LEAVING, NO_SIZE, PIECES, Curve, binned, learn

PWRITE = Key("posix", "pwrite", KINDS.index("write"))


def curve(points: dict[float, list[float]]) -> Curve:
    """Of one column. points: size -> costs, in the order of time."""
    counts, sums = np.zeros((len(points), PIECES)), np.zeros((len(points), PIECES, 1))
    for k, costs in enumerate(points.values()):
        for n, cost in enumerate(costs):
            counts[k, n * PIECES // len(costs)] += 1
            sums[k, n * PIECES // len(costs), 0] += cost
    size = np.array(list(points), float)
    known = size[size >= 0]
    ends = (float(known.min()), float(known.max())) if len(known) else (np.inf, -np.inf)
    return Curve(size, counts.sum(axis=1), counts, sums, *ends, None)


def at(one: Curve, *size: float) -> list[float]:
    found = one.at(one.means(np.ones((1, PIECES))), np.array(size, float))
    assert found.shape == (1, len(size), 1)
    return found[0, :, 0].tolist()


def test_between_sizes_is_a_line_in_the_size_not_in_its_logarithm():
    one = curve({4 * KIB: [4.0, 6.0], 16384 * KIB: [5 + 16380.0]})
    assert at(one, 4 * KIB, 256 * KIB, 16384 * KIB) == pytest.approx([5, 5 + 252, 5 + 16380])


def test_beyond_the_ends_the_line_of_sizes_a_factor_of_two_apart_goes_on():
    # 100 and 101 are alike but for noise, which would be a slope of 500.
    one = curve({100: [600.0], 101: [100.0], 400: [400.0], 790: [1000.0], 800: [800.0]})
    assert at(one, 1600) == pytest.approx([800 + 800 * (800 - 400) / 400])
    assert at(one, 50) == pytest.approx([600.0])  # which falls with the size; below it is flat
    rising = curve({100: [100.0], 200: [300.0], 400: [500.0]})
    # A slope of 2 would make 0 B cost less than nothing: it goes through nothing at most.
    assert at(rising, 50, 0) == pytest.approx([50.0, 0.0])
    falling = curve({100: [100.0], 400: [50.0]})
    assert at(falling, 1000, 250) == pytest.approx([50.0, 75.0])


def test_one_size_and_none():
    assert at(curve({100: [3.0]}), 50, 100, 300) == [3, 3, 9]
    assert at(curve({0: [3.0]}), 0, 300) == [3, 3]
    assert at(curve({NO_SIZE: [3.0]}), NO_SIZE, 300) == [3, 3]
    both = curve({NO_SIZE: [7.0], 100: [1.0], 200: [2.0]})
    assert at(both, NO_SIZE, 150) == [7, 1.5]
    # One whose size nobody knows costs what all cost on average.
    assert at(curve({100: [1.0, 1.0, 1.0], 200: [5.0]}), NO_SIZE) == [2]


def test_what_is_outside_and_what_rests_on_few():
    one = curve({100: [1.0] * FEW, 200: [1.0] * (FEW - 1), 400: [1.0] * FEW, 800: [1.0] * FEW})
    sizes = np.array([50, 100, 150, 200, 600, 800, 900, NO_SIZE])
    assert one.outside(sizes).tolist() == [True, False, False, False, False, False, True, False]
    assert one.thin(sizes).tolist() == [False, False, True, True, False, False, False, False]
    assert curve({NO_SIZE: [1.0]}).thin(np.array([NO_SIZE])).tolist() == [True]
    assert curve({NO_SIZE: [1.0]}).outside(np.array([NO_SIZE, 5.0])).tolist() == [False, True]


def test_pieces_are_drawn_whole_and_one_that_has_none_tells_nothing():
    one = curve({100: [float(k) for k in range(PIECES)], 200: [50.0]})
    weight = np.zeros((2, PIECES))
    weight[0, 3], weight[1, 7] = PIECES, PIECES
    assert one.means(weight)[:, :, 0].tolist() == [[3, 50], [7, 50]]


def test_sizes_are_kept_apart_while_they_are_few():
    assert binned(np.array([7.0, NO_SIZE, 3, 7, 0])).tolist() == [3, 0, 2, 3, 1]
    many = np.concatenate([[NO_SIZE, 0.0], np.arange(1.0, 5000)])
    found = binned(many)
    assert found[:2].tolist() == [0, 1]
    assert (np.diff(found) >= 0).all()
    assert 30 < found.max() < 60  # four to an octave, of which the first have no more sizes
    for k in range(2, found.max() + 1):
        these = many[found == k]
        assert these.max() < these.min() * 2 ** (1 / 4) + 1e-9
    assert set(np.diff(np.unique(found))) == {1}


def test_layers_of_several_traces_stand_under_one_numbering():
    def one(layers: dict[str, str], cost: int):
        calls = [Call("pwrite", k * KIB * US, cost * US, KIB, "/a") for k in range(5)]
        return io_traces.raw([(0, calls)], [0], layers)

    both = [one({"mpiio": "M", "posix": "P"}, 3), one({"posix": "P", "tracer": "T"}, 5)]
    costs = learn(both, {PWRITE, Key("posix", "pread", KINDS.index("read"))})
    assert costs.columns == ["mpiio", "posix", "tracer", "system", "waiting", LEAVING]
    assert list(costs.curves) == [PWRITE]
    found = costs.curves[PWRITE]
    assert (found.size.tolist(), found.calls.tolist()) == ([KIB], [10])
    assert found.means(np.ones((1, PIECES)))[0, 0].tolist() == [0, 4 * US, 0, 0, 0, 0]
    assert learn(both[:1], set()).curves == {}
