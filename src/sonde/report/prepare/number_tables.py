"""Small figures as tables of numbers."""

from __future__ import annotations

from sonde.core.figure import Figure, Kind
from sonde.core.outcome import Table
from sonde.report import scale
from sonde.report.prepare.bar_charts import Bars, Stack, bars, stack
from sonde.report.prepare.charts import Chart, chart
from sonde.report.prepare.curves import Curve
from sonde.report.prepare.frames import start_frame
from sonde.report.prepare.hierarchies import Icicle, icicle
from sonde.report.prepare.matrices import Matrix, matrix
from sonde.report.prepare.quantities import capital


def numbers(figure: Figure, frame: int | None = None) -> Table | None:
    """The content of a small figure, as a table for readers without the drawing; None if it is not small.

    frame: index into frames; None: the frame at the controls' start.
    """
    frame = start_frame(figure) if frame is None else frame
    match figure.kind:
        case Kind.MATRIX | Kind.STATUS:
            return _cells(matrix(figure), frame)
        case Kind.BAR:
            return _bars(bars(figure), frame)
        case Kind.STACK:
            return _stacked(stack(figure), frame)
        case Kind.ICICLE:
            return _nodes(icicle(figure), frame)
        case Kind.SCATTER:
            return _points(chart(figure), frame)
    return None


def _cells(m: Matrix, frame: int) -> Table | None:
    if len(m.rows.each) > 16 or len(m.cols.each) > 16 or m.block > 1:
        return None
    unit = f", {m.value.unit}" if m.value.unit else ""

    def cell(v: float) -> str:
        return (m.words[int(v)] if v == v else "–") if m.words else scale.number(float(v))

    return Table(
        f"{m.value.label}{unit}",
        [f"{m.rows.title} \\ {m.cols.title}", *m.cols.each],
        [[name, *(cell(v) for v in line)] for name, line in zip(m.rows.each, m.frames[frame])],
        () if m.words else tuple(range(1, len(m.cols.each) + 1)),
    )


def _bars(b: Bars, frame: int) -> Table | None:
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


def _stacked(s: Stack, frame: int) -> Table | None:
    """Bars only: the edges of areas have no names."""
    if s.edges is not None or len(s.names) * len(s.parts) > 200:
        return None
    unit = f", {s.y.unit}" if s.y.unit else ""
    return Table(
        s.y.title,
        [s.x.label, *(f"{part}{unit}" for part in s.parts)],
        [[name, *map(scale.number, s.frames[frame][:, k].tolist())] for k, name in enumerate(s.names)],
        tuple(range(1, len(s.parts) + 1)),
    )


def _points(s: Chart, frame: int) -> Table | None:
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


def _nodes(tree: Icicle, frame: int) -> Table | None:
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
                *(scale.rounded(extra.values[frame][node], extra.unit) for extra in tree.extras),
            ]
        )
    head = ["", "", tree.value.label, *(capital(extra.label) for extra in tree.extras)]
    return Table(tree.value.label, head, rows, tuple(range(2, len(head))))
