"""The time of a traced run on another configuration: its calls replayed with their costs there. Pure.

The replay takes A's calls where they enter one layer, each rank's in order. Each call gets the time that a call of the
same function and size took on Y, divided over the layers as on Y. Time between these calls stays as in A. Where ranks
wait for each other, the last one to arrive decides when all continue, so the waiting follows from the replay and comes
neither from A nor from Y.

The prediction can be wrong in ways that no interval covers: calls cost as much as in Y's traces, with the same number
of ranks, the same order of offsets, and caches as full as there. docs/howto/io-predict.md explains when to trust it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sonde.core.errors import DataError, UsageError, nearest
from sonde.core.units import format_share
from sonde.io.predict.calls import (
    MESSAGES,
    TRACER,
    WAITING,
    Calls,
    Groups,
    Key,
    Part,
    below,
    groups_of,
    synchronising,
)
from sonde.io.predict.costs import LEAVING, PIECES, Costs, Curve, binned, learn
from sonde.io.trace import ignored_paths
from sonde.io.trace.compare import of_layers

if TYPE_CHECKING:
    import xarray as xr

DRAWS = 200  # resamples of Y's costs, for an interval
MOST_CELLS = 4e7  # segments times draws that are in memory at once
LEVEL = 0.95
MOST_REQUESTS = 1024  # distinct sizes of a function of A; with more, 64 classes to an octave
MOST_KEPT = 0.5  # limit on the share of A's time in replayed calls that Y did not measure, for a prediction
MOST_THIN = 0.1  # share of the modelled time that rests on too few calls; above, there is no interval
_NOT_SHOWN = (ignored_paths.LAYER, TRACER)


class Trace(NamedTuple):
    """An open trace."""

    name: str
    raw: xr.Dataset
    summary: xr.Dataset


class Estimate(NamedTuple):
    """A modelled time and its interval, s; (nan, nan) without an interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """A layer, all layers, or the elapsed time; s, layers summed over all ranks. own : the part of the modelled time
    that is A's own; NaN if there is no such part. against : measured there; NaN without a measurement."""

    name: str
    title: str
    a: float
    on: Estimate
    own: float = 0.0
    against: float = float("nan")


@dataclass(frozen=True)
class Replayed:
    """A function whose calls were replayed.

    a : their time in A, on : on Y, without waiting for ranks, s. measured : the number of Y's calls of it; 0: not
    measured, so A's time stays. least, most : B that Y measured; asked_least, asked_most : B in A's calls; NaN without
    sizes
    outside : calls and bytes of A with sizes that Y did not measure
    """

    key: Key
    symbol: str
    calls: int
    bytes: int
    a: float
    on: Estimate
    measured: int
    least: float
    most: float
    asked_least: float
    asked_most: float
    outside: tuple[int, int]


@dataclass(frozen=True)
class Prediction:
    """The result of a replay.

    layers : from the application down, "waiting" last. total : their sum. elapsed : from the first traced call of a
    replayed thread to the last
    ranks : of A, and of each trace of Y. unmatched : collective functions whose calls in A could not be matched between
    ranks. thin : share of the modelled time that rests on too few calls
    """

    at: str
    at_title: str
    layers: list[Row]
    total: Row
    elapsed: Row
    functions: list[Replayed]
    ranks: tuple[int, tuple[int, ...]]
    unmatched: list[str] = field(default_factory=list)
    thin: float = 0.0


