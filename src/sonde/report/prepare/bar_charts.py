"""BAR as Bars, STACK as a Stack of areas or of bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sonde.core.figure import Figure
from sonde.report import scale
from sonde.report.prepare import limits
from sonde.report.prepare.curves import Curve
from sonde.report.prepare.frames import at_frame
from sonde.report.prepare.quantities import Quantity, axis_of, quantity_of, series_names
from sonde.report.prepare.requirements import check

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Bars:
    x: Quantity
    y: Quantity
    names: list[str]
    frames: list[list[Curve]]
    notes: list[str]


@dataclass(frozen=True)
class Stack:
    """Parts on top of each other: areas over edges, or bars with names. apart: each part in its own panel."""

    x: Quantity
    y: Quantity
    parts: list[str]
    hues: list[int]
    edges: np.ndarray | None  # for areas: begins of the stretches and the end of the last, in the shown unit
    names: list[str]  # for bars
    frames: list[np.ndarray]  # (part, x) in the shown unit
    tips: list[np.ndarray] | None
    headings: list[list[str]]  # per frame and part if apart, else empty
    notes: list[str]

    @property
    def apart(self) -> bool:
        return bool(self.headings[0])


def bars(figure: Figure) -> Bars:
    """BAR as one curve per series whose x counts the bars."""
    check(figure)
    style = "points" if axis_of(figure, "y").log else "bars"
    frames = [_series_of_bars(f, style) for f in at_frame(figure)]
    axis = axis_of(figure, "bar")
    y_q = quantity_of(axis_of(figure, "y"), np.concatenate([c.y for f in frames for c in f]))
    names_of = (
        [scale.quantity(v, axis.unit) for v in figure.data["bar"].values]
        if "bar" in figure.data.coords
        else [str(k) for k in range(figure.data.sizes["bar"])]
    )
    if axis.labels:
        names_of = list(axis.labels)

    def shown(c: Curve) -> Curve:
        ends = {k: v * y_q.factor for k in ("low", "high") if (v := getattr(c, k)) is not None}
        return replace(c, y=c.y * y_q.factor, **ends)

    notes = ["A bar cannot start at zero on a logarithmic axis, so points are drawn."] if y_q.log else []
    return Bars(
        Quantity(axis.label, axis.unit, "", 1.0),
        y_q,
        names_of,
        [[shown(c) for c in f] for f in frames],
        notes,
    )


def _series_of_bars(data: xr.Dataset, style: str) -> list[Curve]:
    curves = []
    names = series_names(data) if "series" in data["y"].dims else [""]
    for k, name in enumerate(names):
        part = data.isel(series=k) if "series" in data["y"].dims else data
        y = np.asarray(part["y"].values, float)
        ends = {v: np.asarray(part[v].values, float) for v in ("low", "high") if v in part.variables}
        low, high = (ends["low"], ends["high"]) if len(ends) == 2 else (None, None)
        curves.append(Curve(name, np.arange(y.size, dtype=float), y, style, k, low=low, high=high))
    return curves


def stack(figure: Figure) -> Stack:
    """STACK, reduced to STRETCHES or COLUMNS of `limits`: areas by their means, bars by the highest of neighbouring
    ones.
    """
    check(figure)
    data = figure.data
    frames = [
        np.nan_to_num(np.asarray(f["y"].transpose("part", "x").values, float)) for f in at_frame(figure)
    ]
    where = np.asarray(data["x"].values)
    bars = where.dtype.kind not in "iuf"
    tips: list[np.ndarray] | None = None
    if "text" in data.variables and bars:
        tips = [np.asarray(f["text"].transpose("part", "x").values).astype(str) for f in at_frame(figure)]
    notes = []
    edges: np.ndarray | None = None
    if not bars:
        edges, frames, note = _stretches(where.astype(float), frames)
        notes += note
    elif where.size > limits.COLUMNS:
        block = -(-where.size // limits.COLUMNS)
        chosen = _highest(frames, block)
        frames, where = [f[:, chosen] for f in frames], where[chosen]
        tips = tips and [t[:, chosen] for t in tips]
        notes.append(f"Only the highest of every {block} neighbouring bars is drawn; all are in the dataset.")
    x = quantity_of(axis_of(figure, "x"), edges if edges is not None else np.empty(0))
    tops = [f if "heading" in data.variables else f.sum(axis=0) for f in frames]
    y = quantity_of(axis_of(figure, "y"), np.concatenate([t.ravel() for t in tops]))
    n = data.sizes["part"]
    headings = [
        [str(v) for v in f["heading"].values] if "heading" in data.variables else [] for f in at_frame(figure)
    ]
    return Stack(
        x,
        y,
        [str(v) for v in data["part"].values] if "part" in data.coords else [""] * n,
        [int(v) for v in data["hue"].values] if "hue" in data.variables else list(range(n)),
        None if edges is None else edges * x.factor,
        [str(v) for v in where] if bars else [],
        [f * y.factor for f in frames],
        tips,
        headings,
        notes,
    )


def _highest(frames: Sequence[np.ndarray], block: int) -> list[int]:
    """The bar of each block of neighbouring bars that is the highest in any frame."""
    height = np.max([f.sum(axis=0) for f in frames], axis=0)
    return [k + int(np.argmax(height[k : k + block])) for k in range(0, height.size, block)]


def _stretches(
    begins: np.ndarray, frames: list[np.ndarray]
) -> tuple[np.ndarray, list[np.ndarray], list[str]]:
    """Edges of the stretches that begin at `begins`, their values, and a note if neighbours became one mean."""
    last = 2 * begins[-1] - begins[-2] if begins.size > 1 else begins.sum() + 1
    edges = np.append(begins, last)
    most = int(np.clip(limits.ALL_POINTS // max(1, len(frames) * frames[0].shape[0]), 50, limits.STRETCHES))
    if begins.size <= most:
        return edges, frames, []
    block = -(-begins.size // most)
    firsts = np.arange(0, begins.size, block)
    wide = np.diff(edges)
    means = [np.add.reduceat(f * wide, firsts, axis=1) / np.add.reduceat(wide, firsts) for f in frames]
    note = f"Drawn as means of {block} stretches each; all are in the dataset."
    return np.append(edges[firsts], edges[-1]), means, [note]
