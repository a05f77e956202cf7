"""A replay whose answer is known: costs that are a line, ranks that wait, functions that nobody measured."""

from __future__ import annotations

import numpy as np
import pytest
from replays import FILE, STACK, calls, line, together, trace

import io_traces
from io_traces import KIB, MIB, US, Call
from sonde.core.errors import DataError, UsageError
from sonde.io.predict import replay
from sonde.io.predict.calls import WAITING
from sonde.io.trace.analyse import analyse
from sonde.io.trace.schema import OWN_NAME


def row(found: replay.Prediction, name: str) -> replay.Row:
    (one,) = [row for row in found.layers if row.name == name]
    return one


class TestCosts:
    MEASURED = (4 * KIB, 64 * KIB)

    @pytest.mark.parametrize(
        "sizes", [[4 * KIB] * 3, [64 * KIB], [5000, 32 * KIB, 60 * KIB], [4 * KIB, 64 * KIB]]
    )
    def test_a_latency_and_bytes_over_a_bandwidth_are_found_again(self, sizes):
        y = trace(calls("pwrite", [size for size in self.MEASURED for _ in range(10)]))
        a = trace(calls("pwrite", sizes, lambda size: 7 * US))
        found = replay.predict(a, [y])
        assert (found.at, found.ranks) == ("posix", (1, (1,)))
        posix = row(found, "posix")
        assert posix.on.value == pytest.approx(sum(map(line, sizes)) * 1e-9)
        assert posix.a == pytest.approx(7e-6 * len(sizes))
        assert found.total.on.value == pytest.approx(posix.on.value)
        # What A did between its calls is A's.
        between = 5e-6 * (len(sizes) - 1)
        assert found.elapsed.a == pytest.approx(posix.a + between)
        assert found.elapsed.on.value == pytest.approx(posix.on.value + between)
        assert found.functions[0].outside == (0, 0)

    @pytest.mark.parametrize(("size", "beyond"), [(1 * MIB, True), (KIB, True), (0, True), (64 * KIB, False)])
    def test_beyond_what_was_measured_the_line_goes_on_and_it_is_told(self, size, beyond):
        y = trace(calls("pwrite", [size for size in self.MEASURED for _ in range(10)]))
        found = replay.predict(trace(calls("pwrite", [8 * KIB, size], lambda _: US)), [y])
        assert row(found, "posix").on.value == pytest.approx((line(8 * KIB) + line(size)) * 1e-9)
        (one,) = found.functions
        assert one.outside == ((1, size) if beyond else (0, 0))
        assert (one.least, one.most) == self.MEASURED
        assert (one.asked_least, one.asked_most) == (min(size, 8 * KIB), max(size, 8 * KIB))

    def test_of_one_size_larger_ones_are_all_bytes_and_smaller_ones_none(self):
        y = trace(calls("pwrite", [4 * KIB] * 10, lambda _: 8 * US))
        found = replay.predict(trace(calls("pwrite", [KIB, 16 * KIB], lambda _: US)), [y])
        assert found.total.on.value == pytest.approx((8 + 32) * 1e-6)
        assert found.functions[0].outside == (2, 17 * KIB)

    def test_of_a_size_whose_calls_differ_the_mean_counts_and_the_interval_is_wide(self):
        y = trace([Call("pwrite", k * MIB, (1, 1, 1, 37)[k % 4] * US, KIB, FILE) for k in range(120)])
        steady = trace(calls("pwrite", [KIB] * 120, lambda _: 10 * US))
        a = trace(calls("pwrite", [KIB] * 50, lambda _: US))
        found, calm = replay.predict(a, [y]), replay.predict(a, [steady])
        assert found.total.on.value == calm.total.on.value == pytest.approx(500e-6)
        # 6 calls a piece, of which one or two are long: draws of the pieces differ.
        assert found.total.on.low < 480e-6 < 520e-6 < found.total.on.high
        assert calm.total.on.low == pytest.approx(500e-6) == calm.total.on.high
        assert replay.predict(a, [y]).total.on == found.total.on  # the same seed, the same draws

    def test_few_calls_tell_no_interval(self):
        y = trace(calls("pwrite", [KIB] * 5))
        found = replay.predict(trace(calls("pwrite", [KIB] * 3)), [y])
        assert found.thin == 1
        assert np.isnan([found.total.on.low, found.total.on.high]).all()
        # Several traces of the same count together.
        both = replay.predict(trace(calls("pwrite", [KIB] * 3)), [y, y])
        assert both.thin == 0
        assert np.isfinite(both.total.on.low)

    def test_what_waits_for_the_disk_costs_by_what_was_written_since(self):
        def wrote(n: int, cost: int) -> list[Call]:
            made, at = [], 0
            for k in range(8):
                for _ in range(n * (1 + k % 2)):
                    made.append(Call("pwrite", at, US, KIB, FILE))
                    at += US
                made.append(Call("pwrite", at, US, 512 * KIB, "/scratch/other"))  # of no concern
                made.append(Call("fsync", at + US, cost * n * (1 + k % 2), -1, FILE))
                at += US + cost * n * (1 + k % 2)
            return made

        y = trace(wrote(2, 3 * US))  # 3 µs a KiB, of 2 and 4 KiB
        found = replay.predict(trace(wrote(3, 50)), [y])  # 3 and 6
        (fsync,) = [one for one in found.functions if one.symbol == "fsync"]
        assert (fsync.least, fsync.most, fsync.asked_most) == (2 * KIB, 4 * KIB, 6 * KIB)
        assert fsync.on.value == pytest.approx(4 * (9 + 18) * 1e-6)
        assert fsync.outside == (4, 24 * KIB)

    def test_a_function_is_the_same_with_wider_numbers(self):
        y = trace(calls("pwrite64", [KIB] * 10))
        assert replay.predict(trace(calls("pwrite", [KIB])), [y]).total.on.value == pytest.approx(
            line(KIB) * 1e-9
        )


