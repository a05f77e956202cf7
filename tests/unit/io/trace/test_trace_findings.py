"""Each finding where it must be told, and not where it must not."""

from __future__ import annotations

import pytest
import traces
from traces import call

import io_traces
import sonde
from io_traces import KIB, US, Call
from sonde.io.maps.layers import KINDS
from sonde.io.trace import slow_servers
from sonde.io.trace.analyse import analyse
from sonde.io.trace.events import FAILED
from sonde.io.trace.findings import findings, slow_way

LAYERS = [
    {"name": name, "title": name.upper()}
    for name in ("hdf5", "mpiio", "romio", "mpi", "posix", "tracer", "ompio")
]
NAMES = {
    "MPI_File_write_at_all": (1, "write"), "MPI_File_read_at": (1, "read"), "ADIOI_W_Exchange_data": (2, "other"),
    "MPI_Waitall": (3, "wait"), "pwrite": (4, "write"), "pread": (4, "read"), "fsync": (4, "sync"), "stat": (4, "meta"),
    "H5Dwrite": (0, "write"), "MPI_File_write": (1, "write"), "unlink": (4, "meta"), "fputc": (4, "write"),
    "MPI_File_preallocate": (1, "meta"), "mca_fcoll_write": (6, "other"),
}  # fmt: skip
NUMBER = {name: k for k, name in enumerate(NAMES)}
TABLE = "".join(f"{k}\t{k}\t{name}\tlib\n" for k, name in enumerate(NAMES))


@pytest.fixture
def told(tmp_path):
    """told({rank: calls}) by code. A call: (name, begin, end, depth, size, flags), in ticks.

    of: for each key of that in order (its MPI program, its rank there), where there are several programs.
    """
    count = iter(range(100))

    def make(ranks, tick_ns=1000, of=()):
        plan = {
            "layers": LAYERS,
            "rules": [[layer, KINDS.index(kind)] for layer, kind in NAMES.values()],
            "own": 5,
            "clocks": [["n1", 0, 0], ["n1", 10**9, tick_ns * 10**9]],
        }
        folder = traces.run(tmp_path / f"{next(count)}.run", plan)
        for at, (rank, calls) in enumerate(ranks.items()):
            program, own = of[at] if of else ("", rank)
            records = []
            for name, begin, end, depth, size, *flags in calls:
                number = NUMBER.get(name, 0xFFFD)
                more = {} if size is None else {"size": size}
                records.append(call(number, begin, end, depth, flags=flags[0] if flags else 0, **more))
            traces.add(folder, records, TABLE, pid=rank + 1, rank=own, world=program)
        with sonde.open(traces.sealed(folder)) as tree:
            found = findings(tree["summary"].to_dataset().load())
        return {one.code: one for one in found}

    return make


def writes(n, size, each=100, begin=0, name="pwrite"):
    return [(name, begin + k * 2 * each, begin + k * 2 * each + each, 0, size) for k in range(n)]


def test_collective_time_that_is_exchange(told):
    within = [
        ("MPI_Waitall", 200, 8000, 2, None),
        ("ADIOI_W_Exchange_data", 150, 8500, 1, None),
        ("pwrite", 8600, 9500, 1, 1 << 20),
    ]
    found = told({0: [*within, ("MPI_File_write_at_all", 100, 10_000, 0, 1 << 20)]})
    one = found["io.collective_exchange"]
    assert one.evidence["functions"] == ["MPI_File_write_at_all"]
    assert one.evidence["exchange"] == pytest.approx(8350 / 9900)
    assert one.evidence["files"] == pytest.approx(900 / 9900)
    # Of one rank alone nobody can tell whom it waited for.
    assert one.text == (
        "84 % of the time of collective writes is exchange between ranks, or waiting for them; this trace cannot "
        "separate the two; 9.1 % is in the file system"
    )
    assert "late" not in one.evidence
    assert "romio_cb_write=disable" in one.next


def between(begin, end, *files):
    """A collective write of a rank, and when it was at the file system."""
    return [
        ("MPI_Waitall", begin + 1, end - 1, 1, None)
        if not files
        else ("ADIOI_W_Exchange_data", begin, begin, 1, None),
        *(("pwrite", first, last, 1, 1 << 20) for first, last in files),
        ("MPI_File_write_at_all", begin, end, 0, 1 << 20),
    ]


