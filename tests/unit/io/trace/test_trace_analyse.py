"""Time, requests and paths of calls, against sums that can be done by hand or by other means."""

from __future__ import annotations

import random

import numpy as np
import pytest
import traces
from calls_within import tree_of
from traces import PREAD, PWRITE, WRITE_ALL, call

import io_traces
import sonde
from sonde.io.maps.layers import KINDS
from sonde.io.trace import analyse, ignored_paths, verdict
from sonde.io.trace.analyse import size_class
from sonde.io.trace.events import FAILED, UNFINISHED
from sonde.io.trace.schema import OWN_NAME, UNSEEN


@pytest.fixture
def summary(tmp_path):
    """summary({pid: records}) of a run's /summary."""

    def make(processes, **plan):
        folder = traces.run(tmp_path / "a.run", plan)
        for pid, records in processes.items():
            traces.add(folder, records, pid=pid, rank=pid)
        with sonde.open(traces.sealed(folder)) as tree:
            return tree["summary"].to_dataset().load()

    return make


def test_time_by_layer_function_and_path(summary):
    s = summary(
        {
            0: [
                call(PWRITE, 200, 500, 1, size=10),
                call(PWRITE, 600, 700, 1, size=30),
                call(WRITE_ALL, 100, 1000, size=40),
            ]
        }
    )
    assert s["function_name"].values.tolist() == ["MPI_File_write", "pwrite"]
    assert s["calls"].values.tolist() == [[1, 2]]
    assert s["bytes"].values.tolist() == [[40, 40]]
    assert np.allclose(s["time"].values, [[900e-9, 400e-9]])
    assert np.allclose(s["self_time"].values, [[500e-9, 400e-9]])
    assert np.allclose(s["longest"].values, [[900e-9, 300e-9]])
    assert np.allclose(s["layer_time"].values, [[900e-9, 400e-9]])
    assert np.allclose(s["layer_self_time"].values, [[500e-9, 400e-9]])
    assert s["node_parent"].values.tolist() == [-1, 0]
    assert s["node_function"].values.tolist() == [0, 1]
    assert s["node_calls"].values.tolist() == [1, 2]
    assert np.allclose(s["node_self_time"].values, [500e-9, 400e-9])
    assert float(s["traced_time"][0]) == pytest.approx(900e-9)


def test_what_enters_a_layer_is_counted_once_however_deep_it_calls_itself(summary):
    inner = [call(PWRITE, 300, 400, 2, size=8), call(PWRITE, 200, 500, 1, size=8)]
    s = summary({0: [*inner, call(WRITE_ALL, 100, 1000, size=8), call(PREAD, 1100, 1200, size=5)]})
    requests = {
        (str(layer), str(way)): int(s["requests"].values[0, k, d])
        for k, layer in enumerate(s["layer_name"].values)
        for d, way in enumerate(("read", "write"))
    }
    assert requests == {
        ("mpiio", "read"): 0,
        ("mpiio", "write"): 1,
        ("posix", "read"): 1,
        ("posix", "write"): 1,
    }
    assert s["request_bytes"].values[0].tolist() == [[0, 8], [5, 8]]
    assert np.allclose(s["request_time"].values[0], [[0, 900e-9], [100e-9, 300e-9]])
    assert np.allclose(s["layer_time"].values, [[900e-9, 400e-9]])
    assert int(s["calls"].values[0, 1]) == 2


def test_failures_and_sizes_that_nobody_knows(summary):
    s = summary(
        {0: [call(PWRITE, 1, 2, flags=FAILED), call(PWRITE, 3, 4, size=0), call(PWRITE, 5, 9, size=4096)]}
    )
    assert s["failed"].values.tolist() == [[1]]
    sizes = s["request_sizes"].values[1, 1]
    assert {k: int(n) for k, n in enumerate(sizes) if n} == {0: 1, 13: 1}
    assert int(s["requests"].values[0, 1, 1]) == 2


