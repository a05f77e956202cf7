"""SPECTROGRAM as a heat map."""

from __future__ import annotations

import numpy as np

from sonde.core.figure import Figure
from sonde.report import palette, prepare
from sonde.report.render_html.colour_bars import BAR, colour_bar, colour_scale, colours, over_bar
from sonde.report.render_html.layout import Drawn, axis, layout, unit
from sonde.report.render_html.packing import pack, pack_axis
from sonde.report.render_html.texts import plain


def spectrogram(figure: Figure) -> Drawn:
    f = prepare.spectrogram(figure)
    with np.errstate(divide="ignore", invalid="ignore"):
        zs = [np.log10(z.T) if f.power.log else z.T for z in f.frames]
    trace = {
        "type": "heatmap",
        "x": pack_axis(f.xs),
        "y": pack_axis(f.ys),
        "colorscale": colour_scale(palette.MAPS[palette.POWER]),
        "colorbar": colour_bar(f.power),
        "hovertemplate": f"{plain(f.x.label)} %{{x}}{unit(f.x)}"
        f"<br>{plain(f.y.label)} %{{y:.4~g}}{unit(f.y)}"
        f"<br>{plain(f.power.label)} {'10^' if f.power.log else ''}%{{z:.3f}}{unit(f.power)}<extra></extra>",
    }
    floor = 0.05 if f.power.log else 0.0
    each = [prepare.colour_ends(z, floor) for z in zs]
    frames = [
        {"traces": [{"z": pack(z), **colours(f.power, e)}], "layout": over_bar(f.power, e)}
        for z, e in zip(zs, each)
    ]
    whole = prepare.colour_ends(np.concatenate([z.ravel() for z in zs]), floor)
    fixed = {"traces": [colours(f.power, whole)], "layout": over_bar(f.power, whole)}
    notes = list(f.notes)
    if any(e.below or e.above for e in each):
        notes.append("Colours end where the scale shows ≤ or ≥; powers beyond have the last colour.")
    around = layout(
        margin={"l": 64, "r": 14, "t": BAR, "b": 48},
        plot_bgcolor="@hole",
        xaxis=axis(f.x, showgrid=False),
        yaxis=axis(f.y, showgrid=False),
    )
    return Drawn(
        {
            "traces": [trace],
            "layout": around,
            "frames": frames,
            "fixed": fixed if len(zs) > 1 else None,
            "size": {"height": 400},
        },
        notes,
    )
