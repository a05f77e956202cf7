"""The report as one HTML file: every figure a plotly figure, drawn from data embedded in the page.

The page contains plotly.js once, forbids itself every network request, and can be read without scripts: verdict,
findings and tables are plain HTML.
"""

from sonde.report.render_html.document import render
from sonde.report.render_html.drawing import draw
from sonde.report.render_html.layout import Drawn

__all__ = ["Drawn", "draw", "render"]