class TestLayers:
    def test_time_is_divided_as_there_and_what_is_above_is_preserved(self):
        def call(begin: int, below: str, posix: int, size: int) -> Call:
            inner = Call(below, begin + 10 * US, posix + 20 * US, size, FILE)
            inner.within.append(Call("pwrite", begin + 15 * US, posix, size, FILE))
            return Call("MPI_File_write_at", begin + 5 * US, posix + 30 * US, size, FILE, [inner])

        def program(below: str, posix: int, hdf5: bool) -> list[Call]:
            made = []
            for k in range(10):
                begin = k * 1000 * US
                inner = call(begin, below, posix, KIB)
                outer = Call("H5Dwrite", begin, inner.duration + 100 * US, KIB, FILE, [inner])
                made.append(outer if hdf5 else inner)
            return made

        a = trace(program("ADIOI_GEN_WriteStridedColl", 50 * US, True))
        y = trace(program("mca_common_ompio_file_write_at_all", 200 * US, False))
        found = replay.predict(a, [y])
        assert found.at == "mpiio"
        named = {one.name: (round(one.a * 1e6), round(one.on.value * 1e6)) for one in found.layers}
        assert named == {
            "hdf5": (1000, 1000),
            "mpiio": (100, 100),
            "romio": (200, 0),
            "ompio": (0, 200),
            "posix": (500, 2000),
        }
        assert found.total.own == pytest.approx(1e-3)
        assert row(found, "hdf5").own == pytest.approx(1e-3)
        lower = replay.predict(a, [y], "posix")
        assert {one.name: round(one.on.value * 1e6) for one in lower.layers} == {
            "hdf5": 1000,
            "mpiio": 100,
            "romio": 200,
            "posix": 2000,
        }
        assert lower.elapsed.on.value - lower.elapsed.a == pytest.approx(1.5e-3)

    def test_a_layer_that_not_both_call(self):
        a, y = trace(calls("MPI_File_write_at", [KIB])), trace(calls("pwrite", [KIB]))
        with pytest.raises(DataError) as refused:
            replay.choose(a, [y], None)
        assert refused.value.code == "io.nothing_common"
        assert "called mpiio" in refused.value.what
        both = trace([*calls("MPI_File_write_at", [KIB]), *calls("pwrite", [KIB], begin=MIB)])
        assert replay.choose(both, [y, a], None) == "mpiio"
        assert replay.choose(both, [y, a], "posix") == "posix"
        for asked, word in (("mpiio", "do not both call it"), ("posx", "no such layer (nearest: posix)")):
            with pytest.raises(UsageError) as other:
                replay.choose(both, [y], asked)
            assert other.value.code == "io.no_such_layer"
            assert word in other.value.what


