"""MATRIX and STATUS as heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sonde.core.figure import Figure
from sonde.report import palette, prepare, scale
from sonde.report.render_html.colour_bars import BAR, colour_bar, colour_scale, colours, over_bar
from sonde.report.render_html.layout import LINE, Drawn, axis, folded, layout
from sonde.report.render_html.packing import pack, pack_extra, pack_texts
from sonde.report.render_html.texts import plain

FOLDABLE = 8  # rows of a matrix that are high enough for a name in several lines


@dataclass
class _Cells:
    """Traces of a matrix: properties for all frames, patches for each, the fixed colours, and notes."""

    trace: dict[str, Any]
    frames: list[dict[str, Any]]
    fixed: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def matrix(figure: Figure) -> Drawn:
    """MATRIX and STATUS as a heat map."""
    m = prepare.matrix(figure)
    rows, cols = len(m.rows.each), len(m.cols.each)
    cells = _states(m) if m.words else _values(m)
    trace = {
        "type": "heatmap",
        "x0": 0,
        "dx": 1,
        "y0": 0,
        "dy": 1,
        "hoverongaps": False,
        "hoverinfo": "none",
        "xgap": 2 if cols <= 16 else 1 if cols <= 40 else 0,
        "ygap": 2 if rows <= 16 else 1 if rows <= 40 else 0,
        **cells.trace,
    }
    initials = _initials(m.words)
    spec = {
        "traces": [trace],
        "layout": _layout(m),
        "frames": cells.frames,
        "fixed": cells.fixed or None,
        # Few cells need no large square, but the colour bar and its title need some width
        "size": {"aspect": rows / cols, "most": 620 if max(rows, cols) > 16 else min(500, 180 + 90 * cols)},
        "cells": _described(m),
        "legend": [
            {
                "label": word,
                "colour": palette.status(k),
                "initial": initials[k],
                "ink": palette.ink_on(palette.status(k)),
                "counts": [counts[k] for counts in m.counts],
            }
            for k, word in enumerate(m.words)
        ],
    }
    return Drawn(spec, m.notes + cells.notes)


def _states(m: prepare.Matrix) -> _Cells:
    """One colour per state, with the initials of the states in the cells of a small matrix."""
    rows, cols, n = len(m.rows.each), len(m.cols.each), len(m.words)
    trace: dict[str, Any] = {
        "zmin": -0.5,
        "zmax": n - 0.5,
        "showscale": False,
        "colorscale": [[edge, palette.status(k)] for k in range(n) for edge in (k / n, (k + 1) / n)],
    }
    initials = _initials(m.words)
    frames = []
    for z in m.frames:
        patch: dict[str, Any] = {"z": pack(z)}
        if rows <= 24 and cols <= 24:
            patch["text"] = [["" if v != v else initials[int(v)] for v in line] for line in z]
        frames.append({"traces": [patch]})
    if rows <= 24 and cols <= 24:
        trace |= {"texttemplate": "%{text}", "textfont": {"size": 12 if rows <= 12 else 9}}
    return _Cells(trace, frames)


def _values(m: prepare.Matrix) -> _Cells:
    """Colours on a scale of their own per frame, with the values in the cells of a very small matrix."""
    rows, cols = len(m.rows.each), len(m.cols.each)
    with np.errstate(divide="ignore", invalid="ignore"):
        zs = [np.log10(z) if m.value.log else z for z in m.frames]
    scheme = palette.MAPS[palette.SEQUENTIAL] if m.value.centre is None else palette.DIVERGING
    trace: dict[str, Any] = {"colorscale": colour_scale(scheme), "colorbar": colour_bar(m.value)}
    written = rows <= 8 and cols <= 8
    prefixed = m.value.si if len(scale.steps(m.value.si)) > 1 else ""
    frames: list[dict[str, Any]] = []
    each = [prepare.matrix_ends(m.value, z, least) for z, least in zip(zs, m.least)]
    for z, values, ends in zip(zs, m.frames, each):
        patch = {"z": pack(z), **colours(m.value, ends)}
        if written:
            patch["text"] = [
                ["" if v != v else scale.quantity(float(v) / m.value.factor, prefixed, 3) for v in line]
                for line in values
            ]
        frames.append({"traces": [patch], "layout": over_bar(m.value, ends)})
    if written:
        trace |= {"texttemplate": "%{text}", "textfont": {"size": 13 if rows <= 6 else 11}}
    fixed: dict[str, Any] = {}
    if len(zs) > 1:
        ends = prepare.matrix_ends(m.value, np.concatenate([z.ravel() for z in zs]), max(m.least))
        fixed = {"traces": [colours(m.value, ends)], "layout": over_bar(m.value, ends)}
    notes = []
    if any(ends.above for ends in each):
        notes.append(f"Colours end at the {prepare.CLIP:.0%} quantile; larger values have the last colour.")
    if any(ends.widened for ends in each):
        notes.append(
            f"If values differ by less, colours still span ±{_ends_of(m.least)} of "
            f"{'their median' if m.value.centre is None else scale.number(m.value.centre)}: such differences "
            "may be noise."
        )
    return _Cells(trace, frames, fixed, notes)


def _layout(m: prepare.Matrix) -> dict[str, Any]:
    rows, cols = len(m.rows.each), len(m.cols.each)
    x_at, x_text = _places(m.cols.each, 16, m.block)
    y_at, y_text = _places(m.rows.each, 16, m.block)
    if rows <= FOLDABLE and m.block == 1:  # show names of several words completely
        y_text = [folded(name) for name in m.rows.each]
    longest = max((len(line) for t in y_text for line in t.split("<br>")), default=1)
    return layout(
        margin={"l": 34 + min(LINE, longest) * 7, "r": 14, "t": 8 if m.words else BAR, "b": 46, "pad": 0},
        plot_bgcolor="@hole",
        xaxis=axis(
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
        yaxis=axis(
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


def _described(m: prepare.Matrix) -> dict[str, Any]:
    """The details of a selected cell on the page."""
    return {
        "rows": m.rows.each,
        "cols": m.cols.each,
        "row_title": m.rows.title,
        "col_title": m.cols.title,
        "row_facts": [{"label": label, "each": pack_texts(each)} for label, each in m.rows.facts],
        "col_facts": [{"label": label, "each": pack_texts(each)} for label, each in m.cols.facts],
        "label": m.value.label,
        "unit": m.value.si,
        "factor": m.value.factor,
        "log": m.value.log,
        "block": m.block,
        "words": list(m.words),
        "tips": None if m.tips is None else [pack_texts(t.ravel().tolist()) for t in m.tips],
        "told": [pack_extra(extra) for extra in m.extras],
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
