"""Figures as specifications: what to show, never how to draw it. Only `sonde.report.render_*` draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr


class Kind(Enum):
    """Every kind of figure. `data` is an xr.Dataset whose variables and dims depend on the kind.

    MATRIX       value(row, col): heat map. text(row, col): the tooltip of a cell, instead of the value.
                 optional least(): Axis.least of this drawing; may differ along the sliders
    STATUS       value(row, col) integer codes; axes["value"].labels names code 0, 1, 2 …
    SERIES       y(series, x), coordinate x(x) or x(series, x); optional group(series, x) integer: points of
                 one group are joined, groups alternate in shade (epochs) and show their median; a negative
                 group is not drawn
    SPECTROGRAM  power(x, frequency)
    CDF          x(series, point), p(series, point); style(series): "steps" | "line"
    DENDROGRAM   merge(link, 4): left, right, height, count as scipy's linkage; leaf(leaf): leaf names;
                 optional threshold(): height below which branches are coloured by class; hue(leaf): which
                 colour, the same as of hue(series) elsewhere
    SCATTER      x(series, point), y(series, point), optional low/high(series, point) ends of error bars;
                 style(series): "points" | "line" | "dashed", a line for values that were not measured
    BAR          y(bar) or y(bar, series), optional low/high of the same dims: ends of error bars
    ICICLE       parent(node): position of the parent of a node; -1 for the only node without a parent;
                 value(node): at least the sum of its children; label(node); optional hue(node): its colour;
                 axes["hue"].labels names the colours 0, 1, 2 …; negative: no colour
    STACK        y(part, x) >= 0, part 0 at the bottom, named by its coordinate; coordinate x(x): numbers make areas,
                 and each y holds from its x on; texts make bars with these names. optional hue(part): colour;
                 heading(part): parts without a common sum have their own panels with these headings;
                 text(part, x): the tooltip of a bar, instead of its value

    Every kind: each Slider's dim may follow those dims; `series` is named by its coordinate; NaN is not drawn. axes by
    role: row col value · x y · x frequency power · x p · leaf height · bar y · node value hue.

    MATRIX, STATUS  the tooltip of a cell shows every further variable of the same dims, and every
                    coordinate or variable over row or col alone (host, …) for its row and column; attributes
                    long_name and units name them, flag_meanings names integer codes.
    ICICLE          the tooltip of a node shows every further numeric variable over node; long_name and
                    units name it, and NaN values are not shown.
    SERIES, SCATTER, CDF  may hold mark(mark), x of vertical lines, and level(level), y of horizontal lines,
                    named by mark_name(mark), level_name(level), and band(band, end), the ranges of x with a
                    shaded background, all named band_name(). Also hue(series) integer: series of one hue
                    share a colour; tone(series): 1 is its pale, broad form, drawn below another line;
                    key(series): the name of such lines in the legend, once for all that share it.
    """

    MATRIX = "matrix"
    STATUS = "status"
    SERIES = "series"
    SPECTROGRAM = "spectrogram"
    CDF = "cdf"
    DENDROGRAM = "dendrogram"
    SCATTER = "scatter"
    BAR = "bar"
    ICICLE = "icicle"
    STACK = "stack"


@dataclass(frozen=True)
class Axis:
    """One axis: label, SI unit ("s", "B", "" for no unit), whether logarithmic, names of its positions.

    For a MATRIX's value also: least, the share of the median to either side that its colours span at least, so that
    noise does not look like structure; centre, a value that is neither high nor low, such as 1 for a ratio, where the
    two colour scales meet.
    """

    label: str
    unit: str = ""
    log: bool = False
    labels: tuple[str, ...] = ()
    least: float = 0.05
    centre: float | None = None


@dataclass(frozen=True)
class Slider:
    """A control that picks one position along `dim` of the data; `label` and `unit` describe the dim."""

    dim: str
    label: str
    unit: str = ""
    start: int = 0


@dataclass(frozen=True)
class Figure:
    """A figure: stable id, title, a caption that explains how to read it, kind, data and axes by role.

    A line break in the caption begins a new paragraph.
    """

    id: str
    title: str
    caption: str
    kind: Kind
    data: xr.Dataset
    axes: dict[str, Axis] = field(default_factory=dict)
    controls: tuple[Slider, ...] = ()