def choose(a: Trace, on: Sequence[Trace], asked: str | None) -> str:
    """The layer at which A is replayed: the requested one, or the topmost that both A and Y called.

    Raises
    ------
    UsageError  io.no_such_layer. DataError  io.nothing_common.
    """
    there = {name for trace in on for name in of_layers(trace.summary)}
    serving = _serving(a.raw)
    called = [name for name in of_layers(a.summary) if name not in (MESSAGES, *serving)]
    common = [name for name in _names(a.raw) if name in called and name in there]
    if not common:
        raise DataError(
            "io.nothing_common",
            f"{a.name} called {', '.join(called) or 'no layer'}, and the traces of --on called "
            f"{', '.join(sorted(there - {MESSAGES})) or 'no layer'}: they have no layer of I/O in common",
            "trace a workload there that calls one of the run's layers, for example mpirun -n 2 "
            "sonde-ioload -a MPIIO",
        )
    if asked is None:
        return common[0]
    if asked not in common:
        raise UsageError(
            "io.no_such_layer",
            f"--at {asked}: {'A and Y do not both call it' if asked in _names(a.raw) else 'there is no such layer'}"
            f"{nearest(asked, common)}; both call: {', '.join(common)}",
            f"use for example --at {common[0]}, the default here",
        )
    return asked


def predict(
    a: Trace, on: Sequence[Trace], at: str | None = None, against: Trace | None = None, seed: int = 0
) -> Prediction:
    """Replays a trace with the costs of another configuration.

    Parameters
    ----------
    a : the run to predict. on : traces of the other configuration
    at : the layer that is replayed; None: the topmost that both call
    against : a run of A's program there, for comparison

    Raises
    ------
    UsageError, DataError  those of `choose`; io.not_measured: Y never called the functions that took most of A's time.
    """
    at = choose(a, on, at)
    mine = _read(a.raw, at)
    costs = learn([trace.raw for trace in on], set(mine.keys))
    _check_measured(a, mine, costs, at)
    plan = _Plan(mine, costs)
    draw = np.ones((1, PIECES))
    value = plan.run(draw)[:, 0]
    thin = plan.thin()
    low, high = _interval(plan, seed) if thin <= MOST_THIN and plan.curves else (None, None)

    def estimate(row: int) -> Estimate:
        if low is None or high is None:
            return Estimate(float(value[row]), float("nan"), float("nan"))
        # The draws are means, which may all lie on one side of the estimate; the interval must contain the estimate.
        return Estimate(
            float(value[row]), float(min(low[row], value[row])), float(max(high[row], value[row]))
        )

    measured = _read(against.raw, at) if against is not None else None
    titles = {
        str(n): str(t)
        for trace in (*on, a)
        for n, t in zip(trace.raw["layer_name"].values, trace.raw["layer_title"].values)
    }
    titles[WAITING] = "Waiting for other ranks"
    own = mine.by_layer()
    theirs = measured.by_layer() if measured else {}
    rows = []
    for k, name in enumerate(plan.shown):
        one = estimate(2 + k)
        seen = theirs.get(name, 0.0) if measured else float("nan")
        if own.get(name, 0.0) > 0 or one.value > 0 or seen > 0:
            rows.append(Row(name, titles[name], own.get(name, 0.0), one, plan.own_s.get(name, 0.0), seen))
    nan = float("nan")
    total = Row(
        "total", "all layers, all ranks", sum(own.get(name, 0.0) for name in plan.shown), estimate(1),
        sum(plan.own_s.get(name, 0.0) for name in plan.shown),
        sum(theirs.get(name, 0.0) for name in plan.shown) if measured else nan,
    )  # fmt: skip
    elapsed = Row(
        "elapsed", "elapsed", mine.elapsed(), estimate(0), nan, measured.elapsed() if measured else nan
    )
    functions = [
        plan.replayed(key, number, estimate(2 + len(plan.shown) + number))
        for number, key in enumerate(mine.keys)
    ]
    functions.sort(key=lambda one: -max(one.a, one.on.value))
    return Prediction(
        at, titles[at], rows, total, elapsed, functions, (_ranks(a.raw), tuple(_ranks(trace.raw) for trace in on)),
        mine.unmatched(), thin,
    )  # fmt: skip


def _names(raw: xr.Dataset) -> list[str]:
    return [str(name) for name in raw["layer_name"].values]


def _serving(raw: xr.Dataset) -> list[str]:
    if "layer_serves" not in raw:
        return []
    return [name for name, serves in zip(_names(raw), raw["layer_serves"].values.astype(str)) if serves]


