"""Parse the tracer's block files: calls, names of files, threads. The format is in native/io/record.hpp."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sonde.core.printable import name_text

RECORD = np.dtype(
    [
        ("begin", "<u8"), ("end", "<u8"), ("size", "<u8"), ("offset", "<u8"), ("file", "<u4"), ("function", "<u2"),
        ("depth", "|u1"), ("flags", "|u1"),
    ]
)  # fmt: skip
UNKNOWN = np.uint64(2**64 - 1)
NOTE, CLOCK = 0xFFFF, 0xFFFE  # function numbers with a special meaning
CALL_NUMBERS = CLOCK  # smaller numbers are calls
OWN = 0xFFFD  # the tracer's own work
CLOSED = 0xFFFC  # a descriptor that the program closed by syscall(2)

FAILED, THROWN, ENTRY_ONLY, UNFINISHED, ASKED = 1, 2, 4, 16, 32  # flags of a record
FLAGS = {
    FAILED: "failed",
    THROWN: "left by an exception or cancellation",
    ENTRY_ONLY: "only its beginning is known",
    UNFINISHED: "under way when its process ended",
    ASKED: "its size is what it was asked for",
}


def folded(handle: np.ndarray) -> np.ndarray:
    """Handles in 32 bits, as in records: `folded` of native/io/record.hpp."""
    low, high = handle.astype("<u4"), (handle >> np.uint64(32)).astype("<u4")
    return low ^ (high * np.uint32(0x9E3779B1))


PIECE = 1 << 16  # records that are processed together
# Records between a note and its call: the tracer's own work when a block was full, and calls of a signal handler
NEAR = 64


@dataclass(frozen=True)
class Note:
    """A file that was opened. call : position of the call among a piece's; handle : folded, as in records. whole : the
    kernel's name of it, if the name begins in some folder; "" if that is not known."""

    call: int
    handle: int
    name: str
    whole: str = ""


@dataclass(frozen=True)
class Clock:
    """One moment by both clocks. thread : the number of the thread that continues from the call at `call`; 0 if none
    begins."""

    call: int
    thread: int
    ticks: int
    ns: int


@dataclass(frozen=True)
class Piece:
    """A stretch of a block file. calls : RECORD, in the order in which they ended."""

    calls: np.ndarray
    notes: list[Note]
    clocks: list[Clock]


def pieces(blocks: Iterable[np.ndarray]) -> Iterator[Piece]:
    """The records of a block file, separated into calls, notes and clocks. blocks: from BlockFile; no note crosses a
    block's end.

    A note and its call are always in one piece.
    """
    waiting: list[np.ndarray] = []
    count = 0
    for block in blocks:
        waiting.append(block)
        count += len(block)
        if count >= PIECE:
            piece, rest = _piece(np.concatenate(waiting))
            waiting, count = ([rest] if len(rest) else []), len(rest)
            yield piece
    if waiting:
        records = np.concatenate(waiting)
        piece, rest = _piece(records)
        if len(rest):  # names of files whose calls are lost
            piece, _ = _piece(records, cut=False)
        yield piece


def _piece(records: np.ndarray, cut: bool = True) -> tuple[Piece, np.ndarray]:
    """cut: a note whose call is missing goes to the next piece, which has the call, with all records after the note."""
    numbers = records["function"]
    special = np.flatnonzero(numbers >= CALL_NUMBERS)
    is_call = numbers < CALL_NUMBERS
    found: list[tuple[int, int, str, str]] = []  # where a note is, how many calls are before it, its names
    clocks: list[tuple[int, Clock]] = []
    text_ends, calls, counted, rest = 0, 0, 0, len(records)
    for at in special.tolist():
        if at < text_ends:
            continue  # a part of a name that looks like a number
        calls += int(np.count_nonzero(is_call[counted:at]))
        counted = at + 1
        is_call[at] = False
        record = records[at]
        if numbers[at] == CLOCK:
            clock = Clock(calls, int(record["size"]), int(record["begin"]), int(record["end"]))
            clocks.append((at, clock))
            continue
        length = min(int(record["size"]), (len(records) - at - 1) * RECORD.itemsize)
        text_ends = counted = at + 1 + -(-length // RECORD.itemsize)
        is_call[at + 1 : text_ends] = False
        text, _, kernels = records[at + 1 : text_ends].tobytes()[:length].partition(b"\0")
        found.append((at, calls, name_text(text), name_text(kernels)))
    ended = records[is_call]
    notes: list[Note] = []
    for at, first, name, whole in found:
        near = np.flatnonzero(ended["begin"][first : first + NEAR] == records["begin"][at])
        if len(near):
            notes.append(Note(first + int(near[0]), int(records["file"][at]), name, whole))
        elif cut and len(ended) - first < NEAR:
            rest = at
            break
    return (
        Piece(
            ended[: int(np.count_nonzero(is_call[:rest]))],
            notes,
            [clock for at, clock in clocks if at < rest],
        ),
        records[rest:],
    )
