"""The report as one HTML file: every figure a plotly figure, drawn from data embedded in the page.

The page contains plotly.js once, forbids itself every network request, and can be read without scripts: verdict,
findings and tables are plain HTML.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from sonde.core.figure import Figure, Kind
from sonde.core.printable import printable
from sonde.core.room import rooms
from sonde.core.section import Section
from sonde.report import page, palette, prepare, scale
from sonde.report.page import Report

TEMPLATE = Path(__file__).with_name("template")
PANEL = 112  # px of one of several series of samples, with its name
DEEP = 12  # number of levels that an icicle shows at once
BAR = 61  # px above a matrix for its colour bar: plotly's padding, bar and ticks, plus 1


# ---- packing ----


def pack(values: Any, precise: bool = False) -> dict[str, Any]:
    """An array in the form for plotly.js, {"dtype", "bdata": base64, "shape"}, in the smallest suitable type.

    values: numeric array; whole numbers become integers, others f4, or f8 if `precise`. The page reads it back.
    """
    a = np.asarray(values)
    flat = a.ravel()
    if flat.dtype.kind == "b":
        flat = flat.astype(np.int8)
    if flat.dtype.kind == "f":
        whole = (
            flat.size
            and np.isfinite(flat).all()
            and (flat == np.trunc(flat)).all()
            and np.abs(flat).max() < 2**31
        )
        flat = flat.astype(np.int64) if whole else flat.astype("<f8" if precise else "<f4")
    if flat.dtype.kind in "iu":
        low, high = (int(flat.min()), int(flat.max())) if flat.size else (0, 0)
        for code, dtype in (
            ("i1", np.int8),
            ("u1", np.uint8),
            ("i2", np.int16),
            ("u2", np.uint16),
            ("i4", np.int32),
        ):
            info = np.iinfo(dtype)
            if info.min <= low and high <= info.max:
                flat = flat.astype("<" + code if code[1] != "1" else code)
                break
        else:
            flat = flat.astype("<f8")
    out: dict[str, Any] = {
        "dtype": flat.dtype.kind + str(flat.dtype.itemsize),
        "bdata": base64.b64encode(flat.tobytes()).decode("ascii"),
    }
    if a.ndim == 2:
        out["shape"] = f"{a.shape[0]}, {a.shape[1]}"
    return out


def pack_axis(values: np.ndarray) -> dict[str, Any]:
    """An array of positions: f4 if that preserves its steps, else f8."""
    a = np.asarray(values, float)
    finite = a[np.isfinite(a)]
    if finite.size > 1:
        gaps = np.abs(np.diff(finite))
        gaps = gaps[gaps > 0]
        fine = gaps.size == 0 or np.abs(finite).max() * 2**-24 < 0.02 * float(np.quantile(gaps, 0.05))
        return pack(a, precise=not fine)
    return pack(a)


def plain(text: str) -> str:
    """Text that plotly must not read as its HTML subset; host names and commands come from others."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "&#64;" + safe[1:] if safe.startswith("@") else safe  # "@" would begin a theme token


# ---- figures to plotly
# -----------------------------------------------------------------------------------------


@dataclass
class Drawn:
    """A figure as the page embeds it: base traces and layout, and the changes for each control position.

    `spec` is JSON-ready. plotly(frame) merges it into one ordinary plotly figure.
    """

    spec: dict[str, Any]
    notes: list[str]


@lru_cache(maxsize=1)
def tokens() -> dict[str, dict[str, str]]:
    """The colours that drawings share with the page, by theme. In specifications they are written as "@name"."""
    themes = {
        "light": {
            "ink": "#1d2328",
            "quiet": "#545e68",
            "grid": "#e8e6e1",
            "axis": "#a9aeb3",
            "ground": "#ffffff",
            "hole": "#f1efeb",
            "accent": "#0b5c86",
            "band": "rgba(29,35,40,0.075)",
            "rule": "#6a737c",
        },
        "dark": {
            "ink": "#e4e7ea",
            "quiet": "#a4aeb8",
            "grid": "#2b3239",
            "axis": "#5a646e",
            "ground": "#1a1f24",
            "hole": "#242a30",
            "accent": "#74bfe8",
            "band": "rgba(228,231,234,0.085)",
            "rule": "#98a2ac",
        },
    }
    for theme, colours in (("light", palette.LIGHT), ("dark", palette.DARK)):
        for k, pair in enumerate(colours):
            for letter, colour in zip("sp", pair):
                themes[theme][f"{letter}{k}"] = colour
                themes[theme][f"on-{letter}{k}"] = palette.ink_on(colour)
    return themes


def _tone(series: int, pale: bool = False) -> str:
    return f"@{'p' if pale else 's'}{series % len(palette.LIGHT)}"


def _fill(hue: int) -> str:
    """The name of the colour of an area."""
    k, tone = palette.area(hue)
    return f"{'sp'[tone]}{k}"


def _axis(q: prepare.Quantity, **more: Any) -> dict[str, Any]:
    return {
        "title": {"text": plain(q.title), "standoff": 10, "font": {"size": 12.5, "color": "@quiet"}},
        "gridcolor": "@grid",
        "linecolor": "@axis",
        "tickcolor": "@axis",
        "tickfont": {"color": "@quiet"},
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "automargin": True,
        "exponentformat": "power",
        "separatethousands": True,
        **more,
    }


def _log_axis(q: prepare.Quantity, values: np.ndarray) -> dict[str, Any]:
    """Type and ticks of a logarithmic axis, with each tick in its own unit."""
    finite = values[np.isfinite(values) & (values > 0)]
    if not q.log or finite.size == 0:
        return {}
    low, high = float(finite.min()), float(finite.max())
    pad = max(0.03, 0.04 * np.log10(high / low))
    lowest, highest = low / 10**pad, high * 10**pad
    axis: dict[str, Any] = {"type": "log", "range": [float(np.log10(lowest)), float(np.log10(highest))]}
    marks = scale.ticks(lowest / q.factor, highest / q.factor, q.si, True)
    axis["tickvals"] = [v * q.factor for v, _ in marks]
    axis["ticktext"] = [plain(t) for _, t in marks]
    return axis


def _counting(q: prepare.Quantity, values: np.ndarray) -> dict[str, Any]:
    """Ticks of a linear axis of bare numbers with all their digits, as long as there are few."""
    most = float(np.nanmax(np.abs(values), initial=0.0)) if values.size else 0.0
    return {"exponentformat": "none"} if not q.log and not q.si and 1e4 <= most < 1e9 else {}