def _ranks(raw: xr.Dataset) -> int:
    """The number of ranks; of processes if there are no ranks."""
    ranks = raw["process_rank"].values
    return len(np.unique(ranks[ranks >= 0])) or raw.sizes["process"]


# ---- the traces of A and of --against


@dataclass
class _Thread:
    """The replayed calls of a thread, in the order of time. first, last : ns, of all its traced calls."""

    first: int
    last: int
    parts: list[Part] = field(default_factory=list)


@dataclass
class _Run:
    """A run's calls. columns : those of the costs. key : for each function its number in `keys`; -1 for functions that
    only make ranks wait, and for the tracer's own work, which takes no time in a replay."""

    columns: list[str]
    calls: Calls
    groups: Groups
    keys: list[Key]
    key: np.ndarray
    threads: dict[int, _Thread]
    rest: np.ndarray
    own: np.ndarray  # (key, column) ns; the last row is for functions that only make ranks wait
    symbols: dict[Key, str]

    def by_layer(self) -> dict[str, float]:
        """Time in each layer itself, summed over all ranks, without waiting for ranks; and the waiting. s."""
        ns = self.rest + self.own.sum(axis=0)
        return {name: float(value) * 1e-9 for name, value in zip(self.columns, ns) if name not in _NOT_SHOWN}

    def replayed(self) -> list[int]:
        """The threads that have calls to replay; all threads if none has. The tracer's own work does not count: its
        threads, and those of libraries, may last until the end, so the elapsed time would never change."""
        program = np.array([key.layer != TRACER for key in self.calls.keys], bool)
        found = [
            number
            for number, one in self.threads.items()
            if any(program[part.function].any() for part in one.parts)
        ]
        return found or list(self.threads)

    def elapsed(self) -> float:
        """Time from the first traced call of a replayed thread to the last, without the tracer's own work, s."""
        return float(_Plan(self, Costs([], {})).run(np.ones((1, PIECES)))[0, 0])

    def unmatched(self) -> list[str]:
        """Replayed functions that ranks call together, but whose calls could not all be matched."""
        return sorted(symbol for key, symbol in self.symbols.items() if key.name in self.groups.unmatched)


def _read(raw: xr.Dataset, at: str) -> _Run:
    """Read all calls of a run that enter `at` or a layer below it, the calls by which ranks wait for each other, and
    the tracer's own work."""
    groups = groups_of(raw)
    calls = Calls(raw, groups, synchronising([groups]))
    layers = below(_names(raw), at, _serving(raw)) if at in _names(raw) else set()
    entering = np.array([key.layer in layers for key in calls.keys], bool)
    matched_functions = np.unique(raw["function_index"].values[groups.event]).tolist()
    synchronising_only = np.array(
        [
            (key.layer == MESSAGES and k in matched_functions) or key.layer == TRACER
            for k, key in enumerate(calls.keys)
        ],
        bool,
    )
    keys: list[Key] = []
    symbols: dict[Key, str] = {}
    width = len(calls.columns)
    threads: dict[int, _Thread] = {}
    rest = np.zeros(width)
    own: dict[int, np.ndarray] = {}
    number_of = np.full(len(calls.keys), -1)
    names = raw["function_name"].values.astype(str)
    waiting = np.zeros(width)
    for _, part in calls.parts(entering | synchronising_only):
        one = threads.setdefault(part.thread, _Thread(part.first, part.last))
        one.first, one.last = min(one.first, part.first), max(one.last, part.last)
        rest += part.rest
        if not len(part.event):
            continue
        for function in np.unique(part.function).tolist():
            sums = part.cost[part.function == function].sum(axis=0)
            if synchronising_only[function]:
                waiting += sums
                continue
            key = calls.keys[function]
            if key not in symbols:
                symbols[key] = str(names[function])
                keys.append(key)
            number_of[function] = keys.index(key)
            own.setdefault(keys.index(key), np.zeros(width))
            own[keys.index(key)] += sums
        one.parts.append(part)
    table = np.stack([*(own[k] for k in range(len(keys))), waiting])
    return _Run(calls.columns, calls, groups, keys, number_of, threads, rest, table, symbols)


