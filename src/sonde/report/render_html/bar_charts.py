"""BAR as bars, STACK as areas or bars on top of each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sonde.core.figure import Figure
from sonde.report import prepare
from sonde.report.render_html.layout import (
    AREA_LABEL,
    LONG,
    PANEL,
    Drawn,
    all_values,
    axis,
    counting,
    error_bars,
    folded,
    layout,
    log_axis,
    panels_of,
    symbol,
    unit,
)
from sonde.report.render_html.packing import pack, pack_axis
from sonde.report.render_html.texts import plain
from sonde.report.render_html.theme import fill, tone

MAX_HORIZONTAL = 40  # stacked horizontal bars: more would not fit on a screen


def bars(figure: Figure) -> Drawn:
    """BAR as groups of bars, or as points on a logarithmic axis; many bars, or bars with long names, are horizontal."""
    b = prepare.bars(figure)
    flat = len(b.names) > 8 or max((len(n) for n in b.names), default=0) > LONG
    value = "x" if flat else "y"
    curves = b.frames[0]
    named = len(curves) > 1
    names = [plain(n) for n in b.names]
    traces = [_series(b, k, names, flat) for k in range(len(curves))]
    frames = [
        {"traces": [{value: pack(c.y), **error_bars(value, c, 1.3, "@ink")} for c in f]} for f in b.frames
    ]
    ys = all_values(b.frames, "y")
    amount = axis(b.y, **log_axis(b.y, ys), **counting(b.y, ys))
    if not b.y.log:
        amount["rangemode"] = "tozero"
    ticks = {"autorange": "reversed", "tickvals": names, "ticktext": [folded(name) for name in b.names]}
    category = axis(
        b.x, type="category", showgrid=False, ticks="", automargin=True, **(ticks if flat else {})
    )
    around = layout(
        margin={"l": 64, "r": 14, "t": 34 if named else 12, "b": 48},
        xaxis=amount if flat else category,
        yaxis=category if flat else amount,
        barmode="group",
        bargap=0.28,
        bargroupgap=0.08,
        showlegend=named,
    )
    height = int(np.clip(110 + len(b.names) * (22 + 10 * (len(curves) - 1)), 240, 1200)) if flat else 340
    spec = {"traces": traces, "layout": around, "frames": frames, "size": {"height": height}, "flat": flat}
    return Drawn(spec, b.notes)


def _series(b: prepare.Bars, k: int, names: Sequence[str], flat: bool) -> dict[str, Any]:
    """The trace of series k, without its values."""
    curve = b.frames[0][k]
    value, place = ("x", "y") if flat else ("y", "x")
    trace: dict[str, Any] = {
        "name": plain(curve.name),
        place: names,
        "showlegend": len(b.frames[0]) > 1,
        "hovertemplate": (f"{plain(curve.name)}<br>" if curve.name else "")
        + f"%{{{place}}}: %{{{value}:.4~g}}{unit(b.y)}<extra></extra>",
    }
    colour = tone(curve.series)
    if curve.style == "bars":
        return trace | {"type": "bar", "marker": {"color": colour}, "orientation": "h" if flat else "v"}
    marker = {"size": 9, "color": colour, "symbol": symbol(k)}
    return trace | {"type": "scatter", "mode": "markers", "marker": marker}


def stack(figure: Figure) -> Drawn:
    """STACK as areas or bars on top of each other; parts without a common sum have a panel each."""
    s = prepare.stack(figure)
    named = len(s.parts) > 1 and not s.apart
    flat = (
        s.edges is None
        and not s.apart
        and max(map(len, s.names), default=0) > LONG
        and len(s.names) <= MAX_HORIZONTAL
    )
    traces = [_part(s, k, named, flat) for k in range(len(s.parts))]
    frames: list[dict[str, Any]] = [
        {"traces": [_heights(s, n, k, flat) for k in range(len(s.parts))]} for n in range(len(s.frames))
    ]
    x_axis, y_axis = _along(s, flat), axis(s.y, rangemode="tozero")
    around = layout(
        margin={"l": 64, "r": 14, "t": 34 if named else 12, "b": 48},
        xaxis=y_axis if flat else x_axis,
        yaxis=x_axis if flat else y_axis,
        barmode="stack",
        bargap=0.08 if s.apart else 0.28 if len(s.names) <= 24 else 0,
        showlegend=named,
        hovermode="x unified" if s.edges is not None else "closest",
    )
    if not flat:
        around["legend"] |= {"traceorder": "reversed"}  # in the order of the stack
    around["hoverlabel"] = AREA_LABEL
    if s.apart:
        for n, frame in enumerate(frames):
            axes = panels_of(s.headings[n], ["@ink"] * len(s.parts), x_axis, y_axis)
            frame["layout"] = {"annotations": axes.pop("annotations")}
            around |= axes
    height = 100 + PANEL * len(s.parts) if s.apart else max(220, 110 + 44 * len(s.names)) if flat else 340
    spec = {
        "traces": traces,
        "layout": around,
        "frames": frames,
        "size": {"height": height},
        "even": s.edges is None and not flat,
        "flat": flat,
    }
    return Drawn(spec, s.notes)


def _part(s: prepare.Stack, k: int, named: bool, flat: bool) -> dict[str, Any]:
    """The trace of part k, without its values."""
    value, place = ("x", "y") if flat else ("y", "x")
    part = plain(s.parts[k])
    colour = f"@{fill(s.hues[k])}"
    trace: dict[str, Any] = {"name": part, "showlegend": named}
    if s.apart and k:
        trace["yaxis"] = f"y{k + 1}"
    if s.edges is not None:
        trace |= {
            "type": "scatter",
            "mode": "lines",
            "line": {"width": 0, "shape": "hv", "color": colour},
            "fillcolor": colour,
            "x": pack_axis(s.edges),
            "hovertemplate": f"%{{y:.3~g}}{unit(s.y)}",
        }
        return trace | ({"fill": "tozeroy"} if s.apart else {"stackgroup": "all"})
    text = "%{hovertext}" if s.tips is not None else f"{plain(s.y.label)} %{{{value}:.4~g}}{unit(s.y)}"
    return trace | {
        "type": "bar",
        "orientation": "h" if flat else "v",
        "marker": {"color": colour, "line": {"width": 0}},
        place: list(range(len(s.names))),
        "customdata": [plain(name) for name in s.names],
        "hovertemplate": f"<b>{part}</b><br>{plain(s.x.label)} %{{customdata}}<br>{text}<extra></extra>",
    }


def _heights(s: prepare.Stack, frame: int, k: int, flat: bool) -> dict[str, Any]:
    """The values of part k in a frame."""
    y = s.frames[frame][k]
    # The last stretch is drawn to its end, where no other begins
    patch: dict[str, Any] = {"x" if flat else "y": pack(np.append(y, y[-1:]) if s.edges is not None else y)}
    if s.tips is not None:
        patch["hovertext"] = [plain(tip) for tip in s.tips[frame][k].tolist()]
    return patch


def _along(s: prepare.Stack, flat: bool) -> dict[str, Any]:
    """The axis of the stretches or of the bars' names."""
    if s.edges is not None:
        return axis(
            s.x,
            showgrid=False,
            range=[float(s.edges[0]), float(s.edges[-1])],
            unifiedhovertitle={"text": f"{plain(s.x.label)} %{{x:.4~g}}{unit(s.x)}"},
            spikethickness=1,
            spikedash="solid",
            spikecolor="@rule",
        )
    return axis(
        s.x,
        showgrid=False,
        ticks="",
        range=[-0.5, max(1, len(s.names)) - 0.5][:: -1 if flat else 1],
        tickvals=list(range(len(s.names))),
        ticktext=[folded(name) if flat else plain(name) for name in s.names],
    )
