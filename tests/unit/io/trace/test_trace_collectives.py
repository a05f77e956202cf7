"""Clocks of hosts put together by what nobody leaves before all have come."""

from __future__ import annotations

import numpy as np
import pytest

from sonde.io.trace.clock import Clocks
from sonde.io.trace.collectives import Calls, line, matched, plain

DAY = 1_800_000_000_000_000_000
BARRIER, ALLREDUCE = 0, 1


def barriers(count: int, seed: int, latency_ns: float = 30_000) -> tuple[np.ndarray, ...]:
    """(entry, exit) of two ranks in true time, ns: each leaves when it hears that the other has come."""
    rng = np.random.default_rng(seed)
    start = 60e9 / count * (np.arange(count) + rng.uniform(0, 0.3, count))
    enter = [start + np.minimum(rng.exponential(2e6, count), 30e6) for _ in range(2)]
    heard = [enter[1 - k] + latency_ns + rng.exponential(latency_ns, count) for k in range(2)]
    leave = [np.maximum(enter[k], heard[k]) + rng.exponential(1e3, count) for k in range(2)]
    return enter[0], leave[0], enter[1], leave[1]


def shown(true: np.ndarray, offset: float, drift: float) -> np.ndarray:
    return true * (1 + drift) + offset


@pytest.mark.parametrize(("offset", "drift"), [(3e9, 50e-6), (-120.0, -3e-5), (0.0, 0.0), (-7e10, 1e-4)])
def test_offset_and_drift_are_found_and_the_error_told_holds(offset, drift):
    enter_a, leave_a, enter_b, leave_b = barriers(400, seed=5)
    second = shown(enter_b, offset, drift), shown(leave_b, offset, drift)
    found = line((enter_a, leave_a), second, float(shown(np.array(0), offset, drift)), float(second[1].max()))
    assert found is not None
    assert found.calls == 400
    true = np.linspace(0, 60e9, 7)
    local = shown(true, offset, drift)
    wrong = np.abs((local - true) - found.at(local))
    assert wrong.max() <= found.error + 1
    assert found.error < 40_000  # about the latency, which is all that such calls can tell
    assert found.drift == pytest.approx(drift, abs=2e-6)


def test_one_call_tells_the_offset_and_its_error_holds_what_drift_may_do():
    found = line((np.array([1e6]), np.array([1.1e6])), (np.array([5e6]), np.array([5.2e6])), 0.0, 10e6)
    assert found is not None
    assert found.at(np.array(5.1e6)) == pytest.approx((3.9e6 + 4.2e6) / 2, abs=2e4)
    assert found.error > (4.2e6 - 3.9e6) / 2
    alone = line((np.array([1e6]), np.array([1.1e6])), (np.array([5e6]), np.array([5.2e6])), 0.0, 60e9)
    assert alone is not None
    assert alone.error > 1e-3 * 50e9  # a minute later it may be anything that clocks do


def test_a_clock_that_was_set_during_the_run_fits_no_line():
    enter_a, leave_a, enter_b, leave_b = barriers(200, seed=6)
    step = np.where(enter_b > 30e9, 0.5e9, 0.0)
    assert line((enter_a, leave_a), (enter_b + step, leave_b + step), 0.0, 61e9) is None


def rank(host: str, begin: list[int], names: list[int], comm: list[int] | None = None, **ranks: int) -> Calls:
    calls = Calls(host)
    calls.begin.append(np.array(begin, np.uint64))
    calls.end.append(np.array(begin, np.uint64) + np.uint64(10))
    calls.comm.append(np.array(comm or [7] * len(begin), np.uint32))
    calls.name.append(np.array(names, np.int8))
    calls.ranks.update({7: 2} | {int(name[1:]): count for name, count in ranks.items()})
    return calls


def test_calls_on_communicators_of_some_ranks_do_not_count():
    one = rank("a", [100, 200, 300], [BARRIER] * 3, comm=[7, 8, 7], c8=1)
    other = rank("b", [110, 310], [BARRIER] * 2)
    found = matched([one, other])
    assert found is not None
    assert [entry.tolist() for entry in found[0]] == [[100, 300], [110, 310]]