class TestNotMeasured:
    def test_a_little_is_preserved_as_it_was(self):
        a = trace([*calls("pwrite", [KIB] * 9, lambda _: 10 * US), Call("pread", MIB, 8 * US, KIB, FILE)])
        found = replay.predict(a, [trace(calls("pwrite", [KIB] * 10, lambda _: 2 * US))])
        assert found.total.on.value == pytest.approx((18 + 8) * 1e-6)
        assert found.total.own == pytest.approx(8e-6)
        (pread,) = [one for one in found.functions if one.symbol == "pread"]
        assert (pread.measured, pread.calls) == (0, 1)
        assert pread.a == pread.on.value == pytest.approx(8e-6)

    def test_most_is_refused(self):
        a = trace([*calls("pwrite", [KIB], lambda _: 10 * US), Call("pread", MIB, 30 * US, KIB, FILE)])
        with pytest.raises(DataError) as refused:
            replay.predict(a, [trace(calls("pwrite", [KIB]))])
        assert refused.value.code == "io.not_measured"
        assert refused.value.what.startswith("75 % of the time that a.nc spends at posix")
        assert "pread; measured: pwrite" in refused.value.what


class TestRanks:
    def test_a_collective_call_ends_with_its_last_rank(self):
        """Rank 1 comes late by what it computes: on Y, too, and that is neither stack's time."""
        a = trace(*together(40 * US, [[0, 30 * US]] * 10))
        y = trace(*together(10 * US, [[0, 0]] * 10), name="y.nc")
        found = replay.predict(a, [y])
        assert row(found, "mpiio").a == pytest.approx(2 * 10 * 40e-6)
        assert row(found, WAITING).a == pytest.approx(10 * 30e-6)
        assert row(found, "mpiio").on.value == pytest.approx(2 * 10 * 10e-6)
        assert row(found, WAITING).on.value == pytest.approx(10 * 30e-6)
        assert found.elapsed.a == pytest.approx(10 * 70e-6)
        assert found.elapsed.on.value == pytest.approx(10 * 40e-6)

    def test_waiting_there_is_not_taken_for_what_a_call_costs(self):
        a = trace(*together(40 * US, [[0, 0]] * 10))
        y = trace(*together(10 * US, [[0, 500 * US], [90 * US, 0]] * 5))
        found = replay.predict(a, [y])
        assert found.total.on.value == pytest.approx(2 * 10 * 10e-6)
        assert found.elapsed.on.value == pytest.approx(10 * 10e-6)

    def test_who_leaves_early_waits_at_the_next_call(self):
        def program(cost: int, early: int) -> replay.Trace:
            ranks = together(cost, [[0, 0]] * 10)
            for k, call in enumerate(ranks[1]):  # leaves early, and is at the next call at once
                call.begin -= early if k else 0
                call.duration -= 0 if k else early
            return trace(*ranks)

        a, y = program(40 * US, 30 * US), program(20 * US, 8 * US)
        found = replay.predict(a, [y])
        # The mean of both ranks is 16 µs there; the last leaves after 20.
        assert row(found, "mpiio").on.value == pytest.approx(10 * (20 + 12) * 1e-6)
        assert row(found, WAITING).on.value == pytest.approx(9 * 8e-6)
        assert found.elapsed.on.value == pytest.approx(200e-6)
        # Nobody of A left early: then nobody does, and all wait for the last.
        level = replay.predict(program(40 * US, 0), [y])
        assert row(level, WAITING).on.value == pytest.approx(10 * 8e-6)
        assert level.total.on.value == pytest.approx(2 * 10 * 20e-6)

    def test_who_waited_for_a_rank_that_wrote_waits_less_where_writing_is_faster(self):
        """Rank 0 writes while the others are in a barrier."""

        def program(cost: int) -> replay.Trace:
            ranks: list[list[Call]] = [[], [], []]
            at = 0
            for _ in range(8):
                ranks[0] += [Call("pwrite", at, cost, KIB, FILE), Call("MPI_Barrier", at + cost, US)]
                for other in ranks[1:]:
                    other.append(Call("MPI_Barrier", at, cost + US))
                at += cost + 5 * US
            return trace(*ranks)

        found = replay.predict(program(100 * US), [program(10 * US)])
        assert row(found, WAITING).a == pytest.approx(2 * 8 * 100e-6)
        assert row(found, WAITING).on.value == pytest.approx(2 * 8 * 10e-6)
        assert row(found, "mpi").on.value == pytest.approx(3 * 8 * 1e-6)
        assert found.elapsed.on.value == pytest.approx(found.elapsed.a - 8 * 90e-6)

    def test_where_ranks_do_not_wait_for_each_other_they_do_not_here(self):
        """On Y a rank leaves before the other has come."""
        ranks = together(40 * US, [[0, 30 * US]] * 10)
        y = trace(
            *(
                [
                    Call("MPI_File_write_at_all", k * 100 * US + rank * 50 * US, 20 * US, KIB, FILE)
                    for k in range(10)
                ]
                for rank in range(2)
            )
        )
        found = replay.predict(trace(*ranks), [y])
        assert found.total.on.value == pytest.approx(2 * 10 * 20e-6)
        assert all(one.name != WAITING or one.on.value == 0 for one in found.layers)

    def test_calls_that_cannot_be_put_together_are_each_ranks_own(self):
        ranks = together(40 * US, [[0, 30 * US]] * 10)
        found = replay.predict(trace(ranks[0], ranks[1][:-1]), [trace(*together(10 * US, [[0, 0]] * 10))])
        assert found.total.on.value == pytest.approx(19 * 10e-6)
        level = trace(*together(10 * US, [[0, 0]] * 10), *[[Call("pread", 0, US, 1, FILE)]])
        assert replay.predict(level, [level]).unmatched == []

    def test_one_rank_tells_what_a_call_costs(self):
        a = trace(*together(40 * US, [[0, 30 * US]] * 10))
        found = replay.predict(a, [trace(calls("MPI_File_write_at_all", [KIB] * 10, lambda _: 10 * US))])
        assert found.ranks == (2, (1,))
        assert row(found, WAITING).on.value == pytest.approx(300e-6)
        assert found.elapsed.on.value == pytest.approx(10 * 40e-6)


