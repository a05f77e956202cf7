"""From a Figure to the input of both renderers: checked, in readable units, thinned if there are too many values.
Pure.

Every kind becomes one of seven shapes: Matrix (MATRIX, STATUS), Field (SPECTROGRAM), Chart (SERIES, CDF, SCATTER), Tree
(DENDROGRAM), Bars (BAR), Icicle (ICICLE), Stack (STACK). Each contains `frames`: one drawing per combination of control
positions, the last control running fastest.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core.errors import DataError
from sonde.core.figure import Axis, Figure, Kind
from sonde.core.outcome import Table
from sonde.report import scale, thin

if TYPE_CHECKING:
    import xarray as xr

CELLS = 1_000_000  # largest number of values of one matrix figure over all its frames; larger ones are drawn as blocks
CODES = 4 * CELLS  # for a status matrix: a code takes one byte, a value four
EXTRAS = 2_000_000  # values of the further variables of a matrix
POINTS = 4_000  # per curve
ALL_POINTS = 240_000  # per figure over all its frames
STEPS = 1_000  # per distribution function
TILES = (400, 300)  # per spectrogram
LEAVES = 60  # per dendrogram
NODES = 1_000  # per icicle
STRETCHES = 1_000  # per stacked area
COLUMNS = 128  # stacked bars side by side
BULK = 0.99  # share of samples that a reader may view without the rest
CLIP = 0.99  # colours of a large matrix end at this quantile: one slow link must not hide all structure

REQUIRED: dict[Kind, dict[str, tuple[str, ...]]] = {
    Kind.MATRIX: {"value": ("row", "col")},
    Kind.STATUS: {"value": ("row", "col")},
    Kind.SERIES: {"y": ("series", "x")},
    Kind.SPECTROGRAM: {"power": ("x", "frequency")},
    Kind.CDF: {"x": ("series", "point"), "p": ("series", "point")},
    Kind.DENDROGRAM: {"merge": ("link", "merge")},
    Kind.SCATTER: {"x": ("series", "point"), "y": ("series", "point")},
    Kind.BAR: {"y": ("bar",)},
    Kind.ICICLE: {"parent": ("node",), "value": ("node",), "label": ("node",)},
    Kind.STACK: {"y": ("part", "x")},
}


@dataclass(frozen=True)
class Control:
    """A slider: dim, label, the text of every position, its start, whether the positions are numbers."""

    dim: str
    label: str
    positions: tuple[str, ...]
    start: int
    numeric: bool


@dataclass(frozen=True)
class Quantity:
    """The quantity of an axis: label, SI unit of the data, shown unit, shown = value * factor."""

    label: str
    si: str
    unit: str
    factor: float
    log: bool = False
    labels: tuple[str, ...] = ()
    least: float = 0.0  # for a matrix: share of the median that colours span to either side
    centre: float | None = None  # the value at which the two colour scales meet, in the shown unit

    @property
    def title(self) -> str:
        return f"{self.label}, {self.unit}" if self.unit and not self.log_texts else self.label

    @property
    def log_texts(self) -> bool:
        """Whether ticks carry their own units."""
        return self.log and len(scale.steps(self.si)) > 1


@dataclass(frozen=True)
class Told:
    """A further variable, shown for the selected cell. values: one (rows, cols) array per frame."""

    label: str
    unit: str
    values: list[np.ndarray]
    words: tuple[str, ...] = ()  # names of integer codes


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
    told: list[Told] = field(default_factory=list)
    block: int = 1
    notes: list[str] = field(default_factory=list)
    least: list[float] = field(default_factory=list)  # MATRIX: least half width of the colours, per frame


@dataclass(frozen=True)
class Field:
    x: Quantity
    y: Quantity
    power: Quantity
    xs: np.ndarray
    ys: np.ndarray
    frames: list[np.ndarray]  # (x, frequency), shown units
    notes: list[str]


@dataclass(frozen=True)
class Curve:
    """One curve in shown units. tone 0 or 1: epochs alternate. low, high: ends of error bars or None.

    hue: number of its colour; -1: that of its series. key: the name in the legend for this curve and all that share it.
    bulk: the value below which BULK of all its samples are, before thinning; NaN if not needed.
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


@dataclass(frozen=True)
class Tree:
    height: Quantity
    frames: list[
        tuple[list[str], list[tuple[np.ndarray, np.ndarray, int]]]
    ]  # leaf names; (along, height, class)
    threshold: float | None
    notes: list[str]


@dataclass(frozen=True)
class Bars:
    x: Quantity
    y: Quantity
    names: list[str]
    frames: list[list[Curve]]
    notes: list[str]