def _layout(**more: Any) -> dict[str, Any]:
    return {
        "font": {"family": "@font", "size": 12, "color": "@ink"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"font": {"family": "@font", "size": 12}, "namelength": 40},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"color": "@ink"},
            "itemsizing": "constant",
        },
        "hovermode": "closest",
        "dragmode": "zoom",
        "separators": ".\u2009",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "@rule", "activecolor": "@accent"},
        **more,
    }


def draw(figure: Figure) -> Drawn:
    """A figure as a plotly figure with its controls.

    Raises
    ------
    DataError  report.figure_data: the data does not fit its kind.
    """
    drawn = {
        Kind.MATRIX: _matrix,
        Kind.STATUS: _matrix,
        Kind.SPECTROGRAM: _spectrogram,
        Kind.SERIES: _chart,
        Kind.CDF: _chart,
        Kind.SCATTER: _chart,
        Kind.DENDROGRAM: _dendrogram,
        Kind.BAR: _bars,
        Kind.ICICLE: _icicle,
        Kind.STACK: _stack,
    }[figure.kind](figure)
    drawn.spec |= {
        "kind": figure.kind.value,
        "start": prepare.start_frame(figure),
        "controls": [
            {"label": c.label, "positions": list(c.positions), "start": c.start, "numeric": c.numeric}
            for c in prepare.controls(figure)
        ],
    }
    return drawn


def _value_text(q: prepare.Quantity, at: float) -> str:
    """A position on a colour scale, log10 where q.log, as text."""
    prefixed = q.si if len(scale.steps(q.si)) > 1 else ""
    return scale.quantity((10**at if q.log else at) / q.factor, prefixed, 2 if q.log else 3)


def _colours(q: prepare.Quantity, ends: prepare.Ends) -> dict[str, Any]:
    """zmin, zmax and the colour bar's ticks; the ends are log10 if q is logarithmic."""
    low, high = ends.low, ends.high
    if q.log:
        marks = [
            (float(np.log10(v * q.factor)), t)
            for v, t in scale.ticks(10**low / q.factor, 10**high / q.factor, q.si, True, 6)
        ]
    else:
        # Ticks are even in the unit of this range, which over a slider is not always the figure's unit
        here = scale.choose([low, high], q.si).factor / q.factor
        marks = [
            (v / here, _value_text(q, v / here)) for v, _ in scale.ticks(low * here, high * here, most=6)
        ]
    room = 0.12 * (high - low)
    if ends.below:
        marks = [(low, f"≤ {_value_text(q, low)}")] + [m for m in marks if m[0] > low + room]
    if ends.above:
        marks = [m for m in marks if m[0] < high - room] + [(high, f"≥ {_value_text(q, high)}")]
    return {
        "zmin": low,
        "zmax": high,
        "colorbar": {"tickvals": [v for v, _ in marks], "ticktext": [plain(t) for _, t in marks]},
    }


def _colourscale(colours: Sequence[str]) -> list[list[Any]]:
    return [[k / (len(colours) - 1), colour] for k, colour in enumerate(colours)]


def _colourbar(q: prepare.Quantity) -> dict[str, Any]:
    return {
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "xpad": 0,
        "yref": "container",  # in its reserved margin: otherwise the bar would squeeze square cells
        "y": 1,
        "yanchor": "top",
        "ypad": 16,
        "len": 1,
        "thickness": 10,
        "outlinewidth": 0,
        "ticks": "outside",
        "ticklen": 3,
        "tickcolor": "@axis",
        "tickangle": 0,
        "tickfont": {"size": 11, "color": "@quiet"},
    }


def _over_bar(q: prepare.Quantity, ends: prepare.Ends) -> dict[str, Any]:
    """The quantity and the range of the colour bar, as the figure's title: flush left above the bar.

    The bar's own title would touch it, and an annotation would move with the plot below.
    """
    prefixed = len(scale.steps(q.si)) > 1
    low, high = (
        scale.quantity((10**at if q.log else at) / q.factor, q.si if prefixed else "", 3)
        for at in (ends.low, ends.high)
    )
    unit = "" if prefixed or not q.unit else f" {q.unit}"
    return {
        "title": {
            "text": plain(f"{q.label}: {low} to {high}{unit}"),
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "font": {"size": 12.5, "color": "@quiet"},
        }
    }


def _places(names: Sequence[str], most: int, block: int) -> tuple[list[int], list[str]]:
    """The rows or columns that get a tick: all if there are few, else every 2nd, 4th, 8th …; a block by its first
    one.
    """
    every = 1
    while len(names) / every > most:
        every *= 2
    at = range(0, len(names), every)
    return list(at), [plain(names[k].split("–")[0] if block > 1 else names[k]) for k in at]


