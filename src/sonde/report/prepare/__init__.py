"""From a Figure to the input of both renderers: checked, in readable units, thinned if there are too many values.
Pure.

Every kind becomes one of seven shapes: Matrix (MATRIX, STATUS), Field (SPECTROGRAM), Chart (SERIES, CDF, SCATTER), Tree
(DENDROGRAM), Bars (BAR), Icicle (ICICLE), Stack (STACK). Each contains `frames`: one drawing per combination of control
positions, the last control running fastest.
"""

from sonde.report.prepare.bar_charts import Bars, Stack, bars, stack
from sonde.report.prepare.charts import Chart, chart, focus, keys, own_colour
from sonde.report.prepare.colours import Ends, colour_ends, matrix_ends
from sonde.report.prepare.curves import Curve
from sonde.report.prepare.frames import Control, at, controls, start_frame
from sonde.report.prepare.hierarchies import Icicle, Tree, dendrogram, icicle
from sonde.report.prepare.limits import BULK, CLIP
from sonde.report.prepare.matrices import Matrix, matrix
from sonde.report.prepare.number_tables import numbers
from sonde.report.prepare.quantities import Extra, Quantity, capital
from sonde.report.prepare.requirements import check
from sonde.report.prepare.spectrograms import Field, spectrogram

__all__ = [
    "BULK", "CLIP", "Bars", "Chart", "Control", "Curve", "Ends", "Extra", "Field", "Icicle", "Matrix", "Quantity",
    "Stack", "Tree", "at", "bars", "capital", "chart", "check", "colour_ends", "controls", "dendrogram", "focus",
    "icicle", "keys", "matrix", "matrix_ends", "numbers", "own_colour", "spectrogram", "stack", "start_frame",
]  # fmt: skip