@dataclass(frozen=True)
class Icicle:
    """Nodes, each parent before its children. told: one (nodes,) array per frame each."""

    value: Quantity
    labels: list[str]
    parents: list[int]  # -1: the root, node 0
    hues: list[int]  # -1: no colour
    hue_names: tuple[str, ...]
    frames: list[np.ndarray]  # (nodes,) in the shown unit
    told: list[Told]
    notes: list[str]

    @property
    def depth(self) -> int:
        """The number of levels, including the root."""
        return max(self.levels) + 1

    @property
    def levels(self) -> list[int]:
        """The level of each node: the number of its ancestors."""
        levels: list[int] = []
        for parent in self.parents:
            levels.append(0 if parent < 0 else levels[parent] + 1)
        return levels

    def own(self, frame: int) -> np.ndarray:
        """The part of each node's value that is in none of its children, in the shown unit."""
        own = self.frames[frame].copy()
        np.subtract.at(own, self.parents[1:], self.frames[frame][1:])
        return np.maximum(own, 0)


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


def check(figure: Figure) -> None:
    """Refuse a figure whose data does not fit its kind.

    Raises
    ------
    DataError  report.figure_data: a variable or dim is missing or superfluous; the text names the required ones.
    """

    def bad(what: str) -> DataError:
        needs = ", ".join(f"{v}({', '.join(d)})" for v, d in REQUIRED[figure.kind].items())
        return DataError(
            "report.figure_data",
            f"figure '{figure.id}' ({figure.kind.value}): {what}; "
            f"allowed: {needs} and the dims of its controls",
            "see sonde.core.figure.Kind",
        )

    moved = [c.dim for c in figure.controls]
    for dim in moved:
        if dim not in figure.data.dims:
            raise bad(f"its control moves along '{dim}', which is not in the data")
        if figure.data.sizes[dim] == 0:
            raise bad(f"its control moves along '{dim}', which is empty")
    for name, dims in REQUIRED[figure.kind].items():
        if name not in figure.data:
            raise bad(f"variable '{name}' is missing")
        have = [d for d in figure.data[name].dims if d not in moved]
        if figure.kind is Kind.DENDROGRAM:
            if len(have) != 2 or have[0] != "link" or figure.data[name].shape[-1] != 4:
                raise bad(f"'{name}' has dims {tuple(have)}")
        elif figure.kind is Kind.BAR:
            if have not in (["bar"], ["bar", "series"], ["series", "bar"]):
                raise bad(f"'{name}' has dims {tuple(have)}")
        elif sorted(map(str, have)) != sorted(dims) and not (name in ("x", "p") and have == ["point"]):
            raise bad(f"'{name}' has dims {tuple(have)}")
    if figure.kind is Kind.ICICLE:
        parent = np.asarray(figure.data["parent"].values)
        if (
            parent.ndim != 1
            or np.count_nonzero(parent < 0) != 1
            or parent.max() >= parent.size
            or _circles(parent)
        ):
            raise bad("its nodes do not form a tree with one root")
    if figure.kind is Kind.STACK and "x" not in figure.data.coords:
        raise bad("its coordinate 'x' is missing")
    if figure.kind is Kind.STATUS and not _axis(figure, "value").labels:
        raise bad('axes["value"].labels, the names of its codes, are missing')


def _circles(parent: np.ndarray) -> bool:
    """Whether the parents form a loop."""
    around = parent.copy()
    for _ in range(parent.size.bit_length()):
        around = np.where(around >= 0, around[around], -1)
    return bool((around >= 0).any())


def controls(figure: Figure) -> list[Control]:
    """The figure's sliders with the text of every position."""
    sliders = []
    for slider in figure.controls:
        n = figure.data.sizes[slider.dim]
        if slider.dim in figure.data.coords:
            coordinate = figure.data[slider.dim]
            unit = slider.unit or str(coordinate.attrs.get("units", ""))
            numeric = coordinate.dtype.kind in "iuf"
            texts = [scale.quantity(v, unit) if numeric else str(v) for v in coordinate.values]
        else:
            numeric, texts = True, [str(k) for k in range(n)]
        sliders.append(
            Control(
                slider.dim, capital(slider.label), tuple(texts), min(max(slider.start, 0), n - 1), numeric
            )
        )
    return sliders


def at_frame(figure: Figure) -> Iterator[xr.Dataset]:
    """The data at every combination of control positions, the last control running fastest."""
    moved = [c.dim for c in figure.controls]
    for where in itertools.product(*(range(figure.data.sizes[d]) for d in moved)):
        yield figure.data.isel(dict(zip(moved, where)))


