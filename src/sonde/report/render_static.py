"""Figures for papers: the same Figure, drawn by matplotlib as PNG, SVG or PDF.

Needs the extra `paper`. No titles are drawn: a paper sets its own. If a figure has controls, the drawn position is
written above it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import distribution
from sonde.core.errors import EnvironmentFailure, UsageError, nearest
from sonde.core.figure import Figure, Kind
from sonde.core.owned_files import NewFile
from sonde.core.surroundings import standing_safely
from sonde.report import page, palette, prepare, scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Sheet

FORMATS = ("png", "svg", "pdf")
LEVELS = 6  # levels of an icicle that are drawn; lower ones cannot be read on paper
WIDTH_IN = 5.0  # between one and two columns of an ordinary paper; scales well to either
DOTS_PER_INCH = 300
STYLE = {
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#6a737c",
    "axes.labelcolor": "#1d2328",
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": "#545e68",
    "ytick.color": "#545e68",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "grid.color": "#e8e6e1",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "lines.linewidth": 1.2,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "svg.fonttype": "path",
    "svg.hashsalt": "sonde",  # the same figure gives the same file
}


def save(figure: Figure, folder: Path, form: str = "png") -> Path:
    """Draw a figure at the start position of its controls, as <folder>/<id>.<form>. Returns the path.

    Raises
    ------
    EnvironmentFailure  report.no_matplotlib, report.cannot_write.
    UsageError  report.unknown_format.
    DataError  report.figure_data: the data does not fit the figure's kind.
    """
    return save_all([figure], folder, form)[0]


def save_all(figures: Iterable[Figure], folder: Path, form: str = "png") -> list[Path]:
    """`save` for several figures; equal ids get -2, -3 …"""
    check(form)
    matplotlib = _matplotlib()
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            base = page.slug(figure.id) or "figure"
            path = folder / f"{base}.{form}"
            again = 1
            while path in written:
                again += 1
                path = folder / f"{base}-{again}.{form}"
            dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[form]
            with matplotlib.rc_context(STYLE), NewFile(path) as new:
                with new.file() as file:
                    draw(figure).savefig(
                        file,
                        format=form,
                        dpi=DOTS_PER_INCH,
                        metadata=dated,
                        bbox_inches="tight",
                        pad_inches=0.04,
                    )
                new.publish()
            written.append(path)
    except OSError as error:
        raise EnvironmentFailure(
            "report.cannot_write",
            f"figures cannot be written to '{folder}': {error.strerror or error}",
            "choose a folder where you can write: --static DIR",
        ) from error
    return written


def check(form: str) -> None:
    """Check whether figures of this format can be drawn here; to be called before the work.

    Raises
    ------
    UsageError  report.unknown_format.
    EnvironmentFailure  report.no_matplotlib.
    """
    if form not in FORMATS:
        raise UsageError(
            "report.unknown_format",
            f"unknown format '{form}'{nearest(form, FORMATS)}; allowed: {', '.join(FORMATS)}",
        )
    _matplotlib()


def draw(figure: Figure) -> Sheet:
    """A matplotlib figure of WIDTH_IN inches, at the start position of its controls; attached to no window.

    Raises
    ------
    EnvironmentFailure  report.no_matplotlib.
    DataError  report.figure_data.
    """
    matplotlib = _matplotlib()
    from matplotlib.figure import Figure as Sheet

    frame = prepare.start_frame(figure)
    make = {
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
    }[figure.kind]
    with matplotlib.rc_context(STYLE):
        sheet = Sheet(figsize=(WIDTH_IN, WIDTH_IN * 0.56), layout="constrained")
        axes = sheet.add_subplot()
        axes.set_axisbelow(True)
        make(figure, frame, sheet, axes)
        chosen = [f"{c.label} {c.positions[c.start]}" for c in prepare.controls(figure)]
        if chosen and (
            axes not in sheet.axes or axes.get_legend() is not None
        ):  # their place above is occupied
            sheet.suptitle(_plain(", ".join(chosen)), x=0.01, ha="left", size=8, color="#545e68")
        elif chosen:
            axes.set_title(_plain(", ".join(chosen)), loc="left", color="#545e68")
    return sheet


def _matplotlib() -> Any:
    try:
        with standing_safely():
            import matplotlib
    except ImportError as error:
        raise EnvironmentFailure(
            "report.no_matplotlib",
            "static figures are drawn by matplotlib, which is not installed",
            distribution.install_python("matplotlib"),
        ) from error
    return matplotlib


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # otherwise two of them would begin a formula


def _ticks(axes: Axes, which: str, q: prepare.Quantity, values: np.ndarray) -> None:
    """The label, and on a logarithmic axis scale and ticks with their own units."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_label_text(_plain(q.title))
    finite = values[np.isfinite(values) & (values > 0)]
    if not q.log or finite.size == 0:
        return
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    low, high = float(finite.min()), float(finite.max())
    pad = 10 ** max(0.02, 0.03 * np.log10(high / low))
    low, high = low / pad, high * pad
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    _log_ticks(axes, which, q, low, high)


