"""Which calls of several ranks are one, and what of each is waiting."""

from __future__ import annotations

import numpy as np
import pytest

import io_traces
from io_traces import KIB, LAYERS, US, Call
from sonde.io.maps.layers import KINDS
from sonde.io.predict.calls import WAITING, Calls, Key, below, groups_of, keys_of, same_name, synchronising

FILE = "/scratch/out"


def raw(*ranks: list[Call]):
    return io_traces.raw(list(enumerate(ranks)), list(range(len(ranks))))


def together(
    begins: list[list[int]], ends: list[list[int]], name: str = "MPI_File_write_at_all", path: str = FILE
):
    """Of each rank calls from begin to end, µs."""
    return raw(
        *([Call(name, b * US, (e - b) * US, KIB, path) for b, e in zip(*each)] for each in zip(begins, ends))
    )


@pytest.mark.parametrize(
    ("layer", "symbol", "name"),
    [
        ("mpiio", "MPI_File_write_at_all", "mpi_file_write_at_all"),
        ("mpiio", "MPI_File_write_at_all_c", "mpi_file_write_at_all"),
        ("mpiio", "mpi_file_write_at_all_", "mpi_file_write_at_all"),
        ("mpiio", "ompi_file_write_all_f", "mpi_file_write_all"),
        ("mpi", "PMPI_Barrier", "mpi_barrier"),
        ("posix", "pwrite64", "pwrite"),
        ("posix", "pwrite", "pwrite"),
        ("hdf5", "H5Dwrite", "H5Dwrite"),
    ],
)
def test_a_function_has_one_name_in_all_languages(layer, symbol, name):
    assert same_name(layer, symbol) == name


def test_keys_are_those_of_the_functions():
    data = raw([Call("pwrite", 0, US, KIB, FILE)])
    assert keys_of(data) == [Key("posix", "pwrite", KINDS.index("write"))]


def test_the_kth_call_of_each_rank_is_one():
    groups = groups_of(together([[0, 100], [30, 100]], [[50, 130], [60, 120]]))
    assert groups.members.tolist() == [2, 2]
    assert groups.event.tolist() == [0, 1, 2, 3]
    assert groups.group.tolist() == [0, 1, 0, 1]
    assert (groups.arrive / US).tolist() == [30, 100, 30, 100]
    assert (groups.leave / US).tolist() == [60, 130, 60, 130]
    assert groups.held == {"mpi_file_write_at_all": (2, 0)}
    assert groups.place(np.array([3, 7])).tolist() == [3, -1]


def test_a_function_that_ranks_leave_before_all_have_come_waits_for_nobody():
    groups = groups_of(together([[0, 100], [30, 100]], [[20, 130], [60, 120]]))
    assert groups.members.tolist() == [2, 2]
    assert groups.held == {"mpi_file_write_at_all": (1, 1)}


def test_a_stacks_traces_tell_together_whether_ranks_wait():
    waits = groups_of(together([[100] * 19, [130] * 19], [[150] * 19, [160] * 19]))
    leaves = groups_of(together([[0], [30]], [[20], [60]]))
    assert synchronising([waits]) == {"mpi_file_write_at_all": True}
    assert synchronising([leaves]) == {"mpi_file_write_at_all": False}
    assert synchronising([waits, leaves]) == {"mpi_file_write_at_all": True}  # 19 of 20
    assert synchronising([waits, leaves, leaves]) == {"mpi_file_write_at_all": False}
    assert synchronising([]) == {}


def test_of_barriers_those_count_that_all_were_in_at_one_moment():
    groups = groups_of(together([[0, 100], [30, 150]], [[50, 130], [60, 170]], "MPI_Barrier", ""))
    assert groups.members.tolist() == [2]
    assert groups.event.tolist() == [0, 2]


