"""Reads from traces what a prediction needs: calls to replay or to learn costs from, and which calls of several ranks
belong together. Pure.

All ranks make a collective call. Its cost for one rank has two parts: waiting until the last rank has arrived, which
follows from the imbalance between the ranks, and the rest, which comes from the stack below. Only the second part can
be learnt on another stack. The two are separated here exactly: the moment when the last rank arrived cuts each call,
and all calls within it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sonde.io.maps.layers import KINDS
from sonde.io.trace import ignored_paths
from sonde.io.trace.analyse import Reader, Stretch, outermost
from sonde.io.trace.collectives import SLACK_NS, SYNCHRONISING, plain
from sonde.io.trace.events import ENTRY_ONLY, UNFINISHED

if TYPE_CHECKING:
    import xarray as xr

TRACER, MESSAGES, FILES = "tracer", "mpi", "mpiio"
WAITING = "waiting"  # a column after those of the layers
READ, WRITE, SYNC = KINDS.index("read"), KINDS.index("write"), KINDS.index("sync")
# The calls of MPI-IO that all ranks which opened a file make together: MPI 4.1, chapter 14. Calls that only begin and
# are completed with MPI_Wait are left out: no rank waits in them.
_COLLECTIVE = re.compile(
    r"mpi_file_(open|close|sync|set_view|set_size|set_info|set_atomicity|preallocate|seek_shared"
    r"|(read|write)(_at)?_(all|ordered)(_begin|_end)?)"
)
# A function counts as one that waits for all ranks if at least this share of its calls held all ranks at one moment.
MOSTLY = 0.95


class Key(NamedTuple):
    """A function, independent of its library and spelling. kind : number in KINDS."""

    layer: str
    name: str
    kind: int


def same_name(layer: str, symbol: str) -> str:
    """The common name of a function in every language and width: "MPI_File_write_c" and "pwrite64" get the names of
    their plain forms."""
    if layer in (FILES, MESSAGES):
        name = plain(symbol).removesuffix("_c")
        return name[1:].removesuffix("_f") if name.startswith("ompi_") else name
    return symbol.removesuffix("64")


def keys_of(raw: xr.Dataset) -> list[Key]:
    """The key of each of a trace's functions."""
    layers = raw["layer_name"].values.astype(str)[raw["function_layer"].values]
    return [
        Key(str(layer), same_name(str(layer), str(symbol)), int(kind))
        for layer, symbol, kind in zip(
            layers, raw["function_name"].values.astype(str), raw["function_kind"].values
        )
    ]


def replayed_processes(raw: xr.Dataset) -> np.ndarray:
    """A mask of the program's processes: its ranks, or all processes if there are no ranks."""
    ranks = raw["process_rank"].values >= 0
    return ranks if ranks.any() else np.ones(len(ranks), bool)


@dataclass(frozen=True)
class Groups:
    """Calls that belong together, one of each rank.

    event : sorted; the other arrays have the same order. group : number of the group. arrive, leave : ns, when the last
    rank arrived, and when the last left
    members : number of calls in each group
    held : by name of a collective function: in how many groups all ranks were in the call at once, and in how many not
    unmatched : functions that several ranks call, but unequally often, or on files whose opening was not traced
    """

    event: np.ndarray
    group: np.ndarray
    arrive: np.ndarray
    leave: np.ndarray
    members: np.ndarray
    held: dict[str, tuple[int, int]]
    unmatched: set[str]

    def place(self, event: np.ndarray) -> np.ndarray:
        """The position of each event in `event`; -1 if it is not there."""
        if not len(self.event):
            return np.full(len(event), -1)
        at = np.minimum(np.searchsorted(self.event, event), len(self.event) - 1)
        return np.where(self.event[at] == event, at, -1)


def synchronising(groups: Sequence[Groups]) -> dict[str, bool]:
    """By name of a collective function, whether no rank leaves it before all ranks have arrived, in one stack's
    traces."""
    sums: dict[str, list[int]] = {}
    for one in groups:
        for name, counts in one.held.items():
            sums[name] = [a + b for a, b in zip(sums.get(name, [0, 0]), counts)]
    return {name: yes >= MOSTLY * (yes + no) for name, (yes, no) in sums.items()}