def _log_ticks(axes: Axes, which: str, q: prepare.Quantity, low: float, high: float) -> None:
    if not q.log:
        return
    axis = axes.xaxis if which == "x" else axes.yaxis
    marks = scale.ticks(low / q.factor, high / q.factor, q.si, True, 5)
    axis.set_ticks([v * q.factor for v, _ in marks], [_plain(t) for _, t in marks])
    axis.set_ticks([], minor=True)


def _places(names: list[str], most: int = 12) -> tuple[list[int], list[str]]:
    every = 1
    while len(names) / every > most:
        every *= 2
    return list(range(0, len(names), every)), [_plain(names[k]) for k in range(0, len(names), every)]


def _legend(axes: Axes, **more: Any) -> None:
    """A legend above the axes, with as many columns as its names allow."""
    names = [h.get_label() for h in more.get("handles") or axes.get_legend_handles_labels()[0]]
    widest = max((len(str(name)) for name in names), default=1) * 3.7 + 30  # points
    columns = int(np.clip(WIDTH_IN * 0.86 * 72 / widest, 1, 3))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2, **more)


def _matrix(figure: Figure, frame: int, sheet: Sheet, axes: Axes) -> None:
    from matplotlib.colors import (
        BoundaryNorm,
        LinearSegmentedColormap,
        ListedColormap,
        LogNorm,
        Normalize,
        to_hex,
    )
    from matplotlib.patches import Patch

    m = prepare.matrix(figure)
    z = np.ma.masked_invalid(m.frames[frame])
    rows, cols = z.shape
    side = WIDTH_IN * 0.76
    sheet.set_size_inches(WIDTH_IN, float(np.clip(side * rows / cols, 1.2, 1.6 * WIDTH_IN)))
    if m.words:
        colours = ListedColormap([palette.status(k) for k in range(len(m.words))])
        axes.imshow(z, cmap=colours, norm=BoundaryNorm(np.arange(len(m.words) + 1) - 0.5, len(m.words)))
        present = [k for k, n in enumerate(m.counts[frame]) if n]
        axes.legend(
            handles=[
                Patch(color=palette.status(k), label=_plain(f"{m.words[k]} ({m.counts[frame][k]})"))
                for k in present
            ],
            loc="upper left",
            bbox_to_anchor=(1.02, 1),
            borderaxespad=0,
        )
    else:
        ends = prepare.matrix_ends(
            m.value, np.log10(z.compressed()) if m.value.log else z.compressed(), m.least[frame]
        )
        low, high = (10**ends.low, 10**ends.high) if m.value.log else (ends.low, ends.high)
        shown = axes.imshow(
            z,
            cmap=palette.SEQUENTIAL
            if m.value.centre is None
            else LinearSegmentedColormap.from_list("diverging", palette.DIVERGING),
            norm=LogNorm(low, high) if m.value.log else Normalize(low, high),
            interpolation="nearest",
        )
        bar = sheet.colorbar(
            shown, ax=axes, shrink=0.9, pad=0.02, aspect=28, extend="max" if ends.above else "neither"
        )
        bar.outline.set_visible(False)
        prefixed = m.value.si if len(scale.steps(m.value.si)) > 1 else ""
        bar.set_label(
            _plain(m.value.label if prefixed or not m.value.unit else f"{m.value.label}, {m.value.unit}")
        )
        if m.value.log:
            marks = scale.ticks(low / m.value.factor, high / m.value.factor, m.value.si, True, 6)
        else:
            here = scale.choose([low, high], m.value.si).factor / m.value.factor
            marks = [
                (v / here / m.value.factor, scale.quantity(v / here / m.value.factor, prefixed, 3))
                for v, _ in scale.ticks(low * here, high * here, most=6)
            ]
        bar.set_ticks([v * m.value.factor for v, _ in marks], labels=[_plain(t) for _, t in marks])
        bar.ax.minorticks_off()
        if rows <= 8 and cols <= 8:
            for (r, c), v in np.ndenumerate(z.filled(np.nan)):
                if v == v:
                    ink = palette.ink_on(to_hex(tuple(shown.to_rgba(v))))
                    text = scale.quantity(float(v) / m.value.factor, prefixed, 3)
                    axes.text(c, r, _plain(text), ha="center", va="center", size=7, color=ink)
    axes.set_facecolor("#f1efeb")
    axes.set_xlabel(_plain(m.cols.title))
    axes.set_ylabel(_plain(m.rows.title))
    axes.set_xticks(*_places(m.cols.each))
    axes.set_yticks(*_places(m.rows.each))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _spectrogram(figure: Figure, frame: int, sheet: Sheet, axes: Axes) -> None:
    from matplotlib.colors import LogNorm, Normalize

    f = prepare.spectrogram(figure)
    z = np.ma.masked_invalid(f.frames[frame].T)
    values = z.compressed()
    ends = prepare.colour_ends(np.log10(values) if f.power.log else values, 0.05 if f.power.log else 0.0)
    low, high = (10**ends.low, 10**ends.high) if f.power.log else (ends.low, ends.high)
    shown = axes.pcolormesh(
        f.xs,
        f.ys,
        z,
        cmap=palette.POWER,
        norm=LogNorm(low, high) if f.power.log else Normalize(low, high),
        shading="nearest",
        rasterized=True,  # a mesh of rectangles makes PDFs of tens of megabytes
    )
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get(
        (ends.below, ends.above), "neither"
    )
    bar = sheet.colorbar(shown, ax=axes, pad=0.02, aspect=28, extend=extend)
    bar.outline.set_visible(False)
    bar.set_label(_plain(f.power.title))
    axes.set_xlabel(_plain(f.x.title))
    axes.set_ylabel(_plain(f.y.title))