def _matrix(figure: Figure) -> Drawn:
    m = prepare.matrix(figure)
    rows, cols = len(m.rows.each), len(m.cols.each)
    status = bool(m.words)
    x_at, x_text = _places(m.cols.each, 16, m.block)
    y_at, y_text = _places(m.rows.each, 16, m.block)
    trace: dict[str, Any] = {
        "type": "heatmap",
        "x0": 0,
        "dx": 1,
        "y0": 0,
        "dy": 1,
        "hoverongaps": False,
        "hoverinfo": "none",
        "xgap": 2 if cols <= 16 else 1 if cols <= 40 else 0,
        "ygap": 2 if rows <= 16 else 1 if rows <= 40 else 0,
    }
    frames: list[dict[str, Any]] = []
    fixed: dict[str, Any] = {}
    widened = clipped = False
    if rows <= _FOLDABLE and m.block == 1:  # show names of several words completely
        y_text = [_folded(name) for name in m.rows.each]
    longest = max((len(line) for t in y_text for line in t.split("<br>")), default=1)
    if status:
        n = len(m.words)
        trace |= {
            "zmin": -0.5,
            "zmax": n - 0.5,
            "showscale": False,
            "colorscale": [[edge, palette.status(k)] for k in range(n) for edge in (k / n, (k + 1) / n)],
        }
        for z in m.frames:
            patch: dict[str, Any] = {"z": pack(z)}
            if rows <= 24 and cols <= 24:
                patch["text"] = [["" if v != v else _initials(m.words)[int(v)] for v in line] for line in z]
            frames.append({"traces": [patch]})
        if rows <= 24 and cols <= 24:
            trace |= {"texttemplate": "%{text}", "textfont": {"size": 12 if rows <= 12 else 9}}
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            zs = [np.log10(z) if m.value.log else z for z in m.frames]
        colours = palette.MAPS[palette.SEQUENTIAL] if m.value.centre is None else palette.DIVERGING
        trace |= {"colorscale": _colourscale(colours), "colorbar": _colourbar(m.value)}
        written = rows <= 8 and cols <= 8
        prefixed = m.value.si if len(scale.steps(m.value.si)) > 1 else ""
        for z, shown, least in zip(zs, m.frames, m.least):
            ends = prepare.matrix_ends(m.value, z, least)
            widened |= ends.widened
            clipped |= ends.above
            patch = {"z": pack(z), **_colours(m.value, ends)}
            if written:
                patch["text"] = [
                    ["" if v != v else scale.quantity(float(v) / m.value.factor, prefixed, 3) for v in line]
                    for line in shown
                ]
            frames.append({"traces": [patch], "layout": _over_bar(m.value, ends)})
        if written:
            trace |= {"texttemplate": "%{text}", "textfont": {"size": 13 if rows <= 6 else 11}}
        if len(zs) > 1:
            ends = prepare.matrix_ends(m.value, np.concatenate([z.ravel() for z in zs]), max(m.least))
            fixed = {"traces": [_colours(m.value, ends)], "layout": _over_bar(m.value, ends)}
    layout = _layout(
        margin={"l": 34 + min(_LINE, longest) * 7, "r": 14, "t": 8 if status else BAR, "b": 46, "pad": 0},
        plot_bgcolor="@hole",
        xaxis=_axis(
            prepare.Quantity(m.cols.title, "", "", 1.0),
            range=[-0.5, cols - 0.5],
            tickvals=x_at,
            ticktext=x_text,
            showgrid=False,
            showline=False,
            ticks="",
            automargin=False,
            constrain="domain",
        ),
        yaxis=_axis(
            prepare.Quantity(m.rows.title, "", "", 1.0),
            range=[rows - 0.5, -0.5],
            tickvals=y_at,
            ticktext=y_text,
            showgrid=False,
            showline=False,
            ticks="",
            automargin=False,
        ),
    )
    cells = {
        "rows": m.rows.each,
        "cols": m.cols.each,
        "row_title": m.rows.title,
        "col_title": m.cols.title,
        "row_facts": [{"label": label, "each": _pool(each)} for label, each in m.rows.facts],
        "col_facts": [{"label": label, "each": _pool(each)} for label, each in m.cols.facts],
        "label": m.value.label,
        "unit": m.value.si,
        "factor": m.value.factor,
        "log": m.value.log,
        "block": m.block,
        "words": list(m.words),
        "tips": None if m.tips is None else [_pool(t.ravel().tolist()) for t in m.tips],
        "told": [_told(t) for t in m.told],
    }
    spec = {
        "traces": [trace],
        "layout": layout,
        "frames": frames,
        "fixed": fixed or None,
        # Few cells need no large square, but the colour bar and its title need some width
        "size": {"aspect": rows / cols, "most": 620 if max(rows, cols) > 16 else min(500, 180 + 90 * cols)},
        "cells": cells,
        "legend": [
            {
                "label": w,
                "colour": palette.status(k),
                "initial": _initials(m.words)[k],
                "ink": palette.ink_on(palette.status(k)),
                "counts": [c[k] for c in m.counts],
            }
            for k, w in enumerate(m.words)
        ],
    }
    notes = list(m.notes)
    if clipped:
        notes.append(f"Colours end at the {prepare.CLIP:.0%} quantile; larger values have the last colour.")
    if widened:
        notes.append(
            f"If values differ by less, colours still span ±{_ends_of(m.least)} of "
            f"{'their median' if m.value.centre is None else scale.number(m.value.centre)}: such differences "
            "may be noise."
        )
    return Drawn(spec, notes)


def _ends_of(shares: Sequence[float]) -> str:
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return low if low == high else f"{low} to {high}"


def _initials(names: Sequence[str]) -> list[str]:
    """One letter per state; if two states begin with the same letter, the later one gets its next free letter."""
    letters_used: list[str] = []
    for name in names:
        letters = [c.upper() for c in name if c.isalnum()] or ["?"]
        letters_used.append(next((c for c in letters if c not in letters_used), letters[0]))
    return letters_used


def _pool(texts: Sequence[str]) -> dict[str, Any]:
    """Texts with repetitions: the different texts, and the index of each position."""
    different = list(dict.fromkeys(texts))
    index = {t: k for k, t in enumerate(different)}
    return {"words": different, "at": pack(np.array([index[t] for t in texts], dtype=np.int64))}


def _told(told: prepare.Told) -> dict[str, Any]:
    numeric = all(v.dtype.kind in "iufb" for v in told.values)
    return {
        "label": told.label,
        "unit": told.unit,
        "words": list(told.words),
        "frames": [pack(v) if numeric else _pool([str(t) for t in v.ravel()]) for v in told.values],
    }


def _spectrogram(figure: Figure) -> Drawn:
    f = prepare.spectrogram(figure)
    with np.errstate(divide="ignore", invalid="ignore"):
        zs = [np.log10(z.T) if f.power.log else z.T for z in f.frames]
    trace = {
        "type": "heatmap",
        "x": pack_axis(f.xs),
        "y": pack_axis(f.ys),
        "colorscale": _colourscale(palette.MAPS[palette.POWER]),
        "colorbar": _colourbar(f.power),
        "hovertemplate": f"{plain(f.x.label)} %{{x}}{_unit(f.x)}"
        f"<br>{plain(f.y.label)} %{{y:.4~g}}{_unit(f.y)}"
        f"<br>{plain(f.power.label)} {'10^' if f.power.log else ''}%{{z:.3f}}{_unit(f.power)}<extra></extra>",
    }
    floor = 0.05 if f.power.log else 0.0
    each = [prepare.colour_ends(z, floor) for z in zs]
    frames = [
        {"traces": [{"z": pack(z), **_colours(f.power, e)}], "layout": _over_bar(f.power, e)}
        for z, e in zip(zs, each)
    ]
    whole = prepare.colour_ends(np.concatenate([z.ravel() for z in zs]), floor)
    fixed = {"traces": [_colours(f.power, whole)], "layout": _over_bar(f.power, whole)}
    notes = list(f.notes)
    if any(e.below or e.above for e in each):
        notes.append("Colours end where the scale shows ≤ or ≥; powers beyond have the last colour.")
    layout = _layout(
        margin={"l": 64, "r": 14, "t": BAR, "b": 48},
        plot_bgcolor="@hole",
        xaxis=_axis(f.x, showgrid=False),
        yaxis=_axis(f.y, showgrid=False),
    )
    return Drawn(
        {
            "traces": [trace],
            "layout": layout,
            "frames": frames,
            "fixed": fixed if len(zs) > 1 else None,
            "size": {"height": 400},
        },
        notes,
    )


