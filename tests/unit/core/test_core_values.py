"""Values of variables and attributes, as Python has them and piece by piece."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr

from sonde.core import values


@pytest.mark.parametrize(
    ("shape", "limit"),
    [
        ((), 8),
        ((5,), 8),
        ((5,), 16),
        ((3, 4), 8),
        ((3, 4), 40),
        ((3, 4), 10**6),
        ((2, 3, 4, 5), 200),
        ((7, 1), 24),
    ],
)
def test_pieces_cover_everything_once_within_the_limit(shape, limit):
    variable = xr.Variable([f"d{k}" for k in range(len(shape))], np.zeros(shape))
    seen = np.zeros(shape, int)
    for where in values.pieces(variable, limit):
        assert variable[where].nbytes <= max(limit, 8)
        seen[where] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("chunks", [(1, 4, 2), (6, 1, 1), (2, 2, 2), (6, 7, 5), (10, 10, 10)])
def test_pieces_are_made_of_whole_chunks(chunks):
    variable = xr.Variable(("a", "b", "c"), np.zeros((6, 7, 5)), encoding={"chunksizes": chunks})
    seen = np.zeros(variable.shape, int)
    for where in values.pieces(variable, 800):
        for part, chunk, length in zip(where, chunks, variable.shape):
            if math.prod(map(min, chunks, variable.shape)) <= 100:
                assert part.start % chunk == 0
                assert part.stop % chunk == 0 or part.stop == length
        assert variable[where].nbytes <= 800
        seen[where] += 1
    assert (seen == 1).all()


def test_pieces_of_nothing_are_none():
    assert list(values.pieces(xr.Variable(("a", "b"), np.zeros((3, 0))))) == []


def test_a_numpy_value_is_the_python_value_it_stands_for():
    assert values.plain(np.float64(1.5)) == 1.5
    assert values.plain(np.array([1, 2])) == [1, 2]
    assert values.plain("text") == "text"


def test_a_bad_attribute_is_named_with_its_value_and_what_is_allowed():
    found = values.bad_attribute("complete", 7, "0, 1")
    assert found.text == "root attribute complete is 7; allowed: 0, 1"
    assert found.evidence == {"attribute": "complete", "value": 7}