def test_collective_time_that_is_waiting_for_a_late_rank(told):
    ranks = {rank: between(100, 10_000) for rank in range(3)}
    one = told(ranks | {3: between(8100, 10_000)})["io.collective_exchange"]
    whole = 3 * 9900 + 1900
    assert one.evidence["late"] == pytest.approx(3 * 8000 / whole)
    assert (one.evidence["others"], one.evidence["last_rank"], one.evidence["last_share"]) == (0, 3, 1)
    assert one.evidence["moving"] == pytest.approx(4 * 1898 / whole, abs=1e-3)
    assert one.text == (
        "100 % of the time of collective writes is between ranks: 76 % waiting for the last rank to arrive (rank 3 in "
        "100 % of the calls), 24 % moving data; 0 % is in the file system"
    )
    assert one.next.startswith("try to let the last ranks arrive earlier")


def test_collective_time_that_is_waiting_for_aggregators(told):
    ranks = {rank: between(100, 10_000) for rank in range(3)}
    one = told(ranks | {3: between(100, 10_000, (1000, 5000), (6000, 9500))})["io.collective_exchange"]
    assert one.evidence["others"] == pytest.approx(3 * 7500 / (4 * 9900))
    assert one.evidence["late"] == 0
    assert "57 % waiting while others write" in one.text
    assert one.next.startswith("try more aggregators")


@pytest.mark.parametrize(
    "last",
    [
        [*between(8100, 10_000), *between(10_100, 10_200)],  # who made more calls than the others
        between(10_500, 12_000),  # who came when the others had left: they did not wait
    ],
)
def test_what_ranks_waited_for_is_not_told_where_their_calls_do_not_match(told, last):
    one = told({rank: between(100, 10_000) for rank in range(3)} | {3: last})["io.collective_exchange"]
    assert "this trace cannot separate the two" in one.text
    assert "late" not in one.evidence


def test_an_mpi_that_hides_what_is_below_mpi_io_exchanges_in_mpi_io_itself(told):
    def of(write_ends):
        calls = [("pwrite", 9000, write_ends, 1, 1 << 20), ("MPI_File_write_at_all", 100, 10_000, 0, 1 << 20)]
        return told({0: calls}).get("io.collective_exchange")

    one = of(9500)
    assert one.evidence["exchange"] == pytest.approx(9400 / 9900)
    assert one.evidence["files"] == pytest.approx(500 / 9900)
    within = [("pwrite", 200, 9500, 1, 1 << 20), ("MPI_File_write_at_all", 100, 10_000, 0, 1 << 20)]
    assert "io.collective_exchange" not in told({0: within})


def test_collective_time_that_is_the_file_system_is_none(told):
    within = [("MPI_Waitall", 200, 1000, 1, None), ("pwrite", 1600, 9500, 1, 1 << 20)]
    assert "io.collective_exchange" not in told(
        {0: [*within, ("MPI_File_write_at_all", 100, 10_000, 0, 1 << 20)]}
    )


def test_calls_that_are_not_collective_are_not_taken_for_such(told):
    within = [("MPI_Waitall", 200, 9000, 1, None)]
    assert "io.collective_exchange" not in told({0: [*within, ("MPI_File_read_at", 100, 10_000, 0, 1 << 20)]})


def test_reading_to_write(told):
    within = [("pread", 200, 3000, 1, 4 << 20), ("pwrite", 3100, 6000, 1, 4 << 20)]
    one = told({0: [*within, ("MPI_File_write", 100, 10_000, 0, 1 << 20)]})["io.read_to_write"]
    assert one.evidence["read"] == 4 << 20
    assert "4 MiB were read without a request, in addition to 1 MiB written" in one.text


def test_reading_more_than_was_asked_for(told):
    within = [("pread", 200, 3000, 1, 4 << 20)]
    found = told({0: [*within, ("MPI_File_read_at", 100, 10_000, 0, 1 << 20)]})
    assert "io.read_to_write" not in found
    assert "4 MiB were read for 1 MiB requested" in found["io.read_more"].text
    assert "io.read_more" not in told({1: [("pread", 2, 3, 1, 100), ("MPI_File_read_at", 1, 4, 0, 100)]})