def test_a_call_that_failed_moved_nothing_whatever_it_was_asked_for(summary):
    s = summary({0: [call(WRITE_ALL, 1, 9, size=4096, flags=FAILED), call(WRITE_ALL, 11, 19, size=100)]})
    assert s["requests"].values[0, 0].tolist() == [0, 1]
    assert s["request_bytes"].values[0, 0].tolist() == [0, 100]
    assert (s["bytes"].values.tolist(), s["calls"].values.tolist()) == ([[100]], [[2]])
    assert s["lost"].values.tolist() == [[1]]
    assert s["node_bytes"].values.tolist() == [100]


def test_what_was_under_way_is_distinguished_from_outside_in(summary):
    inner, outer = call(PWRITE, 300, 400, 1, flags=UNFINISHED), call(WRITE_ALL, 100, 400, flags=UNFINISHED)
    s = summary({0: [call(PREAD, 1, 2), inner, outer]})
    names = s["function_name"].values[s["under_way_function"].values]
    assert names.tolist() == ["MPI_File_write", "pwrite"]
    assert s["under_way_process"].values.tolist() == [0, 0]
    assert np.allclose(s["under_way_begin"].values, [100e-9, 300e-9])
    assert summary({1: [call(PREAD, 1, 2)]}).sizes["under_way"] == 0


def test_size_classes():
    given = np.array([0, 1, 2, 3, 4, 4095, 4096, 2**40])
    assert size_class(given).tolist() == [0, 1, 2, 2, 3, 12, 13, 41]


def test_time_over_the_run_is_shared_out_exactly(summary):
    rng, records, clock = random.Random(3), [], 0
    for _ in range(60):
        begin = clock + rng.randint(1, 400)
        clock = begin + rng.randint(1, 3000)
        if rng.random() < 0.5 and clock - begin > 10:
            records.append(call(PWRITE, begin + 2, clock - 3, 1))
            records.append(call(WRITE_ALL, begin, clock))
        else:
            records.append(call(PREAD, begin, clock))
    s = summary({0: records, 1: records[::2]})
    assert np.allclose(s["busy"].values.sum(axis=2), s["layer_self_time"].values)
    # By hand: each ns of the run belongs to the innermost call that covers it.
    edges = np.append(s["bin_begin"].values, s["bin_begin"].values[-1] * 2 - s["bin_begin"].values[-2]) * 1e9
    owner = np.full(int(edges[-1]) + 2, -1)
    for record in sorted((r[0] for r in records), key=lambda r: r["depth"]):
        owner[int(record["begin"]) : int(record["end"])] = 0 if record["function"] == WRITE_ALL else 1
    for layer in (0, 1):
        covered = np.concatenate([[0], np.cumsum(owner == layer)])
        at = np.interp(edges, np.arange(len(covered)), covered)
        assert np.allclose(s["busy"].values[0, layer], np.diff(at) * 1e-9, atol=2e-12)


@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_pieces_of_a_thread_make_no_difference(summary, tmp_path, monkeypatch, chunk):
    calls = tree_of(5)
    kinds = (WRITE_ALL, PWRITE, PREAD)
    records = [
        call(kinds[k % 3], begin, end, depth, size=k) for k, (begin, end, depth, _) in enumerate(calls)
    ]
    whole = summary({0: records})
    monkeypatch.setattr(analyse, "CHUNK", chunk)
    with sonde.open(tmp_path / "a.nc") as tree:
        pieces = analyse.analyse(tree["raw"].to_dataset())
    for name in ("calls", "bytes", "self_time", "layer_time", "requests", "busy", "request_sizes"):
        assert np.allclose(pieces[name].values, whole[name].values)
    assert sorted(pieces["node_calls"].values) == sorted(whole["node_calls"].values)