def _stroke(kind: Kind, curve: prepare.Curve) -> dict[str, Any]:
    dashed = kind is Kind.CDF or curve.style == "dashed"
    return {"linestyle": "--" if dashed else "-", "linewidth": 3.2 if curve.tone else 1.3}


def _chart(figure: Figure, frame: int, sheet: Sheet, axes: Axes) -> None:
    c = prepare.chart(figure)
    curves = c.frames[frame]
    for curve in curves:
        colour = palette.LIGHT[curve.colour % len(palette.LIGHT)][curve.tone]
        label = _plain(curve.name) if curve.name and curve.tone == 0 and not curve.key else None
        if curve.style == "middle":
            axes.plot(curve.x, curve.y, color="#1d2328", linewidth=0.9, label=label)
        elif curve.style == "samples":
            axes.plot(
                curve.x, curve.y, color=colour, linewidth=0.6, label=label, rasterized=curve.x.size > 2000
            )
        elif curve.style == "steps":
            axes.step(curve.x, curve.y, where="post", color=colour, label=label)
        elif curve.style in ("line", "dashed"):
            axes.plot(curve.x, curve.y, color=colour, label=label, **_stroke(figure.kind, curve))
        else:
            marker = "oDs^Px"[curve.colour % 6]
            axes.plot(
                curve.x,
                curve.y,
                marker,
                color=colour,
                markersize=4 if curve.x.size <= 200 else 2,
                label=label,
            )
            if curve.low is not None and curve.high is not None:
                ends = np.nan_to_num(np.stack([curve.y - curve.low, curve.high - curve.y])).clip(min=0)
                axes.errorbar(curve.x, curve.y, ends, fmt="none", ecolor=colour, elinewidth=0.8, capsize=2)
    for key, curve in prepare.keys(curves).items():
        shade = "#a9aeb3" if curve.tone else "#1d2328" if curve.style == "middle" else "#545e68"
        if curve.style != "middle" and prepare.own_colour(curves, key):
            shade = palette.LIGHT[curve.colour % len(palette.LIGHT)][curve.tone]
        axes.plot([], [], color=shade, label=_plain(key), **_stroke(figure.kind, curve))
    for k, (low, high) in enumerate(c.bands):
        label = _plain(c.band_name) if c.band_name and not k else None
        axes.axvspan(low, high, color="#e9eaea", linewidth=0, zorder=0, label=label)
    for at, name in c.marks:
        axes.axvline(at, color="#6a737c", linewidth=0.8, linestyle=":")
        if name:
            axes.annotate(
                _plain(name), (at, 0.98), xycoords=("data", "axes fraction"),
                xytext=(-2, 0), textcoords="offset points",
                rotation=90, ha="right", va="top", size=7, color="#545e68",
            )  # fmt: skip
    for at, name in c.levels:
        axes.axhline(at, color="#6a737c", linewidth=0.8, linestyle=":")
        if name:
            axes.annotate(
                _plain(name), (0.99, at), xycoords=("axes fraction", "data"),
                xytext=(0, 2), textcoords="offset points",
                ha="right", va="bottom", size=7, color="#545e68",
            )  # fmt: skip
    xs = np.concatenate([k.x for k in curves] or [np.empty(0)])
    ys = np.concatenate([v for k in curves for v in (k.y, k.low, k.high) if v is not None] or [np.empty(0)])
    _ticks(axes, "x", c.x, xs)
    _ticks(axes, "y", c.y, ys)
    if figure.kind is Kind.CDF:
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter("{x:.0%}")
        if (ends := prepare.focus(figure.kind, c, curves)) and ends[0] < ends[1]:
            axes.set_xlim(*ends)
            _log_ticks(axes, "x", c.x, *ends)
            text = f"largest {1 - prepare.BULK:.0%} not drawn"
            axes.annotate(text, (0.99, 0.03), xycoords="axes fraction", ha="right", size=7, color="#545e68")
    axes.grid(axis="y" if figure.kind is Kind.SERIES else "both")
    several = len({k.series for k in curves}) > 1 and any(k.name for k in curves)
    if several or (c.bands and c.band_name):
        _legend(axes)


