"""The series of a summary as values, with queries by test, number, variant and quantity. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from sonde.bus.cases import EACH, STAR, TESTS, Case, case_of
from sonde.bus.variants import RAW, discovery_of, secured, without_keys
from sonde.core.status import DRIFT, NOT_MEASURED

NAN = float("nan")
LEAST_EPOCHS = 6  # epochs that a useful interval needs
# Quantities shown by their mean. Most bursts lose nothing, so the median of the losses would be 0.
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
        """Whether it is a raw transport of the machine, not a bus."""
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
        """The properties that a variant with keys shares with the same variant without keys."""
        return self.implementation, self.transport, without_keys(self.options)


@dataclass(frozen=True)
class Value:
    """One series: a quantity of a case on a variant. Numbers in the unit of the quantity; NaN: missing.

    ratio: to the value of the variant `base`, for a variant with keys the same variant without; ratio_to_raw: to the
    raw transport. Both with their intervals. blocks: the median in each stretch of time, for SHARES the mean; all
    series have the same stretches.
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
        """The interval for display; NaN with fewer epochs than LEAST_EPOCHS, because it would be too wide to plot."""
        return (self.low, self.high) if self.epochs >= LEAST_EPOCHS else (math.nan, math.nan)


@dataclass(frozen=True)
class Values:
    """All series of a summary. cases, ways (variants): in the order of the summary."""

    summary: xr.Dataset

    @cached_property
    def ways(self) -> list[Way]:
        columns = [
            self._column(name)
            for name in ("variant_name", "implementation", "version", "transport", "options")
        ]
        return [Way(row, *(str(x) for x in fields)) for row, fields in enumerate(zip(*columns))]

    @cached_property
    def cases(self) -> list[Case]:
        names = ("test", "size", "subscribers", "entities", "treatment")
        return [case_of(dict(zip(names, facts))) for facts in zip(*(self._column(name) for name in names))]

    @cached_property
    def all(self) -> list[Value]:
        """Every series with a value, by case, then quantity, then variant."""
        columns = {str(name): variable.values for name, variable in self.summary.data_vars.items()}
        quantities = [str(name) for name in columns["quantity_name"]]
        units = [str(unit) for unit in columns["quantity_unit"]]
        out = []
        for k in range(self.summary.sizes["series"]):
            if not columns["n"][k] or not math.isfinite(columns["median"][k]):
                continue
            c, q = int(columns["series_case"][k]), int(columns["series_quantity"][k])
            out.append(
                Value(
                    k,
                    self.ways[int(columns["series_variant"][k])],
                    self.cases[c],
                    self.cases[c].number,
                    quantities[q],
                    units[q],
                    int(columns["n"][k]),
                    int(columns["epochs"][k]),
                    int(columns["absent"][k]) if "absent" in columns else 0,
                    int(columns["status"][k]),
                    float(columns["median"][k]),
                    float(columns["median_low"][k]),
                    float(columns["median_high"][k]),
                    float(columns["p99"][k]),
                    (float(columns["p99_low"][k]), float(columns["p99_high"][k])),
                    float(columns["mean"][k]),
                    float(columns["min"][k]),
                    float(columns["max"][k]),
                    int(columns["base"][k]),
                    _ends(columns, "ratio", k),
                    _ends(columns, "ratio_to_raw", k),
                    columns["block"][k],
                )
            )
        return out

    @cached_property
    def tests(self) -> list[str]:
        """Tests with data, in the order of TESTS."""
        measured = {value.case.test for value in self.all}
        return [test for test in TESTS if test in measured]

    @cached_property
    def _by_key(self) -> dict[tuple[int, Case, str], Value]:
        return {(value.way.row, value.case, value.quantity): value for value in self.all}

    def of(self, way: Way, case: Case, quantity: str) -> Value | None:
        """The value of a case on a variant, or None."""
        return self._by_key.get((way.row, case, quantity))

    def find(
        self, test: str, quantity: str | None = None, way: Way | None = None, **numbers: Any
    ) -> list[Value]:
        """The values of a test, by default of its first quantity. numbers: required fields of the case, `size=64`."""
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
        """The values of discovery on a variant, with the run's `shape`."""
        return self.find("discovery", quantity, way, treatment=self.shape)

    @cached_property
    def shape(self) -> str:
        """The shape of discovery, "star" or "all"; "star" for a run with both."""
        treatments = {value.case.treatment for value in self.all if value.case.test == "discovery"}
        return EACH if treatments == {EACH} else STAR

    def cells(self) -> list[Value]:
        """One value for each case on a variant: that of the test's first quantity, or else of any quantity."""
        out: dict[tuple[int, Case], Value] = {}
        for value in self.all:
            key = (value.way.row, value.case)
            if value.quantity == TESTS[value.case.test].quantity:
                out[key] = value
            else:
                out.setdefault(key, value)
        return list(out.values())

    def lost(self, value: Value) -> float:
        """Mean share of lost messages in a value's case, 0 to 1; NaN: not counted."""
        if value.case.test == "discovery":
            return NAN  # an absent sample of discovery is a timeout, not a loss
        counted = self.of(value.way, value.case, "lost")
        if counted is not None:
            return counted.mean
        return value.absent / value.n if value.absent else NAN

    def keyed(self) -> list[Value]:
        """The first quantity of each case on a variant with keys, if the same variant without keys was measured."""
        return [
            value
            for value in self.cells()
            if value.way.secured and value.base >= 0 and math.isfinite(value.ratio[0])
            and self.ways[value.base].kind == value.way.kind and not self.ways[value.base].secured
        ]  # fmt: skip

    def statuses(self) -> np.ndarray:
        """The status of each cell."""
        return np.array([value.status for value in self.cells()] or [NOT_MEASURED], np.int8)

    def _column(self, name: str) -> list[Any]:
        return list(self.summary[name].values)


def between(attrs: Mapping[Any, Any]) -> str:
    """The folded host list of a run between hosts, by its root attributes; "" for a run on one machine."""
    return str(attrs.get("hostlist", "several hosts")) if int(attrs.get("hosts", 1)) > 1 else ""


def _ends(columns: Mapping[str, np.ndarray], name: str, k: int) -> tuple[float, float, float]:
    return float(columns[name][k]), float(columns[f"{name}_low"][k]), float(columns[f"{name}_high"][k])
