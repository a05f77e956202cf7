"""Arrays that are read when they are needed, and no more of them than that."""

from __future__ import annotations

import numpy as np
import xarray as xr

from sonde.net.variables import lazy

WHOLE = np.arange(60).reshape(3, 4, 5)


def read_spans(key) -> tuple[np.ndarray, list[tuple[slice, ...]]]:
    """The values of a lazy array at an index, and the spans that were read for them."""
    spans: list[tuple[slice, ...]] = []

    def read(asked: tuple[slice, ...]) -> np.ndarray:
        spans.append(asked)
        return WHOLE[asked]

    array = xr.Dataset({"x": lazy(("a", "b", "c"), WHOLE.shape, "<i8", read, {})})["x"]
    assert spans == []
    return array[key].values, spans


def test_values_are_those_of_the_whole():
    for key in ((0, slice(1, 3), -1), (slice(None, None, -1), 2, slice(0, 5, 2)), (1, 1, 1)):
        np.testing.assert_array_equal(read_spans(key)[0], WHOLE[key])


def test_only_the_span_is_read():
    _, spans = read_spans((1, slice(1, 3), slice(0, 5, 2)))
    assert spans == [(slice(1, 2), slice(1, 3), slice(0, 5))]


def test_an_empty_span_reads_nothing():
    values, spans = read_spans((slice(2, 2), 0, 0))
    assert (values.shape, spans) == ((0,), [])
