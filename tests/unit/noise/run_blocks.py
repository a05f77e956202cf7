"""Block files of a small run as the detector writes them, through the probes' own writer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sonde import _core
from sonde.core.blocks import BlockFile
from sonde.noise.source.schema import BURST

PAYLOAD = 4096
FIELDS = [
    *[[name, "<u4", []] for name in ("kind", "block", "segment", "variant", "n", "part", "complete", "pad")],
    *[[name, "<u8", []] for name in ("iterations", "stalls_lost", "involuntary")],
    *[[name, "<f8", []] for name in ("t_begin", "length", "excluded", "run_delay", "cpu", "resumed")],
    ["payload", "|u1", [PAYLOAD]],
]
RECORD = np.dtype([(name, kind, tuple(shape)) for name, kind, shape in FIELDS])
TICK_S = 1e-9
CALIBRATION = (TICK_S, 1, 20e-6, 1e-4, 8e-9, 0.004, 0.001, 0.008, 1, 16, 100_000)
BEGAN_S = 5000.0


class RunFile:
    """One rank's file, written record by record; `close` gives what sonde.core.blocks reads."""

    def __init__(self, folder: Path, rank: int, ranks: int = 2, **header: Any) -> None:
        self.path = folder / f"rank-{rank:05d}.blk"
        self.rank = rank
        head = {
            "fields": FIELDS,
            "schema": "noise/1",
            "kind": "run",
            "rank": rank,
            "ranks": ranks,
            "variants": ["off", "agent"],
            "op": "alltoall",
            "size": 1024,
            "classes": 864,
            "lowest_bit": 5,
            "cuts": 32,
            "host": f"n{rank // 2:03d}",
            "cpu": rank,
            "core": rank,
            "l3": 0,
            "numa": 0,
            "package": 0,
            "began_ns": int(BEGAN_S * 1e9),
        }
        self._writer = _core.BlockWriter(str(self.path), json.dumps(head | header), RECORD.itemsize, 64)

    def _put(self, payload: bytes, **fields: Any) -> None:
        record = np.zeros(1, RECORD)
        for name, value in fields.items():
            record[name] = value
        record["payload"][0, : len(payload)] = np.frombuffer(payload, np.uint8)
        assert self._writer.append(record) == 1
        self._writer.flush()

    def block(
        self,
        number: int,
        segment: int = 0,
        variant: int = 0,
        t_begin: float = 0.0,
        stalls: Sequence[Sequence[float]] = (),
        count: Mapping[int, int] | None = None,
        **more: Any,
    ) -> None:
        """stalls: (t_s, length_s, delay_s, gap_s) each. count: readings of some classes."""
        classes = np.zeros(864, "<u4")
        for k, readings in (count or {100: 1000}).items():
            classes[k] = readings
        head = {
            "block": number,
            "segment": segment,
            "variant": variant,
            "complete": 1,
            "iterations": int(classes.sum()),
            "t_begin": t_begin,
            "length": 0.25,
            "excluded": 0.001,
            "cpu": 0.24,
            "resumed": np.nan,
        } | more
        self._put(classes.tobytes(), kind=0, n=len(stalls), **head)
        table = np.array(stalls, "<f4").reshape(-1, 4)
        for part, at in enumerate(range(0, len(table), 256)):
            piece = table[at : at + 256]
            self._put(piece.tobytes(), **{**head, "kind": 1, "n": len(piece), "part": part})

    def iterations(self, number: int, ticks: Sequence[int]) -> None:
        table = np.array(ticks, "<u4")
        for part, at in enumerate(range(0, len(table), 1024)):
            piece = table[at : at + 1024]
            self._put(piece.tobytes(), kind=2, block=number, n=len(piece), part=part)

    def values(self, kind: int, values: Sequence[float], block: int = 0) -> None:
        """Kinds 3 (agent), 4 (calibration) and 5 (look)."""
        self._put(np.array(values, "<f8").tobytes(), kind=kind, block=block, n=len(values))

    def raw(self, **fields: Any) -> None:
        """A record as it should not be."""
        self._put(b"", **fields)

    def close(self) -> BlockFile:
        self._writer.close()
        return BlockFile(self.path)


def source_file(folder: Path, name: str, bursts: Sequence[Mapping[str, float]], **header: Any) -> BlockFile:
    """A noise source's file. bursts: values of the records' fields."""
    kinds = {"<f8": "<f8", "<i8": "<u8", "<i4": "<i4", "|i1": "<u4"}
    fields = [[key, kinds[dtype], []] for key, dtype, *_ in BURST.values()]
    record = np.dtype([(key, kind) for key, kind, _ in fields])
    head = {"fields": fields, "schema": "noise/1", "kind": "source", "host": "n000", "level": 0.01}
    head |= {"period_s": 1.0, "words": 250_000, "core": -1, "phase_s": 0.25, "pid": 17}
    rows = np.zeros(len(bursts), record)
    for k, burst in enumerate(bursts):
        for key, value in burst.items():
            rows[key][k] = value
    path = folder / name
    writer = _core.BlockWriter(str(path), json.dumps(head | header), record.itemsize, max(1, len(rows)))
    writer.append(rows)
    writer.flush()
    writer.close()
    return BlockFile(path)


def plan(ranks: int = 2, blocks: Sequence[tuple[int, int]] = ((0, 0), (0, 1)), **more: Any) -> dict[str, Any]:
    """blocks: segment and variant of each."""
    return {
        "kind": "run",
        "ranks": ranks,
        "variants": ["off", "agent"],
        "blocks": [list(block) for block in blocks],
        "attrs": {"op": "alltoall", "size": 1024, "block_s": 0.25, "settle_s": 0.05, "period_s": 1.0},
        **more,
    }


def placed(schema: Any, plan: Mapping[str, Any], files: Sequence[BlockFile]) -> tuple[Any, dict[str, Any]]:
    """What seal would write: layout, and arrays put together from the pieces (fill where nothing was put)."""
    layout = schema.layout(plan, files, "")
    arrays: dict[str, np.ndarray] = {}
    for name, variable in layout.variables.items():
        shape = tuple(layout.dims[d] for d in variable.dims)
        dtype = object if variable.dtype == "str" else variable.dtype
        fill = variable.fill if variable.fill is not None else ("" if variable.dtype == "str" else 0)
        arrays[name] = np.full(shape, fill, dtype)
    for file in files:
        for name, where, values in schema.place(plan, layout, file, ""):
            assert arrays[name][where].shape == values.shape, name
            if variable := layout.variables[name]:
                assert variable.dtype == "str" or values.dtype == np.dtype(variable.dtype), name
            arrays[name][where] = values
    return layout, arrays