def test_calls_count_as_far_as_the_ranks_made_the_same():
    one = rank("a", [100, 200, 300], [BARRIER, ALLREDUCE, BARRIER])
    other = rank("b", [110, 210, 310, 410], [BARRIER, ALLREDUCE, ALLREDUCE, BARRIER])
    found = matched([one, other])
    assert found is not None
    assert [entry.tolist() for entry in found[0]] == [[100, 200], [110, 210]]
    assert matched([one, rank("b", [5], [ALLREDUCE])]) is None
    assert matched([one, Calls("b")]) is None


def test_names_of_fortran_and_of_the_profiling_interface_are_those_of_c():
    assert {
        plain(name)
        for name in ("MPI_Barrier", "mpi_barrier_", "mpi_barrier__", "MPI_BARRIER", "PMPI_Barrier")
    } == {"mpi_barrier"}


def hosts(offset: float, drift: float) -> tuple[Clocks, list[Calls], np.ndarray, np.ndarray]:
    """Clocks of "a" and of "b", whose clock is wrong; ticks are ns of each."""
    enter_a, leave_a, enter_b, leave_b = barriers(300, seed=9)
    wrong = [shown(time, offset, drift) for time in (enter_b, leave_b)]
    clocks = Clocks()
    for host, first, last in (
        ("a", 0, 61e9),
        ("b", int(shown(np.array(2e9), offset, drift)), shown(np.array(61e9), offset, drift)),
    ):
        clocks.add(host, first + 10**12, first, DAY + first)
        clocks.add(host, int(last) + 10**12, int(last))
    ranks = []
    for host, enter, leave in (("a", enter_a, leave_a), ("b", *wrong)):
        one = Calls(host, ranks={7: 2})
        one.begin.append((enter + 1e12).astype(np.uint64))
        one.end.append((leave + 1e12).astype(np.uint64))
        one.comm.append(np.full(300, 7, np.uint32))
        one.name.append(np.zeros(300, np.int8))
        ranks.append(one)
    return clocks, ranks, enter_a, enter_b


def test_hosts_are_put_together_and_say_how_well():
    clocks, ranks, _, enter_b = hosts(5e8, 1e-4)
    clocks.settle(["a", "b"])
    before = np.abs(clocks.ns("b", ranks[1].begin[0]) - enter_b).max()
    assert before > 4e8
    clocks.align(ranks)
    after = np.abs(clocks.ns("b", ranks[1].begin[0]) - enter_b).max()
    assert after <= clocks.error_s("b") * 1e9 + 1
    assert clocks.error_s("b") < 5e-5
    assert clocks.error_s("a") == 0
    assert clocks.offset_s("b") == pytest.approx(0.5, abs=1e-3)
    assert clocks.drift("b") == pytest.approx(1e-4, abs=2e-6)
    assert clocks.warnings == []


def test_time_zero_is_when_the_first_process_began_as_it_is_known_then():
    """By its own clock of the day "b" began 3 s before "a"; truly 2 s after it."""
    clocks, ranks, enter_a, _ = hosts(-5e9, 0.0)
    clocks.settle(["a", "b"])
    assert clocks.zero_utc_ns == DAY - 3 * 10**9
    clocks.align(ranks)
    assert abs(clocks.zero_utc_ns - DAY) <= 1
    assert clocks.ns("a", ranks[0].begin[0]) == pytest.approx(enter_a, abs=2)


def test_a_clock_that_was_set_is_reported_and_its_host_keeps_its_day():
    clocks, ranks, _, _ = hosts(0.0, 0.0)
    ranks[1].begin[0] = ranks[1].begin[0] + np.where(
        ranks[1].begin[0] > 10**12 + 30 * 10**9, 10**9, 0
    ).astype(np.uint64)
    ranks[1].end[0] = ranks[1].end[0] + np.where(ranks[1].end[0] > 10**12 + 30 * 10**9, 10**9, 0).astype(
        np.uint64
    )
    clocks.settle(["a", "b"])
    clocks.align(ranks)
    (warning,) = clocks.warnings
    assert warning.code == "io.clocks_disagree"
    assert "a and b" in warning.evidence
    assert np.isnan(clocks.error_s("b"))


def test_ranks_of_one_host_need_nothing():
    clocks = Clocks()
    clocks.add("a", 0, 0, DAY)
    clocks.add("a", 10**9, 10**9)
    clocks.settle(["a"])
    clocks.align([rank("a", [100], [BARRIER]), rank("a", [110], [BARRIER])])
    assert float(clocks.ns("a", 500)) == 500
