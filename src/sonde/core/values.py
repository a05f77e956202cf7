"""Values of a dataset's variables and attributes: as Python values, and piece by piece. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.errors import Finding

if TYPE_CHECKING:
    import xarray as xr


_PIECE_BYTES = 8 << 20


def plain(value: Any) -> Any:
    """The Python value of a NumPy scalar or array; anything else unchanged."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def pieces(
    variable: xr.Variable | xr.DataArray, limit_bytes: int = _PIECE_BYTES
) -> Iterator[tuple[slice, ...]]:
    """Slices that cover a variable, each of at most `limit_bytes` (but at least one value), in C order.

    If a variable is stored in chunks that fit, each slice consists of whole chunks: a lazy variable then needs bounded
    memory and every chunk is unpacked once. A variable without dims gives one empty tuple; one with a dim of length 0
    gives no slice.
    """
    shape = variable.shape
    if 0 in shape:
        return
    room = max(1, limit_bytes // max(1, variable.dtype.itemsize))
    stored = variable.encoding.get("chunksizes")
    block = [min(chunk, length) for chunk, length in zip(stored, shape)] if stored else [1] * len(shape)
    if math.prod(block) > room:
        block = [1] * len(shape)
    for axis in reversed(range(len(shape))):
        fitting = room // math.prod(block)
        block[axis] = min(block[axis] * fitting, shape[axis])
    steps = [range(0, length, step) for length, step in zip(shape, block)]
    for begins in itertools.product(*steps):
        yield tuple(slice(at, min(at + step, end)) for at, step, end in zip(begins, block, shape))


def bad_attribute(name: str, value: Any, allowed: str) -> Finding:
    """The finding about a root attribute whose value is not allowed."""
    return Finding(
        "data.bad_attribute",
        f"root attribute {name} is {value!r:.80}; allowed: {allowed}",
        {"attribute": name, "value": value},
    )