@pytest.mark.parametrize("own", [False, True])
def test_what_tracing_took_is_taken_off_the_calls_it_was_spent_in(tmp_path, own):
    """100 ns a call, 30 of them within what is recorded as its own time."""
    write = io_traces.Call("MPI_File_write_at_all", 0, 10_000)
    write.within = [io_traces.Call("pwrite", 1000 * k, 400) for k in range(1, 6)]
    calls = [write, io_traces.Call("pread", 20_000, 20)]  # shorter than that: no time is less than none
    if own:
        calls.append(io_traces.Call(OWN_NAME, 30_000, 50))
    raw = io_traces.raw([(0, calls)], [0])
    raw["call_cost"][:], raw["call_cost_inside"][:] = 100.0, 30.0
    s = analyse.analyse(raw)
    at = {str(name): k for k, name in enumerate(s["function_name"].values)}
    own_ns = s["self_time"].values[0] * 1e9
    assert own_ns[at["pwrite"]] == pytest.approx(5 * (400 - 30))
    assert own_ns[at["MPI_File_write_at_all"]] == pytest.approx(10_000 - 5 * 400 - 30 - 5 * 70)
    assert own_ns[at["pread"]] == 0
    assert s["time"].values[0, at["MPI_File_write_at_all"]] == pytest.approx(10_000e-9)
    took_ns = 5 * 30 + 30 + 5 * 70 + 20
    assert s["tracing_time"].values[0] * 1e9 == pytest.approx(took_ns)
    assert s["node_self_time"].values.sum() == pytest.approx(
        s["self_time"].values.sum() - took_ns * 1e-9 * own
    )
    if own:
        assert own_ns[at[OWN_NAME]] == pytest.approx(50 + took_ns)
    assert "Tracing costs 100 ns a call: 550 ns were subtracted." in verdict.tables(s)[0].note
    assert verdict.values(s)["tracing"] == pytest.approx({"call_cost_ns": 100, "taken_off_s": took_ns * 1e-9})


def test_start_up_and_files_of_the_system_are_a_layer_of_their_own():
    start = io_traces.Call("MPI_Init", 0, 9000)
    start.within = [io_traces.Call("pread", 1000, 2000, 10, "data"), io_traces.Call(OWN_NAME, 4000, 500)]
    write = io_traces.Call("MPI_File_write_at_all", 10_000, 4000, 64, "data")
    write.within = [
        io_traces.Call("pwrite", 11_000, 1000, 64, "data"),
        io_traces.Call("open", 13_000, 300, -1, "/etc/x"),
    ]
    calls = [
        start,
        write,
        io_traces.Call("pread", 20_000, 700, 8, "/sys/y"),
        io_traces.Call("pread", 30_000, 50, 4, "data"),
    ]
    raw = io_traces.raw([(0, calls)], [0])
    s = analyse.analyse(raw)
    layers = s["layer_name"].values.astype(str).tolist()
    assert layers == [*raw["layer_name"].values.astype(str), ignored_paths.LAYER]
    of = {
        (layers[layer], str(name)): k
        for k, (layer, name) in enumerate(zip(s["function_layer"].values, s["function_name"].values))
    }
    assert set(of) == {
        ("mpiio", "MPI_File_write_at_all"), ("posix", "pwrite"), ("posix", "pread"), ("tracer", OWN_NAME),
        ("system", "MPI_Init"), ("system", "pread"), ("system", "open"),
    }  # fmt: skip
    own_ns = s["self_time"].values[0] * 1e9
    assert own_ns[of["posix", "pread"]] == pytest.approx(50)
    assert own_ns[of["system", "pread"]] == pytest.approx(2000 + 700)
    assert own_ns[of["system", "MPI_Init"]] == pytest.approx(9000 - 2500)
    assert own_ns[of["mpiio", "MPI_File_write_at_all"]] == pytest.approx(4000 - 1300)
    assert s["node_function"].values.max() < s.sizes["function"]
    assert verdict.traced_s(s) == pytest.approx((4000 - 300 + 50) * 1e-9)
    assert verdict.beside_s(s) == pytest.approx((9000 - 500 + 300 + 700) * 1e-9)
    told = {layer["layer"]: layer for layer in verdict.values(s)["layers"]}
    assert told["system"]["share"] is None
    read = told["posix"]["read"]
    assert (read["requests"], read["sized"], read["bytes"]) == (1, 1, 4)
    assert (read["time_s"], read["rate_B_per_s"]) == pytest.approx((50e-9, 8e7))
    assert [one["layer"] for one in verdict.values(s)["functions"]][-4:].count(
        "system"
    ) == 3  # behind the program's


def test_a_descriptor_that_nobody_was_seen_to_open_is_no_file():
    raw = io_traces.raw([(0, [io_traces.Call("pread", 0, 100, 8), io_traces.Call("pread", 200, 30, 8)])], [0])
    raw["file_index"][0] = UNSEEN
    s = analyse.analyse(raw)
    assert verdict.traced_s(s) == pytest.approx(30e-9)
    assert verdict.beside_s(s) == pytest.approx(100e-9)


