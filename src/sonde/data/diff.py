"""`sonde data diff`: where two datasets of one schema differ beyond their intervals, and in which other ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import false_discovery_control

from sonde.core import dataset, stats
from sonde.core.errors import DataError, Finding, Warning, typed
from sonde.core.room import find_room

if TYPE_CHECKING:
    import xarray as xr

LEVEL = 0.95  # confidence level of the intervals in /summary
_Z = 1.959963984540054  # normal quantile of 0.975
_Z_POWER = 0.8416212335729143  # normal quantile of 0.8

# Root attributes of every room that differ between runs of one kind on one machine, and do not describe the machine.
_OF_THE_RUN = frozenset(
    (
        "schema",
        "command",
        "created_utc",
        "seed",
        "stop_reason",
        "complete",
        "job_id",
        "run_id",
        "steps",
        "load_average",
        "elapsed_s",
    )
)


@dataclass(frozen=True)
class Compared:
    """One variable in both datasets. Arrays are over the common cells; `cell` names one of them.

    ratio: b over a. differs: beyond intervals, beyond `matters`, and by false-discovery control. mde: median over cells
    of the relative change that is detected with 80 % power; NaN without intervals.
    """

    name: str
    units: str
    dims: tuple[str, ...]
    labels: Mapping[str, np.ndarray]
    a: np.ndarray
    b: np.ndarray
    differs: np.ndarray
    compared: int
    mde: float

    @property
    def ratio(self) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.a == self.b, 1.0, self.b / self.a)

    def cell(self, index: tuple[int, ...]) -> dict[str, Any]:
        """{"src": 0, "dst": 3} for a position."""
        return {dim: np.asarray(self.labels[dim][at]).item() for dim, at in zip(self.dims, index)}

    def worst(self) -> tuple[int, ...]:
        """The position of the cell with the largest difference among those that differ."""
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.where(self.differs, np.abs(np.log(np.abs(self.ratio))), -np.inf)
        return tuple(int(k) for k in np.unravel_index(int(np.argmax(size)), size.shape))


@dataclass
class Difference:
    """The comparison, variable by variable, and (name, a, b) of attributes that differ."""

    compared: list[Compared] = field(default_factory=list)
    machine: list[tuple[str, Any, Any]] = field(default_factory=list)
    warnings: list[Warning] = field(default_factory=list)


def compare(a: xr.DataTree, b: xr.DataTree, matters: float = 0.05) -> Difference:
    """Compare /summary of two datasets cell by cell, and their attributes.

    A cell differs when its intervals do not overlap, the change is at least `matters`, and it survives
    false-discovery control at 5 % over all cells of all variables. Its p value follows from the widths of the
    two intervals as if estimates were normal. Only variables with <name>_low and <name>_high are judged.
    Cells are matched by coordinate.

    Parameters
    ----------
    a, b : the datasets, opened; a is the base
    matters : share of a's value, > 0

    Raises
    ------
    DataError  data.other_schema, data.other_kind: different schemas or kinds; core.no_summary; data.nothing_shared: no
    common cell.

    Source: Benjamini & Hochberg 1995 for the control.
    """
    schemas = [f"{room}/{version}" for room, version in map(dataset.schema_of, (a, b))]
    if schemas[0] != schemas[1]:
        raise DataError(
            "data.other_schema",
            f"a {schemas[0]} and a {schemas[1]} dataset cannot be compared",
            "give two datasets of one schema",
        )
    kinds = [str(dataset.attrs(tree).get("kind", "")) for tree in (a, b)]
    if kinds[0] != kinds[1]:
        raise DataError(
            "data.other_kind",
            f"datasets of kind '{kinds[0]}' and '{kinds[1]}' cannot be compared",
            "give two datasets of one kind",
        )
    old, new = (dataset.summary_of(tree, dataset.schema_of(tree)[0]) for tree in (a, b))
    found = Difference(machine=machine_changes(dataset.attrs(a), dataset.attrs(b)))
    found.warnings = list(_doubts(a, b))
    drafts = []
    for name in judged(old):
        if name in judged(new):
            drafts.append(_aligned(name, old, new, found.warnings))
    pairs = [pair for pair in drafts if pair is not None]
    if not pairs:
        raise DataError(
            "data.nothing_shared",
            "the two datasets share no cell with an interval",
            "measure the same sizes and ranks, or variants, again",
        )
    adjusted = _adjusted([pair.p for pair in pairs])
    for pair, q in zip(pairs, adjusted):
        differs = pair.apart & (pair.change >= matters) & (q <= 1 - LEVEL)
        found.compared.append(
            Compared(
                pair.name,
                pair.units,
                pair.dims,
                pair.labels,
                pair.a,
                pair.b,
                differs,
                int(np.count_nonzero(np.isfinite(pair.p))),
                middle(pair.mde),
            )
        )
    return found


def judged(summary: xr.Dataset) -> list[str]:
    """Variables with an interval: a verdict is possible for these."""
    return [
        str(name)
        for name in summary.data_vars
        if f"{name}_low" in summary.data_vars and f"{name}_high" in summary.data_vars
    ]


def of_the_run(attrs: Mapping[str, Any]) -> frozenset[str]:
    """Names of root attributes that describe the run and not the machine. attrs: of a dataset."""
    room = find_room(str(attrs.get("schema", "")).partition("/")[0])
    return _OF_THE_RUN | (room.differing if room is not None else frozenset())


def machine_changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Root attributes that differ, except those of the run itself, and floats, which are measurements."""
    differing = of_the_run(a) | of_the_run(b)
    names = [name for name in dict.fromkeys((*a, *b)) if name not in differing]
    changes = [(name, a.get(name, "not recorded"), b.get(name, "not recorded")) for name in names]
    return [
        (name, old, new)
        for name, old, new in changes
        if old != new and not isinstance(old, float) and not isinstance(new, float)
    ]


