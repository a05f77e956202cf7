"""The arithmetic and texts of the progress bar; no event can make it fail."""

from __future__ import annotations

import io

from rich.console import Console

from sonde.cli.bar import Bar, caption, fraction

EVENT = {
    "event": "progress",
    "done": 5,
    "active": 61,
    "cells": 66,
    "epoch": 31,
    "samples": 12800,
    "elapsed_s": 8.0,
}


def test_a_run_is_as_far_as_its_cells_or_its_budget_whichever_is_further():
    assert fraction(EVENT, None) == 5 / 66
    assert fraction(EVENT, 16.0) == 0.5
    assert fraction(EVENT, 4.0) == 1.0
    assert fraction({**EVENT, "done": 66}, 16.0) == 1.0


def test_cells_decided_count_rather_than_steps_done():
    assert fraction({**EVENT, "decided": 33}, None) == 0.5
    assert "33 of 66 cells" in caption({**EVENT, "decided": 33}, "net run", None)


def test_a_run_without_cells_is_not_a_division_by_zero():
    assert fraction({**EVENT, "cells": 0, "done": 0}, None) == 0.0


def test_the_words_beside_the_bar():
    assert caption(EVENT, "net run", 60.0) == "net run  epoch 31  5 of 66 cells  12 800 samples  8 s of 1 min"
    assert caption(EVENT, "net run", None).endswith("12 800 samples  8 s")


def test_time_is_reported_in_whole_seconds():
    for elapsed_s, text in ((0.3, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (125.4, "2 min 5 s")):
        assert caption({**EVENT, "elapsed_s": elapsed_s}, "net run", None).endswith(f"  {text}")


def drawn(*events: dict[str, object], width: int = 80) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    bar = Bar(console, "net run", 60.0)
    with bar:
        for event in events:
            bar._drawn_s = float("-inf")  # time does not pass in a test
            bar.show(event)
    return out.getvalue()


def test_the_bar_shows_the_latest_progress_and_is_wiped_away():
    text = drawn(EVENT, {**EVENT, "epoch": 32})
    assert "epoch 31" in text
    assert "epoch 32" in text
    assert text.rstrip().endswith("\x1b[2K"), "the line is cleared when the bar is left"


def test_the_bar_is_not_drawn_more_often_than_its_period():
    out = io.StringIO()
    with Bar(Console(file=out, width=80, force_terminal=True), "net run") as bar:
        for epoch in range(1000, 2000):
            bar.show({**EVENT, "epoch": epoch})
    assert out.getvalue().count("epoch") < 100


def test_events_that_are_not_whole_are_left_out():
    text = drawn({"event": "progress"}, {"event": "start"}, {"event": "end"}, {"event": "news"}, {})
    assert "epoch" not in text


def test_a_narrow_terminal_still_has_one_line():
    text = drawn(EVENT, width=30)
    assert max(len(line) for line in text.replace("\r", "\n").split("\n")) <= 30 + len("\x1b[2K\x1b[1A") * 4