def test_what_a_library_reads_is_its_own_whoever_opened_it():
    read = io_traces.Call("H5Dread", 0, 300, 8)
    read.within = [io_traces.Call("pread", 10, 100, 8)]
    raw = io_traces.raw([(0, [read])], [0])
    raw["file_index"][:] = UNSEEN
    assert verdict.beside_s(analyse.analyse(raw)) == 0


def test_sockets_that_an_mpi_polls_within_its_own_io_are_no_files():
    """As Open MPI's TCP does while it waits within ROMIO: neither bytes of the file, nor data that was sieved."""
    kib, steps = 1024, io_traces.Call("ADIOI_GEN_ReadStridedColl", 100, 9000, 64 * 1024)
    steps.within = [
        io_traces.Call("readv", 200, 1000, 200 * kib), io_traces.Call("pread", 2000, 3000, 64 * kib, "data"),
        io_traces.Call("read", 6000, 100, 10 * kib), io_traces.Call("pread", 7000, 100, 8),
    ]  # fmt: skip
    read = io_traces.Call("MPI_File_read_at_all", 0, 10_000, 64 * kib, "data", [steps])
    raw = io_traces.raw([(0, [read])], [0])
    names = raw["function_name"].values[raw["function_index"].values]
    sizes = raw["size"].values
    raw["file_index"][np.isin(names, ("readv", "read")) | (sizes == 8)] = UNSEEN
    s = analyse.analyse(raw)
    posix = s["layer_name"].values.tolist().index("posix")
    # Bytes read at an offset are of a file, by whichever process it was opened.
    assert s["requests"].values[0, posix].tolist() == [2, 0]
    assert s["request_bytes"].values[0, posix].tolist() == [64 * kib + 8, 0]
    assert verdict.beside_s(s) == pytest.approx(1100e-9)
    (layer,) = (one for one in verdict.values(s)["layers"] if one["layer"] == "posix")
    assert layer["read"]["bytes"] == 64 * kib + 8


def test_what_a_client_library_reads_from_its_sockets_is_its_own():
    write = io_traces.Call("glfs_pwrite", 0, 300, 8, within=[io_traces.Call("read", 10, 100, 8)])
    raw = io_traces.raw([(0, [write])], [0])
    raw["file_index"][:] = UNSEEN
    assert verdict.beside_s(analyse.analyse(raw)) == 0


def test_a_server_that_polls_its_connections_has_lost_nothing():
    """A non-blocking read of an unknown descriptor fails with EAGAIN; a write may have lost data."""
    calls = [
        io_traces.Call(name, 1000 * k, 100, 8) for k, name in enumerate(("readv", "pread", "pwrite", "readv"))
    ]
    raw = io_traces.raw([(0, calls)], [-1])
    raw["flags"][:3] = FAILED
    s = analyse.analyse(raw)
    lost = dict(zip(s["function_name"].values.tolist(), s["lost"].values[0].tolist()))
    assert lost == {"readv": 0, "pread": 1, "pwrite": 1}
    assert dict(zip(s["function_name"].values.tolist(), s["failed"].values[0].tolist()))["readv"] == 1
    raw["file_index"][:] = 0
    raw = raw.assign(path=("file", np.array(["/data/f"], object)))
    assert int(analyse.analyse(raw)["lost"].values.sum()) == 3


def test_servers_of_one_host_have_a_row_each():
    def rows(*begins):
        each = [
            (k, [io_traces.Call("pread", 1000 * n, 500, 8) for n in range(at, at + 50)])
            for k, at in enumerate(begins)
        ]
        raw = io_traces.raw(each, [-1] * len(begins), programs=["/usr/sbin/glusterfsd"] * len(begins))
        table = next(one for one in verdict.tables(analyse.analyse(raw)) if one.title.endswith("by rank"))
        return [row[0] for row in table.rows]

    assert rows(0, 10, 20) == ["glusterfsd 1000", "glusterfsd 1001", "glusterfsd 1002"]
    assert rows(0, 100, 200) == ["glusterfsd"]  # as commands of a script, one after another


