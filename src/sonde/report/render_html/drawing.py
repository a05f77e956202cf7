"""A figure of any kind as a plotly figure."""

from __future__ import annotations

from sonde.core.figure import Figure, Kind
from sonde.report import prepare
from sonde.report.render_html.bar_charts import bars, stack
from sonde.report.render_html.charts import chart
from sonde.report.render_html.hierarchies import dendrogram, icicle
from sonde.report.render_html.layout import Drawn
from sonde.report.render_html.matrices import matrix
from sonde.report.render_html.spectrograms import spectrogram


def draw(figure: Figure) -> Drawn:
    """A figure as a plotly figure with its controls.

    Raises
    ------
    DataError  report.figure_data: the data does not fit its kind.
    """
    drawn = {
        Kind.MATRIX: matrix,
        Kind.STATUS: matrix,
        Kind.SPECTROGRAM: spectrogram,
        Kind.SERIES: chart,
        Kind.CDF: chart,
        Kind.SCATTER: chart,
        Kind.DENDROGRAM: dendrogram,
        Kind.BAR: bars,
        Kind.ICICLE: icicle,
        Kind.STACK: stack,
    }[figure.kind](figure)
    drawn.spec |= {
        "kind": figure.kind.value,
        "start": prepare.start_frame(figure),
        "controls": [
            {"label": c.label, "positions": list(c.positions), "start": c.start, "numeric": c.numeric}
            for c in prepare.controls(figure)
        ],
    }
    return drawn
