"""Axes in readable units: the shown unit of a quantity, names of series, further variables of cells and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.figure import Axis, Figure
from sonde.report import scale

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Quantity:
    """The quantity of an axis: label, SI unit of the data, shown unit, shown = value * factor."""

    label: str
    si: str
    unit: str
    factor: float
    log: bool = False
    labels: tuple[str, ...] = ()
    least: float = 0.0  # for a matrix: share of the median that colours span to either side
    centre: float | None = None  # the value at which the two colour scales meet, in the shown unit

    @property
    def title(self) -> str:
        return f"{self.label}, {self.unit}" if self.unit and not self.log_texts else self.label

    @property
    def log_texts(self) -> bool:
        """Whether ticks carry their own units."""
        return self.log and len(scale.steps(self.si)) > 1


@dataclass(frozen=True)
class Extra:
    """A further variable, shown for the selected cell. values: one (rows, cols) array per frame."""

    label: str
    unit: str
    values: list[np.ndarray]
    words: tuple[str, ...] = ()  # names of integer codes


def axis_of(figure: Figure, role: str) -> Axis:
    """The axis of a role; without one, an axis of this name without a unit."""
    return figure.axes.get(role, Axis(role))


def quantity_of(axis: Axis, values: Any) -> Quantity:
    """The quantity of an axis in the unit that suits its values, SI."""
    # Whole bytes up to 8 KiB on a linear axis: nobody recognises the requested 400 B in 0.39 KiB
    few = axis.unit == "B" and not axis.log
    chosen = scale.choose(np.asarray(values, float) / 8 if few else values, axis.unit)
    si = "" if axis.unit == "1" else axis.unit
    centre = None if axis.centre is None else axis.centre * chosen.factor
    return Quantity(
        capital(axis.label), si, chosen.unit, chosen.factor, axis.log, axis.labels, axis.least, centre
    )


def capital(text: str) -> str:
    """A label with a capital first letter; symbols such as n, x or pH stay as they are."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if len(first) > 2 and first.islower() else text


def extra_of(name: str, variable: xr.Variable, values: list[np.ndarray]) -> Extra:
    """A further variable by its attributes long_name, units and flag_meanings. values: one array per frame."""
    names = str(variable.attrs.get("flag_meanings", "")).split()
    unit = str(variable.attrs.get("units", ""))
    return Extra(
        str(variable.attrs.get("long_name", name)),
        "" if unit == "1" else unit,  # udunits' name for "no unit"
        values,
        tuple(w.replace("_", " ") for w in names),
    )


def positions(data: xr.Dataset, dim: str, n: int) -> np.ndarray:
    """The positions along a dim, SI; 0, 1, 2 … without a numeric coordinate."""
    if dim in data.variables and data[dim].dtype.kind in "iuf":
        return np.asarray(data[dim].values, float)
    return np.arange(n, dtype=float)


def series_names(data: xr.Dataset) -> list[str]:
    """The name of each series; empty without a coordinate."""
    n = data.sizes.get("series", 1)
    return [str(v) for v in data["series"].values] if "series" in data.coords else [""] * n