def test_a_program_that_does_nothing_else_is_reported_so():
    s = analyse.analyse(io_traces.raw([(0, [io_traces.Call("pread", 0, 100, 8, "/etc/hostname")])], [0]))
    assert (
        verdict.sentence(s)
        == "1 rank spent 100 ns in start-up and in system files, and no time in other files"
    )


class TestWords:
    def test_the_sentence_names_layer_and_function(self, summary):
        s = summary({0: [call(PWRITE, 200, 900, 1, size=10), call(WRITE_ALL, 100, 1000, size=40)]})
        assert verdict.sentence(s) == (
            "1 rank spent 900 ns in 2 traced calls: 78 % of it in POSIX, 78 % in pwrite"
        )

    def test_tables_name_requests_by_count_and_mean_size(self, summary):
        s = summary({0: [call(PWRITE, k * 10, k * 10 + 5, size=4096) for k in range(1, 5)]})
        layers = verdict.tables(s)[0]
        assert layers.rows == [("POSIX", "4", "", "4 × 4 KiB", "20.0 ns", "100 %")]

    def test_rows_that_are_left_out_are_counted_and_can_be_had(self, summary, monkeypatch):
        monkeypatch.setattr(verdict, "FUNCTIONS_SHOWN", 1)
        s = summary({0: [call(PWRITE, 1, 9), call(PREAD, 10, 12), call(WRITE_ALL, 20, 21)]})
        short, whole = verdict.tables(s)[1], verdict.tables(s, every=True)[1]
        assert [row[0] for row in short.rows] == ["pwrite"]
        assert "and 2 more" in short.note
        assert [row[0] for row in whole.rows] == ["pwrite", "pread", "MPI_File_write"]
        assert whole.note == ""

    def test_how_long_the_run_took_is_told_where_it_is_known(self, summary):
        s = summary({0: [call(PWRITE, 100, 1000, size=10)]})
        assert verdict.sentence(s, 2.5).startswith("in 2.50 s 1 rank spent 900 ns in 1 traced call: ")

    def test_shares_of_next_to_nothing_have_no_digits(self):
        assert [verdict.share_of(share) for share in (0.0, 1e-7, 1e-3, 0.5)] == [
            "0 %",
            "< 0.1 %",
            "0.10 %",
            "50 %",
        ]

    def test_bytes_and_rates_by_layer_are_those_of_the_slowest_rank(self, summary):
        mib = 1 << 20
        s = summary({0: [call(PWRITE, 0, 10**9, size=3 * mib)], 1: [call(PWRITE, 0, 10**8, size=mib)]})
        (data,) = [table for table in verdict.tables(s) if table.title == "Data moved, by layer"]
        assert data.rows == [("POSIX", "", "", "4 MiB", "4")]

    def test_files_are_reported_by_layer_with_what_failed_and_what_was_mapped(self):
        kib = io_traces.KIB
        calls = [
            io_traces.Call("pwrite", 0, 10, 4 * kib, "a.dat"),
            io_traces.Call("pwrite", 20, 10, 4 * kib, "a.dat"),
            io_traces.Call("pread", 40, 10, 9 * kib, "b.dat"),
            io_traces.Call("open", 60, 10, 64 * kib, "c.dat"),
            io_traces.Call("pread", 80, 10, 9 * kib, "/etc/x"),
        ]
        raw = io_traces.raw([(0, calls)], [0])
        raw["flags"][1] = FAILED
        raw["function_kind"][raw["function_name"].values.tolist().index("open")] = KINDS.index("map")
        s = analyse.analyse(raw)
        (files,) = [table for table in verdict.tables(s) if table.title.startswith("Files")]
        assert files.columns == ("file", "layer", "failed", "read", "written")
        assert files.rows == [
            ("b.dat", "posix", "", "9 KiB in 1", ""),
            ("a.dat", "posix", "1", "", "4 KiB in 1"),
        ]
        assert files.note == "mapped into memory, where reading and writing make no calls: c.dat (64 KiB)"
        assert verdict.values(s)["mapped"] == [{"path": "c.dat", "bytes": 64 * kib}]
        layers, _, functions, *_ = verdict.tables(s)
        assert layers.columns[:3] == ("layer", "calls", "failed")
        assert ("pwrite", "posix", "2", "1") in [row[:4] for row in functions.rows]

    def test_there_is_no_column_of_failed_calls_where_none_failed(self, summary):
        s = summary({0: [call(PWRITE, 1, 2, size=1)]})
        assert all({"failed", "unfinished"}.isdisjoint(table.columns) for table in verdict.tables(s))

    def test_calls_of_which_nobody_knows_the_size_are_in_no_mean(self, summary):
        s = summary({0: [call(PWRITE, 1, 2, size=100), call(PWRITE, 3, 4)]})
        assert verdict.tables(s)[0].rows[0][3] == "2 × 100 B"

    def test_a_layer_that_no_library_has_is_reported(self, summary):
        s = summary({0: [call(PWRITE, 1, 2)]}, layers=[*traces.LAYERS, {"name": "hdf5", "title": "HDF5"}])
        assert "In none of the traced programs, or hidden there: HDF5." in verdict.tables(s)[0].note

    def test_an_mpi_that_hides_what_is_below_mpi_io_is_reported(self, summary):
        romio = [*traces.LAYERS, {"name": "romio", "title": "ROMIO"}]
        s = summary({0: [call(WRITE_ALL, 1, 9)]}, layers=romio)
        assert "hides the functions below MPI-IO" in verdict.tables(s)[0].note
        rules = [*traces.RULES[:3], [2, 0]]
        other = summary({0: [call(PREAD, 3, 5, 1), call(WRITE_ALL, 1, 9)]}, layers=romio, rules=rules)
        assert "hides the functions" not in verdict.tables(other)[0].note

    def test_nothing_called(self, summary):
        s = summary({0: []})
        assert verdict.sentence(s) == "1 rank made 0 traced calls, which took no measurable time"
        verdict.tables(s)
        verdict.values(s)