@pytest.mark.parametrize(
    "data",
    [
        together([[0, 100], [30]], [[50, 130], [60]]),  # one rank calls it once more
        together([[0]], [[50]]),  # nobody else
        together([[0], [0]], [[50], [50]], "MPI_File_write_at"),  # not collective
        together([[0], [0]], [[50], [50]], path=""),  # on a file that nobody was seen to open
        raw([Call("MPI_File_open", 0, US, path="/a")], [Call("MPI_File_open", 0, US, path="/b")]),
        raw([], []),
    ],
)
def test_what_cannot_be_put_together_is_not(data):
    assert not len(groups_of(data).event)


def test_calls_of_processes_that_are_no_rank_are_none_of_a_group():
    data = io_traces.raw([(k, [Call("MPI_File_open", 0, 9 * US, path=FILE)]) for k in range(3)], [0, 1, -1])
    assert groups_of(data).event.tolist() == [0, 1]


def test_the_moment_at_which_the_last_came_cuts_a_call_and_all_within_it():
    def call(begin: int, end: int) -> Call:
        """In it MPI_Alltoallv from its 10th µs to the 60th of the run, and pwrite from then on."""
        whole = Call("MPI_File_write_at_all", begin * US, (end - begin) * US, KIB, FILE)
        first = begin + 10
        whole.within.append(Call("MPI_Alltoallv", first * US, (60 - first) * US))
        whole.within.append(Call("pwrite", 70 * US, 20 * US, KIB, FILE))
        return whole

    data = raw([call(0, 100)], [call(40, 95)])
    groups = groups_of(data)
    calls = Calls(data, groups, synchronising([groups]))
    mask = np.array([key.layer == "mpiio" for key in calls.keys])
    parts = [part for _, part in calls.parts(mask)]
    told = [{name: value / US for name, value in zip(calls.columns, part.cost[0]) if value} for part in parts]
    # The last came at 40: rank 0 was 10 µs in MPI-IO and 30 in a message until then, and 20 after.
    assert told == [
        {"mpiio": 20, "mpi": 20, "posix": 20, WAITING: 40},
        {"mpiio": 25, "mpi": 10, "posix": 20},
    ]
    assert all(not part.rest.any() for part in parts)
    assert [part.size.tolist() for part in parts] == [[KIB], [KIB]]


def test_calls_outside_of_those_asked_for_are_the_rest():
    data = raw([Call("H5Dwrite", 0, 50 * US, KIB, FILE, [Call("pwrite", 10 * US, 20 * US, KIB, FILE)])])
    groups = groups_of(data)
    calls = Calls(data, groups, synchronising([groups]))
    ((_, part),) = calls.parts(np.array([key.layer == "posix" for key in calls.keys]))
    assert part.cost[0, calls.columns.index("posix")] == 20 * US
    assert part.rest[calls.columns.index("hdf5")] == 30 * US
    assert part.rest.sum() == 30 * US


def test_what_waits_for_the_disk_is_sized_by_what_its_thread_wrote_to_that_file():
    def write(at: int, size: int, path: str) -> Call:
        return Call("pwrite", at * US, US, size, path)

    def sync(at: int, path: str) -> Call:
        return Call("fsync", at * US, US, -1, path)

    data = raw([
        write(0, 10, "/a"), write(1, 5, "/b"), write(2, 20, "/a"), sync(3, "/a"), sync(4, "/a"),
        write(5, 7, "/a"), sync(6, "/b"), sync(7, "/a"),
    ])  # fmt: skip
    groups = groups_of(data)
    calls = Calls(data, groups, synchronising([groups]))
    ((_, part),) = calls.parts(np.array([key.name == "fsync" for key in calls.keys]))
    assert part.size.tolist() == [30, 0, 5, 7]


def test_layers_below_one():
    names = [*LAYERS, "system"]
    assert below(names, "mpiio", ["gfapi"]) == {"mpiio", "romio", "posix"}
    assert below(names, "posix", []) == {"posix"}