def _check_measured(a: Trace, mine: _Run, costs: Costs, at: str) -> None:
    """Raise an error if Y did not measure most of the replayed time."""
    shown = [k for k, name in enumerate(mine.columns) if name not in (*_NOT_SHOWN, WAITING)]
    time = mine.own[:-1, shown].sum(axis=1)
    missing = [k for k, key in enumerate(mine.keys) if key not in costs.curves]
    if not time.sum() or time[missing].sum() <= MOST_KEPT * time.sum():
        return
    named = sorted(missing, key=lambda k: -time[k])[:3]
    names = ", ".join(mine.symbols[mine.keys[k]] for k in named)
    share = format_share(time[missing].sum() / time.sum())
    known = ", ".join(sorted({key.name for key in costs.curves})) or "no function that it calls"
    raise DataError(
        "io.not_measured",
        f"{share} of the time that {a.name} spends at {at} and below is in functions without a measurement "
        f"there: {names}; measured: {known}",
        "trace a program there that calls them, or replay at another layer: --at",
    )


# ---- the replay


class _Plan:
    """A's calls in a form that can be replayed again and again with different costs.

    A *class* contains calls of equal cost: of one function and size, either together with other ranks or alone. Between
    two calls in which ranks wait for each other the order within a thread does not matter, so each such segment is
    stored as counts of classes.

    shown : columns of the result. own_s : for each, s, the part that is A's own and not a cost of Y's.
    """

    def __init__(self, mine: _Run, costs: Costs) -> None:
        from scipy.sparse import coo_matrix

        self.mine, self.columns = mine, costs.columns
        own_names = [name for name in mine.columns if name not in _NOT_SHOWN]
        names = [
            *own_names[:-1],
            *(n for n in costs.columns[:-3] if n not in own_names and n not in _NOT_SHOWN),
        ]
        self.shown = [*names, WAITING]
        self.curves: list[tuple[Key, Curve]] = [
            (key, costs.curves[key]) for key in mine.keys if key in costs.curves
        ]
        self.curve_of = {key: number for number, (key, _) in enumerate(self.curves)}
        self._collect()
        self._classes()
        self._groups()
        self._segments(coo_matrix)
        self._kept()

    def _collect(self) -> None:
        """Collect all calls in one table, thread by thread."""
        mine = self.mine
        rows: dict[str, list[np.ndarray]] = {
            name: [] for name in ("thread", "begin", "end", "function", "size", "event", "work", "waited")
        }
        self.threads = mine.replayed()
        for place, number in enumerate(self.threads):
            for part in mine.threads[number].parts:
                for name, values in (
                    ("thread", np.full(len(part.event), place)), ("begin", part.begin), ("end", part.end),
                    ("function", part.function), ("size", part.size), ("event", part.event),
                    ("work", part.cost[:, :-1].sum(axis=1)), ("waited", part.cost[:, -1]),
                ):  # fmt: skip
                    rows[name].append(values)
        table = {name: np.concatenate(values) if values else np.zeros(0) for name, values in rows.items()}
        order = np.lexsort((table["begin"], table["thread"]))
        self.table = {name: values[order] for name, values in table.items()}
        self.key = mine.key[self.table["function"].astype(np.int64)] if len(order) else np.zeros(0, np.int64)
        curve = np.array([self.curve_of.get(key, -1) for key in mine.keys] + [-1])
        self.curve = curve[
            self.key
        ]  # functions that only synchronise ranks have the key -1, which selects the last entry

    def _classes(self) -> None:
        """Compute the class of each call; -1 if it keeps A's time."""
        n = len(self.key)
        self.at = self.mine.groups.place(self.table["event"]) if n else np.zeros(0, np.int64)
        waits = np.array([curve.waits is not False for _, curve in self.curves] + [False])
        own = self.mine.calls.waits[self.table["function"].astype(np.int64)] if n else np.zeros(0, bool)
        # Whether ranks wait for each other follows Y if Y measured the function, and A otherwise.
        self.at[~np.where(self.curve >= 0, waits[self.curve], own)] = -1
        self._in_order()
        grouped = self.at >= 0
        size = self.table["size"].astype(np.float64).copy()
        if grouped.any():  # one cost for all ranks of a call, that of their mean size
            number = self.mine.groups.group[self.at[grouped]]
            total = np.bincount(number, size[grouped])
            size[grouped] = (total / np.maximum(np.bincount(number), 1))[number]
        self.size = size
        self.class_of = np.full(n, -1, np.int64)
        self.class_curve: list[tuple[int, bool, np.ndarray]] = []
        count = 0
        for number in range(len(self.curves)):
            for together in (False, True):
                these = np.flatnonzero((self.curve == number) & (grouped == together))
                if not len(these):
                    continue
                which = binned(size[these], MOST_REQUESTS, 64)
                mean = np.bincount(which, size[these]) / np.bincount(which)
                self.class_of[these] = count + which
                self.class_curve.append((number, together, mean))
                count += len(mean)
        self.class_count = count

    def _in_order(self) -> None:
        """Drop groups that threads reach in different orders: their calls were matched wrongly."""
        arrive = self.mine.groups.arrive
        while True:
            mine = np.flatnonzero(self.at >= 0)
            if len(mine) < 2:
                return
            when = arrive[self.at[mine]]
            thread = self.table["thread"][mine]
            latest = when.copy()
            for number in np.unique(thread):
                these = thread == number
                latest[these] = np.maximum.accumulate(when[these])
            wrong = np.unique(self.mine.groups.group[self.at[mine[when < latest]]])
            if not len(wrong):
                return
            self.at[mine[np.isin(self.mine.groups.group[self.at[mine]], wrong)]] = -1

    def _groups(self) -> None:
        """Collect the remaining groups in the order of time: for each the positions of its calls."""
        mine = np.flatnonzero(self.at >= 0)
        number = self.mine.groups.group[self.at[mine]]
        when = self.mine.groups.arrive[self.at[mine]]
        order = np.lexsort((number, when))
        mine, number = mine[order], number[order]
        cuts = np.flatnonzero(np.diff(number)) + 1
        self.groups = [part for part in np.split(mine, cuts) if len(part)]

    def _segments(self, matrix: type) -> None:
        thread, begin, end = self.table["thread"].astype(np.int64), self.table["begin"], self.table["end"]
        n = len(thread)
        grouped, separate = self.at >= 0, self.class_of < 0
        threads = [self.mine.threads[number] for number in self.threads]
        self.left_together = np.zeros(max(self.class_count, 1))
        self.first = np.array([one.first for one in threads], np.float64)
        last = np.array([one.last for one in threads], np.float64)
        before: np.ndarray = np.cumsum(grouped) - grouped  # groups before each call, over all threads
        self.segment = before + thread
        segments = int(grouped.sum()) + len(threads)
        self.fixed = np.zeros(segments)
        fresh = np.ones(n, bool)
        fresh[1:] = thread[1:] != thread[:-1]
        previous = np.where(fresh, self.first[thread], np.concatenate([[0], end[:-1]])) if n else np.zeros(0)
        np.add.at(self.fixed, self.segment, np.maximum(begin - previous, 0.0))
        alone = separate & ~grouped
        np.add.at(self.fixed, self.segment[alone], (self.table["work"] + self.table["waited"])[alone])
        # The time after a thread's last call.
        count = np.bincount(thread[grouped], minlength=len(threads)).astype(np.int64)
        self.tail = np.cumsum(count) + np.arange(len(threads))
        done = self.first.copy()
        np.maximum.at(done, thread, end)
        self.fixed[self.tail] += np.maximum(last - done, 0.0)
        these = np.flatnonzero(~separate & ~grouped)
        self.counts = matrix(
            (np.ones(len(these)), (self.segment[these], self.class_of[these])), (segments, max(self.class_count, 1))
        ).tocsr()  # fmt: skip
        came = np.where(grouped, self.mine.groups.arrive[self.at], 0) if len(self.mine.groups.event) else end
        self.after = np.minimum(np.maximum(end - np.maximum(begin, came), 0.0), self.table["work"])
        self._leaving()

    def _leaving(self) -> None:
        """Compute which ranks leave a call of several ranks before its last, as in A: a mean over ranks does not
        contain this.

        early : for each call 0 if it ends with the last, and 1 on average over its group; 0 if A's ranks left together
        """
        self.early = np.zeros(len(self.key))
        if not self.groups:
            return
        positions = np.concatenate(self.groups)
        sizes = np.array([len(each) for each in self.groups])
        number = np.repeat(np.arange(len(sizes)), sizes)
        last = np.zeros(len(sizes))
        np.maximum.at(last, number, self.after[positions])
        before = last[number] - self.after[positions]
        mean = (np.bincount(number, before) / sizes)[number]
        self.early[positions] = np.divide(before, mean, out=np.zeros(len(before)), where=mean > 0)
        together = (self.early[positions] == 0) & (mean == 0) & (self.class_of[positions] >= 0)
        np.add.at(self.left_together, self.class_of[positions][together], 1.0)

    def _kept(self) -> None:
        """Compute A's own time: outside of all replayed calls, and in functions that Y never measured."""
        mine = self.mine
        ns = mine.rest + mine.own[-1]
        for number, key in enumerate(mine.keys):
            if key not in self.curve_of:
                ns = ns + mine.own[number]
        at = {name: float(value) for name, value in zip(mine.columns, ns)}
        # Waiting in calls that are replayed together follows from the replay.
        waited = at.pop(WAITING)
        waited -= float(self.table["waited"][(self.at >= 0) & (self.class_of < 0)].sum())
        at[WAITING] = max(waited, 0.0)
        self.own_s = {name: value * 1e-9 for name, value in at.items() if name not in _NOT_SHOWN}

    def costs(self, weight: np.ndarray) -> np.ndarray:
        """(draw, class, column) ns."""
        parts = []
        for number, together, sizes in self.class_curve:
            curve = self.curves[number][1]
            found = curve.at(curve.means(weight), sizes)
            # Together with others, the replay computes the waiting for the last rank; alone, only a call's own end
            # counts.
            found[..., self.columns.index(WAITING if together else LEAVING)] = 0.0
            parts.append(found)
        if not parts:
            return np.zeros((len(weight), 1, len(self.columns)))
        return np.concatenate(parts, axis=1)

    def run(self, weight: np.ndarray) -> np.ndarray:
        """(row, draw), s: elapsed, all layers, each of `shown`, each of A's functions.

        weight : (draw, piece), how often each piece of Y's calls counts
        """
        cost = self.costs(weight)
        draws = len(weight)
        whole = cost.sum(axis=2)  # (draw, class)
        leaving = cost[..., self.columns.index(LEAVING)] if self.curves else whole
        spent = self.counts @ whole.T + self.fixed[:, None]  # (segment, draw)
        clock = np.repeat(self.first[:, None], draws, axis=1)
        waited = np.zeros(draws)
        thread = self.table["thread"].astype(np.int64)
        for positions in self.groups:
            who = thread[positions]
            arrival = clock[who] + spent[self.segment[positions]]
            top = arrival.max(axis=0)
            waited += top * len(who) - arrival.sum(axis=0)
            kind = self.class_of[positions[0]]
            if kind >= 0:
                after = whole[:, kind] - leaving[:, kind] * self.early[positions][:, None]
                clock[who] = top + np.maximum(after, 0.0)
            else:
                clock[who] = top + self.after[positions][:, None]
        clock += spent[self.tail]
        elapsed = clock.max(axis=0) - self.first.min() if len(self.first) else np.zeros(draws)
        counts = np.bincount(self.class_of[self.class_of >= 0], minlength=cost.shape[1])
        sums = np.einsum("c,dck->kd", counts, cost)
        rows = np.zeros((len(self.shown), draws))
        for name, values in zip(self.columns, sums):
            if name not in (*_NOT_SHOWN, LEAVING):
                rows[self.shown.index(name)] += values
        # If all ranks of A left together, they do so here, with the last.
        rows[-1] += waited + leaving @ self.left_together
        rows *= 1e-9
        rows += np.array([self.own_s.get(name, 0.0) for name in self.shown])[:, None]
        return np.concatenate(
            [elapsed[None] * 1e-9, rows.sum(axis=0)[None], rows, self._by_function(counts, cost)]
        )

    def _by_function(self, counts: np.ndarray, cost: np.ndarray) -> np.ndarray:
        """(function, draw), s: time in calls, without waiting for ranks."""
        named = [k for k, name in enumerate(self.columns) if name not in (*_NOT_SHOWN, WAITING, LEAVING)]
        work = cost[..., named].sum(axis=2) * counts * 1e-9
        found = np.repeat(self._own_s()[:, None], len(cost), axis=1)
        for number, (key, _) in enumerate(self.curves):
            place = self.mine.keys.index(key)
            found[place] = work[:, self._of_curve(number)].sum(axis=1)
        return found

    def _of_curve(self, number: int) -> np.ndarray:
        """The classes that belong to a curve."""
        which = np.repeat(
            [curve for curve, _, _ in self.class_curve], [len(sizes) for _, _, sizes in self.class_curve]
        )
        return np.flatnonzero(which == number)

    def _own_s(self) -> np.ndarray:
        """Time in each of A's functions, s, without waiting for ranks."""
        named = [k for k, name in enumerate(self.mine.columns) if name not in (*_NOT_SHOWN, WAITING)]
        return self.mine.own[:-1, named].sum(axis=1) * 1e-9

    def thin(self) -> float:
        """The share of the modelled time that rests on too few calls to estimate how they differ."""
        whole = self.costs(np.ones((1, PIECES)))[0].sum(axis=1)
        counts = np.bincount(self.class_of[self.class_of >= 0], minlength=len(whole))
        few = (
            np.concatenate([self.curves[number][1].thin(sizes) for number, _, sizes in self.class_curve])
            if self.class_curve
            else np.zeros(len(whole), bool)
        )
        time = whole * counts
        return float(time[few].sum() / time.sum()) if time.sum() > 0 else 0.0

    def replayed(self, key: Key, number: int, on: Estimate) -> Replayed:
        """The result for one of A's functions."""
        mine = self.key == number
        size = self.table["size"][mine]
        known = size[size >= 0]
        curve = self.curves[self.curve_of[key]][1] if key in self.curve_of else None
        beyond = curve.outside(self.size[mine]) if curve else np.zeros(int(mine.sum()), bool)
        nan = float("nan")
        finite = curve is not None and np.isfinite(curve.least)
        return Replayed(
            key,
            self.mine.symbols[key],
            int(mine.sum()),
            int(known.sum()),
            float(self._own_s()[number]),
            on,
            int(curve.calls.sum()) if curve else 0,
            curve.least if curve and finite else nan,
            curve.most if curve and finite else nan,
            float(known.min()) if len(known) else nan,
            float(known.max()) if len(known) else nan,
            (int(beyond.sum()), int(np.maximum(size[beyond], 0).sum())),
        )


def _interval(plan: _Plan, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A bootstrap over the pieces into which Y's calls of each size are cut in time: consecutive calls are alike, so
    they are drawn together. Source: Efron and Tibshirani 1993, chapters 8.6 and 13.3 (percentiles).
    """
    from scipy.stats import bootstrap

    def resampled(pieces: np.ndarray, axis: int = -1) -> np.ndarray:
        weight = (pieces[:, :, None] == np.arange(PIECES)).sum(axis=1).astype(np.float64)
        return plan.run(weight)

    found = bootstrap(
        (np.arange(PIECES),), resampled, vectorized=True, n_resamples=DRAWS, confidence_level=LEVEL,
        batch=int(np.clip(MOST_CELLS / len(plan.fixed), 1, DRAWS)),
        method="percentile", random_state=np.random.default_rng(seed),
    ).confidence_interval  # fmt: skip
    return np.asarray(found.low), np.asarray(found.high)
