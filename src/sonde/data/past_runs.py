"""The part of a dataset that the history stores: the values that make runs comparable, and the numbers of a run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import dataset, hostlist
from sonde.core.errors import SondeError
from sonde.data.diff import judged, of_the_run
from sonde.data.slices import HostSlice, host_slices, label_slices

if TYPE_CHECKING:
    import xarray as xr


WHAT = (
    "kind",
    "study",
    "op",
    "size",
    "agent",
    "period_s",
)  # of noise: runs with other loops or agents are not comparable
_QUANTILE_CELLS = 20  # with fewer cells, a 95 % quantile over cells is the maximum


@dataclass(frozen=True)
class Scalar:
    """One number that represents a run. better: "lower", "higher", or "" if neither is better."""

    name: str
    value: float
    units: str
    better: str


@dataclass(frozen=True)
class PastRun:
    """A dataset of the folder. key: the values that must agree for two runs to be comparable."""

    file: str
    schema: str
    created: str
    complete: bool
    key: dict[str, Any]
    attrs: dict[str, Any]
    scalars: dict[str, Scalar]
    labels: dict[str, Scalar] = field(default_factory=dict)
    hosts: dict[str, HostSlice] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return json.dumps(self.key, sort_keys=True)


def read_run(path: Path) -> PastRun:
    """The part of a dataset that the history stores.

    Raises
    ------
    DataError  as `sonde.open`.
    """
    with dataset.open(path) as tree:
        attrs = dataset.attrs(tree)
        room, version = dataset.schema_of(tree)
        summary = tree.children["summary"].to_dataset() if "summary" in tree.children else None
        scalars = {} if summary is None else scalars_of(summary)
        labels, hosts = ({}, {}) if summary is None else slices_of(summary)
        differing = of_the_run(attrs)
        machine = {
            name: value
            for name, value in attrs.items()
            if name not in differing and not isinstance(value, float)
        }
        return PastRun(
            path.name,
            f"{room}/{version}",
            str(attrs.get("created_utc", "")),
            bool(attrs.get("complete", 0)),
            _key(tree, attrs, summary),
            machine,
            scalars,
            labels,
            hosts,
        )


def slices_of(summary: xr.Dataset) -> tuple[dict[str, Scalar], dict[str, HostSlice]]:
    """Labels and hosts of each variable with an interval, by name."""
    labels: dict[str, Scalar] = {}
    hosts: dict[str, HostSlice] = {}
    place = (
        np.asarray(summary["host"].values).astype(str) if "host" in summary.data_vars else np.array([], str)
    )
    for name in judged(summary):
        variable = summary[name]
        better = _scalar(name, math.nan, variable).better
        for part in label_slices(name, variable):
            at = f"{name} at {part.at}"
            labels[at] = Scalar(at, part.value, part.units, better)
        if better and place.ndim == 1:
            for slice_ in host_slices(name, variable, place, better):
                hosts[f"{name} at {slice_.at}" if slice_.at else name] = slice_
    return labels, hosts


def _key(tree: xr.DataTree, attrs: dict[str, Any], summary: xr.Dataset | None) -> dict[str, Any]:
    group = tree.children.get("raw")
    sizes = dict(group.sizes) if group is not None else {} if summary is None else dict(summary.sizes)
    grid = hashlib.sha256()
    for name, coordinate in sorted(
        {} if summary is None else summary.coords.items(), key=lambda item: str(item[0])
    ):
        grid.update(f"{name}:{coordinate.values.tolist()};".encode())
    return {
        "schema": attrs.get("schema"),
        "mode": attrs.get("mode", ""),
        "hosts": _hosts(str(attrs.get("hostlist", ""))),
        "ranks": int(sizes.get("rank", sizes.get("src", 0))),
        "grid": grid.hexdigest()[:16],
        **{name: attrs[name] for name in WHAT if name in attrs},
    }


def _hosts(text: str) -> int:
    try:
        return len(hostlist.expand(text)) if text else 0
    except SondeError:
        return 0


def scalars_of(summary: xr.Dataset) -> dict[str, Scalar]:
    """Single values, and for each variable with an interval the median and the 95 % quantile over cells, by name."""
    return {scalar.name: scalar for scalar in _scalars(summary)}


def _scalars(summary: xr.Dataset) -> Iterator[Scalar]:
    for name in judged(summary):
        variable = summary[name]
        values = np.asarray(variable.values, float)
        values = values[np.isfinite(values)]
        if not values.size:
            continue
        if variable.ndim == 0:
            yield _scalar(name, float(values[0]), variable)
            continue
        yield _scalar(f"{name} (median over cells)", float(np.median(values)), variable)
        if values.size >= _QUANTILE_CELLS:
            yield _scalar(f"{name} (95 % over cells)", float(np.quantile(values, 0.95)), variable)
    for key, variable in summary.data_vars.items():
        name = str(key)
        alone = variable.ndim == 0 and variable.dtype.kind == "f" and name not in judged(summary)
        if alone and not name.endswith(("_low", "_high", "_p")):
            yield _scalar(name, float(variable.values), variable)


def _scalar(name: str, value: float, variable: xr.DataArray) -> Scalar:
    units = str(variable.attrs.get("units", ""))
    known = {"s": "lower", "B/s": "higher", "1/s": "higher"}
    return Scalar(name, value, units, str(variable.attrs.get("better", known.get(units, ""))))
