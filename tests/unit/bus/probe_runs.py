"""Runs of the bus as the probe would leave them, with values that are known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sonde import _core
from sonde.bus.cases import TESTS, Case
from sonde.bus.plan import Plan
from sonde.bus.schema import DECISION, SAMPLES
from sonde.bus.sealing import SCHEMA
from sonde.bus.values import Values
from sonde.bus.variants import Variant
from sonde.core import run_folder, seal
from sonde.core.layout import SealedFile

K = 8  # values of a record
RECORDS = Path(__file__).parents[3] / "native/bus/probe/records.hpp"
QUANTITIES = re.findall(
    r'Quantity\{\s*"(\w+)",\s*"([^"]*)"', RECORDS.read_text()
)  # name and unit, in the probe's order
NUMBER = {name: k for k, (name, _) in enumerate(QUANTITIES)}
RECORD = np.dtype(
    [
        *((name, "<u4") for name in ("kind", "variant", "case", "quantity", "epoch", "n", "code", "zero")),
        ("t0", "<f8"),
        ("value", "<f8", (K,)),
        ("offset", "<f4", (K,)),
    ]
)
FIELDS = [[name, RECORD[name].base.str, list(RECORD[name].shape)] for name in RECORD.names or ()]

# What a case gives on a variant in an epoch: by quantity one value or several; {}: nothing.
Level = Callable[[Variant, Case, int, np.random.Generator], Mapping[str, Any]]


def visit(
    variant: int, case: int, quantity: str, epoch: int, values: Any, t0: float | None = None
) -> np.ndarray:
    """One record with samples."""
    values = np.atleast_1d(np.asarray(values, float))
    record = np.zeros(1, RECORD)
    for name, value in (("variant", variant), ("case", case), ("epoch", epoch), ("n", len(values))):
        record[name] = value
    record["kind"], record["quantity"] = SAMPLES, NUMBER[quantity]
    record["t0"] = epoch + variant / 10 if t0 is None else t0
    record["value"][0, : len(values)] = values
    record["offset"][0, : len(values)] = 1e-3 * np.arange(len(values))
    return record


def decision(variant: int, case: int, quantity: str, code: int) -> np.ndarray:
    """The stopping rule's word on a series."""
    record = np.zeros(1, RECORD)
    record["kind"], record["variant"], record["case"], record["code"] = DECISION, variant, case, code
    record["quantity"] = NUMBER[quantity]
    return record


def made(plan: Plan, level: Level, epochs: int = 12, seed: int = 5, code: int = 1) -> np.ndarray:
    """Records of a whole run: in each epoch a visit to each case on each variant, then a decision on each."""
    rng = np.random.default_rng(seed)
    cells = [
        (v, c) for v, way in enumerate(plan.variants) for c, case in enumerate(plan.cases) if way.takes(case)
    ]
    out = []
    for epoch in range(epochs):
        for k in rng.permutation(len(cells)):
            v, c = cells[k]
            for quantity, values in level(plan.variants[v], plan.cases[c], epoch, rng).items():
                out.append(visit(v, c, quantity, epoch, values))
    out += [decision(v, c, TESTS[plan.cases[c].test].quantity, code) for v, c in cells]
    return np.concatenate(out)


def near(rng: np.random.Generator, value: float, n: int = K, jitter: float = 0.002) -> np.ndarray:
    """n values about one."""
    return value * (1 + jitter * rng.standard_normal(n))


def write(path: Path, plan: Plan, records: np.ndarray, **header: Any) -> None:
    """A block file as sonde-busprobe leaves it."""
    head = {
        "fields": FIELDS,
        "schema": "bus/1",
        "rank": 0,
        "ranks": 1,
        "epoch_length": K,
        "record_length": K,
        "variants": [v.name for v in plan.variants],
        "implementations": [v.implementation for v in plan.variants],
        "versions": ["" if v.implementation == "raw" else "0.10.2" for v in plan.variants],
        "transports": [v.transport for v in plan.variants],
        "discoveries": ["" if v.implementation == "raw" else v.discovery for v in plan.variants],
        "options": [v.options for v in plan.variants],
        "details": [""] * len(plan.variants),
        "present": [True] * len(plan.variants),
        "cases": [case.spec for case in plan.cases],
        "processes": [-1 if case.number < 0 else min(case.number, 8) for case in plan.cases],
        "quantities": [name for name, _ in QUANTITIES],
        "units": [unit for _, unit in QUANTITIES],
        "deciding": [[c, NUMBER[TESTS[case.test].quantity]] for c, case in enumerate(plan.cases)],
        "cycles_per_s": 2.5e9,
        "cycles_by": "tsc",
        "instructions": "not counted: this machine has no counters",
        "load": [0.5, 0.4, 0.3],
        "cores": 2,
    }
    writer = _core.BlockWriter(str(path), json.dumps(head | header), RECORD.itemsize, 64)
    for start in range(0, len(records), 64):
        writer.append(records[start : start + 64])
        writer.flush()
    writer.flush()
    writer.close()


def sealed(
    folder: Path,
    plan: Plan,
    records: np.ndarray,
    name: str = "bus",
    stop_reason: str = "converged",
    **header: Any,
) -> SealedFile:
    """A whole dataset, <folder>/<name>.nc."""
    run_dir = folder / f"{name}.run"
    run_folder.start(
        run_dir,
        room="bus",
        schema="bus/1",
        attrs={"command": "sonde bus run", "seed": 1, "hostlist": "here", **plan.labels()},
        plan=plan.document(),
        warnings=plan.warnings(),
    )
    write(run_dir / "rank-00000.blk", plan, records, **header)
    return seal.seal(run_dir, folder / f"{name}.nc", SCHEMA, attrs={"stop_reason": stop_reason})[0]


def summary_of(folder: Path, plan: Plan, records: np.ndarray, name: str = "bus", **header: Any) -> xr.Dataset:
    """/summary of such a dataset."""
    import sonde

    with sonde.open(sealed(folder, plan, records, name, **header).path) as tree:
        return tree["summary"].to_dataset().load()


def values_of(folder: Path, plan: Plan, level: Level, epochs: int = 12, **header: Any) -> Values:
    """What a run with such values says."""
    return Values(summary_of(folder, plan, made(plan, level, epochs), **header))


def planned(cases: Sequence[Case], *variants: Variant) -> Plan:
    """A plan of these."""
    return Plan(variants, tuple(cases))
