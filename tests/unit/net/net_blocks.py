"""Block files of a small run, made in memory: what sonde.core.blocks.BlockFile shows of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sonde.net import schema


def record_dtype(epoch_length: int) -> np.dtype:
    names = ("kind", "mode", "src", "dst", "size", "epoch", "n", "code")
    return np.dtype(
        [(name, "<u4") for name in names]
        + [("t0", "<f8"), ("value", "<f8", (epoch_length,)), ("offset", "<f4", (epoch_length,))]
    )


@dataclass
class FakeFile:
    """One rank's file. blocks: how many records each iteration step yields."""

    header: dict[str, Any]
    dtype: np.dtype
    records: list[np.ndarray] = field(default_factory=list)
    per_block: int = 3
    warnings: list[Any] = field(default_factory=list)
    passes: int = 0

    def __iter__(self) -> Iterator[np.ndarray]:
        self.passes += 1
        for at in range(0, len(self.records), self.per_block):
            yield np.concatenate(self.records[at : at + self.per_block])

    def _add(self, **fields: Any) -> None:
        record = np.zeros(1, self.dtype)
        for name, value in fields.items():
            if name in ("value", "offset"):
                record[name][0, : len(value)] = value
            else:
                record[name] = value
        self.records.append(record)

    def burst(
        self, mode: int, src: int, dst: int, size: int, epoch: int, values: Sequence[float], t0: float = 0.0
    ) -> None:
        offset = np.arange(len(values)) * 0.5
        self._add(
            kind=0,
            mode=mode,
            src=src,
            dst=dst,
            size=size,
            epoch=epoch,
            n=len(values),
            t0=t0,
            value=values,
            offset=offset,
        )

    def verdict(self, mode: int, src: int, dst: int, size: int, code: int) -> None:
        self._add(kind=1, mode=mode, src=src, dst=dst, size=size, code=code)

    def clock(self, rank: int, offset: float, drift: float, error: float, t0: float = 0.0) -> None:
        self._add(kind=2, src=rank, t0=t0, value=(offset, drift, error))


def plan(
    ranks: int = 3,
    sizes: Sequence[int] = (8, 64),
    modes: Sequence[str] = ("one_to_one",),
    epoch_length: int = 4,
    measured_by: str = "dst",
    **more: Any,
) -> dict[str, Any]:
    return {
        "ranks": ranks,
        "sizes": list(sizes),
        "modes": list(modes),
        "values": dict.fromkeys(modes, "rtt_half"),
        "measured_by": dict.fromkeys(modes, measured_by),
        "epoch_length": epoch_length,
        **more,
    }


def file_of(plan: Mapping[str, Any], rank: int, **header: Any) -> FakeFile:
    head = {
        "schema": "net/1",
        "rank": rank,
        "ranks": plan["ranks"],
        "host": f"n{rank // 2:03d}",
        "cpu": rank,
        "core": rank,
        "l3": 0,
        "numa": 0,
        "package": 0,
        "sizes": list(plan["sizes"]),
        "modes": list(plan["modes"]),
        "epoch_length": plan["epoch_length"],
    }
    return FakeFile({**head, **header}, record_dtype(plan["epoch_length"]))


def placed(schema: Any, plan: Mapping[str, Any], files: Sequence[FakeFile], part: str) -> tuple[Any, dict]:
    """What seal would write: layout, and arrays put together from the pieces (fill where nothing was put)."""
    layout = schema.layout(plan, files, part)
    arrays: dict[str, np.ndarray] = {}
    for name, variable in layout.variables.items():
        shape = tuple(layout.dims[d] for d in variable.dims)
        dtype = object if variable.dtype == "str" else variable.dtype
        arrays[name] = np.full(shape, variable.fill if variable.fill is not None else 99, dtype)
    for file in files:
        for name, where, values in schema.place(plan, layout, file, part):
            assert arrays[name][where].shape == values.shape, name
            arrays[name][where] = values
    return layout, arrays


MODE = "one_to_one"


def whole_run(p, skip=(), values=lambda s, d, k, e, i: (s * 100 + d * 10 + k) * 1e-6 + e * 1e-7 + i * 1e-9):
    """Files of a run: two epochs of three samples in every cell, measured as the plan says."""
    axis = schema.CELL.index(p["measured_by"][p["modes"][0]])
    files = [file_of(p, rank) for rank in range(p["ranks"])]
    for mode in range(len(p["modes"])):
        for epoch in range(2):
            for s in range(p["ranks"]):
                for d in range(p["ranks"]):
                    for k in range(len(p["sizes"])):
                        if s != d and (s, d, k) not in skip:
                            burst = [values(s, d, k, epoch, i) + mode for i in range(3)]
                            files[(s, d)[axis]].burst(mode, s, d, k, epoch, burst, t0=10.0 * epoch)
    return files
