"""SERIES, CDF and SCATTER as a Chart of curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from sonde.core.figure import Figure, Kind
from sonde.report import scale
from sonde.report.prepare import limits
from sonde.report.prepare.curves import Curve, curves_of
from sonde.report.prepare.frames import at_frame
from sonde.report.prepare.quantities import Quantity, axis_of, quantity_of
from sonde.report.prepare.requirements import check

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Chart:
    x: Quantity
    y: Quantity
    frames: list[list[Curve]]
    marks: list[tuple[float, str]]
    levels: list[tuple[float, str]]
    notes: list[str]
    bands: list[tuple[float, float]] = field(default_factory=list)  # (begin, end) along x, in the shown unit
    band_name: str = ""


def chart(figure: Figure) -> Chart:
    """SERIES, CDF or SCATTER as curves, thinned beyond limits.POINTS of a curve."""
    check(figure)
    frames_n = int(np.prod([figure.data.sizes[c.dim] for c in figure.controls], dtype=np.int64))
    series_n = max(1, figure.data.sizes.get("series", 1))
    most = int(np.clip(limits.ALL_POINTS // (frames_n * series_n), 400, limits.POINTS))
    notes: dict[str, None] = {}
    frames = [curves_of(figure.kind, f, most, notes) for f in at_frame(figure)]
    roles = ("x", "p") if figure.kind is Kind.CDF else ("x", "y")
    axes = [axis_of(figure, r) for r in roles]
    for axis, part in zip(axes, ("x", "y")):
        if axis.log:
            frames, lost = _positive(frames, part)
            if lost:
                notes[
                    f"{scale.number(lost)} points at or below zero cannot be shown on the logarithmic axis."
                ] = None
    quantities = [
        quantity_of(a, np.concatenate([getattr(c, part) for f in frames for c in f] or [np.empty(0)]))
        for a, part in zip(axes, ("x", "y"))
    ]
    x, y = quantities

    def shown(c: Curve) -> Curve:
        ends = {k: v * y.factor for k in ("low", "high") if (v := getattr(c, k)) is not None}
        bulk = c.bulk * (x.factor if figure.kind is Kind.CDF else y.factor)
        return replace(c, x=c.x * x.factor, y=c.y * y.factor, bulk=bulk, **ends)

    first = next(at_frame(figure))
    return Chart(
        x,
        y,
        [[shown(c) for c in f] for f in frames],
        [(v * x.factor, w) for v, w in _lines(first, "mark")],
        [(v * y.factor, w) for v, w in _lines(first, "level")],
        list(notes),
        [(low * x.factor, high * x.factor) for low, high in _bands(first)],
        str(first["band_name"].values) if "band_name" in first.variables else "",
    )


def _positive(frames: list[list[Curve]], part: str) -> tuple[list[list[Curve]], int]:
    lost = 0
    remaining = []
    for f in frames:
        curves = []
        for c in f:
            values = getattr(c, part)
            good = ~(values <= 0)  # NaN stays: it separates curves
            lost += int(np.count_nonzero(~good))
            c = replace(c, x=c.x[good], y=c.y[good])
            if c.low is not None and c.high is not None:
                low, high = c.low[good], c.high[good]
                c = replace(c, low=np.where(low > 0, low, np.nan) if part == "y" else low, high=high)
            curves.append(c)
        remaining.append(curves)
    return remaining, lost


def _lines(data: xr.Dataset, name: str) -> list[tuple[float, str]]:
    if name not in data.variables:
        return []
    values = np.atleast_1d(data[name].values).astype(float)
    names = data[f"{name}_name"].values if f"{name}_name" in data.variables else [""] * values.size
    return [(float(v), str(w)) for v, w in zip(values, names) if np.isfinite(v)]


def _bands(data: xr.Dataset) -> list[tuple[float, float]]:
    """The shaded ranges; adjacent bands are merged, because otherwise their edges would be drawn twice."""
    if "band" not in data.variables:
        return []
    ends = np.asarray(data["band"].transpose("band", "end").values, float)
    ends = ends[np.isfinite(ends).all(axis=1) & (ends[:, 0] < ends[:, 1])]
    merged: list[tuple[float, float]] = []
    for low, high in ends[np.argsort(ends[:, 0], kind="stable")].tolist():
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


def keys(curves: Sequence[Curve]) -> dict[str, Curve]:
    """The keys of curves in order of occurrence, each with its first curve."""
    firsts: dict[str, Curve] = {}
    for curve in curves:
        if curve.key:
            firsts.setdefault(curve.key, curve)
    return firsts


def own_colour(curves: Sequence[Curve], key: str) -> bool:
    """Whether all curves of a key have one chosen colour, which the legend then uses too."""
    mine = {(curve.hue, curve.tone) for curve in curves if curve.key == key}
    return len(mine) == 1 and all(hue >= 0 for hue, _ in mine)


def focus(kind: Kind, c: Chart, curves: Sequence[Curve]) -> tuple[float, float] | None:
    """Axis ends, in shown units, that hide the largest 1 - limits.BULK of the samples.

    For x of a CDF, else for y. None if those samples need little room, or if there are too few samples to know.
    """
    part, log = ("x", c.x.log) if kind is Kind.CDF else ("y", c.y.log)
    bulks = [curve.bulk for curve in curves if curve.bulk == curve.bulk]
    values = np.concatenate(
        [getattr(curve, part) for curve in curves if curve.style not in ("line", "dashed")] or [np.empty(0)]
    )
    values = values[np.isfinite(values)]
    if not bulks or values.size < 100:
        return None
    ends = np.array([values.min(), max(bulks), values.max()])
    low, body, high = np.log10(ends) if log else ends
    if high - low < 1.6 * (body - low):
        return None
    pad = 0.05 * (body - low)
    low, body = low - pad, body + pad
    return (float(10**low), float(10**body)) if log else (float(low), float(body))
