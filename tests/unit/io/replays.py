"""Runs to replay, made up: calls one after another, and calls that ranks make together."""

from __future__ import annotations

from collections.abc import Callable

import io_traces
from io_traces import KIB, LAYERS, US, Call
from sonde.io.predict.replay import Trace
from sonde.io.trace.analyse import analyse

STACK = {**{name: LAYERS[name] for name in ("hdf5", "mpiio", "romio")}, "ompio": "OMPIO", **LAYERS}
FILE = "/scratch/out"


def trace(*ranks: list[Call], name: str = "a.nc", numbers: list[int] | None = None) -> Trace:
    """A trace of one thread a rank. numbers: of the ranks, -1 for a process that is none."""
    data = io_traces.raw(list(enumerate(ranks)), numbers or list(range(len(ranks))), STACK)
    return Trace(name, data, analyse(data))


def line(size: int) -> int:
    """What a call costs, ns: 10 µs and 1 ns a byte."""
    return 10 * US + size


def calls(name: str, sizes: list[int], cost: Callable[[int], int] = line, begin: int = 0) -> list[Call]:
    """One after another, with 5 µs between them."""
    made, at = [], begin
    for size in sizes:
        made.append(Call(name, at, cost(size), size, FILE))
        at += cost(size) + 5 * US
    return made


def together(cost: int, late: list[list[int]]) -> list[list[Call]]:
    """Collective writes that follow each other: rank r comes `late[k][r]` after the k-th was begun by the first, and
    all leave it `cost` after the last came."""
    ranks: list[list[Call]] = [[] for _ in late[0]]
    at = 0
    for each in late:
        end = at + max(each) + cost
        for rank, begin in enumerate(each):
            ranks[rank].append(Call("MPI_File_write_at_all", at + begin, end - at - begin, KIB, FILE))
        at = end
    return ranks