def _unit(q: prepare.Quantity) -> str:
    return f" {plain(q.unit)}" if q.unit else ""


def _chart(figure: Figure) -> Drawn:
    c = prepare.chart(figure)
    base = c.frames[0]
    total = max((sum(curve.x.size for curve in f) for f in c.frames), default=0)
    shared = all(np.array_equal(a.x, b.x, equal_nan=True) for f in c.frames[1:] for a, b in zip(f, base))
    named = (
        len({curve.name for curve in base if curve.name}) > 0 and len({curve.series for curve in base}) > 1
    )
    # Series of samples would hide each other: each has its own panel over the same x
    panels = list(dict.fromkeys(curve.series for curve in base)) if figure.kind is Kind.SERIES else []
    panels = panels if 2 <= len(panels) <= 6 else []
    traces: list[dict[str, Any]] = []
    frames: list[dict[str, Any]] = [{"traces": []} for _ in c.frames]
    for k, curve in enumerate(base):
        # In an alternating pair the pale one comes second and has no legend entry
        trace: dict[str, Any] = {
            "type": "scatter",
            "name": plain(curve.name),
            "legendgroup": str(curve.colour),
            "showlegend": named and not panels and curve.tone == 0 and not curve.key and curve.x.size > 0,
            "hovertemplate": _hover(c, curve),
        }
        colour = _tone(curve.colour, bool(curve.tone))
        panel = panels.index(curve.series) if curve.series in panels else 0
        if panel:
            trace["yaxis"] = f"y{panel + 1}"
        if curve.style == "middle":
            trace |= {"mode": "lines+markers" if curve.x.size <= 40 else "lines"}
            trace |= {"line": {"width": 1.4, "color": "@ink"}, "marker": {"size": 3.5, "color": "@ink"}}
        elif curve.style == "samples":
            few = total <= 1500
            trace |= {
                "mode": "lines+markers" if few else "lines",
                "line": {"width": 1, "color": colour},
                "marker": {"size": 4, "color": colour},
                "connectgaps": False,
            }
        elif curve.style == "steps":
            trace |= {"mode": "lines", "line": {"width": 2, "shape": "hv", "color": colour}}
        elif curve.style in ("line", "dashed"):
            trace |= {"mode": "lines", "line": _stroke(figure.kind, curve) | {"color": colour}}
        else:
            symbol = ("circle", "diamond", "square", "triangle-up", "cross", "x")[curve.colour % 6]
            size = 7 if curve.x.size <= 200 else 4
            trace |= {"mode": "markers", "marker": {"size": size, "color": colour, "symbol": symbol}}
        if shared:
            trace["x"] = pack_axis(curve.x)
        traces.append(trace)
        for f, frame in zip(c.frames, frames):
            now = f[k]
            patch: dict[str, Any] = {"y": pack(now.y, precise=bool(c.y.log is False and _needs_f8(now.y)))}
            if not shared:
                patch["x"] = pack_axis(now.x)
            if now.low is not None and now.high is not None:
                patch["error_y"] = {
                    "type": "data",
                    "symmetric": False,
                    "array": pack(now.high - now.y),
                    "arrayminus": pack(now.y - now.low),
                    "thickness": 1.2,
                    "width": 4,
                    "color": colour,
                }
            frame["traces"].append(patch)
    # One legend entry for all lines of a key; without a series' colour if they have several
    keys = prepare.keys(base)
    for key, curve in keys.items():
        line = _stroke(figure.kind, curve) | {"color": "@axis" if curve.tone else "@quiet"}
        if curve.style == "middle":
            line |= {"color": "@ink"}
        elif prepare.own_colour(base, key):
            line |= {"color": _tone(curve.colour, bool(curve.tone))}
        traces.append(
            {
                "type": "scatter",
                "name": plain(key),
                "mode": "lines",
                "line": line,
                "x": [None],
                "y": [None],
                "hoverinfo": "skip",
                "showlegend": True,
                "legendgroup": f"key {key}",
            }
        )
        for frame in frames:
            frame["traces"].append({})
    if c.bands and c.band_name:
        traces.append(_band_key(c.band_name))
        for frame in frames:
            frame["traces"].append({})
    named = (named and not panels) or bool(keys) or bool(c.bands and c.band_name)
    xs = _all(c.frames, "x")
    ys = _all(c.frames, "y")
    x_axis, y_axis = _axis(c.x, **_log_axis(c.x, xs)), _axis(c.y, **_log_axis(c.y, ys), **_counting(c.y, ys))
    if figure.kind is Kind.CDF:
        y_axis |= {"range": [-0.02, 1.02], "tickformat": ".0%"}
        x_axis |= {"showgrid": True}
    if figure.kind is Kind.SERIES:
        x_axis |= {"showgrid": False}
    shapes: list[dict[str, Any]] = [_band(low, high) for low, high in c.bands]
    notes_on: list[dict[str, Any]] = []
    for value, name in c.marks:
        shapes.append(_rule("x", value))
        if name:
            notes_on.append(_label("x", float(np.log10(value)) if c.x.log else value, name))
    for value, name in c.levels:
        shapes.append(_rule("y", value))
        if name:
            notes_on.append(_label("y", float(np.log10(value)) if c.y.log else value, name))
    layout = _layout(
        margin={"l": 64, "r": 14, "t": 34 if named else 12, "b": 48},
        xaxis=x_axis,
        yaxis=y_axis,
        showlegend=named,
        shapes=shapes,
        annotations=notes_on,
    )
    if panels:
        names = {curve.series: curve.name for curve in base}
        layout |= _panels([names[k] for k in panels], [_tone(k) for k in range(len(panels))], x_axis, y_axis)
        layout["shapes"] = shapes + [
            shape | {"yref": f"y{n + 1}"}
            for shape in shapes
            if shape["yref"] == "y"
            for n in range(1, len(panels))
        ]
        layout["annotations"] += notes_on
    height = {Kind.SERIES: 340, Kind.CDF: 400, Kind.SCATTER: 420}[figure.kind]
    height = 100 + PANEL * len(panels) if panels else height
    spec = {"traces": traces, "layout": layout, "frames": frames, "size": {"height": height}}
    focused = [_focus(figure, c, f) for f in c.frames]
    if any(focused):
        for frame, focus in zip(frames, focused):
            frame["focus"] = focus or {}
            if focus and "yaxis" in focus:
                frame["focus"] = {
                    f"yaxis{n + 1 if n else ''}": focus["yaxis"] for n in range(max(1, len(panels)))
                }
        # The flat top of a distribution says little. For a series the outliers are important, but a panel is too low to
        # show them together with the steps between epochs
        spec["focus"] = {"on": figure.kind is Kind.CDF or bool(panels)}
    return Drawn(spec, c.notes)


