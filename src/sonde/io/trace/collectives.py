"""Measure how far the clocks of hosts are apart, from the collective calls of a traced MPI program.

No rank leaves a barrier before all ranks have entered. So when rank a leaves on one host, rank b on another host has
entered: two clock readings with a known order. Each such call bounds the difference of two clocks from both sides. Over
a run only a few straight lines fit between the bounds, and their spread is the error. The method sends nothing and
waits for nothing. Bounding by messages is an idea of Duda, Harrus, Haddad and Bernard (1987), who use convex hulls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

# Calls that no rank leaves before all have entered, because each rank gives and gets data.
SYNCHRONISING = ("mpi_barrier", "mpi_allreduce", "mpi_allgather", "mpi_alltoall")
ASKING = "mpi_comm_size"
# The rates of two clocks that a kernel adjusts differ by less: adjtimex(2) slews by 500 ppm at most.
MOST_DRIFT = 1e-3
# Accuracy of clock readings, ns: bounds may contradict each other by this much.
SLACK_NS = 1_000.0
PIECES = 500  # parts of the run; from each only the two tightest bounds are used


def plain(symbol: str) -> str:
    """A function's name without the changes of Fortran compilers: "mpi_barrier" for "MPI_BARRIER" and
    "mpi_barrier__"."""
    return symbol.lower().rstrip("_").removeprefix("p")


@dataclass
class Calls:
    """The synchronising calls of one rank, in the order in which they ended, and the sizes of communicators that it
    queried.

    begin, end : ticks. comm : 32 bits of their handles. name : number in SYNCHRONISING. ranks : communicator -> its
    size.
    """

    host: str
    begin: list[np.ndarray] = field(default_factory=list)
    end: list[np.ndarray] = field(default_factory=list)
    comm: list[np.ndarray] = field(default_factory=list)
    name: list[np.ndarray] = field(default_factory=list)
    ranks: dict[int, int] = field(default_factory=dict)

    def add(self, calls: np.ndarray, name: np.ndarray) -> None:
        """calls: records (`sonde.io.trace.events.RECORD`), `file` their communicator."""
        self.begin.append(calls["begin"].copy())
        self.end.append(calls["end"].copy())
        self.comm.append(calls["file"].copy())
        self.name.append(name)

    def of_all(self, ranks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(begin, end, name) of calls on communicators with this many ranks, in the order in which they began."""
        if not self.begin:
            return np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int8)
        begin, end, comm, name = map(np.concatenate, (self.begin, self.end, self.comm, self.name))
        mine = np.isin(comm, [handle for handle, count in self.ranks.items() if count == ranks])
        order = np.flatnonzero(mine)[np.argsort(begin[mine], kind="stable")]
        return begin[order], end[order], name[order]


@dataclass(frozen=True)
class Line:
    """The offset of a host's clock to another's: `offset` + `drift` * t, ns, at time t of its own, ns.

    error : maximum error within the run, ns, if both clocks run evenly. calls : the number of collectives used.
    """

    offset: float
    drift: float
    error: float
    calls: int

    def at(self, ns: np.ndarray) -> np.ndarray:
        return self.offset + self.drift * ns


def matched(calls: Sequence[Calls]) -> tuple[list[np.ndarray], list[np.ndarray]] | None:
    """Entries and exits, ticks, of each rank; the k-th of all ranks are one collective. calls: one for each rank, all
    ranks.

    Collectives count from the first on, as long as all ranks made the same; None if there are none.
    """
    found = [one.of_all(len(calls)) for one in calls]
    count = min((len(begin) for begin, _, _ in found), default=0)
    if not count:
        return None
    same = np.all([name[:count] == found[0][2][:count] for _, _, name in found], axis=0)
    count = count if same.all() else int(np.argmin(same))
    if not count:
        return None
    return [begin[:count] for begin, _, _ in found], [end[:count] for _, end, _ in found]


def line(
    first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray], from_ns: float, to_ns: float
) -> Line | None:
    """The second host's clock minus the first's. None if the bounds contradict each other.

    Parameters
    ----------
    first, second : (last entry, first exit) of each collective by its host's own clock, ns; of equal length
    from_ns, to_ns : the run by the second host's clock, ns: the error holds in this range
    """
    from scipy.optimize import linprog

    low, high = second[0] - first[1], second[1] - first[0]
    when = (second[0] + second[1]) / 2
    low_at, high_at = _tightest(when, -low), _tightest(when, high)
    # Unknowns in units of the run's length, from its middle, so that both are of similar size.
    middle, span = (from_ns + to_ns) / 2, max(to_ns - from_ns, 1.0)
    base = float((low.max() + high.min()) / 2)
    rows = np.concatenate(
        [
            np.stack([-np.ones(len(low_at)), -(when[low_at] - middle) / span], axis=1),
            np.stack([np.ones(len(high_at)), (when[high_at] - middle) / span], axis=1),
        ]
    )
    bounds = np.concatenate([-(low[low_at] - base), high[high_at] - base])
    slopes = (-MOST_DRIFT * span, MOST_DRIFT * span)
    # The line with the largest distance to all bounds.
    away = linprog(
        [0, 0, -1],
        A_ub=np.column_stack([rows, np.ones(len(rows))]),
        b_ub=bounds,
        bounds=[(None, None), slopes, (None, None)],
    )
    if not away.success or away.x[2] < -SLACK_NS:
        return None
    room = bounds + max(0.0, -away.x[2])
    ends = [np.array([1.0, where]) for where in (-0.5, 0.5)]
    extremes = [
        (
            linprog(end, A_ub=rows, b_ub=room, bounds=[(None, None), slopes]),
            linprog(-end, A_ub=rows, b_ub=room, bounds=[(None, None), slopes]),
        )
        for end in ends
    ]
    if not all(one.success for pair in extremes for one in pair):
        return None
    # The line through the middle of the possible range at both ends of the run.
    at_ends = [(end @ least.x + end @ most.x) / 2 for end, (least, most) in zip(ends, extremes)]
    error = max((end @ most.x - end @ least.x) / 2 for end, (least, most) in zip(ends, extremes))
    drift = (at_ends[1] - at_ends[0]) / span
    offset = base + (at_ends[0] + at_ends[1]) / 2 - drift * middle
    return Line(float(offset), float(drift), float(error), len(when))


def _tightest(when: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """For each piece of the run, the call with the smallest bound."""
    span = max(float(when.max() - when.min()), 1.0)
    piece = np.minimum(((when - when.min()) / span * PIECES).astype(np.int64), PIECES - 1)
    order = np.lexsort((bound, piece))
    return order[np.concatenate([[True], np.diff(piece[order]) > 0])]