def groups_of(raw: xr.Dataset) -> Groups:
    """Group the calls: the k-th calls of a function on a file by all ranks that call it, if all call it equally often.

    For functions that only synchronise ranks (MPI_Barrier and the like) a trace does not contain the communicator:
    there all ranks must also have been in the call at one moment, or the calls are no group.
    """
    keys = keys_of(raw)
    names = [
        key.name
        if (key.layer == FILES and _COLLECTIVE.fullmatch(key.name))
        or (key.layer == MESSAGES and key.name in SYNCHRONISING)
        else ""
        for key in keys
    ]
    chosen = np.array([bool(name) for name in names], bool)
    every = sorted(set(filter(None, names)))
    number = np.array([every.index(name) if name else -1 for name in names], np.int64)
    columns = _columns(raw, chosen) if chosen.any() else {}
    error = np.nan_to_num(raw["clock_error"].values, nan=0.0)
    slack = SLACK_NS + 1e9 * float(error.max(initial=0.0))
    found: list[tuple[np.ndarray, ...]] = []  # event, group, arrive, leave
    members: list[int] = []
    held: dict[str, tuple[int, int]] = {}
    unmatched: set[str] = set()
    if columns:
        first = raw["thread_first"].values
        starts = np.argsort(first, kind="stable")
        # Threads without events begin where the next one does, and come before it.
        thread = starts[np.searchsorted(first[starts], columns["event"], side="right") - 1]
        rank = raw["process_rank"].values[raw["thread_process"].values[thread]].astype(np.int64)
        name = number[columns["function"]]
        of_file = np.array([each.startswith("mpi_file_") for each in every])[name]
        # A file whose opening was not traced may be any file.
        unseen = of_file & (columns["file"] < 0) & (rank >= 0)
        for one in np.unique(name[unseen]).tolist():
            if len(np.unique(rank[unseen & (name == one)])) > 1:
                unmatched.add(every[one])
        usable = (rank >= 0) & (~of_file | (columns["file"] >= 0)) & columns["ended"]
        file = np.where(of_file, columns["file"], -1)
        for pair in np.unique(np.stack([name[usable], file[usable]]), axis=1).T:
            mine = np.flatnonzero(usable & (name == pair[0]) & (file == pair[1]))
            mine = mine[np.lexsort((columns["begin"][mine], rank[mine]))]
            counts = np.unique(rank[mine], return_counts=True)[1]
            if len(counts) < 2:
                continue
            if not (counts == counts[0]).all():
                if of_file[mine[0]]:
                    unmatched.add(every[pair[0]])
                continue
            table = mine.reshape(len(counts), -1)
            begin = columns["begin"][table]
            end = begin + columns["duration"][table]
            came, left = begin.max(axis=0), end.max(axis=0)
            together = came <= end.min(axis=0) + slack
            if pair[0] >= 0 and of_file[mine[0]]:
                yes, no = held.get(every[pair[0]], (0, 0))
                held[every[pair[0]]] = yes + int(together.sum()), no + int((~together).sum())
            else:
                table, came, left = table[:, together], came[together], left[together]
            base = len(members)
            members += [len(counts)] * table.shape[1]
            number_of = base + np.arange(table.shape[1])
            rows = (np.tile(values, len(counts)) for values in (number_of, came, left))
            found.append((columns["event"][table].reshape(-1), *rows))
    if not found:
        none = np.zeros(0, np.int64)
        return Groups(none, none, none, none, none, held, unmatched)
    event, group, arrive, leave = (np.concatenate(part) for part in zip(*found))
    order = np.argsort(event)
    return Groups(
        event[order], group[order], arrive[order], leave[order], np.array(members, np.int64), held, unmatched
    )


def _columns(raw: xr.Dataset, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """The events of the chosen functions."""
    found: dict[str, list[np.ndarray]] = {}
    for at in range(0, raw.sizes["event"], 1 << 20):
        piece = slice(at, at + (1 << 20))
        function = raw["function_index"][piece].values.astype(np.int64)
        mine = np.flatnonzero((function >= 0) & chosen[function])
        columns = {
            "event": at + mine,
            "function": function[mine],
            "file": raw["file_index"][piece].values[mine].astype(np.int64),
            "begin": raw["begin"][piece].values[mine],
            "duration": raw["duration"][piece].values[mine],
            "ended": (raw["flags"][piece].values[mine] & (ENTRY_ONLY | UNFINISHED)) == 0,
        }
        for name, values in columns.items():
            found.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in found.items()}


@dataclass(frozen=True)
class Part:
    """The chosen calls of a stretch.

    first, last : ns, begin and end of everything in the stretch
    event, begin, end, function, size : of the calls, in the order of time; end in ns; size in B, -1 unknown: for calls
    that wait for the disk, the bytes that the thread wrote to that file since its last such call
    cost : (call, column) ns of each call and all calls within it: time in each layer itself, then outside the program's
    I/O, then waiting for the last rank; the tracer's own work is left out
    rest : (column,) ns, the same for all calls that are not in any of these
    """

    thread: int
    process: int
    first: int
    last: int
    event: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    function: np.ndarray
    size: np.ndarray
    cost: np.ndarray
    rest: np.ndarray