def _panels(
    names: Sequence[str], colours: Sequence[str], x_axis: dict[str, Any], y_axis: dict[str, Any]
) -> dict[str, Any]:
    """Axes of panels one above the other, the first on top, all of one scale; each has its name in its colour above."""
    n = len(names)
    gap = 24 / (PANEL * n)  # space for the name above each panel
    tall = 1 / n - gap
    axes: dict[str, Any] = {"annotations": []}
    for k, name in enumerate(names):
        top = 1 - k * (tall + gap) - gap
        axis = y_axis | {"domain": [max(0.0, top - tall), top], "nticks": 4}
        if "ticktext" in axis and len(axis["ticktext"]) > 4:
            axis |= {"tickvals": axis["tickvals"][::2], "ticktext": axis["ticktext"][::2]}
        axis["title"] = y_axis["title"] if k == n // 2 else {"text": ""}
        axes["yaxis" if k == 0 else f"yaxis{k + 1}"] = axis | ({"matches": "y"} if k else {})
        axes["annotations"].append(
            {
                "text": f"<b>{plain(name)}</b>",
                "x": 0,
                "xref": "paper",
                "xanchor": "left",
                "y": top,
                "yref": "paper",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 12, "color": colours[k]},
            }
        )
    axes["xaxis"] = x_axis | {"anchor": f"y{n}" if n > 1 else "y"}
    return axes


def _stroke(kind: Kind, curve: prepare.Curve) -> dict[str, Any]:
    """Width and dash of a line: fitted laws, and lines that nobody measured, are dashed."""
    dashed = curve.style == "dashed" or (kind is Kind.CDF and curve.style != "steps")
    return {"width": 5 if curve.tone else 2, "dash": "dash" if dashed else "solid"}


def _focus(figure: Figure, c: prepare.Chart, curves: Sequence[prepare.Curve]) -> dict[str, Any] | None:
    """The layout that hides the largest samples; None if they need little room."""
    ends = prepare.focus(figure.kind, c, curves)
    if ends is None:
        return None
    part, q = ("x", c.x) if figure.kind is Kind.CDF else ("y", c.y)
    if not q.log:
        return {f"{part}axis": {"range": list(ends), "autorange": False}}
    marks = scale.ticks(ends[0] / q.factor, ends[1] / q.factor, q.si, True)
    if figure.kind is Kind.SERIES and len(marks) > 4:  # panels are low
        marks = marks[::2]
    return {
        f"{part}axis": {
            "range": [float(np.log10(e)) for e in ends],
            "autorange": False,
            "tickvals": [v * q.factor for v, _ in marks],
            "ticktext": [plain(t) for _, t in marks],
        }
    }


def _needs_f8(y: np.ndarray) -> bool:
    finite = y[np.isfinite(y)]
    if finite.size < 2:
        return False
    return bool(np.ptp(finite) < 1e-3 * np.abs(finite).max())


def _all(frames: Sequence[Sequence[prepare.Curve]], part: str) -> np.ndarray:
    parts = [getattr(c, part) for f in frames for c in f]
    parts += [e for f in frames for c in f for e in (c.low, c.high) if part == "y" and e is not None]
    return np.concatenate(parts) if parts else np.empty(0)


def _hover(c: prepare.Chart, curve: prepare.Curve) -> str:
    head = f"{plain(curve.name)}<br>" if curve.name else ""
    return (
        f"{head}{plain(c.x.label)} %{{x:.5~g}}{_unit(c.x)}<br>{plain(c.y.label)} %{{y:.5~g}}{_unit(c.y)}"
        "<extra></extra>"
    )


def _band(low: float, high: float) -> dict[str, Any]:
    """A shaded range, behind everything."""
    return {
        "type": "rect",
        "xref": "x",
        "x0": low,
        "x1": high,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "line": {"width": 0},
        "fillcolor": "@band",
    }


def _band_key(name: str) -> dict[str, Any]:
    """The legend entry of a shaded range."""
    return {
        "type": "scatter",
        "name": plain(name),
        "mode": "markers",
        "marker": {"symbol": "square", "size": 12, "color": "@band", "line": {"width": 1, "color": "@axis"}},
        "x": [None],
        "y": [None],
        "hoverinfo": "skip",
        "showlegend": True,
        "legendgroup": "band",
    }


def _rule(axis: str, value: float) -> dict[str, Any]:
    other = "y" if axis == "x" else "x"
    return {
        "type": "line",
        f"{axis}0": value,
        f"{axis}1": value,
        f"{axis}ref": axis,
        f"{other}0": 0,
        f"{other}1": 1,
        f"{other}ref": "paper",
        "line": {"color": "@rule", "width": 1.2, "dash": "dot"},
    }


def _label(axis: str, value: float, name: str) -> dict[str, Any]:
    place = (
        {
            "x": value,
            "xref": "x",
            "y": 0.99,
            "yref": "paper",
            "yanchor": "top",
            "xanchor": "right",
            "textangle": -90,
        }
        if axis == "x"
        else {"y": value, "yref": "y", "x": 1, "xref": "paper", "xanchor": "right", "yanchor": "bottom"}
    )
    return {**place, "text": plain(name), "showarrow": False, "font": {"size": 11, "color": "@quiet"}}


