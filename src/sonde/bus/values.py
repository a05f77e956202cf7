"""A summary's series as values that can be asked for by test, number, variant and quantity. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from sonde.bus.plan import (
    EACH,
    RAW,
    STAR,
    TESTS,
    Case,
    case_of,
    discovery_of,
    secured,
    without_keys,
)
from sonde.core.status import DRIFT, NOT_MEASURED

NAN = float("nan")
LEAST_EPOCHS = 6  # of an interval that says something
# Quantities told by their mean: of bursts most of which lose nothing the median says that none is ever lost.
SHARES = ("lost", "mismatched", "refused", "matched")


@dataclass(frozen=True)
class Way:
    """One variant of a summary."""

    row: int
    name: str
    implementation: str
    version: str
    transport: str
    options: str

    @property
    def raw(self) -> bool:
        """Whether it is the machine's own way, and no bus."""
        return self.implementation == RAW

    @property
    def discovery(self) -> str:
        return discovery_of(self.options)

    @property
    def secured(self) -> bool:
        """Whether it has keys."""
        return secured(self.options)

    @property
    def kind(self) -> tuple[str, str, str]:
        """What is the same in a variant with keys and in the same without."""
        return self.implementation, self.transport, without_keys(self.options)


@dataclass(frozen=True)
class Value:
    """One series: what was measured of a case over a variant. Numbers in the quantity's unit; NaN where there is
    none.

    ratio: over that of the variant `base`, for one with keys the same without; ratio_to_raw: over the machine's own
    way. Both with their intervals. blocks: its median in each stretch of time, of one of SHARES its mean; the same
    stretches for all series.
    """

    row: int
    way: Way
    case: Case
    number: int
    quantity: str
    unit: str
    n: int
    epochs: int
    absent: int
    status: int
    median: float
    low: float
    high: float
    p99: float
    p99_ends: tuple[float, float]
    mean: float
    least: float
    most: float
    base: int
    ratio: tuple[float, float, float]
    ratio_to_raw: tuple[float, float, float]
    blocks: np.ndarray = field(repr=False, compare=False)

    @property
    def drifted(self) -> bool:
        return self.status == DRIFT

    @property
    def ends(self) -> tuple[float, float]:
        """Of the interval as people see it: fewer epochs than LEAST_EPOCHS tell none, and would stretch every axis."""
        return (self.low, self.high) if self.epochs >= LEAST_EPOCHS else (math.nan, math.nan)


