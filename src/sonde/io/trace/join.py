"""Find which work of a server was for which call of a client: by the request number of both sides, or, if they have
none, by what the calls have in common. Pure.

A server works on many requests at once, in its own threads, later than the request: nothing of that is nested in the
client's calls. A request on one side is a set of calls; it is there from the first of them to the last.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Calls:
    """Calls of one side, in any order; all arrays have the same length.

    begin, end : ns. function, process : as numbered in the dataset. size, offset : B, -1 unknown. kind : as numbered in
    the dataset. file : equal numbers for equal files, -1 if unknown.
    """

    begin: np.ndarray
    end: np.ndarray
    function: np.ndarray
    process: np.ndarray
    size: np.ndarray
    offset: np.ndarray
    kind: np.ndarray
    file: np.ndarray

    def __len__(self) -> int:
        return len(self.begin)


@dataclass(frozen=True)
class Requests:
    """A client's requests, each once.

    call : the client's first call for it; function, size : of that call. begin, end : ns, from that to the client's
    last call
    server_process : -1 if no call of a server was found. server_begin, server_end : the same for the server's calls
    strays : requests that a server worked on, but no traced client made
    of_call : for each call of the server its request; -1 for a stray
    """

    call: np.ndarray
    function: np.ndarray
    size: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    server_process: np.ndarray
    server_begin: np.ndarray
    server_end: np.ndarray
    strays: int
    of_call: np.ndarray


def by_number(client: Calls, numbers: np.ndarray, server: Calls, server_numbers: np.ndarray) -> Requests:
    """Join calls by the number of their request. numbers : of each call."""
    known, begin, end, first = _spans(client, numbers)
    theirs, server_begin, server_end, server_first = _spans(server, server_numbers)
    place = np.searchsorted(known, theirs)
    asked = np.zeros(len(theirs), bool)
    inside = place < len(known)
    asked[inside] = known[place[inside]] == theirs[inside]
    of_group = np.where(asked, place, -1)
    served = np.full(len(known), -1, np.int64)
    served[place[asked]] = np.flatnonzero(asked)
    return Requests(
        call=first,
        function=client.function[first],
        size=client.size[first],
        begin=begin,
        end=end,
        server_process=_at(server.process[server_first], served, -1),
        server_begin=_at(server_begin, served),
        server_end=_at(server_end, served),
        strays=int((~asked).sum()),
        of_call=of_group[np.searchsorted(theirs, server_numbers)],
    )


def by_likeness(client: Calls, server: Calls, error_ns: int = 0) -> Requests:
    """Join calls of one kind, size, offset and file one to one, in the order of time: a server's call with a client's
    call during which it begins. If there are several, the client's call that ends first.

    error_ns : maximum difference of the clocks of both sides
    """
    later: dict[tuple[int, ...], deque[int]] = defaultdict(deque)
    for k in np.argsort(client.begin, kind="stable").tolist():
        later[_likeness(client, k)].append(k)
    # (end, call), the earliest end first
    under_way: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    served = np.full(len(client), -1, np.int64)
    of_call = np.full(len(server), -1, np.int64)
    for s in np.argsort(server.begin, kind="stable").tolist():
        key, begin = _likeness(server, s), int(server.begin[s])
        coming, begun = later[key], under_way[key]
        while coming and int(client.begin[coming[0]]) <= begin + error_ns:
            k = coming.popleft()
            heapq.heappush(begun, (int(client.end[k]), k))
        while begun and begun[0][0] < begin - error_ns:
            heapq.heappop(begun)
        if begun:
            _, k = heapq.heappop(begun)
            served[k], of_call[s] = s, k
    return Requests(
        call=np.arange(len(client)),
        function=client.function,
        size=client.size,
        begin=client.begin,
        end=client.end,
        server_process=_at(server.process, served, -1),
        server_begin=_at(server.begin, served),
        server_end=_at(server.end, served),
        strays=int((of_call < 0).sum()),
        of_call=of_call,
    )


def _likeness(calls: Calls, k: int) -> tuple[int, ...]:
    return int(calls.kind[k]), int(calls.size[k]), int(calls.offset[k]), int(calls.file[k])


def _at(values: np.ndarray, places: np.ndarray, otherwise: int = 0) -> np.ndarray:
    """values[places], or -1 where places is -1."""
    found = np.full(len(places), otherwise, np.int64)
    found[places >= 0] = values[places[places >= 0]]
    return found


def _spans(calls: Calls, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For each number, in order: the number, begin of its first call, end of its last call, position of its first
    call."""
    order = np.argsort(numbers, kind="stable")
    known, at, count = np.unique(numbers[order], return_index=True, return_counts=True)
    if not len(known):
        return known, calls.begin, calls.end, order
    begin = np.minimum.reduceat(calls.begin[order], at)
    end = np.maximum.reduceat(calls.end[order], at)
    group = np.repeat(np.arange(len(known)), count)
    earliest = np.flatnonzero(calls.begin[order] == begin[group])[
        ::-1
    ]  # if there are several, the last assignment counts
    first = np.zeros(len(known), np.int64)
    first[group[earliest]] = order[earliest]
    return known, begin, end, first