def _dendrogram(figure: Figure, frame: int, sheet: Sheet, axes: Axes) -> None:
    tree = prepare.dendrogram(figure)
    names, branches = tree.frames[frame]
    sheet.set_size_inches(WIDTH_IN, float(np.clip(0.7 + 0.14 * len(names), 1.4, 9)))
    for along, height, of in branches:
        axes.plot(
            height, along, color="#6a737c" if of == 0 else palette.LIGHT[(of - 1) % len(palette.LIGHT)][0]
        )
    if tree.threshold is not None:
        axes.axvline(tree.threshold, color="#6a737c", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(names)), [_plain(n) for n in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel(_plain(tree.height.title))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")


def _bars(figure: Figure, frame: int, sheet: Sheet, axes: Axes) -> None:
    b = prepare.bars(figure)
    curves = b.frames[frame]
    flat = len(b.names) > 8 or max((len(n) for n in b.names), default=0) > 12
    width = 0.72 / len(curves)
    for k, curve in enumerate(curves):
        colour = palette.LIGHT[curve.series % len(palette.LIGHT)][0]
        place = curve.x + (k - (len(curves) - 1) / 2) * width
        label = _plain(curve.name) if curve.name else None
        ends = None
        if curve.low is not None and curve.high is not None:
            ends = np.nan_to_num(np.stack([curve.y - curve.low, curve.high - curve.y])).clip(min=0)
        if curve.style == "bars":
            (axes.barh if flat else axes.bar)(place, curve.y, width * 0.92, color=colour, label=label)
        else:
            marker = "oDs^Px"[k % 6]
            axes.plot(*((curve.y, place) if flat else (place, curve.y)), marker, color=colour, label=label)
        if ends is not None:
            x, y = (curve.y, place) if flat else (place, curve.y)
            axes.errorbar(
                x,
                y,
                **{"xerr" if flat else "yerr": ends},
                fmt="none",
                ecolor="#1d2328",
                elinewidth=0.8,
                capsize=2,
            )
    names = [_plain(n) for n in b.names]
    ys = np.concatenate([v for c in curves for v in (c.y, c.low, c.high) if v is not None])
    _ticks(axes, "x" if flat else "y", b.y, ys)
    if flat:
        sheet.set_size_inches(
            WIDTH_IN, float(np.clip(0.8 + 0.22 * len(names) * max(1, len(curves) * 0.6), 1.4, 9))
        )
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_ylabel(_plain(b.x.title))
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
    else:
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel(_plain(b.x.title))
        axes.grid(axis="y")
        axes.tick_params(axis="x", length=0)
    if len(curves) > 1:
        _legend(axes)


def _fill(hue: int) -> str:
    """The colour of an area; grey without a hue."""
    if hue < 0:
        return "#f1efeb"
    k, tone = palette.area(hue)
    return palette.LIGHT[k][tone]


def _icicle(figure: Figure, frame: int, sheet: Sheet, axes: Axes) -> None:
    from matplotlib.patches import Patch, Rectangle

    tree = prepare.icicle(figure)
    values, levels = tree.frames[frame], tree.levels
    depth = min(LEVELS, tree.depth)
    sheet.set_size_inches(WIDTH_IN, 0.6 + 0.28 * depth)
    whole = float(values[0])
    ends = [0.0] * len(values)  # the begin of the next child of each node
    for node in np.lexsort((-values, np.array(levels))).tolist():
        parent, level = tree.parents[node], levels[node]
        left = ends[parent] if parent >= 0 else 0.0
        ends[node] = left
        if parent >= 0:
            ends[parent] += float(values[node])
        if level >= LEVELS or not whole > 0:
            continue
        colour = _fill(tree.hues[node])
        axes.add_patch(
            Rectangle(
                (left, level), float(values[node]), 1, facecolor=colour, edgecolor="white", linewidth=0.6
            )
        )
        room = int(values[node] / whole * WIDTH_IN * 72 / 4.2)  # letters of 7 points that fit
        name = tree.labels[node]
        if room >= 4:
            text = name if len(name) <= room else name[: room - 1] + "…"
            axes.text(
                left + float(values[node]) / 2, level + 0.5, _plain(text),
                ha="center", va="center", size=7, color=palette.ink_on(colour), clip_on=True,
            )  # fmt: skip
    axes.set_xlim(0, whole if whole > 0 else 1)
    axes.set_ylim(depth, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(_plain(tree.value.title))
    shown = sorted(
        {hue for hue, level in zip(tree.hues, levels) if level < LEVELS and 0 <= hue < len(tree.hue_names)}
    )
    if shown:
        handles = [Patch(color=_fill(hue), label=_plain(tree.hue_names[hue])) for hue in shown]
        _legend(axes, handles=handles)


def _stack(figure: Figure, frame: int, sheet: Sheet, axes: Axes) -> None:
    s = prepare.stack(figure)
    values = s.frames[frame]
    panels = [axes]
    if s.apart and len(s.parts) > 1:
        sheet.set_size_inches(WIDTH_IN, min(9.0, 0.5 + 0.85 * len(s.parts)))
        axes.remove()
        panels = list(sheet.subplots(len(s.parts), 1, sharex=True, sharey=True))
    foot = np.zeros(values.shape[1])
    for k, (part, hue) in enumerate(zip(s.parts, s.hues)):
        on = panels[k] if s.apart else axes
        look: dict[str, Any] = {"color": _fill(hue), "label": _plain(part)}
        if s.edges is not None:
            # A copy, because the base of the next part is another one
            on.stairs(foot + values[k], s.edges, baseline=foot.copy(), fill=True, **look)
        else:
            width = 0.92 if s.apart else 0.72 if len(s.names) <= 24 else 1.0
            on.bar(np.arange(len(s.names)), values[k], width, bottom=foot, **look)
        if not s.apart:
            foot = foot + values[k]
    for k, on in enumerate(panels):
        on.set_axisbelow(True)
        on.grid(axis="y")
        on.set_ylim(bottom=0)
        if s.apart:
            on.set_title(_plain(s.headings[frame][k]), loc="left", size=7, color="#1d2328", pad=2)
    last = panels[-1]
    last.set_xlabel(_plain(s.x.title))
    panels[len(panels) // 2].set_ylabel(_plain(s.y.title))
    if s.edges is None:
        last.set_xticks(*_places(s.names))
        last.tick_params(axis="x", length=0)
    else:
        last.set_xlim(float(s.edges[0]), float(s.edges[-1]))
    if not s.apart and len(s.parts) > 1:
        _legend(axes, reverse=True)
