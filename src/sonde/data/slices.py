"""Parts of a summary that `sonde data history` follows in addition to the whole: each size (or variant, …), and each
host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.data.words import quantity

if TYPE_CHECKING:
    import xarray as xr

MAX_LABELS = 256  # per axis; a longer axis is not a list of sizes or variants
MIN_HOSTS = 3  # with two hosts, neither can be compared with the others
_PLACES = ("src", "dst", "rank")  # axes over ranks; each rank is on a host


@dataclass(frozen=True)
class LabelSlice:
    """The median over all other axes, at one label of one axis: quantity "median", at "64 KiB"."""

    quantity: str
    at: str
    value: float
    units: str


@dataclass(frozen=True)
class HostSlice:
    """One value for each host, at one label or over all of them (at == "").
    values: host -> the better quartile of its cells with other hosts, in `units`. A cell with a sick host at its other
    end is slow because of that host. The better quartile still describes the host itself while fewer than three in four
    of its cells lead to sick hosts.
    """

    quantity: str
    at: str
    units: str
    better: str
    values: dict[str, float]


def label_slices(name: str, variable: xr.DataArray) -> Iterator[LabelSlice]:
    """A slice for each label of each named axis with two labels or more."""
    units = str(variable.attrs.get("units", ""))
    for axis in _named(variable):
        if variable.sizes[axis] < 2:
            continue
        for k, label in enumerate(_labels(variable, axis)):
            values = np.asarray(variable.isel({axis: k}).values, float)
            values = values[np.isfinite(values)]
            if values.size:
                yield LabelSlice(name, label, float(np.median(values)), units)


def host_slices(name: str, variable: xr.DataArray, hosts: np.ndarray, better: str) -> Iterator[HostSlice]:
    """A slice for each label of the axis with the most labels (the sizes), or one slice if no axis has labels.

    hosts: the host of each rank, (ranks,) str; better: "lower" or "higher".
    """
    places = [str(axis) for axis in variable.dims if axis in _PLACES]
    names = sorted(set(hosts.tolist()))
    if not places or len(names) < MIN_HOSTS or any(variable.sizes[axis] != len(hosts) for axis in places):
        return
    axis = max(_named(variable), key=lambda one: variable.sizes[one], default="")
    labels = _labels(variable, axis) if axis else [""]
    units = str(variable.attrs.get("units", ""))
    values = np.asarray(variable.transpose(*places, *([axis] if axis else []), ...).values, float)
    values = values.reshape(*([len(hosts)] * len(places)), len(labels), -1)
    if len(places) > 1:
        values = np.where((hosts[:, None] != hosts)[..., None, None], values, np.nan)
    of_host = {host: hosts == host for host in names}
    for k, label in enumerate(labels):
        cells = values[..., k, :]
        found = {}
        for host, here in of_host.items():
            own = cells[here].ravel()
            if len(places) > 1:
                own = np.concatenate([own, cells[:, here].ravel()])
            own = own[np.isfinite(own)]
            if own.size:
                found[host] = _better_quartile(own, better)
        if len(found) >= MIN_HOSTS:
            yield HostSlice(name, label, units, better, found)


def _named(variable: xr.DataArray) -> list[str]:
    return [
        str(axis)
        for axis in variable.dims
        if axis in variable.coords
        and axis not in (*_PLACES, "cell", "share")
        and variable.sizes[axis] <= MAX_LABELS
    ]


def _labels(variable: xr.DataArray, axis: str) -> list[str]:
    coordinate = variable.coords[axis]
    units = "B" if axis == "size" else str(coordinate.attrs.get("units", "1"))
    return [_label(axis, value, units) for value in coordinate.values.tolist()]


def _label(axis: str, value: Any, units: str) -> str:
    if isinstance(value, (int, float)):
        return quantity(float(value), units) if units != "1" else f"{axis} {value:g}"
    return f"{axis} {value}"


def _better_quartile(cells: np.ndarray, better: str) -> float:
    if better == "higher":
        return float(np.quantile(cells, 0.75, method="higher"))
    return float(np.quantile(cells, 0.25, method="lower"))
