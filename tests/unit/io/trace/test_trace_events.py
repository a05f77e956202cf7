from __future__ import annotations

import numpy as np
import pytest
from traces import OPEN, PREAD, call, note

from sonde.io.trace import events


def names(blocks) -> list[tuple[str, int]]:
    """(name, when its call began) of each note."""
    return [(one.name, int(p.calls["begin"][one.call])) for p in events.pieces(blocks) for one in p.notes]


def calls(blocks) -> list[int]:
    return [begin for piece in events.pieces(blocks) for begin in piece.calls["begin"].tolist()]


def test_a_name_is_of_the_call_that_began_with_it():
    block = np.concatenate(
        [note(10, 3, "a"), call(OPEN, 10, 12, file=3), note(20, 4, "b"), call(OPEN, 20, 22, file=4)]
    )
    assert names([block]) == [("a", 10), ("b", 20)]


@pytest.mark.parametrize("piece", [1, 2, 3, 4, 1 << 16])
def test_what_comes_between_a_name_and_its_call_has_no_part_in_it(monkeypatch, piece):
    """The tracer's own work where a block was full, and what a signal's handler did."""
    monkeypatch.setattr(events, "PIECE", piece)
    first = np.concatenate([call(PREAD, 1, 2), note(10, 3, "a" * 100)])
    blocks = [
        first,
        call(PREAD, 13, 14),
        call(PREAD, 15, 16),
        call(OPEN, 10, 12, file=3),
        call(PREAD, 20, 21),
    ]
    assert names(blocks) == [("a" * 100, 10)]
    assert calls(blocks) == [1, 13, 15, 10, 20]


@pytest.mark.parametrize("piece", [1, 8, 1 << 16])
def test_a_name_whose_call_was_lost_is_nobody_s(monkeypatch, piece):
    monkeypatch.setattr(events, "PIECE", piece)
    others = [call(PREAD, 100 + k, 101 + k) for k in range(2 * events.NEAR)]
    blocks = [note(10, 3, "lost"), *others, note(900, 4, "b"), call(OPEN, 900, 901, file=4)]
    assert names(blocks) == [("b", 900)]
    assert calls(blocks) == [*range(100, 100 + 2 * events.NEAR), 900]


def test_a_name_at_the_end_of_all_is_nobody_s():
    assert names([call(PREAD, 1, 2), note(10, 3, "lost")]) == []