@dataclass(frozen=True)
class Values:
    """All series of a summary. cases: in their order. ways: variants, in theirs."""

    summary: xr.Dataset

    @cached_property
    def ways(self) -> list[Way]:
        columns = [
            self._told(name) for name in ("variant_name", "implementation", "version", "transport", "options")
        ]
        return [Way(row, *(str(x) for x in words)) for row, words in enumerate(zip(*columns))]

    @cached_property
    def cases(self) -> list[Case]:
        names = ("test", "size", "subscribers", "entities", "treatment")
        return [case_of(dict(zip(names, facts))) for facts in zip(*(self._told(name) for name in names))]

    @cached_property
    def all(self) -> list[Value]:
        """Every series with a value, by case, then quantity, then variant."""
        told = {str(name): variable.values for name, variable in self.summary.data_vars.items()}
        quantities = [str(name) for name in told["quantity_name"]]
        units = [str(unit) for unit in told["quantity_unit"]]
        out = []
        for k in range(self.summary.sizes["series"]):
            if not told["n"][k] or not math.isfinite(told["median"][k]):
                continue
            c, q = int(told["series_case"][k]), int(told["series_quantity"][k])
            out.append(
                Value(
                    k,
                    self.ways[int(told["series_variant"][k])],
                    self.cases[c],
                    self.cases[c].number,
                    quantities[q],
                    units[q],
                    int(told["n"][k]),
                    int(told["epochs"][k]),
                    int(told["absent"][k]) if "absent" in told else 0,
                    int(told["status"][k]),
                    float(told["median"][k]),
                    float(told["median_low"][k]),
                    float(told["median_high"][k]),
                    float(told["p99"][k]),
                    (float(told["p99_low"][k]), float(told["p99_high"][k])),
                    float(told["mean"][k]),
                    float(told["min"][k]),
                    float(told["max"][k]),
                    int(told["base"][k]),
                    _ends(told, "ratio", k),
                    _ends(told, "ratio_to_raw", k),
                    told["block"][k],
                )
            )
        return out

    @cached_property
    def tests(self) -> list[str]:
        """Tests with data, in the order of TESTS."""
        there = {value.case.test for value in self.all}
        return [test for test in TESTS if test in there]

    @cached_property
    def _by_key(self) -> dict[tuple[int, Case, str], Value]:
        return {(value.way.row, value.case, value.quantity): value for value in self.all}

    def of(self, way: Way, case: Case, quantity: str) -> Value | None:
        """One of them, or None."""
        return self._by_key.get((way.row, case, quantity))

    def find(
        self, test: str, quantity: str | None = None, way: Way | None = None, **numbers: Any
    ) -> list[Value]:
        """Those of a test; numbers: what fields of their case must be, `size=64`. By default of its first
        quantity.
        """
        wanted = quantity or TESTS[test].quantity
        return [
            value
            for value in self.all
            if value.case.test == test
            and value.quantity == wanted
            and (way is None or value.way == way)
            and all(getattr(value.case, name) == number for name, number in numbers.items())
        ]

    def discovered(self, quantity: str, way: Way) -> list[Value]:
        """Those of discovery over a variant, of one shape: `shape`."""
        return self.find("discovery", quantity, way, treatment=self.shape)

    @cached_property
    def shape(self) -> str:
        """Who was to match whom in discovery, "star" or "all"; of a run that has both the star."""
        treatments = {value.case.treatment for value in self.all if value.case.test == "discovery"}
        return EACH if treatments == {EACH} else STAR

    def cells(self) -> list[Value]:
        """One value for each case on a variant: that of its test's first quantity, else the first there is."""
        out: dict[tuple[int, Case], Value] = {}
        for value in self.all:
            key = (value.way.row, value.case)
            if value.quantity == TESTS[value.case.test].quantity:
                out[key] = value
            else:
                out.setdefault(key, value)
        return list(out.values())

    def lost(self, value: Value) -> float:
        """Share of the messages of a value's case that never came, 0 to 1, a mean; NaN: not counted."""
        if value.case.test == "discovery":
            return NAN  # what is absent there is a number that nobody got to
        counted = self.of(value.way, value.case, "lost")
        if counted is not None:
            return counted.mean
        return value.absent / value.n if value.absent else NAN

    def keyed(self) -> list[Value]:
        """Of each case over a variant with keys its test's first quantity, where the same was measured without."""
        return [
            value
            for value in self.cells()
            if value.way.secured and value.base >= 0 and math.isfinite(value.ratio[0])
            and self.ways[value.base].kind == value.way.kind and not self.ways[value.base].secured
        ]  # fmt: skip

    def statuses(self) -> np.ndarray:
        """How measuring each cell ended."""
        return np.array([value.status for value in self.cells()] or [NOT_MEASURED], np.int8)

    def _told(self, name: str) -> list[Any]:
        return list(self.summary[name].values)


def between(attrs: Mapping[Any, Any]) -> str:
    """The hosts that a run measured between, folded, by its root attributes; "" where it kept to one machine."""
    return str(attrs.get("hostlist", "several hosts")) if int(attrs.get("hosts", 1)) > 1 else ""


def _ends(told: Mapping[str, np.ndarray], name: str, k: int) -> tuple[float, float, float]:
    return float(told[name][k]), float(told[f"{name}_low"][k]), float(told[f"{name}_high"][k])