def start_frame(figure: Figure) -> int:
    """The index of the frame at the start positions of all controls."""
    index = 0
    for control in controls(figure):
        index = index * len(control.positions) + control.start
    return index


def at(figure: Figure, where: Mapping[str, str]) -> Figure:
    """The figure with its controls starting at named positions.

    where: dim -> text of the position, or the coordinate's bare value ("1024" for 1 KiB). Dims that the figure does not
    have are ignored.

    Raises
    ------
    DataError  report.no_such_position: lists the valid positions.
    """
    sliders = []
    for slider, control in zip(figure.controls, controls(figure)):
        if (wanted := where.get(slider.dim)) is not None:
            plain = (
                [str(v) for v in figure.data[slider.dim].values] if slider.dim in figure.data.coords else []
            )
            texts = [p.replace("\u00a0", " ").replace("\u2009", "") for p in control.positions]
            found = [k for k, t in enumerate(texts) if wanted in (t, t.replace(" ", ""))]
            found += [k for k, t in enumerate(plain) if t == wanted]
            if not found:
                raise DataError(
                    "report.no_such_position",
                    f"figure '{figure.id}' has no {slider.dim} '{wanted}'; allowed: {', '.join(texts[:12])}"
                    + (" …" if len(texts) > 12 else ""),
                )
            slider = replace(slider, start=found[0])
        sliders.append(slider)
    return replace(figure, controls=tuple(sliders))


def _axis(figure: Figure, role: str) -> Axis:
    return figure.axes.get(role, Axis(role))


def _quantity(axis: Axis, values: Any) -> Quantity:
    # Whole bytes up to 8 KiB on a linear axis: nobody recognises the requested 400 B in 0.39 KiB
    few = axis.unit == "B" and not axis.log
    chosen = scale.choose(np.asarray(values, float) / 8 if few else values, axis.unit)
    si = "" if axis.unit == "1" else axis.unit
    centre = None if axis.centre is None else axis.centre * chosen.factor
    return Quantity(
        capital(axis.label), si, chosen.unit, chosen.factor, axis.log, axis.labels, axis.least, centre
    )