def _dendrogram(figure: Figure) -> Drawn:
    tree = prepare.dendrogram(figure)
    most = max(len(branches) for _, branches in tree.frames)
    classes = max((k for _, branches in tree.frames for *_, k in branches), default=0)
    traces: list[dict[str, Any]] = []
    for k in range(classes + 1):
        colour = "@rule" if k == 0 else _tone(k - 1)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "" if k == 0 else f"class {k}",
                "showlegend": False,
                "line": {"width": 1.6, "color": colour},
                "hovertemplate": f"{plain(tree.height.label)} %{{x:.4~g}}{_unit(tree.height)}<extra></extra>",
            }
        )
    frames = []
    for names, branches in tree.frames:
        patches = []
        for k in range(classes + 1):
            mine = [(a, h) for a, h, of in branches if of == k]
            hole = np.array([np.nan])
            along = np.concatenate([np.concatenate([a, hole]) for a, _ in mine] or [np.empty(0)])
            up = np.concatenate([np.concatenate([h, hole]) for _, h in mine] or [np.empty(0)])
            patches.append({"x": pack(up), "y": pack(along)})
        axis = {
            "tickvals": list(range(len(names))),
            "ticktext": [plain(n) for n in names],
            "range": [len(names) - 0.4, -0.6],
        }
        frames.append({"traces": patches, "layout": {"yaxis": axis}})
    leaves = max(len(names) for names, _ in tree.frames)
    highest = max((float(h.max()) for _, branches in tree.frames for _, h, _ in branches), default=0.0)
    highest = max(highest, tree.threshold or 0.0)
    longest = max((len(n) for names, _ in tree.frames for n in names), default=1)
    layout = _layout(
        margin={"l": 24 + min(24, longest) * 7, "r": 18, "t": 10, "b": 48},
        xaxis=_axis(tree.height, range=[0, highest * 1.03 if highest > 0 else 1]),
        yaxis=_axis(
            prepare.Quantity("", "", "", 1.0), showgrid=False, showline=False, ticks="", automargin=True
        ),
        showlegend=False,
        shapes=[] if tree.threshold is None else [_rule("x", tree.threshold)],
        annotations=[] if tree.threshold is None else [_label("x", tree.threshold, "cut")],
    )
    height = int(np.clip(90 + leaves * (20 if leaves <= 24 else 13), 220, 900)) if most else 160
    return Drawn(
        {"traces": traces, "layout": layout, "frames": frames, "size": {"height": height}}, tree.notes
    )


def _bars(figure: Figure) -> Drawn:
    b = prepare.bars(figure)
    flat = len(b.names) > 8 or max((len(n) for n in b.names), default=0) > _LONG
    value, place = ("x", "y") if flat else ("y", "x")
    curves = b.frames[0]
    named = len(curves) > 1
    names = [plain(n) for n in b.names]
    traces: list[dict[str, Any]] = []
    frames: list[dict[str, Any]] = [{"traces": []} for _ in b.frames]
    for k, curve in enumerate(curves):
        colour = _tone(curve.series)
        trace: dict[str, Any] = {
            "name": plain(curve.name),
            place: names,
            "showlegend": named,
            "hovertemplate": (f"{plain(curve.name)}<br>" if curve.name else "")
            + f"%{{{place}}}: %{{{value}:.4~g}}{_unit(b.y)}<extra></extra>",
        }
        if curve.style == "bars":
            trace |= {"type": "bar", "marker": {"color": colour}, "orientation": "h" if flat else "v"}
        else:
            symbol = ("circle", "diamond", "square", "triangle-up", "cross", "x")[k % 6]
            trace |= {
                "type": "scatter",
                "mode": "markers",
                "marker": {"size": 9, "color": colour, "symbol": symbol},
            }
        traces.append(trace)
        for f, frame in zip(b.frames, frames):
            now = f[k]
            patch: dict[str, Any] = {value: pack(now.y)}
            if now.low is not None and now.high is not None:
                patch[f"error_{value}"] = {
                    "type": "data",
                    "symmetric": False,
                    "array": pack(now.high - now.y),
                    "arrayminus": pack(now.y - now.low),
                    "thickness": 1.3,
                    "width": 4,
                    "color": "@ink",
                }
            frame["traces"].append(patch)
    amount = _axis(b.y, **_log_axis(b.y, _all(b.frames, "y")), **_counting(b.y, _all(b.frames, "y")))
    if not b.y.log:
        amount["rangemode"] = "tozero"
    category = _axis(
        b.x,
        type="category",
        showgrid=False,
        ticks="",
        automargin=True,
        **(
            {"autorange": "reversed", "tickvals": names, "ticktext": [_folded(name) for name in b.names]}
            if flat
            else {}
        ),
    )
    layout = _layout(
        margin={"l": 64, "r": 14, "t": 34 if named else 12, "b": 48},
        xaxis=amount if flat else category,
        yaxis=category if flat else amount,
        barmode="group",
        bargap=0.28,
        bargroupgap=0.08,
        showlegend=named,
    )
    height = int(np.clip(110 + len(b.names) * (22 + 10 * (len(curves) - 1)), 240, 1200)) if flat else 340
    spec = {"traces": traces, "layout": layout, "frames": frames, "size": {"height": height}, "flat": flat}
    return Drawn(spec, b.notes)


# Labels on areas: the colour of an area is no readable background for text
_LABEL = {
    "bgcolor": "@ground",
    "bordercolor": "@axis",
    "font": {"family": "@font", "size": 12, "color": "@ink"},
}


