"""DENDROGRAM as branches, ICICLE as areas below each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from sonde.core.figure import Figure
from sonde.report import prepare, scale
from sonde.report.render_html.layout import AREA_LABEL, Drawn, axis, layout, line_label, rule, unit
from sonde.report.render_html.packing import pack, pack_extra
from sonde.report.render_html.texts import plain
from sonde.report.render_html.theme import fill, tone

DEEP = 12  # number of levels that an icicle shows at once


def dendrogram(figure: Figure) -> Drawn:
    """DENDROGRAM as horizontal branches, coloured by class."""
    tree = prepare.dendrogram(figure)
    most = max(len(branches) for _, branches in tree.frames)
    classes = max((k for _, branches in tree.frames for *_, k in branches), default=0)
    traces: list[dict[str, Any]] = []
    for k in range(classes + 1):
        colour = "@rule" if k == 0 else tone(k - 1)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "" if k == 0 else f"class {k}",
                "showlegend": False,
                "line": {"width": 1.6, "color": colour},
                "hovertemplate": f"{plain(tree.height.label)} %{{x:.4~g}}{unit(tree.height)}<extra></extra>",
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
        places = {
            "tickvals": list(range(len(names))),
            "ticktext": [plain(n) for n in names],
            "range": [len(names) - 0.4, -0.6],
        }
        frames.append({"traces": patches, "layout": {"yaxis": places}})
    leaves = max(len(names) for names, _ in tree.frames)
    highest = max((float(h.max()) for _, branches in tree.frames for _, h, _ in branches), default=0.0)
    highest = max(highest, tree.threshold or 0.0)
    longest = max((len(n) for names, _ in tree.frames for n in names), default=1)
    around = layout(
        margin={"l": 24 + min(24, longest) * 7, "r": 18, "t": 10, "b": 48},
        xaxis=axis(tree.height, range=[0, highest * 1.03 if highest > 0 else 1]),
        yaxis=axis(
            prepare.Quantity("", "", "", 1.0), showgrid=False, showline=False, ticks="", automargin=True
        ),
        showlegend=False,
        shapes=[] if tree.threshold is None else [rule("x", tree.threshold)],
        annotations=[] if tree.threshold is None else [line_label("x", tree.threshold, "cut")],
    )
    height = int(np.clip(90 + leaves * (20 if leaves <= 24 else 13), 220, 900)) if most else 160
    return Drawn(
        {"traces": traces, "layout": around, "frames": frames, "size": {"height": height}}, tree.notes
    )


def icicle(figure: Figure) -> Drawn:
    """ICICLE as areas below each other, DEEP levels at once."""
    tree = prepare.icicle(figure)
    root = float(tree.frames[0][0]) if tree.frames else 0.0
    hue_title = prepare.capital(figure.axes["hue"].label) if "hue" in figure.axes else ""
    used = sorted({hue for hue in tree.hues if 0 <= hue < len(tree.hue_names)})
    frames = [
        {"traces": [{"values": pack(tree.own(k), precise=True), "customdata": _tips(tree, k)}]}
        for k in range(len(tree.frames))
    ]
    spec = {
        "traces": [_areas(tree)],
        "layout": layout(
            margin={"l": 0, "r": 0, "t": 4, "b": 4},
            hovermode="closest",
            hoverlabel=AREA_LABEL,
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
            "hue_title": hue_title,
            "told": [pack_extra(extra) for extra in tree.extras],
            "values": [pack(v, precise=True) for v in tree.frames],
        },
        "hues": [{"label": tree.hue_names[hue], "colour": f"var(--{fill(hue)})"} for hue in used],
    }
    notes = list(tree.notes)
    if tree.depth > DEEP:
        notes.append(f"{DEEP} of {tree.depth} levels are drawn at once; enlarge a part to see the others.")
    return Drawn(spec, notes)


def _areas(tree: prepare.Icicle) -> dict[str, Any]:
    """The trace of the nodes, without their values."""
    fills = [fill(hue) if hue >= 0 else "" for hue in tree.hues]
    ids = [str(node) for node in range(len(tree.labels))]
    return {
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
            "colors": [f"@{name}" if name else "@hole" for name in fills],
            "line": {"color": "@ground", "width": 1},
        },
        "textfont": {"size": 12, "color": [f"@on-{name}" if name else "@ink" for name in fills]},
        "root": {"color": "rgba(0,0,0,0)"},
        "sort": True,
        "leaf": {"opacity": 1},
        "level": ids[0],
        "maxdepth": DEEP,
    }


def _tips(tree: prepare.Icicle, frame: int) -> list[str]:
    """The tooltip of each node: its name, its value, further variables."""
    texts = []
    for node, (label, value) in enumerate(zip(tree.labels, tree.frames[frame])):
        further = [
            f"{prepare.capital(extra.label)} {scale.rounded(extra.values[frame][node], extra.unit)}"
            for extra in tree.extras
            if np.isfinite(extra.values[frame][node])
        ]
        lines = [f"{tree.value.label} {scale.quantity(value / tree.value.factor, tree.value.si)}", *further]
        texts.append("<br>".join([f"<b>{plain(label)}</b>", *map(plain, lines)]))
    return texts