def capital(text: str) -> str:
    """A label with a capital first letter; symbols such as n, x or pH stay as they are."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if len(first) > 2 and first.islower() else text


def _names(figure: Figure, dim: str) -> Names:
    axis = _axis(figure, dim)
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


def _told(figure: Figure, budget: int) -> tuple[list[Told], list[str]]:
    moved = [c.dim for c in figure.controls]
    variables: list[Told] = []
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
        variables.append(_one_told(str(name), variable, values))
    return variables, left


def _one_told(name: str, variable: xr.Variable, values: list[np.ndarray]) -> Told:
    names = str(variable.attrs.get("flag_meanings", "")).split()
    unit = str(variable.attrs.get("units", ""))
    return Told(
        str(variable.attrs.get("long_name", name)),
        "" if unit == "1" else unit,  # udunits' name for "no unit"
        values,
        tuple(w.replace("_", " ") for w in names),
    )


def _block_names(names: Names, block: int) -> Names:
    def join(texts: list[str]) -> list[str]:
        parts = [texts[k : k + block] for k in range(0, len(texts), block)]
        return [p[0] if p[0] == p[-1] else f"{p[0]}–{p[-1]}" for p in parts]

    def gather(texts: list[str]) -> list[str]:
        parts = [list(dict.fromkeys(texts[k : k + block])) for k in range(0, len(texts), block)]
        return [", ".join(p) if len(p) <= 3 else f"{p[0]}, {p[1]} … {p[-1]}" for p in parts]

    return Names(names.title, join(names.each), [(label, gather(texts)) for label, texts in names.facts])


def matrix(figure: Figure) -> Matrix:
    """MATRIX or STATUS, reduced to blocks beyond CELLS values."""
    check(figure)
    axis = _axis(figure, "value")
    status = figure.kind is Kind.STATUS
    raw = [np.asarray(f["value"].transpose("row", "col").values) for f in at_frame(figure)]
    n_rows, n_cols = raw[0].shape
    rows, cols = _names(figure, "row"), _names(figure, "col")
    block = thin.block_size(n_rows, n_cols, len(raw), CODES if status else CELLS)
    notes = []
    names: tuple[str, ...] = ()
    counts: list[list[int]] = []
    tips: list[np.ndarray] | None = None

    if status:
        highest = max(int(r.max(initial=0)) for r in raw)
        names = axis.labels + tuple(f"code {k}" for k in range(len(axis.labels), highest + 1))
        counts = [[int(np.count_nonzero(r == k)) for k in range(len(names))] for r in raw]
        quantity = Quantity(axis.label, "", "", 1.0)
        if block > 1:
            frames = [thin.rarest(r, block) for r in raw]
            notes.append(
                _block_note(n_rows, n_cols, block, "Each block shows the rarest state among its cells.")
            )
        else:
            frames = [np.where(r < 0, np.nan, r.astype(float)) for r in raw]
    else:
        quantity = _quantity(
            axis, np.concatenate([np.asarray(r, float)[np.isfinite(r)] for r in raw] or [np.empty(0)])
        )
        frames = [np.asarray(r, float) * quantity.factor for r in raw]
        if axis.log and (lost := sum(int(np.count_nonzero(f <= 0)) for f in frames)):
            notes.append(
                f"{scale.number(lost)} cells at or below zero cannot be shown on a logarithmic scale."
            )
            frames = [np.where(f > 0, f, np.nan) for f in frames]

    if block == 1:
        tip_variables, left = _told(figure, EXTRAS)
        if left:
            notes.append("Too large to show for every cell, see the dataset: " + ", ".join(left) + ".")
        if "text" in figure.data and n_rows * n_cols * len(raw) <= 40_000:
            tips = [
                np.asarray(f["text"].transpose("row", "col").values).astype(str) for f in at_frame(figure)
            ]
    else:
        tip_variables = []
        rows, cols = _block_names(rows, block), _block_names(cols, block)
        if not status:
            reduced = [thin.unusual(f, block, axis.log) for f in frames]
            frames = [r[0] for r in reduced]
            tip_variables = [
                Told("smallest in the block", axis.unit, [r[1] / quantity.factor for r in reduced]),
                Told("largest in the block", axis.unit, [r[2] / quantity.factor for r in reduced]),
            ]
            notes.append(
                _block_note(
                    n_rows,
                    n_cols,
                    block,
                    "Each block shows its value that is furthest from the median of all cells.",
                )
            )
    least = [float(f["least"]) if "least" in f else quantity.least for f in at_frame(figure)]
    return Matrix(rows, cols, quantity, frames, names, counts, tips, tip_variables, block, notes, least)


def _block_note(rows: int, cols: int, block: int, how: str) -> str:
    return (
        f"{scale.number(rows)} × {scale.number(cols)} cells are drawn as blocks of {block} × {block}. {how} "
        "Every cell is in the dataset."
    )


@dataclass(frozen=True)
class Ends:
    """The begin and the end of a colour scale, whether there are values below and above, and whether it was widened
    beyond its values.
    """

    low: float
    high: float
    below: bool = False
    above: bool = False
    widened: bool = False


def colour_ends(z: np.ndarray, floor: float = 0.0) -> Ends:
    """Colour range of values z: all of them, or up to the CLIP quantile if the rest is far away.

    z: any shape, without NaN; logarithms if the scale is logarithmic. floor: quantile at which the lower end may be
    clipped too; powers of a spectrum have a long tail towards zero. Without values: 0 to 1; with one value: only this
    value.
    """
    finite = z[np.isfinite(z)]
    if finite.size == 0:
        return Ends(0.0, 1.0)
    low, high = float(finite.min()), float(finite.max())
    below = above = False
    if finite.size >= 100:
        foot, body = float(np.quantile(finite, floor)), float(np.quantile(finite, CLIP))
        if body > foot:
            above = high - foot > 1.5 * (body - foot)
            below = floor > 0 and body - low > 1.2 * (body - foot)
        low, high = foot if below else low, body if above else high
    return Ends(low, high, below, above) if high > low else Ends(low, low + (abs(low) or 1.0) * 1e-3)


def matrix_ends(q: Quantity, z: np.ndarray, least: float | None = None) -> Ends:
    """Colour range of a matrix's values z, log10 where q.log: not narrower than least, symmetric about q.centre.

    least: share of the median to either side; None is q.least. Without values: 0 to 1.
    """
    ends = colour_ends(z)
    finite = z[np.isfinite(z)]
    if finite.size == 0:
        return ends
    middle = float(np.median(finite))
    if q.centre is not None:
        middle = float(np.log10(q.centre)) if q.log else q.centre
    least = q.least if least is None else least
    half = float(np.log10(1 + least)) if q.log else least * abs(middle)
    low, high = min(ends.low, middle - half), max(ends.high, middle + half)
    if q.centre is not None:
        reach = max(middle - low, high - middle)
        low, high = middle - reach, middle + reach
    narrow = float(finite.max() - finite.min()) < half
    return Ends(low, high, ends.below, ends.above, narrow)


def spectrogram(figure: Figure) -> Field:
    """SPECTROGRAM, reduced to tiles that show their largest power."""
    check(figure)
    frames, notes, shape = [], [], (1, 1)
    xs = ys = np.empty(0)
    tiles = TILES if len(figure.controls) == 0 else tuple(max(40, t // 2) for t in TILES)
    for f in at_frame(figure):
        power = np.asarray(f["power"].transpose("x", "frequency").values, float)
        if _axis(figure, "power").log:
            power = np.where(power > 0, power, np.nan)
        reduced, r, c = thin.maxima(power, *tiles)
        shape = (r, c)
        xs = _positions(f, "x", power.shape[0])
        ys = _positions(f, "frequency", power.shape[1])
        frames.append(reduced)
    n_x, n_y = xs.size, ys.size
    x = _quantity(_axis(figure, "x"), xs)
    y = _quantity(_axis(figure, "frequency"), ys)
    power_q = _quantity(_axis(figure, "power"), np.concatenate([f.ravel() for f in frames]))
    if shape != (1, 1):
        notes.append(
            f"{scale.number(n_x)} × {scale.number(n_y)} powers are drawn as tiles of "
            f"{shape[0]} × {shape[1]}; each tile shows its largest power."
        )
        xs, ys = xs[:: shape[0]], ys[:: shape[1]]
    return Field(x, y, power_q, xs * x.factor, ys * y.factor, [f * power_q.factor for f in frames], notes)


def _positions(data: xr.Dataset, dim: str, n: int) -> np.ndarray:
    if dim in data.variables and data[dim].dtype.kind in "iuf":
        return np.asarray(data[dim].values, float)
    return np.arange(n, dtype=float)


def _series_names(data: xr.Dataset) -> list[str]:
    n = data.sizes.get("series", 1)
    return [str(v) for v in data["series"].values] if "series" in data.coords else [""] * n


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


def chart(figure: Figure) -> Chart:
    """SERIES, CDF or SCATTER as curves, thinned beyond POINTS of a curve."""
    check(figure)
    frames_n = int(np.prod([figure.data.sizes[c.dim] for c in figure.controls], dtype=np.int64))
    series_n = max(1, figure.data.sizes.get("series", 1))
    most = int(np.clip(ALL_POINTS // (frames_n * series_n), 400, POINTS))
    build = {Kind.SERIES: _samples, Kind.CDF: _distribution, Kind.SCATTER: _scatter}[figure.kind]
    notes: dict[str, None] = {}
    frames = [_dressed(f, build(f, most, notes)) for f in at_frame(figure)]
    roles = ("x", "p") if figure.kind is Kind.CDF else ("x", "y")
    axes = [_axis(figure, r) for r in roles]
    for axis, part in zip(axes, ("x", "y")):
        if axis.log:
            frames, lost = _positive(frames, part)
            if lost:
                notes[
                    f"{scale.number(lost)} points at or below zero cannot be shown on the logarithmic axis."
                ] = None
    quantities = [
        _quantity(a, np.concatenate([getattr(c, part) for f in frames for c in f] or [np.empty(0)]))
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


def _row(data: xr.Dataset, name: str, k: int, dim: str) -> np.ndarray:
    variable = data[name]
    values = variable.transpose("series", dim).values[k] if "series" in variable.dims else variable.values
    return np.asarray(values)


def _samples(data: xr.Dataset, most: int, notes: dict[str, None]) -> list[Curve]:
    curves = []
    n = data.sizes["x"]
    for k, name in enumerate(_series_names(data)):
        y = _row(data, "y", k, "x").astype(float)
        x = _row(data, "x", k, "x").astype(float) if "x" in data.variables else np.arange(n, dtype=float)
        group = _row(data, "group", k, "x").astype(np.int64) if "group" in data.variables else None
        good = np.isfinite(x) & (np.isfinite(y) if group is None else group >= 0)
        x, y = x[good], y[good]
        group = None if group is None else group[good]
        finite = y[np.isfinite(y)]
        bulk = float(np.quantile(finite, BULK)) if finite.size else float("nan")
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


MIDDLES = 2_000  # largest number of group medians in one series
MIDDLE = "median of each epoch"


def _middle(name: str, x: np.ndarray, y: np.ndarray, group: np.ndarray, k: int) -> Curve:
    """The median of each run of samples of one group, at the middle of its positions; empty beyond MIDDLES."""
    starts = np.flatnonzero(np.diff(group, prepend=group[:1] - 1) != 0)
    if not 2 <= starts.size <= MIDDLES:
        return Curve(name, np.empty(0), np.empty(0), "middle", k)
    parts = [(np.median(a), np.median(b)) for a, b in zip(np.split(x, starts[1:]), np.split(y, starts[1:]))]
    xs, ys = np.array(parts).T
    return Curve(name, xs, ys, "middle", k, key=MIDDLE)


def _dressed(data: xr.Dataset, curves: list[Curve]) -> list[Curve]:
    """Curves with the hue, tone and key that their series have."""
    each: dict[str, Any] = {}
    for name in ("hue", "tone", "key"):
        if name in data.variables:
            each[name] = np.broadcast_to(data[name].values, (max(1, data.sizes.get("series", 1)),))
    if not each:
        return curves
    kinds = {"hue": int, "tone": int, "key": str}
    return [replace(c, **{k: kinds[k](v[c.series]) for k, v in each.items()}) for c in curves]


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


def _styles(data: xr.Dataset, default: str) -> list[str]:
    n = max(1, data.sizes.get("series", 1))
    if "style" not in data.variables:
        return [default] * n
    return [str(v) for v in np.broadcast_to(data["style"].values, (n,))]


def _distribution(data: xr.Dataset, most: int, notes: dict[str, None]) -> list[Curve]:
    curves = []
    for k, (name, style) in enumerate(zip(_series_names(data), _styles(data, "steps"))):
        x, p = (_row(data, v, k, "point").astype(float) for v in ("x", "p"))
        good = np.isfinite(x) & np.isfinite(p)
        x, p = x[good], p[good]
        chosen = thin.steps(p, min(most, STEPS))
        if chosen.size < p.size:
            notes[
                f"Distributions are drawn with {scale.number(min(most, STEPS))} steps, "
                "which are closest in the tails."
            ] = None
        bulk = float(x[p >= BULK][0]) if style == "steps" and (p >= BULK).any() else float("nan")
        curves.append(Curve(name, x[chosen], p[chosen], style, k, bulk=bulk))
    return curves


def _scatter(data: xr.Dataset, most: int, notes: dict[str, None]) -> list[Curve]:
    curves = []
    for k, (name, style) in enumerate(zip(_series_names(data), _styles(data, "points"))):
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


def focus(kind: Kind, c: Chart, curves: Sequence[Curve]) -> tuple[float, float] | None:
    """Axis ends, in shown units, that hide the largest 1 - BULK of the samples.

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


