"""Long form: a group of a dataset as tables with one row per value, read in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.values import pieces

if TYPE_CHECKING:
    import xarray as xr

BLOCK_ROWS = 1 << 16
_READ_BYTES = 16 << 20


@dataclass(frozen=True)
class Column:
    """A column: its name, SI unit ("" for no unit), description, and kind: "int", "float" or "text"."""

    name: str
    units: str
    long_name: str
    kind: str

    @property
    def head(self) -> str:
        """Name and unit: "latency [s]"."""
        return f"{self.name} [{self.units}]" if self.units not in ("", "1") else self.name


@dataclass(frozen=True)
class LongTable:
    """All variables of a group with the same dims: a column for each dim, then one for each variable.

    A dim's column contains its coordinate, or the position along it. Rows in which every variable is missing (NaN, or
    the variable's fill value) are left out: a dataset pads series of unequal length, tables do not.
    """

    group: str
    dims: tuple[str, ...]
    columns: tuple[Column, ...]
    cells: int  # number of rows, including those without a value
    data: xr.Dataset

    @property
    def name(self) -> str:
        """The dims joined by "_"; "scalars" without dims."""
        return "_".join(self.dims) or "scalars"

    @property
    def variables(self) -> list[str]:
        """Names of the variables."""
        return [column.name for column in self.columns[len(self.dims) :]]

    @property
    def empty(self) -> bool:
        """Whether it has no row; reads up to the first one."""
        return next(self.blocks(), None) is None

    def blocks(self) -> Iterator[list[np.ndarray]]:
        """Columns of at most BLOCK_ROWS rows each. Rows of a large table come chunk by chunk, not sorted."""
        chosen = [self.data[name].variable for name in self.variables]
        labels = [
            self.data[dim].values if dim in self.data.coords else np.arange(self.data.sizes[dim])
            for dim in self.dims
        ]
        lead = max(chosen, key=lambda variable: variable.dtype.itemsize)
        for where in pieces(lead, _READ_BYTES):
            values = [variable[where].values for variable in chosen]
            shape = values[0].shape
            flat = [value.ravel() for value in values]
            begins = [part.start for part in where]
            for first in range(0, flat[0].size, BLOCK_ROWS):
                rows = np.arange(first, min(first + BLOCK_ROWS, flat[0].size))
                part = [column[first : first + BLOCK_ROWS] for column in flat]
                present = ~np.logical_and.reduce([_missing(v, p) for v, p in zip(chosen, part)])
                if not present.any():
                    continue
                index = np.unravel_index(rows[present], shape) if shape else ()
                head = [label[at + begin] for label, at, begin in zip(labels, index, begins)]
                yield [*head, *(column[present] for column in part)]


def tables(group: xr.Dataset, name: str) -> list[LongTable]:
    """The group's tables, the one with the most dims first; [] for a group without variables."""
    by_dims: dict[tuple[str, ...], list[str]] = {}
    for key, variable in group.data_vars.items():
        by_dims.setdefault(tuple(map(str, variable.dims)), []).append(str(key))
    found = []
    for dims, names in sorted(by_dims.items(), key=lambda item: -len(item[0])):
        columns = [_column(dim, group[dim] if dim in group.coords else None) for dim in dims]
        columns += [_column(key, group[key]) for key in names]
        cells = int(np.prod([group.sizes[dim] for dim in dims], dtype=np.int64))
        found.append(LongTable(name, dims, tuple(columns), cells, group))
    return found


def _column(name: str, variable: xr.DataArray | None) -> Column:
    if variable is None:
        return Column(name, "", f"position along {name}", "int")
    kind = {"f": "float", "i": "int", "u": "int", "b": "int"}.get(variable.dtype.kind, "text")
    attributes = variable.attrs
    return Column(name, str(attributes.get("units", "")), str(attributes.get("long_name", name)), kind)


def _missing(variable: xr.Variable, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":
        return np.isnan(values)
    fill: Any = variable.attrs.get("_FillValue")
    return values == fill if fill is not None else np.zeros(values.shape, bool)
