"""Variables of datasets that are read from another file when they are needed, and coordinates of cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from sonde.net import schema


class _Lazy(BackendArray):
    """An array that calls `read` for its values when they are needed: spans of each dim to values."""

    def __init__(
        self, shape: tuple[int, ...], dtype: str, read: Callable[[tuple[slice, ...]], np.ndarray]
    ) -> None:
        self.shape, self.dtype, self._spans = shape, np.dtype(dtype), read

    def __getitem__(self, key: indexing.ExplicitIndexer) -> np.ndarray:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._take)

    def _take(self, key: tuple[int | slice, ...]) -> np.ndarray:
        spans: list[slice] = []
        rest: list[slice | int] = []
        for item, length in zip(key, self.shape):
            if isinstance(item, slice):
                chosen = range(length)[item]
                low, high = (min(chosen), max(chosen) + 1) if chosen else (0, 0)
                spans.append(slice(low, high))
                rest.append(slice(None, None, chosen.step) if chosen.step != 1 else slice(None))
            else:
                at = range(length)[int(item)]
                spans.append(slice(at, at + 1))
                rest.append(0)
        shape = tuple(span.stop - span.start for span in spans)
        values = self._spans(tuple(spans)) if 0 not in shape else np.zeros(shape, self.dtype)
        return np.asarray(values, self.dtype)[tuple(rest)]


def lazy(
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    dtype: str,
    read: Callable[[tuple[slice, ...]], np.ndarray],
    attrs: Mapping[str, Any],
    **encoding: Any,
) -> xr.Variable:
    array = indexing.LazilyIndexedArray(_Lazy(shape, dtype, read))
    return xr.Variable(dims, array, dict(attrs), encoding=encoding)


def coords(ranks: int, sizes: np.ndarray) -> dict[str, xr.Variable]:
    coordinates = schema.coordinates(ranks, sizes)
    return {name: xr.Variable((name,), values, dict(attrs)) for name, (values, attrs) in coordinates.items()}


def spectrum_variable(
    ranks: int,
    positions: int,
    harmonics: int,
    window: int,
    read: Callable[[tuple[slice, ...]], np.ndarray],
) -> xr.Variable:
    attrs = schema.SUMMARY["spectrum"].attrs()
    if window:
        attrs["window"] = window
    shape = (ranks, ranks, positions, harmonics)
    chunk = (1, 1, max(1, min(positions, schema.CHUNK_BYTES // 8 // harmonics)), harmonics)
    return lazy(schema.SUMMARY["spectrum"].dims, shape, "<f8", read, attrs, chunksizes=chunk)
