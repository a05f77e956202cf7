"""How ranks spend collective reads and writes of MPI-IO: waiting for each other, in the file system, or moving data.
Pure.

One collective call is a call on each rank: the k-th on a file on all ranks that opened it. Until the last rank has
arrived nobody can exchange data with it. From then on, a rank outside the file system waits while another rank of the
call is in it, as all ranks wait for the aggregators. The rest is data transfer, and the library's own work. The method
needs only times of calls, and clocks that agree.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from sonde.io.maps.layers import DIRECTIONS
from sonde.io.trace.events import ENTRY_ONLY, UNFINISHED
from sonde.io.trace.nesting import Nested
from sonde.io.trace.schema import UNSEEN

if TYPE_CHECKING:
    import xarray as xr

COLLECTIVE = re.compile(r"(_all|_ordered)(_c|_begin|_end)?(_c|_f)?_*$", re.IGNORECASE)
LAYER = "mpiio"
FILES = ("gfapi", "pvfs", "posix", "kernel")
ERRORS = 10  # a call must be this many times as long as the error of the clocks
_NONE = np.zeros(0, np.int64)


def directions(names: np.ndarray, of_layer: np.ndarray) -> np.ndarray:
    """For each function: 0 a collective read, 1 a collective write, -1 neither. of_layer: a mask of MPI-IO's
    functions."""
    return np.array(
        [
            next((d for d, word in enumerate(DIRECTIONS) if word in str(name).lower()), -1)
            if mine and COLLECTIVE.search(str(name))
            else -1
            for name, mine in zip(names, of_layer)
        ],
        np.int64,
    )


class CollectiveIo:
    """Collects the calls of all threads, and computes how their time was spent. Memory: 40 B a call, 24 B for a file
    call within."""

    def __init__(self, raw: xr.Dataset) -> None:
        layers = raw["layer_name"].values.astype(str)
        layer_of = raw["function_layer"].values.astype(np.int64)
        self.direction = directions(raw["function_name"].values, layers[layer_of] == LAYER)
        self.of_files = np.isin(layers[layer_of], FILES)
        self.rank = raw["process_rank"].values.astype(np.int64)
        self.processes = raw.sizes["process"]
        errors = raw["clock_error"].values
        self.error_ns = 1e9 * float(errors.max(initial=0.0))  # NaN if unknown
        self.calls: list[np.ndarray] = []  # process, file, direction, begin, end
        self.within: list[np.ndarray] = []  # number of the call, begin, end
        self.count = 0

    def take(
        self,
        process: int,
        calls: dict[str, np.ndarray],
        tree: Nested,
        function: np.ndarray,
        beside: np.ndarray,
    ) -> None:
        """Add a thread's calls in the order of `tree`. function: their numbers in /raw. beside: a mask of calls outside
        the I/O."""
        if self.rank[process] < 0 or not (self.direction[function] >= 0).any():
            return
        known = (calls["flags"] & (ENTRY_ONLY | UNFINISHED)) == 0
        own = (self.direction[function] >= 0) & known & ~beside
        # The outermost collective call around each call, -1 if there is none; and whether a file call is around it.
        root = np.full(len(function), -1, np.int64)
        files = (
            self.of_files[function] & known & ~beside & (calls["file_index"] != UNSEEN)
        )  # polling of sockets is left out
        inside = np.zeros(len(function), bool)
        for level in range(int(tree.level.max()) + 1):
            mine = np.flatnonzero(tree.level == level)
            parent = tree.parent[mine]
            above = parent >= 0
            root[mine[above]] = root[parent[above]]
            inside[mine[above]] = inside[parent[above]] | files[parent[above]]
            begun = mine[(root[mine] < 0) & own[mine]]
            root[begun] = begun
        mine = np.flatnonzero(root == np.arange(len(root)))
        if not len(mine):
            return
        begin, end = calls["begin"], calls["begin"] + calls["duration"]
        columns = (calls["file_index"][mine], self.direction[function[mine]], begin[mine], end[mine])
        self.calls.append(np.stack([np.full(len(mine), process), *columns]).astype(np.int64))
        at = np.flatnonzero(files & ~inside & (root >= 0))
        number = self.count + np.searchsorted(mine, root[at])
        self.within.append(np.stack([number, begin[at], end[at]]).astype(np.int64))
        self.count += len(mine)

    def tables(self) -> dict[str, np.ndarray]:
        """The tables for `sonde.io.trace.summary`."""
        found = {name: np.zeros((self.processes, len(DIRECTIONS))) for name in TIMES}
        last = np.zeros((self.processes, len(DIRECTIONS)), np.int64)
        process, file, direction, begin, end = np.concatenate(
            [np.zeros((5, 0), np.int64), *self.calls], axis=1
        )
        place = (process, direction)
        one = self._matched(process, file, direction, begin)
        # When the last rank had arrived, and the first left: if the first left earlier, no rank waited for another.
        groups = int(one.max(initial=-1)) + 1
        matched = one >= 0
        arrived, left = np.full(groups, np.iinfo(np.int64).min), np.full(groups, np.iinfo(np.int64).max)
        np.maximum.at(arrived, one[matched], begin[matched])
        np.minimum.at(left, one[matched], end[matched])
        longest = np.zeros(groups, np.int64)
        np.maximum.at(longest, one[matched], (end - begin)[matched])
        valid = (arrived <= left) & (longest >= ERRORS * self.error_ns)  # False if the error is unknown
        matched[matched] = valid[one[matched]]
        np.add.at(
            found["collective_untold"], tuple(part[~matched] for part in place), (end - begin)[~matched]
        )
        if matched.any():
            parts = self._parts(one, matched, begin, end, arrived)
            for name, values in parts.items():
                np.add.at(found[name], tuple(part[matched] for part in place), values[matched])
            of_last = matched & (begin == arrived[one])
            np.add.at(last, tuple(part[of_last] for part in place), 1)
        return {name: values * 1e-9 for name, values in found.items()} | {"collective_last": last}

    def _matched(
        self, process: np.ndarray, file: np.ndarray, direction: np.ndarray, begin: np.ndarray
    ) -> np.ndarray:
        """The number of the collective call of each rank's call; -1 if the ranks made different numbers of them."""
        one = np.full(len(process), -1, np.int64)
        groups = 0
        for name in np.unique(file).tolist():
            mine = np.flatnonzero(file == name)
            order = mine[np.lexsort((begin[mine], process[mine]))]
            ranks, counts = np.unique(process[order], return_counts=True)
            if len(ranks) < 2 or (counts != counts[0]).any():
                continue
            same = direction[order].reshape(len(ranks), counts[0])
            if (same != same[0]).any():
                continue
            one[order] = groups + np.tile(np.arange(counts[0]), len(ranks))
            groups += int(counts[0])
        return one

    def _parts(
        self, one: np.ndarray, matched: np.ndarray, begin: np.ndarray, end: np.ndarray, arrived: np.ndarray
    ) -> dict[str, np.ndarray]:
        """ns of each call; undefined for calls that are not in `matched`."""
        call, first, last = np.concatenate([np.zeros((3, 0), np.int64), *self.within], axis=1)
        valid = matched[call]
        call, first, last = call[valid], first[valid], last[valid]
        after = np.maximum(first, arrived[one[call]])  # time in the file system after the last rank's arrival

        def summed(values: np.ndarray) -> np.ndarray:
            return np.bincount(call, values, minlength=len(one)).astype(np.int64)

        files, files_after = summed(last - first), summed(np.maximum(last - after, 0))
        until = np.minimum(arrived[one], end)
        late = np.maximum(until - begin, 0) - (files - files_after)
        # All collective calls on one line of time, a stretch for each from its last rank's arrival to its end.
        groups = len(arrived)
        close = np.full(groups, np.iinfo(np.int64).min)
        np.maximum.at(close, one[matched], end[matched])
        length = np.where(close >= arrived, close - arrived, 0) + 1
        offset = np.cumsum(length) - length - arrived
        mine = last > after
        busy = _Union(offset[one[call[mine]]] + after[mine], offset[one[call[mine]]] + last[mine])
        anybody = busy.until(offset[one] + end) - busy.until(offset[one] + arrived[one])
        return {
            "collective_time": end - begin,
            "collective_files": files,
            "collective_late": np.maximum(late, 0),
            "collective_others": np.maximum(anybody - files_after, 0),
        }


TIMES = ("collective_time", "collective_untold", "collective_files", "collective_late", "collective_others")


class _Union:
    """The union of intervals."""

    def __init__(self, begin: np.ndarray, end: np.ndarray) -> None:
        order = np.argsort(begin, kind="stable")
        begin, ends = begin[order], np.maximum.accumulate(end[order])
        fresh = np.concatenate([[True], begin[1:] > ends[:-1]])[: len(begin)]
        self.begin = begin[fresh]
        self.end = (
            ends[np.concatenate([np.flatnonzero(fresh)[1:] - 1, [len(ends) - 1]])] if len(ends) else _NONE
        )
        self.before = np.cumsum(self.end - self.begin) - (self.end - self.begin)

    def until(self, moment: np.ndarray) -> np.ndarray:
        """The length of the union before each moment."""
        if not len(self.begin):
            return np.zeros(len(moment), np.int64)
        at = np.searchsorted(self.begin, moment, side="right") - 1
        inside = np.minimum(moment, self.end[at]) - self.begin[at]
        return np.where(at >= 0, self.before[at] + inside, 0)
