"""The allowed values of a dataset's variables and attributes: declared in tables of rooms, compared with files here.

A dataset may be damaged, or come from a stranger. With a declaration such as "an index below the number of variants",
Sonde refuses it when it is opened, and names the variable, the position, the value and the allowed ones, before a
calculation uses the value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

WHOLE_AT_OPEN_BYTES = 8 << 20
"""At opening, longer columns are read only if they hold positions or codes: a wrong one of these raises no error."""


@dataclass(frozen=True)
class Allowed:
    """The values that numbers, or texts, may have. NaN is allowed for floats unless `nan` is False.

    low, high: the bounds, both allowed. below: a dim of the same group; values are positions in it. up_to: a dim;
    values are counts of its entries. codes, texts: the only allowed ones. besides: further allowed numbers, such as -1
    for "none". rises: a dim along which values do not fall; strictly: each value is above the one before it. infinite:
    whether floats may be infinite.
    """

    low: float = -math.inf
    high: float = math.inf
    below: str = ""
    up_to: str = ""
    codes: tuple[float, ...] = ()
    texts: tuple[str, ...] = ()
    besides: tuple[float, ...] = ()
    rises: str = ""
    strictly: bool = False
    nan: bool = True
    infinite: bool = False

    @property
    def at_any_size(self) -> bool:
        """Whether a wrong value would pass for another one, instead of raising an error."""
        return bool(self.below or self.codes)

    def end(self, sizes: Mapping[Any, int]) -> float:
        """The largest value allowed in a group whose dims have these lengths."""
        if self.below in sizes:
            return min(self.high, sizes[self.below] - 1)
        return min(self.high, sizes[self.up_to]) if self.up_to in sizes else self.high

    def wrong(self, values: np.ndarray, sizes: Mapping[Any, int]) -> np.ndarray:
        """A mask of the values that are not allowed; all False if the type is not the declared one."""
        if self.texts and values.dtype.kind in "OUT":
            return ~np.isin(values.astype(str), self.texts)
        if self.texts or values.dtype.kind not in "iuf":
            return np.zeros(values.shape, bool)
        if self.codes:
            return ~np.isin(values, (*self.codes, *self.besides))
        bad = (values < self.low) | (values > self.end(sizes))
        if values.dtype.kind == "f":
            bad |= np.isinf(values) if not self.infinite else False
            bad |= np.isnan(values) if not self.nan else False
        return bad & ~np.isin(values, self.besides) if self.besides else bad

    def text(self, sizes: Mapping[Any, int]) -> str:
        """The allowed values as text: "0 to 2 (a position in variant), or -1"."""
        if self.texts:
            return ", ".join(repr(text) for text in self.texts)
        low, high = self.low, self.end(sizes)
        if self.codes:
            text = ", ".join(f"{code:.12g}" for code in self.codes)
        elif math.isfinite(low) and math.isfinite(high):
            text = f"{low:.12g} to {high:.12g}" if low <= high else "nothing"
        elif math.isfinite(low):
            text = f"{low:.12g} and above"
        else:
            text = f"up to {high:.12g}" if math.isfinite(high) else "any finite number"
        text += f" (a position in {self.below})" if self.below else ""
        text += f" (the length of {self.up_to})" if self.up_to in sizes else ""
        return text + "".join(f", or {value:.12g}" for value in self.besides)


def index(dim: str, *besides: float) -> Allowed:
    """Positions in a dim of the same group. besides: values that mean "no position"."""
    return Allowed(low=0, below=dim, besides=besides)


def codes(*known: float, besides: tuple[float, ...] = ()) -> Allowed:
    return Allowed(codes=known, besides=besides)


def count_of(dim: str, *besides: float) -> Allowed:
    """The number of positions of a dim that hold something."""
    return Allowed(low=0, up_to=dim, besides=besides)


def from_(low: float, *besides: float) -> Allowed:
    """This number and above, finite; or NaN."""
    return Allowed(low=low, besides=besides)


FINITE = Allowed()
COUNT = Allowed(low=0)
"""Counts, bytes, lengths: not negative, finite."""
NUMBERED = Allowed(low=-1)
"""Counts and numbers, -1 for an unknown one."""
SHARE = Allowed(low=0, high=1)
LEVELS = Allowed(low=0, high=1, rises="quantile", strictly=True, nan=False)
"""The coordinate `quantile`."""
PLAUSIBLE = Allowed(low=-1e18, high=1e18)
"""Limits for numbers without a declaration, used after a calculation with them failed."""


@dataclass(frozen=True)
class Wrong:
    """The first value of a variable that is not allowed. at: its position by dim. count: the number of wrong values."""

    at: dict[str, int]
    value: Any
    allowed: str
    count: int

    def text(self, name: str) -> str:
        where = ", ".join(f"{dim} {place}" for dim, place in self.at.items())
        more = f"; {self.count} values are wrong" if self.count > 1 else ""
        return f"{name}{f' at {where}' if where else ''} is {self.value!r:.80}; allowed: {self.allowed}{more}"


def first_wrong(variable: xr.Variable, allowed: Allowed, sizes: Mapping[Any, int]) -> Wrong | None:
    """The first value that a declaration does not allow, or None. It reads all values, piece by piece.

    variable: of a dataset, lazy or not. sizes: lengths of the dims of its group.
    """
    found: tuple[dict[str, int], Any, str] | None = None
    count = 0
    for begin, values in _pieces(variable, allowed.rises):
        wrong, text = allowed.wrong(values, sizes), allowed.text(sizes)
        if not wrong.any() and allowed.rises in variable.dims:
            wrong = _falls(values, variable.dims.index(allowed.rises), allowed.strictly)
            order = "more than" if allowed.strictly else "no less than"
            text = f"{order} the one before it along {allowed.rises}"
        if not wrong.any():
            continue
        count += int(wrong.sum())
        if found is None:
            place = np.unravel_index(int(np.argmax(wrong)), wrong.shape) if wrong.shape else ()
            at = {str(dim): int(one) + first for dim, one, first in zip(variable.dims, place, begin)}
            value = values[place]
            found = at, value.item() if isinstance(value, np.generic | np.ndarray) else value, text
    return None if found is None else Wrong(*found, count)


def _pieces(variable: xr.Variable, rises: str) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """The begin and the values of pieces of a variable; along `rises` each piece begins with the last value of the
    previous one.
    """
    from sonde.core.values import pieces

    for where in pieces(variable):
        one_before = tuple(
            slice(part.start - 1, part.stop) if dim == rises and part.start else part
            for dim, part in zip(variable.dims, where)
        )
        yield tuple(part.start for part in one_before), np.asarray(variable[one_before].values)


def _falls(values: np.ndarray, axis: int, strictly: bool) -> np.ndarray:
    """A mask of the values that are less than the previous one along an axis; strictly: or equal to it."""
    fell = np.zeros(values.shape, bool)
    if values.dtype.kind not in "iuf":
        return fell
    later, earlier = ([slice(None)] * values.ndim for _ in range(2))
    later[axis], earlier[axis] = slice(1, None), slice(None, -1)
    compare = np.less_equal if strictly else np.less
    fell[tuple(later)] = compare(values[tuple(later)], values[tuple(earlier)])
    return fell