def _icicle(figure: Figure) -> Drawn:
    tree = prepare.icicle(figure)
    root = float(tree.frames[0][0]) if tree.frames else 0.0
    fills = [_fill(hue) if hue >= 0 else "" for hue in tree.hues]
    ids = [str(node) for node in range(len(tree.labels))]
    trace: dict[str, Any] = {
        "type": "icicle",
        "ids": ids,
        "labels": [plain(label) for label in tree.labels],
        "parents": ["" if parent < 0 else ids[parent] for parent in tree.parents],
        "branchvalues": "remainder",  # plotly adds up the children: it refuses a total with a rounding error
        "tiling": {"orientation": "v", "pad": 0},
        "pathbar": {"visible": False},  # the panel has its own, which the keyboard reaches
        "textposition": "middle center",
        "text": [plain(label) for label in tree.labels],
        "textinfo": "text",
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {
            "colors": [f"@{fill}" if fill else "@hole" for fill in fills],
            "line": {"color": "@ground", "width": 1},
        },
        "textfont": {"size": 12, "color": [f"@on-{fill}" if fill else "@ink" for fill in fills]},
        "root": {"color": "rgba(0,0,0,0)"},
        "sort": True,
        "leaf": {"opacity": 1},
        "level": ids[0],
        "maxdepth": DEEP,
    }
    frames = []
    for k, values in enumerate(tree.frames):
        tips = [
            [
                f"{prepare.capital(tips.label)} {scale.rounded(tips.values[k][node], tips.unit)}"
                for tips in tree.told
                if np.isfinite(tips.values[k][node])
            ]
            for node in range(len(ids))
        ]
        texts = [
            "<br>".join(
                [
                    f"<b>{plain(label)}</b>",
                    plain(f"{tree.value.label} {scale.quantity(value / tree.value.factor, tree.value.si)}"),
                    *map(plain, more),
                ]
            )
            for label, value, more in zip(tree.labels, values, tips)
        ]
        frames.append({"traces": [{"values": pack(tree.own(k), precise=True), "customdata": texts}]})
    used = sorted({hue for hue in tree.hues if 0 <= hue < len(tree.hue_names)})
    spec = {
        "traces": [trace],
        "layout": _layout(
            margin={"l": 0, "r": 0, "t": 4, "b": 4},
            hovermode="closest",
            hoverlabel=_LABEL,
        ),
        "frames": frames,
        "size": {"height": int(np.clip(26 + 42 * min(tree.depth, DEEP), 150, 560)) if root > 0 else 120},
        "nodes": {
            "label": tree.value.label,
            "unit": tree.value.si,
            "factor": tree.value.factor,
            "deep": DEEP,
            "labels": tree.labels,
            "parents": tree.parents,
            "hues": [tree.hue_names[h] if h in used else "" for h in tree.hues],
            "hue_title": prepare.capital(figure.axes["hue"].label) if "hue" in figure.axes else "",
            "told": [_told(t) for t in tree.told],
            "values": [pack(v, precise=True) for v in tree.frames],
        },
        "hues": [{"label": tree.hue_names[hue], "colour": f"var(--{_fill(hue)})"} for hue in used],
    }
    notes = list(tree.notes)
    if tree.depth > DEEP:
        notes.append(f"{DEEP} of {tree.depth} levels are drawn at once; enlarge a part to see the others.")
    return Drawn(spec, notes)


_LONG = 12  # letters of a bar's name; bars with longer names are horizontal, because the names would overlap
_FOLDABLE = 8  # rows of a matrix that are high enough for a name in several lines
_LINE = 26  # letters per line of a name: longer lines would leave no room for bars on a phone
_LYING = 40  # largest number of horizontal bars: more would not fit on a screen


def _folded(name: str) -> str:
    return "<br>".join(plain(line) for line in textwrap.wrap(name, _LINE, break_long_words=False)) or plain(
        name
    )


def _stack(figure: Figure) -> Drawn:
    s = prepare.stack(figure)
    named = len(s.parts) > 1 and not s.apart
    flat = (
        s.edges is None
        and not s.apart
        and max(map(len, s.names), default=0) > _LONG
        and len(s.names) <= _LYING
    )
    value, place = ("x", "y") if flat else ("y", "x")
    traces: list[dict[str, Any]] = []
    frames: list[dict[str, Any]] = [{"traces": []} for _ in s.frames]
    for k, (part, hue) in enumerate(zip(s.parts, s.hues)):
        colour = f"@{_fill(hue)}"
        trace: dict[str, Any] = {"name": plain(part), "showlegend": named}
        if s.apart and k:
            trace["yaxis"] = f"y{k + 1}"
        if s.edges is not None:
            trace |= {
                "type": "scatter",
                "mode": "lines",
                "line": {"width": 0, "shape": "hv", "color": colour},
                "fillcolor": colour,
                "x": pack_axis(s.edges),
                "hovertemplate": f"%{{y:.3~g}}{_unit(s.y)}",
            }
            trace |= {"fill": "tozeroy"} if s.apart else {"stackgroup": "all"}
        else:
            text = (
                "%{hovertext}" if s.tips is not None else f"{plain(s.y.label)} %{{{value}:.4~g}}{_unit(s.y)}"
            )
            trace |= {
                "type": "bar",
                "orientation": "h" if flat else "v",
                "marker": {"color": colour, "line": {"width": 0}},
                place: list(range(len(s.names))),
                "customdata": [plain(name) for name in s.names],
                "hovertemplate": f"<b>{plain(part)}</b><br>{plain(s.x.label)} %{{customdata}}<br>{text}<extra></extra>",
            }
        traces.append(trace)
        for n, frame in enumerate(frames):
            y = s.frames[n][k]
            # The last stretch is drawn to its end, where no other begins
            patch: dict[str, Any] = {value: pack(np.append(y, y[-1:]) if s.edges is not None else y)}
            if s.tips is not None:
                patch["hovertext"] = [plain(tip) for tip in s.tips[n][k].tolist()]
            frame["traces"].append(patch)
    y_axis = _axis(s.y, rangemode="tozero")
    if s.edges is not None:
        x_axis = _axis(
            s.x,
            showgrid=False,
            range=[float(s.edges[0]), float(s.edges[-1])],
            unifiedhovertitle={"text": f"{plain(s.x.label)} %{{x:.4~g}}{_unit(s.x)}"},
            spikethickness=1,
            spikedash="solid",
            spikecolor="@rule",
        )
    else:
        x_axis = _axis(
            s.x,
            showgrid=False,
            ticks="",
            range=[-0.5, max(1, len(s.names)) - 0.5][:: -1 if flat else 1],
            tickvals=list(range(len(s.names))),
            ticktext=[_folded(name) if flat else plain(name) for name in s.names],
        )
    layout = _layout(
        margin={"l": 64, "r": 14, "t": 34 if named else 12, "b": 48},
        xaxis=y_axis if flat else x_axis,
        yaxis=x_axis if flat else y_axis,
        barmode="stack",
        bargap=0.08 if s.apart else 0.28 if len(s.names) <= 24 else 0,
        showlegend=named,
        hovermode="x unified" if s.edges is not None else "closest",
    )
    if not flat:
        layout["legend"] |= {"traceorder": "reversed"}  # in the order of the stack
    layout["hoverlabel"] = _LABEL
    if s.apart:
        for n, frame in enumerate(frames):
            axes = _panels(s.headings[n], ["@ink"] * len(s.parts), x_axis, y_axis)
            frame["layout"] = {"annotations": axes.pop("annotations")}
            layout |= axes
    height = 100 + PANEL * len(s.parts) if s.apart else max(220, 110 + 44 * len(s.names)) if flat else 340
    spec = {
        "traces": traces,
        "layout": layout,
        "frames": frames,
        "size": {"height": height},
        "even": s.edges is None and not flat,
        "flat": flat,
    }
    return Drawn(spec, s.notes)