def test_many_small_requests(told):
    one = told({0: writes(200, 4096)})["io.small_requests"]
    assert one.text == "200 writes of 4 KiB on average reach POSIX and take 100 % of the time"
    assert one.evidence["requests"] == 200
    assert "io.small_requests" not in told({1: writes(200, 1 << 20)})
    assert "io.small_requests" not in told({2: writes(20, 4096)})


def test_small_requests_below_hdf5_have_its_hints(told):
    found = told({0: [*writes(200, 4096), ("H5Dwrite", 100_000, 100_001, 0, None)]})
    assert "chunk" in found["io.small_requests"].next


def test_requests_that_are_taken_apart(told):
    found = told(
        {
            0: [
                *[(n, b, e, 1, s) for n, b, e, _, s in writes(128, 1 << 18, begin=10)],
                ("MPI_File_write", 1, 90_000, 0, 32 << 20),
            ]
        }
    )
    assert found["io.split_requests"].text == "each write of 32 MiB at MPI-IO becomes 128 of 256 KiB at POSIX"


def test_waiting_for_the_disk(told):
    one = told({0: [("pwrite", 0, 1000, 0, 1 << 20), ("fsync", 2000, 5000, 0, None)]})["io.sync"]
    assert one.evidence["share"] == pytest.approx(0.75)
    assert "io.sync" not in told({1: [("pwrite", 0, 10_000, 0, 1 << 20), ("fsync", 20_000, 20_100, 0, None)]})


def test_a_file_that_is_synced_once_is_not_told_to_sync_once(told):
    once = told({0: [("pwrite", 0, 1000, 0, 1 << 20), ("fsync", 2000, 5000, 0, None)]})["io.sync"]
    assert once.text == "1 call that waits for the disk takes 75 % of the time, 3.00 ms"
    assert "each file is synced once" in once.next
    often = told({1: [("pwrite", 0, 1000, 0, 1 << 20), *writes(9, None, 500, 2000, "fsync")]})["io.sync"]
    assert often.text.startswith("9 calls that wait for the disk take ")
    assert often.next.startswith("sync once at the end")


def test_metadata(told):
    one = told({0: writes(300, None, name="stat")})["io.metadata"]
    assert one.text.endswith("take 100 % of the time; 100 % of it is in 300 calls of stat")
    assert one.next.startswith("keep files open")
    assert "io.metadata" not in told({1: writes(30, None, name="stat")})


def test_metadata_of_which_one_call_took_most_names_it(told):
    calls = [*writes(200, None, 10, name="stat"), ("unlink", 100_000, 130_000, 0, None)]
    one = told({0: calls})["io.metadata"]
    assert one.text.endswith("94 % of it is in 1 call of unlink")
    assert one.evidence["function_calls"] == 1
    assert one.next.startswith("a few calls of unlink are long")


def test_failed_calls_are_reported_first_and_count_for_nothing(told):
    calls = [*writes(4, 1 << 18), *[(*one, FAILED) for one in writes(4, 1 << 18, begin=5000)]]
    found = told({0: calls, 1: writes(4, 1 << 18)})
    one = found["io.failed_calls"]
    assert next(iter(found)) == "io.failed_calls"
    assert one.text == "4 of 12 calls of pwrite failed; they count neither as requests nor in the bytes"
    assert one.evidence == {"failed": 4, "functions": {"pwrite": 4}, "files": [], "ranks": [0]}
    assert "io.failed_calls" not in told({2: [*writes(4, 1 << 18), ("stat", 9000, 9100, 0, None, FAILED)]})


def test_failed_calls_are_reported_however_little_time_they_took(told):
    assert list(told({0: [("pwrite", 0, 1, 0, 10, FAILED)]}, tick_ns=1)) == ["io.failed_calls"]


