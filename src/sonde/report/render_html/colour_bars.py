"""Colour scales of heat maps, and the bars that explain them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sonde.report import prepare, scale
from sonde.report.render_html.texts import plain

BAR = 61  # px above a matrix for its colour bar: plotly's padding, bar and ticks, plus 1


def _value_text(q: prepare.Quantity, at: float) -> str:
    """A position on a colour scale, log10 where q.log, as text."""
    prefixed = q.si if len(scale.steps(q.si)) > 1 else ""
    return scale.quantity((10**at if q.log else at) / q.factor, prefixed, 2 if q.log else 3)


def colours(q: prepare.Quantity, ends: prepare.Ends) -> dict[str, Any]:
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


def colour_scale(colours: Sequence[str]) -> list[list[Any]]:
    """Colours at even distances, as plotly's colorscale."""
    return [[k / (len(colours) - 1), colour] for k, colour in enumerate(colours)]


def colour_bar(q: prepare.Quantity) -> dict[str, Any]:
    """A horizontal colour bar above the plot."""
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


def over_bar(q: prepare.Quantity, ends: prepare.Ends) -> dict[str, Any]:
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
