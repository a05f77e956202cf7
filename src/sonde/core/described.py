"""The declaration of a dataset's variable: the one form in which rooms write their tables of variables.

A room names each variable, its dims, type, unit and title once, in such a table. Its analysis makes variables from the
table, the check of a dataset compares them with it, and the pages of the reference list it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.allowed import FINITE, WHOLE_AT_OPEN_BYTES, Allowed, codes, first_wrong
from sonde.core.errors import Finding, Warning
from sonde.core.layout import Variable
from sonde.core.values import bad_attribute, plain

if TYPE_CHECKING:
    import xarray as xr


_UNKNOWN = ("", "[]")  # an unknown number and an empty list, as `seal` writes them
_NO_UNIT = ("", "1")  # a text has no unit, a bare number the unit 1: both say that there is none
_NAMED_TITLES = 6  # variables that a warning about titles names


@dataclass(frozen=True)
class Described:
    """The declaration of a variable of a dataset. units "1" stands for a bare number, "" for no unit.

    allowed: the values that it may have; None: any value of its type. method: how an analysis computes it. better:
    "lower" or "higher", where the unit does not show which values are better. Both become attributes of these names.
    """

    dims: tuple[str, ...]
    dtype: str
    units: str
    long_name: str
    required: bool = True
    allowed: Allowed | None = None
    method: str = ""
    better: str = ""

    def attrs(self) -> dict[str, Any]:
        """The attributes of the variable in a file."""
        units = {"units": self.units} if self.units else {}
        more = {"method": self.method, "better": self.better}
        return {**units, "long_name": self.long_name, **{name: text for name, text in more.items() if text}}

    def with_values(self, values: Any, attrs: Mapping[str, Any] | None = None) -> xr.Variable:
        """The variable with its values, for an analysis.

        Parameters
        ----------
        values : an array of the declared dims, or what numpy makes one of; texts for "str"
        attrs : added to the unit, the title and the method

        Raises
        ------
        TypeError, ValueError  values of another kind (floats for an integer type), or of other dims: a mistake of ours.
        """
        import xarray as xr

        if self.dtype == "str":
            array = np.asarray(values, object)
        else:
            array = np.asarray(values)
            # An empty list is float to numpy, whatever it lists.
            array = array.astype(self.dtype, casting="same_kind" if array.size else "unsafe", copy=False)
        return xr.Variable(self.dims, array, {**self.attrs(), **(attrs or {})})

    def variable(
        self,
        fill: float | int | None = None,
        chunks: tuple[int, ...] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Variable:
        """The variable in the form for `seal`. attrs: added to the unit and the long name."""
        return Variable(self.dims, self.dtype, {**self.attrs(), **(attrs or {})}, fill, chunks)


def optional(
    dims: tuple[str, ...],
    units: str,
    long_name: str,
    dtype: str = "<f8",
    allowed: Allowed | None = None,
    method: str = "",
) -> Described:
    """A variable that a dataset may lack."""
    return Described(dims, dtype, units, long_name, False, allowed, method)


def attribute(
    long_name: str, allowed: Allowed | None = FINITE, listed: bool = False, texts: bool = False
) -> Described:
    """A root attribute that a dataset may lack: a number or a text, or a list of them if it has a dim."""
    return Described(
        ("listed",) if listed else (),
        "str" if texts else "<f8",
        "",
        long_name,
        False,
        None if texts else allowed,
    )


ROOT = {
    "complete": attribute("1: every requested cell has data", codes(0, 1)),
    "elapsed_s": attribute("how long the run took, s"),
}
"""Root attributes of every room that calculations use."""

Tables = Mapping[str, Mapping[str, Described]]
"""The declared variables of a dataset by group ("raw", "summary"), and its root attributes under ""."""


def variables(table: Mapping[str, Described], values: Mapping[str, Any]) -> dict[str, xr.Variable]:
    """Variables of a group by name, each as its table declares it. values: see `Described.with_values`.

    Raises
    ------
    KeyError  a name that the table does not declare; TypeError, ValueError  as `Described.with_values`.
    """
    return {name: table[name].with_values(array) for name, array in values.items()}


def misfits(
    room: str, group: str, data: xr.Dataset, table: Mapping[str, Described], all_values: bool = True
) -> Iterator[Finding]:
    """Violations of a table by a group's variables: dims, type, unit, values. A missing variable is no violation.

    room: the beginning of the findings' codes. group: "/raw", for their texts. all_values: also check values of long
    columns, which takes as long as reading them.
    """
    for name, what in table.items():
        if name not in data.variables:
            continue
        variable = data[name].variable
        if found := next(_form(room, group, name, variable, what), None):
            yield found
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


def other_titles(group: str, data: xr.Dataset, table: Mapping[str, Described]) -> Warning | None:
    """The warning that names variables whose titles are not those of a table; None if there are none.

    A title is for readers: of a file with another one, such as a file of an older Sonde, all numbers are as valid.
    """
    found = [
        f"{group}/{name} ({title!r}, not {what.long_name!r})"
        for name, what in table.items()
        if name in data.variables
        and (title := plain(data[name].attrs.get("long_name", what.long_name))) != what.long_name
    ]
    if not found:
        return None
    more = f" and {len(found) - _NAMED_TITLES} more" if len(found) > _NAMED_TITLES else ""
    return Warning(
        "data.other_titles",
        f"titles differ from those that this version gives: {', '.join(found[:_NAMED_TITLES])}{more}",
        "the values are valid; another version of Sonde made the file, or somebody changed it",
    )


def _form(room: str, group: str, name: str, variable: Any, what: Described) -> Iterator[Finding]:
    """Dims, unit and type that are not as declared."""
    yield from _dims(room, group, name, variable, what)
    yield from _units(room, group, name, variable, what)
    yield from _dtype(room, group, name, variable, what)


def _units(room: str, group: str, name: str, variable: Any, what: Described) -> Iterator[Finding]:
    if "units" not in variable.attrs:  # of a number, it is missing in any dataset: `data.no_units`
        return
    units = plain(variable.attrs["units"])
    if units != what.units and not (units in _NO_UNIT and what.units in _NO_UNIT):
        yield Finding(
            f"{room}.units",
            f"{group}/{name} has the unit {units!r}, not {what.units!r}",
            {"variable": name, "units": units},
        )


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

    Titles are compared by `other_titles`.

    room: the beginning of the findings' codes. group: "/raw", for their texts. coordinates: dims that must have a
    coordinate if a variable of the table has them.
    """
    found: list[Finding] = []
    for name, what in table.items():
        if name not in data.variables:
            if what.required:
                found.append(Finding(f"{room}.missing", f"{group}/{name} is missing", {"variable": name}))
            continue
        found += _form(room, group, name, data[name].variable, what)
    for dim in coordinates:
        if any(dim in what.dims for what in table.values()) and dim not in data.coords:
            found.append(Finding(f"{room}.coordinate", f"{group} has no coordinate {dim}", {"dim": dim}))
    return found
