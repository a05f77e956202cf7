"""SERIES, CDF and SCATTER as curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sonde.core.figure import Figure, Kind
from sonde.report import prepare, scale
from sonde.report.render_html.layout import (
    PANEL,
    Drawn,
    all_values,
    axis,
    counting,
    error_bars,
    layout,
    line_label,
    log_axis,
    panels_of,
    rule,
    symbol,
    unit,
)
from sonde.report.render_html.packing import pack, pack_axis
from sonde.report.render_html.texts import plain
from sonde.report.render_html.theme import tone


def chart(figure: Figure) -> Drawn:
    """SERIES, CDF and SCATTER as curves, in panels if they are several series of samples."""
    c = prepare.chart(figure)
    base = c.frames[0]
    panels = _panels(figure.kind, base)
    named = any(curve.name for curve in base) and len({curve.series for curve in base}) > 1 and not panels
    traces, frames = _curves(figure.kind, c, panels, named)
    keys = _keys(figure.kind, base)
    if c.bands and c.band_name:
        keys.append(_band_key(c.band_name))
    traces += keys
    for frame in frames:
        frame["traces"] += [{} for _ in keys]
    named = named or bool(keys)
    x_axis, y_axis = _axes(figure.kind, c)
    shapes, labels = _lines(c)
    around = layout(
        margin={"l": 64, "r": 14, "t": 34 if named else 12, "b": 48},
        xaxis=x_axis,
        yaxis=y_axis,
        showlegend=named,
        shapes=shapes,
        annotations=labels,
    )
    height = {Kind.SERIES: 340, Kind.CDF: 400, Kind.SCATTER: 420}[figure.kind]
    if panels:
        names = {curve.series: curve.name for curve in base}
        around |= panels_of([names[k] for k in panels], [tone(k) for k in range(len(panels))], x_axis, y_axis)
        around["shapes"] = shapes + [
            shape | {"yref": f"y{n + 1}"}
            for shape in shapes
            if shape["yref"] == "y"
            for n in range(1, len(panels))
        ]
        around["annotations"] += labels
        height = 100 + PANEL * len(panels)
    spec = {"traces": traces, "layout": around, "frames": frames, "size": {"height": height}}
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


def _panels(kind: Kind, curves: Sequence[prepare.Curve]) -> list[int]:
    """The series that have their own panels over the same x: series of samples would hide each other."""
    if kind is not Kind.SERIES:
        return []
    series = list(dict.fromkeys(curve.series for curve in curves))
    return series if 2 <= len(series) <= 6 else []


def _curves(
    kind: Kind, c: prepare.Chart, panels: Sequence[int], named: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A trace for each curve, and the frames with the traces' patches."""
    base = c.frames[0]
    few = max((sum(curve.x.size for curve in f) for f in c.frames), default=0) <= 1500
    shared = all(np.array_equal(a.x, b.x, equal_nan=True) for f in c.frames[1:] for a, b in zip(f, base))
    traces = []
    frames: list[dict[str, Any]] = [{"traces": []} for _ in c.frames]
    for k, curve in enumerate(base):
        # In an alternating pair the pale one comes second and has no legend entry
        trace: dict[str, Any] = {
            "type": "scatter",
            "name": plain(curve.name),
            "legendgroup": str(curve.colour),
            "showlegend": named and curve.tone == 0 and not curve.key and curve.x.size > 0,
            "hovertemplate": _hover(c, curve),
        }
        panel = panels.index(curve.series) if curve.series in panels else 0
        if panel:
            trace["yaxis"] = f"y{panel + 1}"
        trace |= _look(kind, curve, few)
        if shared:
            trace["x"] = pack_axis(curve.x)
        traces.append(trace)
        for f, frame in zip(c.frames, frames):
            patch: dict[str, Any] = {"y": pack(f[k].y, precise=not c.y.log and _needs_f8(f[k].y))}
            if not shared:
                patch["x"] = pack_axis(f[k].x)
            frame["traces"].append(patch | error_bars("y", f[k], 1.2, _colour(curve)))
    return traces, frames


def _colour(curve: prepare.Curve) -> str:
    return tone(curve.colour, bool(curve.tone))


def _look(kind: Kind, curve: prepare.Curve, few: bool) -> dict[str, Any]:
    """Mode, line and marker of a curve. few: so few samples that each can have a marker."""
    colour = _colour(curve)
    if curve.style == "middle":
        return {
            "mode": "lines+markers" if curve.x.size <= 40 else "lines",
            "line": {"width": 1.4, "color": "@ink"},
            "marker": {"size": 3.5, "color": "@ink"},
        }
    if curve.style == "samples":
        return {
            "mode": "lines+markers" if few else "lines",
            "line": {"width": 1, "color": colour},
            "marker": {"size": 4, "color": colour},
            "connectgaps": False,
        }
    if curve.style == "steps":
        return {"mode": "lines", "line": {"width": 2, "shape": "hv", "color": colour}}
    if curve.style in ("line", "dashed"):
        return {"mode": "lines", "line": _stroke(kind, curve) | {"color": colour}}
    size = 7 if curve.x.size <= 200 else 4
    return {
        "mode": "markers",
        "marker": {"size": size, "color": colour, "symbol": symbol(curve.colour)},
    }


def _keys(kind: Kind, curves: Sequence[prepare.Curve]) -> list[dict[str, Any]]:
    """One legend entry for all lines of a key; without a series' colour if they have several."""
    entries = []
    for key, curve in prepare.keys(curves).items():
        line = _stroke(kind, curve) | {"color": "@axis" if curve.tone else "@quiet"}
        if curve.style == "middle":
            line |= {"color": "@ink"}
        elif prepare.own_colour(curves, key):
            line |= {"color": _colour(curve)}
        entries.append(
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
    return entries


def _axes(kind: Kind, c: prepare.Chart) -> tuple[dict[str, Any], dict[str, Any]]:
    xs, ys = all_values(c.frames, "x"), all_values(c.frames, "y")
    x_axis = axis(c.x, **log_axis(c.x, xs))
    y_axis = axis(c.y, **log_axis(c.y, ys), **counting(c.y, ys))
    if kind is Kind.CDF:
        y_axis |= {"range": [-0.02, 1.02], "tickformat": ".0%"}
        x_axis |= {"showgrid": True}
    if kind is Kind.SERIES:
        x_axis |= {"showgrid": False}
    return x_axis, y_axis


def _lines(c: prepare.Chart) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Shaded ranges and named lines, as plotly's shapes and annotations."""
    shapes = [_band(low, high) for low, high in c.bands]
    labels = []
    for which, q, lines in (("x", c.x, c.marks), ("y", c.y, c.levels)):
        for value, name in lines:
            shapes.append(rule(which, value))
            if name:
                labels.append(line_label(which, float(np.log10(value)) if q.log else value, name))
    return shapes, labels


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


def _hover(c: prepare.Chart, curve: prepare.Curve) -> str:
    head = f"{plain(curve.name)}<br>" if curve.name else ""
    return (
        f"{head}{plain(c.x.label)} %{{x:.5~g}}{unit(c.x)}<br>{plain(c.y.label)} %{{y:.5~g}}{unit(c.y)}"
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