def test_data_is_sieved_only_within_calls_that_write(told):
    # What MPI_File_preallocate and the program itself read was asked for, if not from MPI_File_write.
    ranks = {
        0: [
            ("pwrite", 200, 900, 1, 1 << 20), ("MPI_File_write", 100, 1000, 0, 1 << 20),
            ("pread", 2200, 2900, 1, 8 << 20), ("MPI_File_preallocate", 2000, 3000, 0, None),
            ("pread", 4000, 5000, 0, 8 << 20),
        ]
    }  # fmt: skip
    assert "io.read_to_write" not in told(ranks)


def test_collective_calls_are_not_told_to_be_collective(told):
    def of(within, name, tmp):
        small = [(n, b, e, 2, s) for n, b, e, _, s in writes(128, 4096, begin=200)]
        calls = [*small, *within, (name, 100, 90_000, 0, 128 * 4096)]
        found = told({tmp: calls})
        return found["io.small_requests"], found["io.split_requests"]

    for one in of([], "MPI_File_write", 0):
        assert one.evidence["collective"] is False
        assert "try collective calls" in one.next
    for one in of([("ADIOI_W_Exchange_data", 150, 85_000, 1, None)], "MPI_File_write_at_all", 1):
        assert one.evidence["collective"] is True
        assert "romio_cb_write=enable" in one.next
    for one in of([("mca_fcoll_write", 150, 85_000, 1, None)], "MPI_File_write_at_all", 2):
        assert "romio_" not in one.next
        assert "--mca io ^ompio" in one.next


def test_small_requests_to_a_buffer_reach_no_file_system(told):
    one = told({0: writes(200, 1, name="fputc")})["io.small_requests"]
    assert (
        one.text
        == "200 writes of 1 B on average go through the C library's buffer (fputc) and take 100 % of the time"
    )


def test_a_rank_that_takes_longer(told):
    ranks = {rank: writes(10, 1 << 20, each=100 if rank != 2 else 900) for rank in range(4)}
    one = told(ranks)["io.uneven"]
    assert (one.evidence["rank"], one.evidence["layer"]) == (2, "posix")
    assert one.evidence["ratio"] == pytest.approx(9)
    assert one.text == (
        "rank 2 spends 9.00 ms in reads and writes of POSIX, the others 1.00 ms on average; it moves 10 MiB there, "
        "the others 10 MiB on average"
    )
    assert "slower" in one.next


def test_ranks_of_two_programs_need_not_be_alike(told):
    ranks = {k: writes(10, 1 << 20, each=100 if k != 2 else 900) for k in range(3)}
    assert "io.uneven" in told(ranks)
    assert "io.uneven" not in told(ranks, of=(("a", 0), ("a", 1), ("b", 0)))
    one = told(ranks | {3: writes(10, 1 << 20)}, of=(("a", 0), ("a", 1), ("b", 0), ("b", 1)))["io.uneven"]
    assert one.text.startswith("rank 2:0 spends 9.00 ms")


def test_a_rank_that_does_the_work_of_all_is_told_to_share_it(told):
    one = told({0: writes(10, 1 << 20), 1: []})["io.uneven"]
    assert (one.evidence["bytes"], one.evidence["bytes_of_others"]) == (10 << 20, 0)
    assert "distribute the data evenly" in one.next


def test_aggregators_and_waiting_are_not_uneven(told):
    def collective(within):
        return [*within, ("MPI_File_write_at_all", 100, 10_000, 0, 1 << 20)]

    # One rank writes for all within the collective call, the other waits there: both by design.
    ranks = {
        0: collective([("pwrite", 200, 9000, 1, 2 << 20)]),
        1: collective([("MPI_Waitall", 200, 9900, 1, None)]),
    }
    assert "io.uneven" not in told(ranks)


def test_what_a_rank_waits_for_others_is_not_uneven(told):
    ranks = {
        0: [("pwrite", 0, 5000, 0, 1 << 20), ("MPI_Waitall", 5000, 20_000, 0, None)],
        1: writes(1, 1 << 20, 5000),
    }
    assert "io.uneven" not in told(ranks)


def test_two_ranks_of_which_one_takes_a_little_longer_are_even(told):
    assert "io.uneven" not in told({0: writes(10, 1 << 20, each=100), 1: writes(10, 1 << 20, each=190)})


