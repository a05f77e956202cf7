"""Shared by the drawings of all kinds: axes, layout, panels, lines and labels."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sonde.report import prepare, scale
from sonde.report.render_html.packing import pack
from sonde.report.render_html.texts import plain

PANEL = 112  # px of one of several series of samples, with its name
LONG = 12  # letters of a bar's name; bars with longer names are horizontal, because the names would overlap
LINE = 26  # letters per line of a name: longer lines would leave no room for bars on a phone

# Labels on areas: the colour of an area is no readable background for text
AREA_LABEL = {
    "bgcolor": "@ground",
    "bordercolor": "@axis",
    "font": {"family": "@font", "size": 12, "color": "@ink"},
}


@dataclass
class Drawn:
    """A figure as the page embeds it: base traces and layout, and the changes for each control position.

    `spec` is JSON-ready. plotly(frame) merges it into one ordinary plotly figure.
    """

    spec: dict[str, Any]
    notes: list[str]


def axis(q: prepare.Quantity, **more: Any) -> dict[str, Any]:
    """A plotly axis in the style of the page. more: further properties, which replace these."""
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


def log_axis(q: prepare.Quantity, values: np.ndarray) -> dict[str, Any]:
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


def counting(q: prepare.Quantity, values: np.ndarray) -> dict[str, Any]:
    """Ticks of a linear axis of bare numbers with all their digits, as long as there are few."""
    most = float(np.nanmax(np.abs(values), initial=0.0)) if values.size else 0.0
    return {"exponentformat": "none"} if not q.log and not q.si and 1e4 <= most < 1e9 else {}


def layout(**more: Any) -> dict[str, Any]:
    """A plotly layout in the style of the page. more: further properties, which replace these."""
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


def unit(q: prepare.Quantity) -> str:
    """The unit as it follows a number in a tooltip; "" for none."""
    return f" {plain(q.unit)}" if q.unit else ""


def folded(name: str) -> str:
    """A name in several lines."""
    return "<br>".join(plain(line) for line in textwrap.wrap(name, LINE, break_long_words=False)) or plain(
        name
    )


def all_values(frames: Sequence[Sequence[prepare.Curve]], part: str) -> np.ndarray:
    """The values of all curves along "x" or "y", including the ends of error bars."""
    parts = [getattr(c, part) for f in frames for c in f]
    parts += [e for f in frames for c in f for e in (c.low, c.high) if part == "y" and e is not None]
    return np.concatenate(parts) if parts else np.empty(0)


def panels_of(
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


def rule(axis: str, value: float) -> dict[str, Any]:
    """A dotted line across the plot at a value of `axis`."""
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


def line_label(axis: str, value: float, name: str) -> dict[str, Any]:
    """The name of such a line, next to it."""
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


def symbol(number: int) -> str:
    """The marker of a series."""
    return ("circle", "diamond", "square", "triangle-up", "cross", "x")[number % 6]


def error_bars(along: str, curve: prepare.Curve, thickness: float, colour: str) -> dict[str, Any]:
    """Error bars of a curve's values along "x" or "y" as part of a trace; empty without them."""
    if curve.low is None or curve.high is None:
        return {}
    return {
        f"error_{along}": {
            "type": "data",
            "symmetric": False,
            "array": pack(curve.high - curve.y),
            "arrayminus": pack(curve.y - curve.low),
            "thickness": thickness,
            "width": 4,
            "color": colour,
        }
    }
