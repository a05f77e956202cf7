"""Pieces of /raw from one block file of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from sonde.noise.detector.layout import RunLayout, fill_of
from sonde.noise.detector.records import (
    AGENT,
    BLOCK_RECORD,
    CALIBRATION,
    ITERATIONS,
    STALLS,
    numbers_of_record,
    readable,
    readings_of,
    runs_of_blocks,
    stalls_of,
)
from sonde.noise.detector.schema import BLOCK, CALIBRATED, CLASSES, COMPLETE, LOOKS, MISSING, NAME_IN_RAW, USE
from sonde.noise.source.schema import BURST, SOURCE

if TYPE_CHECKING:
    from sonde.core.blocks import BlockFile


_BURST_TIMES = ("planned", "begin")
Piece = tuple[str, tuple[int | slice, ...], np.ndarray]


def as_dtype(values: np.ndarray, dtype: str) -> np.ndarray:
    """Floats as the type of a variable. In an integer type, unknown values become -1."""
    if np.dtype(dtype).kind == "f":
        return values.astype(dtype)
    return np.nan_to_num(values, nan=-1, posinf=-1, neginf=-1).astype(dtype)


def place_shared(layout: RunLayout) -> Iterator[Piece]:
    blocks, ranks = slice(0, layout.dims["block"]), slice(0, layout.dims["rank"])
    yield "segment", (blocks,), layout.segment
    yield "variant", (blocks,), layout.variant
    yield "status", (blocks,), np.where(layout.complete_blocks, COMPLETE, MISSING).astype(np.int8)
    names = np.array(layout.variants or ("",), object)
    yield "variant_name", (slice(0, len(names)),), names
    for name, values in layout.places.items():
        yield name, (ranks,), values
    if layout.nodes:
        nodes = slice(0, len(layout.nodes))
        yield "node_rank", (nodes,), np.array(layout.nodes, np.int32)
        yield "node_host", (nodes,), layout.places["host"][list(layout.nodes)]
    for column, (name, what) in enumerate(LOOKS.items(), 1):
        if len(layout.looks):
            yield name, (slice(0, len(layout.looks)),), as_dtype(layout.looks[:, column], what.dtype)


def place_rank(layout: RunLayout, file: BlockFile, rank: int) -> Iterator[Piece]:
    blocks = layout.dims["block"]
    facts = {name: np.full(blocks, fill_of(what), np.dtype(what.dtype)) for name, what in BLOCK.items()}
    placed = np.zeros(blocks, bool)
    use = np.full((blocks, len(USE)), np.nan)
    calibrated = np.full(len(CALIBRATED), np.nan)
    readings = np.zeros(blocks, np.int64)
    stalls = 0
    for records in file:
        good = records[readable(records)]
        here = good["block"] < blocks
        here[here] = layout.complete_blocks[good["block"][here]]
        for head in good[(good["kind"] == CALIBRATION)]:
            calibrated = numbers_of_record(head, len(CALIBRATED))
        for head in good[here & (good["kind"] == AGENT)]:
            use[head["block"]] = numbers_of_record(head, len(USE))
        for at, end in runs_of_blocks(good[here & (good["kind"] == BLOCK_RECORD)], placed):
            first = int(at["block"][0]) if len(at) else end
            yield (
                "count",
                (rank, slice(first, end), slice(0, CLASSES)),
                at["payload"].reshape(len(at), -1)[:, : 4 * CLASSES].copy().view("<u4"),
            )
            for name, values in facts.items():
                values[first:end] = at[name]
        several = good[here & (good["kind"] == STALLS)]
        if len(several):
            for name, values in stalls_of(several, facts["t_begin"]).items():
                yield name, (rank, slice(stalls, stalls + len(values))), values
            stalls += int(several["n"].sum())
        for block, begin, ticks in readings_of(good[here & (good["kind"] == ITERATIONS)]):
            yield "iteration", (rank, block, slice(begin, begin + len(ticks))), ticks
            readings[block] = max(readings[block], begin + len(ticks))
    every = slice(0, blocks)
    for name, values in facts.items():
        yield NAME_IN_RAW.get(name, name), (rank, every), values
    yield "n_stalls", (slice(rank, rank + 1),), np.array([stalls], np.int64)
    for value, (name, what) in zip(calibrated, CALIBRATED.items()):
        yield name, (slice(rank, rank + 1),), as_dtype(np.array([value]), what.dtype)
    yield "class_edge", (rank, slice(0, CLASSES + 1)), _edges() * calibrated[0]
    if "iteration" in layout.variables:
        yield "n_readings", (rank, every), readings
    if rank in layout.nodes:
        node = layout.nodes.index(rank)
        for column, (name, what) in enumerate(USE.items()):
            yield name, (node, every), as_dtype(use[:, column], what.dtype)


def _edges() -> np.ndarray:
    from sonde import _core

    return np.asarray(_core.noise_edges(), np.float64)


def place_source(layout: RunLayout, file: BlockFile) -> Iterator[Piece]:
    """The bursts of one source, in the run's time. NaN where no rank ran on its host, so that begin is unknown."""
    row = layout.sources.index(file.path.name)
    zero = layout.began_s.get(str(file.header.get("host", "")), np.nan)
    for name, (key, dtype, *_) in SOURCE.items():
        value = file.header.get(key)
        if dtype == "str":
            array = np.array([str(value or "")], object)
        else:
            array = as_dtype(
                np.array([value if isinstance(value, int | float) else np.nan], np.float64), dtype
            )
        yield f"source_{name}", (slice(row, row + 1),), array
    at = 0
    for records in file:
        for name, (key, dtype, *_) in BURST.items():
            values = records[key].astype(dtype)
            if name in _BURST_TIMES:
                values = values - zero
            yield f"burst_{name}", (row, slice(at, at + len(records))), values
        at += len(records)
    yield "n_bursts", (slice(row, row + 1),), np.array([at], np.int64)