# ---- the page
# --------------------------------------------------------------------------------------------------


def embed(value: Any) -> Markup:
    """JSON that is safe inside a script element, for any texts."""
    text = json.dumps(shown(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


def shown(value: Any) -> Any:
    """A value in whose texts characters that reverse or hide text are replaced by a backslash and a number.

    On the page as on a terminal, the name of one host must not look like another's.
    """
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {shown(key): shown(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [one if isinstance(one, (int, float)) else shown(one) for one in value]
    return value


def plotly_js() -> str:
    """The plotly.js of the plotly package."""
    return (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def options(text: str) -> Markup:
    """A sentence in which no option ("--budget 5min") and no number with its unit is broken over two lines."""
    text = printable(text)
    text = re.sub(r"(?<=\d) (?=(?:%|[nµm]?s\b|min\b|[KMG]?i?B\b))", "\u00a0", text)
    whole = Markup('<span class="nobreak">{}</span>')
    parts = re.split(r"(--[a-z][a-z-]*(?: [a-z]*:?\d[\w.:%]*)?)", text)
    return Markup("").join(whole.format(part) if k % 2 else part for k, part in enumerate(parts))


def _script(text: str) -> tuple[Markup, str]:
    """A script and the Content-Security-Policy source that allows only this script."""
    safe = text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    digest = base64.b64encode(hashlib.sha256(safe.encode("utf-8")).digest()).decode("ascii")
    return Markup(safe), f"'sha256-{digest}'"


def _css_tokens() -> str:
    def block(theme: str) -> str:
        return "".join(f"--{k}:{v};" for k, v in tokens()[theme].items())

    light, dark = block("light"), block("dark")
    return (
        f":root{{{light}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}"
    )


def _cell_of(section: Section, anchor: str, evidence: Mapping[str, Any]) -> dict[str, Any] | None:
    """The cell of a finding about a pair: in the first matrix of its section that contains the pair."""
    if not {"src", "dst"} <= set(evidence):
        return None
    for figure in section.figures:
        if figure.kind is not Kind.MATRIX:
            continue
        data = figure.data
        try:
            row = [str(v) for v in data["row"].values].index(str(evidence["src"]))
            col = [str(v) for v in data["col"].values].index(str(evidence["dst"]))
        except (KeyError, ValueError):
            continue
        place: dict[str, Any] = {
            "figure": f"{anchor}-{page.slug(figure.id)}",
            "row": row,
            "col": col,
            "at": "",
        }
        for slider in figure.controls[:1]:
            wanted = evidence.get(slider.dim, evidence.get(f"{slider.dim}_b"))
            if wanted is not None and slider.dim in data.coords:
                values = [str(v) for v in data[slider.dim].values.tolist()]
                place["at"] = values.index(str(wanted)) if str(wanted) in values else ""
        return place
    return None


def render(report: Report) -> str:
    """The whole report as one HTML text.

    Raises
    ------
    DataError  report.figure_data: a figure's data does not fit its kind.
    """
    names = page.anchors(report.sections)
    sections = []
    for section, anchor in zip(report.sections, names):
        figures: list[dict[str, Any]] = []
        for figure in section.figures:
            drawn = draw(figure)
            ident = f"{anchor}-{page.slug(figure.id)}"
            while any(ident == f["id"] for f in figures):
                ident += "-b"
            figures.append(
                {
                    "id": ident,
                    "title": figure.title,
                    "caption": figure.caption,
                    "notes": drawn.notes,
                    "spec": embed(drawn.spec),
                    "controls": drawn.spec["controls"],
                    "legend": drawn.spec.get("legend") or [],
                    "hues": drawn.spec.get("hues") or [],
                    "cells": bool(drawn.spec.get("cells")),
                    "nodes": bool(drawn.spec.get("nodes")),
                    "fixed": bool(drawn.spec.get("fixed")),
                    "focus": drawn.spec.get("focus"),
                    "left_out": f"{1 - prepare.BULK:.0%}".replace("%", "\u00a0%"),
                    "start": drawn.spec["start"],
                    "kind": figure.kind.value,
                    "numbers": prepare.numbers(figure),
                }
            )
        findings = [
            {
                "finding": f,
                "evidence": page.evidence(f),
                "cell": _cell_of(section, anchor, f.evidence),
            }
            for f in section.findings
        ]
        sections.append({"section": section, "anchor": anchor, "figures": figures, "findings": findings})

    theme_js, theme_hash = _script((TEMPLATE / "theme.js").read_text(encoding="utf-8"))
    drawn_any = any(s["figures"] for s in sections)
    library, library_hash = _script(plotly_js()) if drawn_any else (Markup(""), "")
    page_js, page_hash = _script((TEMPLATE / "page.js").read_text(encoding="utf-8"))
    environment = Environment(
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["number"] = scale.number
    environment.filters["options"] = options
    template = environment.from_string((TEMPLATE / "page.html.j2").read_text(encoding="utf-8"))
    policy = (
        f"default-src 'none'; script-src {theme_hash} {library_hash} {page_hash}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    common, differing = page.split_runs(report.runs)
    return template.render(
        report=report,
        warnings=page.group_warnings(report),
        common=common,
        differing=differing,
        sections=sections,
        rooms={room.name: room.title for room in rooms()},
        policy=policy,
        css=Markup(_css_tokens() + (TEMPLATE / "page.css").read_text(encoding="utf-8")),
        theme_js=theme_js,
        library=library,
        page_js=page_js,
        tokens=embed(tokens()),
    )