def findings(found: Difference, files: tuple[str, str], room: str) -> list[Finding]:
    """A finding for each variable with a difference."""
    from sonde.data.words import quantity, share

    known = find_room(room)
    out = []
    for one in found.compared:
        count = int(one.differs.sum())
        if not count:
            continue
        at = one.worst()
        old, new, ratio = float(one.a[at]), float(one.b[at]), float(one.ratio[at])
        cell = one.cell(at)
        where = " at " + ", ".join(f"{dim} {label}" for dim, label in cell.items()) if cell else ""
        out.append(
            Finding(
                "data.differs",
                f"{one.name}: {count} of {one.compared} cells differ; most{where}: "
                f"{quantity(old, one.units)} → {quantity(new, one.units)} ({share(ratio - 1)})",
                {
                    "variable": one.name,
                    "cells": count,
                    "compared": one.compared,
                    "larger": int((one.differs & (one.b > one.a)).sum()),
                    "smaller": int((one.differs & (one.b < one.a)).sum()),
                    "worst": {**cell, "a": old, "b": new, "ratio": ratio},
                    "units": one.units,
                },
                typed("sonde", room, known.closer if known is not None else "diff", *files),
            )
        )
    return out


@dataclass(frozen=True)
class _Pair:
    name: str
    units: str
    dims: tuple[str, ...]
    labels: dict[str, np.ndarray]
    a: np.ndarray
    b: np.ndarray
    apart: np.ndarray
    change: np.ndarray
    p: np.ndarray
    mde: np.ndarray


def _aligned(name: str, old: xr.Dataset, new: xr.Dataset, warnings: list[Warning]) -> _Pair | None:
    """Both estimates and their intervals on the common cells; None if there are none."""
    units = [str(data[name].attrs.get("units", "")) for data in (old, new)]
    if units[0] != units[1]:
        warnings.append(
            Warning("data.other_units", f"{name} has the units {units[0]!r} and {units[1]!r}; it is left out")
        )
        return None
    if old[name].dims != new[name].dims:
        evidence = f"{name} has other dims in the two datasets; it is left out"
        warnings.append(Warning("data.other_dims", evidence))
        return None
    dims = tuple(map(str, old[name].dims))
    where_a, where_b, labels = [], [], {}
    for dim in dims:
        first, second = _labels(old, dim), _labels(new, dim)
        shared, at_a, at_b = np.intersect1d(first, second, return_indices=True)
        if len(shared) < max(len(first), len(second)):
            lacking = Warning(
                "data.not_all_shared",
                f"along {dim} the datasets share {len(shared)} of {len(first)} and {len(second)} positions",
                "only the common positions are compared",
            )
            if lacking not in warnings:
                warnings.append(lacking)
        where_a.append(at_a)
        where_b.append(at_b)
        labels[dim] = shared
    cut_a, cut_b = np.ix_(*where_a) if dims else (), np.ix_(*where_b) if dims else ()
    a, low_a, high_a = (np.asarray(old[name + end].values, float)[cut_a] for end in ("", "_low", "_high"))
    b, low_b, high_b = (np.asarray(new[name + end].values, float)[cut_b] for end in ("", "_low", "_high"))
    if a.size == 0:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.abs(a)
        error = np.hypot(high_a - low_a, high_b - low_b) / (2 * _Z)
        p = np.where(error > 0, 2 * ndtr(-np.abs(b - a) / error), np.where(a == b, 1.0, 0.0))
        p = np.where(np.isfinite(error) & np.isfinite(a) & np.isfinite(b), p, np.nan)
        change = np.where(a == b, 0.0, np.abs(b - a) / scale)
        mde = (_Z + _Z_POWER) * error / scale
    apart = (low_b > high_a) | (high_b < low_a)
    return _Pair(name, units[0], dims, labels, a, b, apart, change, p, mde)


def _labels(data: xr.Dataset, dim: str) -> np.ndarray:
    return data[dim].values if dim in data.coords else np.arange(data.sizes[dim])


def _adjusted(groups: list[np.ndarray]) -> list[np.ndarray]:
    """False-discovery-adjusted p values over all groups together; 1 for a missing value."""
    flat = np.concatenate([group.ravel() for group in groups])
    known = np.isfinite(flat)
    adjusted = np.ones(len(flat))
    if known.any():
        adjusted[known] = false_discovery_control(flat[known])
    ends = np.cumsum([group.size for group in groups])[:-1]
    return [part.reshape(group.shape) for part, group in zip(np.split(adjusted, ends), groups)]


def middle(values: np.ndarray) -> float:
    """Median of the finite values; NaN without any."""
    return stats.median(values[np.isfinite(values)])


def _doubts(a: xr.DataTree, b: xr.DataTree) -> Iterator[Warning]:
    """Reasons why a difference may not come from the machine."""
    old, new = dataset.attrs(a), dataset.attrs(b)
    for name, what in (("mode", "modes"), ("op", "operations"), ("agent", "agents"), ("hostlist", "hosts")):
        if name in old and name in new and old[name] != new[name]:
            yield Warning(
                f"data.other_{what}",
                f"the datasets differ in {what}: {old[name]} and {new[name]}",
                "cells are matched by their coordinates nevertheless",
            )
    for which, attrs in (("first", old), ("second", new)):
        if not attrs.get("complete", 1):
            yield Warning(
                "data.incomplete", f"the {which} dataset is incomplete", "cells without data are left out"
            )
