"""The declaration of a dataset's variable: the one form in which rooms write their tables of variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.allowed import FINITE, WHOLE_AT_OPEN_BYTES, Allowed, codes, first_wrong
from sonde.core.errors import Finding
from sonde.core.layout import Variable
from sonde.core.values import bad_attribute, plain

if TYPE_CHECKING:
    import xarray as xr


_UNKNOWN = ("", "[]")  # an unknown number and an empty list, as `seal` writes them


@dataclass(frozen=True)
class Described:
    """The declaration of a variable of a dataset. units "1" stands for a bare number, "" for no unit.

    allowed: the values that it may have; None: any value of its type.
    """

    dims: tuple[str, ...]
    dtype: str
    units: str
    long_name: str
    required: bool = True
    allowed: Allowed | None = None

    def attrs(self) -> dict[str, Any]:
        units = {"units": self.units} if self.units else {}
        return {**units, "long_name": self.long_name}

    def variable(
        self,
        fill: float | int | None = None,
        chunks: tuple[int, ...] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Variable:
        """The variable in the form for `seal`. attrs: added to the unit and the long name."""
        return Variable(self.dims, self.dtype, {**self.attrs(), **(attrs or {})}, fill, chunks)


def optional(
    dims: tuple[str, ...], units: str, long_name: str, dtype: str = "<f8", allowed: Allowed | None = None
) -> Described:
    """A variable that a dataset may lack."""
    return Described(dims, dtype, units, long_name, False, allowed)


def attribute(
    long_name: str, allowed: Allowed | None = FINITE, listed: bool = False, text: bool = False
) -> Described:
    """A root attribute that a dataset may lack: a number or a text, or a list of them if it has a dim."""
    return Described(
        ("listed",) if listed else (),
        "str" if text else "<f8",
        "",
        long_name,
        False,
        None if text else allowed,
    )


ROOT = {
    "complete": attribute("1: every requested cell has data", codes(0, 1)),
    "elapsed_s": attribute("how long the run took, s"),
}
"""Root attributes of every room that calculations use."""

Tables = Mapping[str, Mapping[str, Described]]
"""The declared variables of a dataset by group ("raw", "summary"), and its root attributes under ""."""


def misfits(
    room: str, group: str, data: xr.Dataset, table: Mapping[str, Described], all_values: bool = True
) -> Iterator[Finding]:
    """Violations of a table by a group's variables: dims, type, values. A missing variable is no violation.

    room: the beginning of the findings' codes. group: "/raw", for their texts. all_values: also check values of long
    columns, which takes as long as reading them.
    """
    for name, what in table.items():
        if name not in data.variables:
            continue
        variable = data[name].variable
        if found := [*_dims(room, group, name, variable, what), *_dtype(room, group, name, variable, what)]:
            yield found[0]
        elif what.allowed is not None and (
            all_values
            or what.allowed.at_any_size
            or variable.size * variable.dtype.itemsize <= WHOLE_AT_OPEN_BYTES
        ):
            try:
                wrong = first_wrong(variable, what.allowed, data.sizes)
            except (OSError, RuntimeError):
                # At opening: commands that do not need this variable go on, and those that read it name it.
                if all_values:
                    raise
                continue
            if wrong is not None:
                evidence = {"variable": name, "at": wrong.at, "value": wrong.value, "count": wrong.count}
                yield Finding(f"{room}.range", wrong.text(f"{group}/{name}"), evidence)


def bad_attributes(attrs: Mapping[Any, Any], table: Mapping[str, Described]) -> Iterator[Finding]:
    """Root attributes that have another type than a table declares, or values that it does not allow.

    An attribute with a dim is a number, or a list of numbers. A missing attribute is no violation.
    """
    for name, what in table.items():
        if name not in attrs or (what.dtype != "str" and plain(attrs[name]) in _UNKNOWN):
            continue
        values = np.asarray(attrs[name])
        kinds = "OUST" if what.dtype == "str" else "iuf"
        if values.dtype.kind not in kinds or values.ndim > len(what.dims):
            kind = "a text" if what.dtype == "str" else "a number"
            yield bad_attribute(name, plain(attrs[name]), f"{kind}, or a list of them" if what.dims else kind)
        elif what.allowed is not None and what.allowed.wrong(values, {}).any():
            yield bad_attribute(name, plain(attrs[name]), what.allowed.text({}))


def _dims(room: str, group: str, name: str, variable: Any, what: Described) -> Iterator[Finding]:
    dims = tuple(map(str, variable.dims))
    if dims != what.dims:
        yield Finding(
            f"{room}.dims",
            f"{group}/{name} has dims ({', '.join(dims)}), not ({', '.join(what.dims)})",
            {"variable": name, "dims": list(dims)},
        )


def _dtype(room: str, group: str, name: str, variable: Any, what: Described) -> Iterator[Finding]:
    numeric = np.issubdtype(variable.dtype, np.number)
    if numeric == (what.dtype == "str"):
        yield Finding(
            f"{room}.dtype",
            f"{group}/{name} has type {variable.dtype}, not {what.dtype}",
            {"variable": name, "dtype": str(variable.dtype)},
        )


def check(
    room: str, group: str, data: xr.Dataset, table: Mapping[str, Described], coordinates: Sequence[str] = ()
) -> list[Finding]:
    """Differences between a group's variables and a table; [] if there is no difference. Values are not read.

    room: the beginning of the findings' codes. group: "/raw", for their texts. coordinates: dims that must have a
    coordinate if a variable of the table has them.
    """
    found: list[Finding] = []
    for name, what in table.items():
        if name not in data.variables:
            if what.required:
                found.append(Finding(f"{room}.missing", f"{group}/{name} is missing", {"variable": name}))
            continue
        variable = data[name]
        found += _dims(room, group, name, variable, what)
        units = plain(variable.attrs.get("units", ""))
        if units != what.units and what.dtype != "str":
            found.append(
                Finding(
                    f"{room}.units",
                    f"{group}/{name} has the unit {units!r}, not {what.units!r}",
                    {"variable": name, "units": units},
                )
            )
        found += _dtype(room, group, name, variable, what)
    for dim in coordinates:
        if any(dim in what.dims for what in table.values()) and dim not in data.coords:
            found.append(Finding(f"{room}.coordinate", f"{group} has no coordinate {dim}", {"dim": dim}))
    return found
