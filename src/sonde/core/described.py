"""What a variable of a dataset must look like: the one form in which rooms write their tables of variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.dataset import plain
from sonde.core.errors import Finding
from sonde.core.seal import Variable

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Described:
    """What a variable of a dataset must look like. units "1" stands for a bare number, "" for none."""

    dims: tuple[str, ...]
    dtype: str
    units: str
    long_name: str
    required: bool = True

    def attrs(self) -> dict[str, Any]:
        units = {"units": self.units} if self.units else {}
        return {**units, "long_name": self.long_name}

    def variable(
        self,
        fill: float | int | None = None,
        chunks: tuple[int, ...] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Variable:
        """As `seal` takes it. attrs: added to the unit and the long name."""
        return Variable(self.dims, self.dtype, {**self.attrs(), **(attrs or {})}, fill, chunks)


def optional(dims: tuple[str, ...], units: str, long_name: str, dtype: str = "<f8") -> Described:
    """A variable that a dataset may lack."""
    return Described(dims, dtype, units, long_name, required=False)


def check(
    room: str, group: str, data: xr.Dataset, table: Mapping[str, Described], coordinates: Sequence[str] = ()
) -> list[Finding]:
    """What of a group's variables is not as a table says; [] where all is. Values are not read.

    room: begins the findings' codes. group: "/raw", for their texts. coordinates: dims that must have one, where a
    variable of the table has them.
    """
    found: list[Finding] = []
    for name, what in table.items():
        if name not in data.variables:
            if what.required:
                found.append(Finding(f"{room}.missing", f"{group}/{name} is missing", {"variable": name}))
            continue
        variable = data[name]
        dims = tuple(map(str, variable.dims))
        if dims != what.dims:
            found.append(
                Finding(
                    f"{room}.dims",
                    f"{group}/{name} has dims ({', '.join(dims)}), not ({', '.join(what.dims)})",
                    {"variable": name, "dims": list(dims)},
                )
            )
        units = plain(variable.attrs.get("units", ""))
        if units != what.units and what.dtype != "str":
            found.append(
                Finding(
                    f"{room}.units",
                    f"{group}/{name} is in {units!r}, not in {what.units!r}",
                    {"variable": name, "units": units},
                )
            )
        numeric = np.issubdtype(variable.dtype, np.number)
        if numeric == (what.dtype == "str"):
            found.append(
                Finding(
                    f"{room}.dtype",
                    f"{group}/{name} is {variable.dtype}, not {what.dtype}",
                    {"variable": name, "dtype": str(variable.dtype)},
                )
            )
    for dim in coordinates:
        if any(dim in what.dims for what in table.values()) and dim not in data.coords:
            found.append(Finding(f"{room}.coordinate", f"{group} has no coordinate {dim}", {"dim": dim}))
    return found
