"""What ranks do in collective calls, against a count of every moment."""

from __future__ import annotations

import numpy as np
import pytest

import io_traces
from io_traces import Call
from sonde.io.trace.analyse import analyse
from sonde.io.trace.collective_io import TIMES, _Union, directions

WRITE, READ = "MPI_File_write_at_all", "MPI_File_read_at_all"


def test_which_functions_are_collective():
    names = [
        "MPI_File_write_all", "MPI_File_write_at_all_c", "MPI_File_read_all_begin", "mpi_file_read_ordered_",
        "MPI_File_iread_all", "MPI_File_write_at", "MPI_File_set_view", "ompi_read_all",
    ]  # fmt: skip
    found = directions(np.array(names), np.array([True] * 7 + [False]))
    assert found.tolist() == [1, 1, 0, 0, 0, -1, -1, -1]


def test_moments_that_intervals_cover():
    rng = np.random.default_rng(1)
    for count in (0, 1, 5, 40):
        begin = rng.integers(0, 200, count)
        end = begin + rng.integers(1, 30, count)
        covered = np.zeros(300, bool)
        for first, last in zip(begin, end):
            covered[first:last] = True
        until = _Union(begin, end).until(np.arange(300))
        assert until.tolist() == [int(covered[:moment].sum()) for moment in range(300)]


def drawn(rng, ranks, calls):
    """Calls of ranks, each at the file system once or twice in each; and when: (rank, call) -> (begin, end, files)."""
    made, known, clock = [], {}, 0
    for k in range(calls):
        clock += 1000
        come = clock + rng.integers(0, 200, ranks)
        left = come.max() + rng.integers(0, 300, ranks)
        for rank in range(ranks):
            files = []
            at = int(come[rank])
            for _ in range(int(rng.integers(0, 3))):
                first = int(rng.integers(at, left[rank] + 1))
                last = int(rng.integers(first, left[rank] + 1))
                if last > first:
                    files.append((first, last))
                    at = last
            known[rank, k] = int(come[rank]), int(left[rank]), files
    for rank in range(ranks):
        mine = []
        for k in range(calls):
            begin, end, files = known[rank, k]
            within = [Call("pwrite", first, last - first, 10, "data") for first, last in files]
            mine.append(Call(WRITE, begin, end - begin, 10, "data", within))
        made.append((rank, mine))
    return made, known


@pytest.mark.parametrize("seed", range(5))
def test_every_moment_is_counted_once(seed):
    rng = np.random.default_rng(seed)
    ranks, calls = 4, 6
    threads, known = drawn(rng, ranks, calls)
    summary = analyse(io_traces.raw(threads, list(range(ranks))))
    expected = {name: np.zeros(ranks) for name in TIMES}
    for k in range(calls):
        arrived = max(known[rank, k][0] for rank in range(ranks))
        for moment in range(arrived - 300, arrived + 400):
            at_files = {
                rank
                for rank in range(ranks)
                if any(first <= moment < last for first, last in known[rank, k][2])
            }
            for rank in range(ranks):
                begin, end, _ = known[rank, k]
                if not begin <= moment < end:
                    continue
                expected["collective_time"][rank] += 1
                if rank in at_files:
                    expected["collective_files"][rank] += 1
                elif moment < arrived:
                    expected["collective_late"][rank] += 1
                elif at_files:
                    expected["collective_others"][rank] += 1
    for name in TIMES:
        assert summary[name].values[:, 1] * 1e9 == pytest.approx(expected[name]), name
        assert not summary[name].values[:, 0].any(), name
    assert summary["collective_last"].values.sum() >= calls


def two(later=0, path="data", name=WRITE, **more):
    calls = [[Call(WRITE, 1000, 5000, path="data")], [Call(name, 3000 + later, 3000, path=path)]]
    return io_traces.raw(list(enumerate(calls)), [0, 1]).assign(more)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (two(), True),
        (two(later=5000), False),  # one left before the other came: they did not wait for each other
        (two(path="other"), False),  # of another file
        (two(name=READ), False),
        (two(clock_error=("process", [0.0, 1e-7])), True),
        (two(clock_error=("process", [0.0, 1e-6])), False),  # as long as the wait may be
        (two(clock_error=("process", [0.0, np.nan])), False),
    ],
)
def test_what_cannot_be_told_is_counted_as_that(raw, told):
    summary = analyse(raw)
    time, untold = (summary[name].values.sum() for name in ("collective_time", "collective_untold"))
    assert bool(time > 0) is told
    assert bool(untold > 0) is not told
    assert summary["collective_late"].values[0, 1] == pytest.approx(2e-6 if told else 0)


def test_calls_without_a_rank_are_none_of_it():
    raw = io_traces.raw([(0, [Call(WRITE, 0, 10)]), (1, [Call(WRITE, 0, 10)])], [-1, -1])
    assert all(not analyse(raw)[name].values.any() for name in TIMES)