class TestWhole:
    def test_a_run_on_itself_is_itself(self):
        data = io_traces.collective(4)
        a = replay.Trace("a.nc", data, analyse(data))
        found = replay.predict(a, [a], None, a)
        assert found.at == "hdf5"
        lower = replay.predict(a, [a], "mpiio", a)
        for each in (found, lower):
            assert each.elapsed.on.value == pytest.approx(each.elapsed.a, rel=0.02)
            for one in (*each.layers, each.total):
                assert one.on.value == pytest.approx(one.a, rel=0.02, abs=1e-6)
                assert one.against == one.a
        # All ranks begin at once: nothing of it is waiting, and the layers are those of /summary.
        assert lower.total.a == pytest.approx(float(a.summary["layer_self_time"].values.sum()))

    def test_the_tracers_work_start_up_and_other_processes_are_left_out(self):
        mine = calls("pwrite", [KIB] * 10, lambda _: 10 * US, begin=MIB)
        beside = [
            Call(
                "MPI_Init",
                0,
                500 * US,
                within=[Call("open", 10 * US, 5 * US, path="/sys/x"), Call(OWN_NAME, 100 * US, US)],
            ),
            Call(OWN_NAME, 600 * US, 50 * US),
        ]
        mine[3].within.append(Call(OWN_NAME, mine[3].begin + US, 4 * US))
        other = calls("pwrite", [KIB] * 4, lambda _: 900 * US)
        a = trace([*beside, *mine], other, numbers=[0, -1])
        y = trace(calls("pwrite", [KIB] * 10, lambda _: 20 * US), other, numbers=[0, -1])
        found = replay.predict(a, [y])
        (pwrite,) = found.functions
        assert (pwrite.calls, pwrite.measured) == (10, 10)
        assert pwrite.a == pytest.approx((10 * 10 - 4) * 1e-6)
        assert found.total.on.value == pytest.approx(200e-6)
        # Elapsed: from MPI_Init on, with what was between, without 54 µs of the tracer's outside of it.
        whole = (mine[-1].begin + 10 * US) * 1e-9
        assert found.elapsed.a == pytest.approx(whole - 54e-6)
        assert found.elapsed.on.value == pytest.approx(whole - 54e-6 + 104e-6)

    def test_threads_that_have_nothing_to_replay_do_not_hold_the_end_where_it_was(self):
        mine = calls("pwrite", [KIB] * 10, lambda _: 10 * US)
        beside = [
            Call(OWN_NAME, 20 * US, US),
            Call("open", MIB, US, path="/sys/x"),
            Call(OWN_NAME, 2 * MIB, US),
        ]
        data = io_traces.raw([(0, mine), (0, beside)], [0], STACK)
        a = replay.Trace("a.nc", data, analyse(data))
        found = replay.predict(a, [trace(calls("pwrite", [KIB] * 10, lambda _: US))])
        assert found.elapsed.a == pytest.approx(145e-6)
        assert found.elapsed.on.value == pytest.approx(55e-6)

    def test_against_a_run_there(self):
        a = trace(calls("pwrite", [KIB] * 10, lambda _: 10 * US))
        y = trace(calls("pwrite", [KIB] * 10, lambda _: 20 * US))
        c = trace(calls("pwrite", [KIB] * 10, lambda _: 25 * US))
        found = replay.predict(a, [y], None, c)
        assert row(found, "posix").against == pytest.approx(250e-6)
        assert found.elapsed.against == pytest.approx(250e-6 + 9 * 5e-6)
        assert found.total.against == pytest.approx(250e-6)
