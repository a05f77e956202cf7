"""Figures as specifications: what to show, never how to draw it. Only `sonde.report.render_*` draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr


class Kind(Enum):
    """Every kind of figure there is. `data` is an xr.Dataset whose variables and dims the kind fixes.

    MATRIX       value(row, col): heat map. text(row, col): what the tip of a cell says instead of the value.
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
                 style(series): "points" | "line" | "dashed", a line where nothing was measured
    BAR          y(bar) or y(bar, series), optional low/high of the same dims: ends of error bars
    ICICLE       parent(node): position of the node that a node is within, -1 of the only one that is within none;
                 value(node): at least the sum of those within it; label(node); optional hue(node): its colour,
                 of which axes["hue"].labels names 0, 1, 2 …; negative: none
    STACK        y(part, x) >= 0, part 0 undermost, named by its coordinate; coordinate x(x): numbers, from which on
                 each y holds, make areas; texts make bars that they name. optional hue(part): colour, as elsewhere;
                 heading(part): parts are of no common sum, and have a panel each under these words;
                 text(part, x): what the tip says of a bar instead of its value

    Of every kind: each Slider's dim may stand behind those dims; `series` is named by its coordinate; NaN is
    not drawn. axes by role: row col value · x y · x frequency power · x p · leaf height · bar y · node value hue.

    MATRIX, STATUS  every further variable of the same dims is told of the cell a reader picks, and every
                    coordinate or variable over row or col alone (host, …) of its row and column; attributes
                    long_name and units name them, flag_meanings names integer codes.
    ICICLE          every further variable over node, of numbers, is told of the node a reader picks; long_name and
                    units name it, and where it is NaN nothing is told.
    SERIES, SCATTER, CDF  may hold mark(mark), x of vertical lines, and level(level), y of horizontal lines,
                    named by mark_name(mark), level_name(level), and band(band, end), from which x to which the
                    ground is shaded, all of them called band_name(). Also hue(series) integer: series of one hue
                    share a colour; tone(series): 1 is its pale, broad form, to lie beneath another line;
                    key(series): what the legend calls such lines, once for all that share it.
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
    """One axis: label, SI unit ("s", "B", "" for none), whether logarithmic, names of its positions.

    Of a MATRIX's value also: least, the share of the median to either side that its colours span at least,
    so that noise does not look like structure; centre, a value that is neither high nor low, such as 1 of a
    ratio, about which colours go two ways.
    """

    label: str
    unit: str = ""
    log: bool = False
    labels: tuple[str, ...] = ()
    least: float = 0.05
    centre: float | None = None


@dataclass(frozen=True)
class Slider:
    """A control that picks one position along `dim` of the data; `label` and `unit` say of what."""

    dim: str
    label: str
    unit: str = ""
    start: int = 0


@dataclass(frozen=True)
class Figure:
    """A figure: stable id, title, a caption that says what to read from it, kind, data and axes by role.

    A line break in the caption begins a new paragraph.
    """

    id: str
    title: str
    caption: str
    kind: Kind
    data: xr.Dataset
    axes: dict[str, Axis] = field(default_factory=dict)
    controls: tuple[Slider, ...] = ()
