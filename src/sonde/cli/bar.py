"""The progress bar: one line on stderr, drawn from a probe's events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sonde.core.events import Event, is_whole
from sonde.core.printable import printable
from sonde.core.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console

PERIOD_S = 0.2  # between two drawings; there is no separate thread, because ranks may need this core


class Bar:
    """Draws the events `start` and `progress`; other events change nothing. Erased at the end."""

    def __init__(self, console: Console, title: str, budget_s: float | None = None) -> None:
        self.title, self.budget_s = title, budget_s
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._drawn_s = float("-inf")

    def __enter__(self) -> Bar:
        self._live.__enter__()
        self._draw(0.0, f"{self.title}  starting")
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.__exit__(None, None, None)

    def show(self, event: Event) -> None:
        if not is_whole(event):
            return
        if event["event"] == "start":
            self._draw(0.0, f"{self.title}  {event['ranks']} ranks, {event['mpi']}")
        elif event["event"] == "progress" and time.monotonic() - self._drawn_s >= PERIOD_S:
            self._draw(fraction(event, self.budget_s), caption(event, self.title, self.budget_s))

    def _draw(self, done: float, text: str) -> None:
        line = Table.grid(expand=True, padding=(0, 2, 0, 0))
        line.add_column(ratio=1)
        line.add_column(no_wrap=True)
        line.add_row(
            ProgressBar(1.0, done, complete_style="green", finished_style="green"), Text(printable(text))
        )
        self._live.update(line, refresh=True)
        self._drawn_s = time.monotonic()


def fraction(event: Event, budget_s: float | None) -> float:
    """The progress of a run, 0 to 1. It ends when all cells are decided or the budget is spent."""
    cells = _decided(event) / event["cells"] if event["cells"] else 0.0
    spent = event["elapsed_s"] / budget_s if budget_s else 0.0
    return float(min(1.0, max(cells, spent)))


def caption(event: Event, title: str, budget_s: float | None) -> str:
    """The text next to the bar: epoch, cells, samples, time; or the event's `note`."""
    if isinstance(note := event.get("note"), str):
        return f"{title}  {note}  {_clock(event['elapsed_s'])}"
    samples = f"{event['samples']:,}".replace(",", " ")
    spent = _clock(event["elapsed_s"]) + (f" of {_clock(budget_s)}" if budget_s else "")
    cells = f"{_decided(event)} of {event['cells']} cells"
    return "  ".join([title, f"epoch {event['epoch']}", cells, f"{samples} samples", spent])


def _decided(event: Event) -> int:
    """The number of finished cells. A probe whose steps measure several cells counts these separately from steps."""
    decided = event.get("decided")
    return decided if isinstance(decided, int) else int(event["done"])


def _clock(span_s: float) -> str:
    """Whole seconds: more digits would only flicker."""
    return f"{span_s:.0f} s" if span_s < 59.5 else format_duration(round(span_s))
