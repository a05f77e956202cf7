"""The curves of SERIES, CDF and SCATTER in SI units, thinned if they have too many points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.figure import Kind
from sonde.report import scale, thin
from sonde.report.prepare import limits
from sonde.report.prepare.quantities import series_names

if TYPE_CHECKING:
    import xarray as xr

MIDDLE = "median of each epoch"


@dataclass(frozen=True)
class Curve:
    """One curve in shown units. tone 0 or 1: epochs alternate. low, high: ends of error bars or None.

    hue: number of its colour; -1: that of its series. key: the name in the legend for this curve and all that share it.
    bulk: the value below which limits.BULK of all its samples are, before thinning; NaN if not needed.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    style: str  # "points" "line" "dashed" "steps" "samples" "middle"
    series: int
    tone: int = 0
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    bulk: float = float("nan")
    hue: int = -1
    key: str = ""

    @property
    def colour(self) -> int:
        """The number of its colour."""
        return self.series if self.hue < 0 else self.hue


def curves_of(kind: Kind, data: xr.Dataset, most: int, notes: dict[str, None]) -> list[Curve]:
    """The curves of one frame, each of at most about `most` points; the keys of notes say how they were thinned."""
    build: dict[Kind, Callable[[xr.Dataset, int, dict[str, None]], list[Curve]]] = {
        Kind.SERIES: _samples,
        Kind.CDF: _distribution,
        Kind.SCATTER: _scatter,
    }
    return _styled(data, build[kind](data, most, notes))


def _styled(data: xr.Dataset, curves: list[Curve]) -> list[Curve]:
    """Curves with the hue, tone and key that their series have."""
    each: dict[str, Any] = {}
    for name in ("hue", "tone", "key"):
        if name in data.variables:
            each[name] = np.broadcast_to(data[name].values, (max(1, data.sizes.get("series", 1)),))
    if not each:
        return curves
    kinds = {"hue": int, "tone": int, "key": str}
    return [replace(c, **{k: kinds[k](v[c.series]) for k, v in each.items()}) for c in curves]


def _row(data: xr.Dataset, name: str, k: int, dim: str) -> np.ndarray:
    variable = data[name]
    values = variable.transpose("series", dim).values[k] if "series" in variable.dims else variable.values
    return np.asarray(values)


def _samples(data: xr.Dataset, most: int, notes: dict[str, None]) -> list[Curve]:
    curves = []
    n = data.sizes["x"]
    for k, name in enumerate(series_names(data)):
        y = _row(data, "y", k, "x").astype(float)
        x = _row(data, "x", k, "x").astype(float) if "x" in data.variables else np.arange(n, dtype=float)
        group = _row(data, "group", k, "x").astype(np.int64) if "group" in data.variables else None
        good = np.isfinite(x) & (np.isfinite(y) if group is None else group >= 0)
        x, y = x[good], y[good]
        group = None if group is None else group[good]
        finite = y[np.isfinite(y)]
        bulk = float(np.quantile(finite, limits.BULK)) if finite.size else float("nan")
        chosen = thin.envelope(y, most, group)
        if chosen.size < y.size:
            length = int(np.ceil(y.size / max(1, most // 2)))
            notes[
                f"Drawn as the smallest and the largest of every {scale.number(length)} samples; "
                "all are in the dataset."
            ] = None
        x_all, y_all = x, y
        x, y = x[chosen], y[chosen]
        if group is None:
            curves.append(Curve(name, x, y, "samples", k, bulk=bulk))
            continue
        middle = _middle(name, x_all, y_all, group, k)
        group = group[chosen]
        order = np.cumsum(np.concatenate([[0], np.diff(group) != 0])) if group.size else group
        for tone in (0, 1):
            mine = np.flatnonzero(order % 2 == tone)
            # A hole between two stretches keeps the line from bridging the other tone's epoch
            holes = np.flatnonzero(np.diff(order[mine])) + 1 if mine.size else mine
            curves.append(
                Curve(
                    name,
                    np.insert(x[mine], holes, np.nan),
                    np.insert(y[mine], holes, np.nan),
                    "samples",
                    k,
                    tone,
                    bulk=bulk,
                )
            )
        curves.append(middle)
    return curves


def _middle(name: str, x: np.ndarray, y: np.ndarray, group: np.ndarray, k: int) -> Curve:
    """The median of each run of samples of one group, at the middle of its positions; empty beyond limits.MIDDLES."""
    starts = np.flatnonzero(np.diff(group, prepend=group[:1] - 1) != 0)
    if not 2 <= starts.size <= limits.MIDDLES:
        return Curve(name, np.empty(0), np.empty(0), "middle", k)
    parts = [(np.median(a), np.median(b)) for a, b in zip(np.split(x, starts[1:]), np.split(y, starts[1:]))]
    xs, ys = np.array(parts).T
    return Curve(name, xs, ys, "middle", k, key=MIDDLE)


def _styles(data: xr.Dataset, default: str) -> list[str]:
    n = max(1, data.sizes.get("series", 1))
    if "style" not in data.variables:
        return [default] * n
    return [str(v) for v in np.broadcast_to(data["style"].values, (n,))]


def _distribution(data: xr.Dataset, most: int, notes: dict[str, None]) -> list[Curve]:
    curves = []
    for k, (name, style) in enumerate(zip(series_names(data), _styles(data, "steps"))):
        x, p = (_row(data, v, k, "point").astype(float) for v in ("x", "p"))
        good = np.isfinite(x) & np.isfinite(p)
        x, p = x[good], p[good]
        chosen = thin.steps(p, min(most, limits.STEPS))
        if chosen.size < p.size:
            notes[
                f"Distributions are drawn with {scale.number(min(most, limits.STEPS))} steps, "
                "which are closest in the tails."
            ] = None
        bulk = (
            float(x[p >= limits.BULK][0]) if style == "steps" and (p >= limits.BULK).any() else float("nan")
        )
        curves.append(Curve(name, x[chosen], p[chosen], style, k, bulk=bulk))
    return curves


def _scatter(data: xr.Dataset, most: int, notes: dict[str, None]) -> list[Curve]:
    curves = []
    for k, (name, style) in enumerate(zip(series_names(data), _styles(data, "points"))):
        x, y = (_row(data, v, k, "point").astype(float) for v in ("x", "y"))
        ends = {v: _row(data, v, k, "point").astype(float) for v in ("low", "high") if v in data.variables}
        good = np.isfinite(x) & np.isfinite(y)
        x, y, ends = x[good], y[good], {v: e[good] for v, e in ends.items()}
        if style in ("line", "dashed"):
            order = np.argsort(x, kind="stable")
            x, y, ends = x[order], y[order], {}
        chosen = thin.envelope(y, most)
        if chosen.size < y.size:
            notes[
                f"{scale.number(y.size)} points are reduced to the smallest and the largest of every "
                f"{scale.number(int(np.ceil(y.size / max(1, most // 2))))}."
            ] = None
        has_ends = len(ends) == 2 and any(np.isfinite(e).any() for e in ends.values())
        curves.append(
            Curve(
                name,
                x[chosen],
                y[chosen],
                style,
                k,
                low=ends["low"][chosen] if has_ends else None,
                high=ends["high"][chosen] if has_ends else None,
            )
        )
    return curves