def test_even_ranks_are_none(told):
    assert "io.uneven" not in told({rank: writes(10, 1 << 20) for rank in range(4)})


def test_the_tracer_s_own_work(told):
    def of(at):
        calls = [("pwrite", 0, 1000, 0, 1 << 20), ("pwrite", 5000, 6000, 0, 1 << 20)]
        return told({0: [*calls, ("own", at, at + 200, 0, None)]})

    found = of(2000)["io.tracer_overhead"]
    assert found.evidence["share"] == pytest.approx(0.1)
    assert found.text == (
        "during the program's I/O, the tracer's own work took 200 µs, 10 % of the time in traced calls"
    )


def test_an_empty_trace_has_none(told):
    assert told({0: []}) == {}


def test_the_largest_comes_first(told):
    ranks = {0: [*writes(200, 4096, each=10), ("fsync", 100_000, 150_000, 0, None)]}
    found = list(told(ranks))
    assert found == ["io.sync"] or found.index("io.sync") < found.index("io.small_requests")


def test_a_program_that_does_next_to_nothing_has_nothing_to_mend(told):
    calls = {0: [("fsync", 100, 900, 0, None), *writes(200, 100, 10, 1000)]}
    assert told(calls, tick_ns=1) == {}
    assert "io.sync" in told(calls, tick_ns=10_000)


def of_servers(*means: float, calls: int = 200, others: int = 0):
    """Findings where each server's writes took so long, s; others: calls of something else of as long, on each."""
    each = [
        (f"n{k}:/b", {"WRITE": [calls, mean, mean / 2, 2 * mean], "LOOKUP": [others or 1, 1e-3, 1e-4, 1e-2]})
        for k, mean in enumerate(means)
    ]
    found = findings(analyse(io_traces.with_servers(io_traces.collective(), *each)))
    return {one.code: one for one in found}


def test_a_server_that_is_slower_than_the_others_is_named():
    found = of_servers(1e-3, 1e-3, 8e-3, 1.2e-3, calls=20_000)["io.slow_server"]
    assert found.text == (
        "n2 takes 8 times as long as the median of the other servers for WRITE (95 % confidence interval 7.19 to 8.81, "
        "significant at 1 %): 8.00 ms on average"
    )
    assert found.evidence["server"] == "n2"
    assert found.evidence["calls"] == 20_000
    # Not where few calls show it, where it is one of two, where it is hardly slower, or where it does not matter.
    assert "io.slow_server" not in of_servers(1e-3, 1e-3, 8e-3, calls=2)
    assert "io.slow_server" not in of_servers(1e-3, 8e-3, calls=20_000)
    assert "io.slow_server" not in of_servers(1e-3, 1e-3, 1.2e-3, calls=20_000)
    assert "io.slow_server" not in of_servers(1e-3, 1e-3, 8e-3, calls=20_000, others=2_000_000)


def test_the_way_to_a_server_is_a_finding_of_its_own():
    one = slow_servers.Slow(
        "requests", "n2", slow_servers.WAY, ("send", "get", "put", "list"), False, 5.0, 4.0, 6.5, 1e-6, 300, 0.4, 5e-3,
        1e-3, 1.5,
    )  # fmt: skip
    found = slow_way(one)
    assert found.code == "io.slow_server_link"
    assert found.text == (
        "requests spend 5 times as long on the way to n2 and back as for the median of the other servers, in send, "
        "get, put and others (95 % confidence interval 4 to 6.5, significant at 1 %): 5.00 ms on average"
    )
    assert found.next.startswith("measure the links of its host")


def test_below_a_client_library_are_its_sockets_not_requests():
    def writes(size):
        calls = []
        for k in range(400):
            inner = [Call("pwrite", (100 * k + 10) * US, 50 * US, 4 * KIB)]
            calls.append(Call("glfs_pwrite", 100 * k * US, 90 * US, size, within=inner))
        return {one.code for one in findings(analyse(io_traces.raw([(0, calls)], [0])))}

    assert "io.small_requests" not in writes(1024 * KIB)
    assert "io.small_requests" in writes(8 * KIB)
