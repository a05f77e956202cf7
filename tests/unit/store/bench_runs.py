"""Runs of the store's bench as the probe would leave them, with durations that are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sonde import _core
from sonde.core import run_folder, seal
from sonde.core.layout import SealedFile
from sonde.store.plan import VARIANTS, Plan, Variant
from sonde.store.schema import BURST, VERDICT
from sonde.store.sealing import SCHEMA

EPOCH_LENGTH = 8
RECORD = np.dtype(
    [
        *((name, "<u4") for name in ("kind", "variant", "case", "epoch", "n", "code")),
        *((name, "<f8") for name in ("t0", "serialise", "wait", "backend")),
        ("value", "<f8", (EPOCH_LENGTH,)),
        ("offset", "<f4", (EPOCH_LENGTH,)),
    ]
)
FIELDS = [[name, RECORD[name].base.str, list(RECORD[name].shape)] for name in RECORD.names or ()]

Level = Callable[[int, int, int], float]  # variant, case, epoch → s


def variants(*names: str) -> tuple[Variant, ...]:
    return tuple(VARIANTS[name] for name in names)


def burst(
    variant: int, case: int, epoch: int, values: Sequence[float], stages: Sequence[float] = (1e-6, 2e-6, 3e-6)
) -> np.ndarray:
    """One record with samples. stages: serialise, wait, backend."""
    record = np.zeros(1, RECORD)
    record["variant"], record["case"], record["epoch"], record["n"] = variant, case, epoch, len(values)
    record["t0"] = epoch + variant / 10
    record["serialise"], record["wait"], record["backend"] = stages
    record["value"][0, : len(values)] = values
    record["offset"][0, : len(values)] = 1e-3 * np.arange(len(values))
    return record


def verdict(variant: int, case: int, code: int) -> np.ndarray:
    """The stopping rule's word on a cell."""
    record = np.zeros(1, RECORD)
    record["kind"], record["variant"], record["case"], record["code"] = VERDICT, variant, case, code
    return record


def made(
    plan: Plan,
    level: Level,
    epochs: int = 20,
    jitter: float = 0.002,
    seed: int = 5,
    skip: Sequence[tuple[int, int]] = (),
    code: int = 1,
) -> np.ndarray:
    """Records of a whole run: in each epoch a burst of each cell but those of `skip`, then a verdict, `converged`."""
    rng = np.random.default_rng(seed)
    out = []
    cells = [
        (v, c)
        for v, variant in enumerate(plan.variants)
        for c, case in enumerate(plan.cases)
        if (v, c) not in skip and variant.takes(case)
    ]
    for epoch in range(epochs):
        for k in rng.permutation(len(cells)):
            v, c = cells[k]
            values = level(v, c, epoch) * (1 + jitter * rng.standard_normal(EPOCH_LENGTH))
            nothing = (np.nan,) * 3
            out.append(
                burst(v, c, epoch, values, nothing if plan.variants[v].style == "raw" else (1e-6, 2e-6, 3e-6))
            )
    return np.concatenate([*out, *(verdict(v, c, code) for v, c in cells)])


def write(path: Path, plan: Plan, records: np.ndarray, **header: Any) -> None:
    """A block file as sonde-storebench leaves it."""
    head = {
        "fields": FIELDS,
        "schema": "store/1",
        "rank": 0,
        "ranks": 1,
        "variants": [v.name for v in plan.variants],
        "cases": [case.spec for case in plan.cases],
        "epoch_length": EPOCH_LENGTH,
        "connected": [True] * len(plan.variants),
        "providers": ["shm" if v.name in ("ofi-rdm", "raw-ofi") else "" for v in plan.variants],
        "details": [f"the way of {v.name}" for v in plan.variants],
    }
    writer = _core.BlockWriter(str(path), json.dumps(head | header), RECORD.itemsize, 64)
    for first in range(0, len(records), 64):
        writer.append(records[first : first + 64])
        writer.flush()
    writer.flush()
    writer.close()


def sealed(
    folder: Path,
    plan: Plan,
    records: np.ndarray,
    name: str = "store",
    stop_reason: str = "converged",
    **header: Any,
) -> SealedFile:
    """A whole dataset, <folder>/<name>.nc."""
    run_dir = folder / f"{name}.run"
    run_folder.start(
        run_dir,
        room="store",
        schema="store/1",
        attrs={"command": "sonde store run", "seed": 1, "hostlist": "here", **plan.labels()},
        plan=plan.document(),
        warnings=plan.warnings(),
    )
    write(run_dir / "rank-00000.blk", plan, records, **header)
    return seal.seal(run_dir, folder / f"{name}.nc", SCHEMA, attrs={"stop_reason": stop_reason})[0]


def summary_of(
    folder: Path, plan: Plan, records: np.ndarray, name: str = "store", **header: Any
) -> xr.Dataset:
    """/summary of such a dataset."""
    import sonde

    with sonde.open(sealed(folder, plan, records, name, **header).path) as tree:
        return tree["summary"].to_dataset().load()


__all__ = ["BURST", "burst", "made", "sealed", "summary_of", "variants", "verdict", "write"]
