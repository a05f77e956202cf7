"""MATRIX and STATUS as a Matrix of cells, or of blocks of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sonde.core.figure import Axis, Figure, Kind
from sonde.report import scale, thin
from sonde.report.prepare import limits
from sonde.report.prepare.frames import at_frame
from sonde.report.prepare.quantities import Extra, Quantity, axis_of, capital, extra_of, quantity_of
from sonde.report.prepare.requirements import check


@dataclass(frozen=True)
class Names:
    """Rows or columns of a matrix: title, the names, further facts as (label, texts)."""

    title: str
    each: list[str]
    facts: list[tuple[str, list[str]]]


@dataclass(frozen=True)
class Matrix:
    rows: Names
    cols: Names
    value: Quantity
    frames: list[np.ndarray]  # (rows, cols) in the shown unit; codes as float if there are `words`
    words: tuple[str, ...] = ()  # STATUS: name of each code
    counts: list[list[int]] = field(
        default_factory=list
    )  # STATUS: cells of each code, per frame, before blocks
    tips: list[np.ndarray] | None = None
    extras: list[Extra] = field(default_factory=list)
    block: int = 1
    notes: list[str] = field(default_factory=list)
    least: list[float] = field(default_factory=list)  # MATRIX: least half width of the colours, per frame


@dataclass(frozen=True)
class _Cells:
    """The cells of a matrix, in blocks if they are too many: what Matrix says of its values."""

    value: Quantity
    frames: list[np.ndarray]
    notes: list[str]
    words: tuple[str, ...] = ()
    counts: list[list[int]] = field(default_factory=list)
    extras: list[Extra] = field(default_factory=list)


def matrix(figure: Figure) -> Matrix:
    """MATRIX or STATUS, reduced to blocks beyond limits.CELLS values."""
    check(figure)
    status = figure.kind is Kind.STATUS
    raw = [np.asarray(f["value"].transpose("row", "col").values) for f in at_frame(figure)]
    n_rows, n_cols = raw[0].shape
    rows, cols = _names(figure, "row"), _names(figure, "col")
    block = thin.block_size(n_rows, n_cols, len(raw), limits.CODES if status else limits.CELLS)
    axis = axis_of(figure, "value")
    cells = (_states if status else _values)(axis, raw, block)
    extras, notes = cells.extras, cells.notes
    tips: list[np.ndarray] | None = None
    if block > 1:
        rows, cols = _block_names(rows, block), _block_names(cols, block)
    else:
        extras, left = _extras(figure, limits.EXTRAS)
        if left:
            notes.append("Too large to show for every cell, see the dataset: " + ", ".join(left) + ".")
        if "text" in figure.data and n_rows * n_cols * len(raw) <= limits.TEXTS:
            tips = [
                np.asarray(f["text"].transpose("row", "col").values).astype(str) for f in at_frame(figure)
            ]
    least = [float(f["least"]) if "least" in f else cells.value.least for f in at_frame(figure)]
    return Matrix(
        rows, cols, cells.value, cells.frames, cells.words, cells.counts, tips, extras, block, notes, least
    )


def _states(axis: Axis, raw: Sequence[np.ndarray], block: int) -> _Cells:
    """Codes of STATUS; a code without a name is named by its number."""
    highest = max(int(r.max(initial=0)) for r in raw)
    words = axis.labels + tuple(f"code {k}" for k in range(len(axis.labels), highest + 1))
    counts = [[int(np.count_nonzero(r == k)) for k in range(len(words))] for r in raw]
    notes = []
    if block > 1:
        frames = [thin.rarest(r, block) for r in raw]
        notes.append(_block_note(raw[0], block, "Each block shows the rarest state among its cells."))
    else:
        frames = [np.where(r < 0, np.nan, r.astype(float)) for r in raw]
    return _Cells(Quantity(axis.label, "", "", 1.0), frames, notes, words, counts)


def _values(axis: Axis, raw: Sequence[np.ndarray], block: int) -> _Cells:
    """Values of MATRIX in the shown unit; on a logarithmic scale without those at or below zero."""
    quantity = quantity_of(
        axis, np.concatenate([np.asarray(r, float)[np.isfinite(r)] for r in raw] or [np.empty(0)])
    )
    frames = [np.asarray(r, float) * quantity.factor for r in raw]
    notes = []
    if axis.log and (lost := sum(int(np.count_nonzero(f <= 0)) for f in frames)):
        notes.append(f"{scale.number(lost)} cells at or below zero cannot be shown on a logarithmic scale.")
        frames = [np.where(f > 0, f, np.nan) for f in frames]
    if block == 1:
        return _Cells(quantity, frames, notes)
    reduced = [thin.unusual(f, block, axis.log) for f in frames]
    how = "Each block shows its value that is furthest from the median of all cells."
    notes.append(_block_note(raw[0], block, how))
    extras = [
        Extra("smallest in the block", axis.unit, [r[1] / quantity.factor for r in reduced]),
        Extra("largest in the block", axis.unit, [r[2] / quantity.factor for r in reduced]),
    ]
    return _Cells(quantity, [r[0] for r in reduced], notes, extras=extras)


def _block_note(cells: np.ndarray, block: int, how: str) -> str:
    rows, cols = cells.shape
    return (
        f"{scale.number(rows)} × {scale.number(cols)} cells are drawn as blocks of {block} × {block}. {how} "
        "Every cell is in the dataset."
    )


def _names(figure: Figure, dim: str) -> Names:
    axis = axis_of(figure, dim)
    n = figure.data.sizes[dim]
    if axis.labels:
        each = [str(v) for v in axis.labels[:n]]
    elif dim in figure.data.coords:
        each = [scale.quantity(v, axis.unit) for v in figure.data[dim].values]
    else:
        each = [str(k) for k in range(n)]
    facts = []
    for name, variable in figure.data.variables.items():
        if variable.dims == (dim,) and name != dim:
            label = str(variable.attrs.get("long_name", name))
            unit = str(variable.attrs.get("units", ""))
            texts = [scale.quantity(v, unit) for v in variable.values]
            if any(texts):
                facts.append((label, texts))
    return Names(capital(axis.label), each, facts)


def _block_names(names: Names, block: int) -> Names:
    def join(texts: list[str]) -> list[str]:
        parts = [texts[k : k + block] for k in range(0, len(texts), block)]
        return [p[0] if p[0] == p[-1] else f"{p[0]}–{p[-1]}" for p in parts]

    def gather(texts: list[str]) -> list[str]:
        parts = [list(dict.fromkeys(texts[k : k + block])) for k in range(0, len(texts), block)]
        return [", ".join(p) if len(p) <= 3 else f"{p[0]}, {p[1]} … {p[-1]}" for p in parts]

    return Names(names.title, join(names.each), [(label, gather(texts)) for label, texts in names.facts])


def _extras(figure: Figure, budget: int) -> tuple[list[Extra], list[str]]:
    moved = [c.dim for c in figure.controls]
    variables: list[Extra] = []
    left: list[str] = []
    used = 0
    for name, variable in figure.data.variables.items():
        if name in ("value", "text") or not {"row", "col"} <= set(variable.dims) <= {"row", "col", *moved}:
            continue
        frames = int(np.prod([figure.data.sizes[d] for d in moved], dtype=np.int64))
        used += figure.data.sizes["row"] * figure.data.sizes["col"] * frames
        if used > budget:
            left.append(str(variable.attrs.get("long_name", name)))
            continue
        values = [np.asarray(f[name].transpose("row", "col").values) for f in at_frame(figure)]
        variables.append(extra_of(str(name), variable, values))
    return variables, left