def dendrogram(figure: Figure) -> Tree:
    """DENDROGRAM as branches (along, height, class); beyond LEAVES leaves only the upper links.

    class: 0 above the threshold, else one more than the hue of its leaves, or 1 to 9 by branch, then 1 again.
    """
    from scipy.cluster import hierarchy

    check(figure)
    axis = _axis(figure, "height")
    first = next(at_frame(figure))
    height = _quantity(axis, first["merge"].values[..., 2])
    limit = float(first["threshold"]) if "threshold" in first.variables else None
    frames: list[tuple[list[str], list[tuple[np.ndarray, np.ndarray, int]]]] = []
    notes: list[str] = []
    for f in at_frame(figure):
        links = np.asarray(f["merge"].values, float)
        if links.shape[0] == 0:
            frames.append(([_leaf(f, 0)], []))
            continue
        n = links.shape[0] + 1
        cut = limit if limit is not None else 0.0
        shrink = {"p": LEAVES, "truncate_mode": "lastp"} if n > LEAVES else {}
        drawn = hierarchy.dendrogram(
            counted(links), no_plot=True, color_threshold=cut, above_threshold_color="above", **shrink
        )
        names = [
            _leaf(f, leaf) if leaf < n else f"{int(links[leaf - n, 3])} leaves" for leaf in drawn["leaves"]
        ]
        if shrink:
            notes = [f"{scale.number(n)} leaves: only the uppermost {LEAVES} branches are drawn."]
        classes: dict[str, int] = {}
        if "hue" in f.variables and not shrink:
            for leaf, colour in zip(drawn["leaves"], drawn["leaves_color_list"]):
                classes.setdefault(colour, int(f["hue"].values[leaf]) + 1)
        branches = []
        for along, up, colour in zip(drawn["icoord"], drawn["dcoord"], drawn["color_list"]):
            of_class = 0 if colour == "above" else classes.setdefault(colour, len(classes) + 1)
            # scipy sets leaves 10 apart, the first at 5
            branches.append(((np.asarray(along) - 5) / 10, np.asarray(up) * height.factor, of_class))
        frames.append((names, branches))
    return Tree(height, frames, None if limit is None else limit * height.factor, notes)