def test_calls_that_several_engines_saw_are_within_each_other_however_long_the_trace(tmp_path, monkeypatch):
    """The outermost is seen by a uprobe, those within by interposition and again by the kernel."""
    monkeypatch.setattr(analyse, "CHUNK", 16)
    plan = {
        "rules": [*traces.RULES, [0, 0], [1, 1]],
        "layers": [*traces.LAYERS],
    }
    folder = traces.run(tmp_path / "a.run", plan)
    inner = [call(PWRITE, 1000 + 100 * k, 1050 + 100 * k) for k in range(100)]
    name = traces.add(folder, inner, pid=100)
    watched = "0\t4\touter\tlib.so\n1\t5\tpwrite64\tkernel\n"
    (folder / "watch.functions").write_text(watched)
    seen = [call(1, 1010 + 100 * k, 1040 + 100 * k, 1) for k in range(100)]
    outer = [*seen, call(0, 900, 20000)]
    head = traces.header(pid=100, watched=1, number=101)
    (folder / "n1-100-watch-101.blk").write_bytes(
        traces.block_file(head, [np.concatenate([traces.thread(101), *outer])])
    )
    assert name != "n1-100-watch"
    with sonde.open(traces.sealed(folder)) as tree:
        raw, s = (tree[group].to_dataset().load() for group in ("raw", "summary"))
    engines = dict(zip(raw["function_name"].values.tolist(), raw["function_engine"].values.tolist()))
    assert engines == {"outer": 1, "pwrite": 0, "pwrite64": 2}
    names = s["function_name"].values.astype(str)[s["node_function"].values]
    tree_of_names = {
        (str(names[k]), str(names[up]) if up >= 0 else ""): int(s["node_calls"].values[k])
        for k, up in enumerate(s["node_parent"].values.tolist())
    }
    assert tree_of_names == {("outer", ""): 1, ("pwrite", "outer"): 100, ("pwrite64", "pwrite"): 100}
    own = dict(zip(s["function_name"].values.tolist(), s["self_time"].values.sum(axis=0).tolist()))
    assert own["outer"] == pytest.approx((19100 - 100 * 50) * 1e-9)
    assert own["pwrite"] == pytest.approx(100 * 20e-9)
    assert "times of 1 function include the cost of uprobes" in verdict.tables(s)[1].note