class Calls:
    """Reads calls of some functions from a trace, each with the parts of its time.

    columns : names of the layers, "system" for calls outside the program's I/O, and "waiting". waits : for each
    function, whether ranks wait for each other in it
    """

    def __init__(self, raw: xr.Dataset, groups: Groups, together: Mapping[str, bool]) -> None:
        """together: from `synchronising`."""
        self.reader = Reader(raw)
        self.groups = groups
        self.columns = [*raw["layer_name"].values.astype(str).tolist(), ignored_paths.LAYER, WAITING]
        self.keys = keys_of(raw)
        self.waits = np.array([together.get(key.name, key.layer == MESSAGES) for key in self.keys], bool)
        self.processes = replayed_processes(raw)
        self._unsynced: dict[tuple[int, int, int], float] = {}

    def parts(self, *families: np.ndarray) -> Iterator[tuple[int, Part]]:
        """Yield (number of the family, its calls in a stretch), for all threads of the program.

        families : masks of functions. A family's calls are those that enter its layer from above and are not within
        another call of the family. The tracer's own work while MPI starts is left out: ranks leave MPI_Init together,
        however much of that work each had."""
        for stretch in self.reader.stretches():
            if not self.processes[stretch.process]:
                continue
            entering = outermost(stretch.tree, stretch.layer)
            size = self._sizes(stretch, entering)
            parent = stretch.tree.parent
            starting = (parent >= 0) & (stretch.layer[parent] == self.reader.layers - 1)
            entering &= ~(starting & self.reader.own[stretch.function])
            for number, mask in enumerate(families):
                chosen = np.zeros(2 * len(mask), bool)
                chosen[: len(mask)] = mask  # the second half stands for calls outside the program's I/O
                yield number, self._part(stretch, entering & chosen[stretch.function], size)

    def _part(self, stretch: Stretch, chosen: np.ndarray, size: np.ndarray) -> Part:
        tree, calls = stretch.tree, stretch.calls
        begin, end = calls["begin"], calls["begin"] + calls["duration"]
        root = _roots(tree.parent, tree.level, chosen)
        mine = np.flatnonzero(root == np.arange(len(root)))
        place = np.full(len(root) + 1, len(mine))
        place[mine] = np.arange(len(mine))
        which = place[root]  # calls outside all chosen ones get the row after the last
        waiting = self._waiting(stretch, mine, which, begin, end)
        width = len(self.columns)
        own = np.where(self.reader.own[stretch.function], 0.0, stretch.own_ns - waiting)
        flat = which * width + stretch.layer
        cost = np.bincount(flat, own, (len(mine) + 1) * width).reshape(-1, width)
        cost[:, -1] = np.bincount(which, waiting, len(mine) + 1)
        last = int(end.max())
        return Part(
            stretch.thread, stretch.process, int(begin[0]), last, calls["event"][mine], begin[mine], end[mine],
            stretch.function[mine], size[mine], cost[:-1], cost[-1],
        )  # fmt: skip

    def _waiting(
        self, stretch: Stretch, mine: np.ndarray, which: np.ndarray, begin: np.ndarray, end: np.ndarray
    ) -> np.ndarray:
        """The part of each call's own time, ns, before the last rank had arrived at the collective call around it."""
        found = np.zeros(len(begin))
        if not len(self.groups.event):
            return found
        at = self.groups.place(stretch.calls["event"][mine])
        at[~self.waits[stretch.function[mine]]] = -1
        if not (at >= 0).any():
            return found
        never = -(1 << 62)  # earlier than any call, but small enough not to overflow
        until = np.append(np.where(at >= 0, self.groups.arrive[at], never), never)
        found = np.clip(np.minimum(end, until[which]) - begin, 0, None).astype(np.float64)
        within = (stretch.tree.parent >= 0) & (which < len(mine))
        np.subtract.at(found, stretch.tree.parent[within], found[within].copy())
        return np.clip(found, 0.0, stretch.own_ns)

    def _sizes(self, stretch: Stretch, entering: np.ndarray) -> np.ndarray:
        """Sizes of reads, writes, and calls that wait for the disk; -1 for all other calls."""
        kind, layer, file = (
            self.reader.kind_of[stretch.function],
            stretch.layer,
            stretch.calls["file_index"].astype(np.int64),
        )
        size = np.where((kind == READ) | (kind == WRITE), stretch.calls["size"], -1).astype(np.float64)
        moved = np.flatnonzero(entering & ((kind == WRITE) | (kind == SYNC)))
        for pair in np.unique(np.stack([layer[moved], file[moved]]), axis=1).T.tolist():
            these = moved[(layer[moved] == pair[0]) & (file[moved] == pair[1])]
            key = (stretch.thread, *pair)
            syncs = kind[these] == SYNC
            wrote = np.where(syncs, 0.0, np.maximum(size[these], 0.0))
            total = self._unsynced.get(key, 0.0) + np.cumsum(wrote)
            size[these[syncs]] = np.diff(total[syncs], prepend=0.0)
            self._unsynced[key] = float(total[-1] - (total[syncs][-1] if syncs.any() else 0.0))
        return size


def _roots(parent: np.ndarray, level: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """For each call the outermost chosen call that it is, or is within; -1 for none."""
    root = np.full(len(parent), -1, np.int64)
    for depth in range(int(level.max(initial=0)) + 1):
        mine = np.flatnonzero(level == depth)
        above = np.where(parent[mine] >= 0, root[parent[mine]], -1)
        root[mine] = np.where(above >= 0, above, np.where(chosen[mine], mine, -1))
    return root


def below(layers: Sequence[str], at: str, serving: Sequence[str]) -> set[str]:
    """The layers in which calls are replayed: `at` and the layers below it, without messages between ranks, and
    servers."""
    place = list(layers).index(at)
    return {name for name in layers[place:] if name not in (MESSAGES, TRACER, ignored_paths.LAYER, *serving)}