def counted(links: np.ndarray) -> np.ndarray:
    """A linkage whose counts are numbers of leaves, as scipy requires; a room's leaf may stand for several things."""
    links = np.array(links, float)
    members = [1.0] * (len(links) + 1)
    for row in links:
        row[3] = members[int(row[0])] + members[int(row[1])]
        members.append(float(row[3]))
    return links


def _leaf(data: xr.Dataset, k: int) -> str:
    return str(data["leaf"].values[k]) if "leaf" in data.variables else str(k)


def bars(figure: Figure) -> Bars:
    """BAR as one curve per series whose x counts the bars."""
    check(figure)
    frames = []
    for f in at_frame(figure):
        curves = []
        names = _series_names(f) if "series" in f["y"].dims else [""]
        for k, name in enumerate(names):
            part = f.isel(series=k) if "series" in f["y"].dims else f
            y = np.asarray(part["y"].values, float)
            ends = {v: np.asarray(part[v].values, float) for v in ("low", "high") if v in part.variables}
            has_ends = len(ends) == 2
            curves.append(
                Curve(
                    name,
                    np.arange(y.size, dtype=float),
                    y,
                    "points" if _axis(figure, "y").log else "bars",
                    k,
                    low=ends["low"] if has_ends else None,
                    high=ends["high"] if has_ends else None,
                )
            )
        frames.append(curves)
    axis = _axis(figure, "bar")
    y_q = _quantity(_axis(figure, "y"), np.concatenate([c.y for f in frames for c in f]))
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


