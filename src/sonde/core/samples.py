"""Checks of the arguments of statistics: series of samples, epochs, shares, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from sonde.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats: TypeAlias = NDArray[np.float64]


def samples(x: ArrayLike) -> Floats:
    """Samples as (n,) float. DataError  core.not_numbers, core.not_a_series."""
    try:
        array = np.ascontiguousarray(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            "core.not_numbers", f"samples are not numbers: {error}", "give floats, in s"
        ) from None
    if array.ndim != 1 or np.ndim(x) != 1:
        raise DataError(
            "core.not_a_series",
            f"samples have shape {np.shape(x)}; a series has one dimension",
            "pick one cell, or flatten with x.ravel()",
        )
    return array


def epochs(epoch: ArrayLike) -> NDArray[np.int32]:
    """Epoch numbers as (n,) int32. DataError  core.not_epochs."""
    array = np.asarray(epoch)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(
            "core.not_epochs",
            f"epoch numbers have shape {array.shape} and type {array.dtype}; they are a series of integers",
            "give one integer for every sample, -1 for none",
        )
    return np.ascontiguousarray(array, dtype=np.int32)


def share(name: str, value: float, *, open_ends: bool = True) -> float:
    """A share between 0 and 1, or from 0 to 1 without `open_ends`. UsageError  core.not_a_share."""
    inside = 0 < value < 1 if open_ends else 0 <= value <= 1
    if not inside:
        ends = "between 0 and 1" if open_ends else "from 0 to 1"
        raise UsageError(
            "core.not_a_share", f"{name} is {value:g}; it must be {ends}", f"{name}=0.95, not 95"
        )
    return float(value)


def count(name: str, value: int, least: int) -> int:
    """A whole number of at least `least`. UsageError  core.not_a_count."""
    if value != int(value) or value < least:
        raise UsageError(
            "core.not_a_count", f"{name} is {value}; it must be a whole number of at least {least}"
        )
    return int(value)