def icicle(figure: Figure) -> Icicle:
    """ICICLE with its largest nodes, at most NODES; the area of a node that is left out stays empty."""
    check(figure)
    parent = np.asarray(figure.data["parent"].values, np.int64)
    frames = [np.nan_to_num(np.asarray(f["value"].values, float)) for f in at_frame(figure)]
    largest = np.max(frames, axis=0)
    children: dict[int, list[int]] = {}
    for node in np.argsort(-largest, kind="stable").tolist():
        children.setdefault(int(parent[node]), []).append(node)
    # From the largest node down, so that a node is never drawn without its parent
    waiting = [(-largest[node], node) for node in children[-1]]
    chosen: list[int] = []
    while waiting and len(chosen) < NODES:
        _, node = heapq.heappop(waiting)
        chosen.append(node)
        for within in children.get(node, ()):
            heapq.heappush(waiting, (-largest[within], within))
    notes = []
    if len(chosen) < parent.size:
        notes.append(f"{scale.number(parent.size)} nodes: the largest {scale.number(len(chosen))} are drawn.")
    place = {node: k for k, node in enumerate(chosen)}
    axis = _axis(figure, "value")
    quantity = _quantity(axis, largest[chosen[:1]])
    names = _axis(figure, "hue").labels
    hues = (
        figure.data["hue"].values[chosen].tolist() if "hue" in figure.data.variables else [-1] * len(chosen)
    )
    moved = {c.dim for c in figure.controls}
    tip_variables = [
        _one_told(str(name), variable, [np.asarray(f[name].values)[chosen] for f in at_frame(figure)])
        for name, variable in figure.data.variables.items()
        if name not in ("parent", "value", "label", "hue")
        and {"node"} <= set(variable.dims) <= {"node", *moved}
    ]
    return Icicle(
        quantity,
        [str(figure.data["label"].values[node]) for node in chosen],
        [place.get(int(parent[node]), -1) for node in chosen],
        [int(hue) for hue in hues],
        names,
        [f[chosen] * quantity.factor for f in frames],
        tip_variables,
        notes,
    )


def stack(figure: Figure) -> Stack:
    """STACK, reduced to STRETCHES or COLUMNS: areas by their means, bars by the highest of neighbouring ones."""
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
    if bars and where.size > COLUMNS:
        block = -(-where.size // COLUMNS)
        height = np.max([f.sum(axis=0) for f in frames], axis=0)
        chosen = [k + int(np.argmax(height[k : k + block])) for k in range(0, where.size, block)]
        frames, where = [f[:, chosen] for f in frames], where[chosen]
        tips = tips and [t[:, chosen] for t in tips]
        notes.append(f"Only the highest of every {block} neighbouring bars is drawn; all are in the dataset.")
    if not bars:
        edges = where.astype(float)
        last = 2 * edges[-1] - edges[-2] if edges.size > 1 else edges.sum() + 1
        edges = np.append(edges, last)
        most = int(np.clip(ALL_POINTS // max(1, len(frames) * frames[0].shape[0]), 50, STRETCHES))
        if where.size > most:
            block = -(-where.size // most)
            begins = np.arange(0, where.size, block)
            wide = np.diff(edges)
            frames = [
                np.add.reduceat(f * wide, begins, axis=1) / np.add.reduceat(wide, begins) for f in frames
            ]
            edges = np.append(edges[begins], edges[-1])
            notes.append(f"Drawn as means of {block} stretches each; all are in the dataset.")
    x_axis = _axis(figure, "x")
    x = _quantity(x_axis, edges if edges is not None else np.empty(0))
    tops = [f if "heading" in data.variables else f.sum(axis=0) for f in frames]
    y = _quantity(_axis(figure, "y"), np.concatenate([t.ravel() for t in tops]))
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


def numbers(figure: Figure, frame: int | None = None) -> Table | None:
    """The content of a small figure, as a table for readers without the drawing; None if it is not small.

    frame: index into frames; None: the frame at the controls' start.
    """
    frame = start_frame(figure) if frame is None else frame
    if figure.kind in (Kind.MATRIX, Kind.STATUS):
        m = matrix(figure)
        if len(m.rows.each) > 16 or len(m.cols.each) > 16 or m.block > 1:
            return None
        z = m.frames[frame]
        unit = f", {m.value.unit}" if m.value.unit else ""

        def cell(v: float) -> str:
            return (m.words[int(v)] if v == v else "–") if m.words else scale.number(float(v))

        return Table(
            f"{m.value.label}{unit}",
            [f"{m.rows.title} \\ {m.cols.title}", *m.cols.each],
            [[name, *(cell(v) for v in line)] for name, line in zip(m.rows.each, z)],
            () if m.words else tuple(range(1, len(m.cols.each) + 1)),
        )
    if figure.kind is Kind.BAR:
        b = bars(figure)
        curves = b.frames[frame]
        if len(b.names) * len(curves) > 200:
            return None
        head = [b.x.label, *(f"{c.name or b.y.label}{', ' + b.y.unit if b.y.unit else ''}" for c in curves)]

        def bar(c: Curve, k: int) -> str:
            if c.low is None or c.high is None:
                return scale.number(float(c.y[k]))
            y, low, high = (scale.number(float(v[k])) for v in (c.y, c.low, c.high))
            return f"{y} [{low}, {high}]"

        return Table(
            b.y.label,
            head,
            [[name, *(bar(c, k) for c in curves)] for k, name in enumerate(b.names)],
            tuple(range(1, len(head))),
        )
    if figure.kind is Kind.STACK:
        t = stack(figure)
        if t.edges is not None or len(t.names) * len(t.parts) > 200:
            return None
        unit = f", {t.y.unit}" if t.y.unit else ""
        return Table(
            t.y.title,
            [t.x.label, *(f"{part}{unit}" for part in t.parts)],
            [[name, *map(scale.number, t.frames[frame][:, k].tolist())] for k, name in enumerate(t.names)],
            tuple(range(1, len(t.parts) + 1)),
        )
    if figure.kind is Kind.ICICLE:
        return _paths(icicle(figure), frame)
    if figure.kind is Kind.SCATTER:
        s = chart(figure)
        curves = [c for c in s.frames[frame] if c.style == "points"]
        if not curves or sum(c.x.size for c in curves) > 60:
            return None
        named = any(c.name for c in curves)
        rows = []
        for c in curves:
            for k in range(c.x.size):
                line = [c.name] if named else []
                line += [
                    scale.quantity(c.x[k] / s.x.factor, s.x.si),
                    scale.quantity(c.y[k] / s.y.factor, s.y.si),
                ]
                if c.low is not None and c.high is not None:
                    ends = (scale.quantity(e[k] / s.y.factor, s.y.si) for e in (c.low, c.high))
                    line.append(" … ".join(ends))
                rows.append(line + [""] * (3 + named - len(line)))
        head = [*(["Series"] if named else []), s.x.label, s.y.label, "Interval"]
        if not any(r[-1] for r in rows):
            head, rows = head[:-1], [r[:-1] for r in rows]
        return Table(s.y.label, head, rows, tuple(range(named, len(head))))
    return None


def _paths(tree: Icicle, frame: int) -> Table | None:
    """An icicle's nodes, each below its parent; None if there are more than 60."""
    if len(tree.labels) > 60:
        return None
    within: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parents):
        within.setdefault(parent, []).append(node)
    order: list[int] = []
    waiting = [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting += reversed(within.get(node, ()))
    rows = []
    for node in order:
        name = tree.labels[node]
        hue = tree.hues[node]
        rows.append(
            [
                "\u2003" * tree.levels[node] + name,
                tree.hue_names[hue] if 0 <= hue < len(tree.hue_names) else "",
                scale.quantity(tree.frames[frame][node] / tree.value.factor, tree.value.si),
                *(scale.rounded(told.values[frame][node], told.unit) for told in tree.told),
            ]
        )
    head = ["", "", tree.value.label, *(capital(told.label) for told in tree.told)]
    return Table(tree.value.label, head, rows, tuple(range(2, len(head))))
