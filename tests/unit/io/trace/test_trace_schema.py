"""From the tracer's files to /raw."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import traces
from traces import OPEN, PREAD, PWRITE, WRITE_ALL, call, note, thread

import sonde
from sonde.core.errors import DataError
from sonde.io.kinds import SCHEMA
from sonde.io.trace.events import ENTRY_ONLY, UNFINISHED, folded
from sonde.io.trace.schema import UNSEEN


def raw_of(folder):
    with sonde.open(traces.sealed(folder)) as tree:
        assert SCHEMA.validate(tree) == []
        return tree["raw"].to_dataset().load()


@pytest.fixture
def run(tmp_path):
    return traces.run(tmp_path / "a.run")


def names(raw):
    return [str(name) for name in raw["function_name"].values[raw["function_index"].values]]


def test_a_call_becomes_an_event(run):
    traces.add(run, [call(PWRITE, 2000, 2500, depth=1, size=64, offset=128), call(WRITE_ALL, 1000, 4000)])
    raw = raw_of(run)
    assert names(raw) == ["pwrite", "MPI_File_write"]
    assert raw["begin"].values.tolist() == [2000, 1000]
    assert raw["duration"].values.tolist() == [500, 3000]
    assert raw["size"].values.tolist() == [64, -1]
    assert raw["offset"].values.tolist() == [128, -1]
    assert raw["depth"].values.tolist() == [1, 0]
    assert raw["layer_name"].values.tolist() == ["mpiio", "posix"]
    assert raw["layer_watched"].values.tolist() == [1, 3]
    assert raw["function_name"].values.tolist() == [
        "MPI_File_write",
        "pwrite",
    ]  # those that were called, by layer


def test_ranks_come_first_and_in_order(run):
    for pid, rank in ((11, 1), (12, -1), (10, 0)):
        traces.add(run, [call(PWRITE, 10, 20)], pid=pid, rank=rank)
    raw = raw_of(run)
    assert raw["process_rank"].values.tolist() == [0, 1, -1]
    assert raw["process_pid"].values.tolist() == [10, 11, 12]
    assert raw["thread_first"].values.tolist() == [0, 1, 2]
    assert raw["thread_process"].values.tolist() == [0, 1, 2]


def test_a_file_that_another_thread_goes_on_with(run):
    traces.add(run, [call(PWRITE, 10, 20), call(PWRITE, 30, 40), thread(77, 50, 50), call(PREAD, 60, 70)])
    raw = raw_of(run)
    assert raw["thread_number"].values.tolist() == [101, 77]
    assert raw["thread_events"].values.tolist() == [2, 1]


class TestFiles:
    def test_the_last_that_was_opened_under_a_handle_before_a_call(self, run):
        traces.add(
            run,
            [
                call(PWRITE, 1, 2, file=3),
                note(10, 3, "one"), call(OPEN, 10, 12, file=3), call(PWRITE, 20, 21, file=3),
                note(30, 3, "two"), call(OPEN, 30, 32, file=3), call(PWRITE, 40, 41, file=3),
                call(PWRITE, 50, 51, file=4), call(PWRITE, 60, 61),
            ],
        )  # fmt: skip
        raw = raw_of(run)
        paths = ["?" if k < 0 else raw["path"].values[k] for k in raw["file_index"].values]
        assert paths == ["?", "one", "one", "two", "two", "?", "?"]

    def test_a_handle_that_was_closed_means_nothing_until_it_is_opened_again(self, run):
        functions = traces.FUNCTIONS + "4\t4\tclose\tlibc.so\n"
        shutil.rmtree(run)
        traces.run(run, {"rules": [*traces.RULES, [1, 2]]})
        records = [
            note(10, 3, "one"), call(OPEN, 10, 12, file=3), call(4, 20, 22, file=3), call(PWRITE, 30, 31, file=3),
            note(40, 3, "two"), call(OPEN, 40, 42, file=3), call(PWRITE, 50, 51, file=3),
        ]  # fmt: skip
        traces.add(run, records, functions)
        raw = raw_of(run)
        paths = ["?" if k < 0 else raw["path"].values[k] for k in raw["file_index"].values]
        assert paths == ["one", "one", "?", "two", "two"]

    @pytest.mark.parametrize(
        ("close", "opened"),
        [
            ((20, 30), (25, 35)),  # asked for while the other thread gives it back
            ((20, 30), (24, 28)),
            ((20, 30), (15, 35)),  # asked for before that
            ((20, 30), (15, 25)),
            ((20, 30), (31, 35)),  # after it
        ],
    )
    def test_a_handle_that_another_thread_is_giving_back_is_the_file_of_who_was_given_it(
        self, run, close, opened
    ):
        functions = traces.FUNCTIONS + "4\t4\tclose\tlibc.so\n"
        shutil.rmtree(run)
        traces.run(run, {"rules": [*traces.RULES, [1, 2]]})
        calls = [
            (10, [note(10, 3, "one"), call(OPEN, 10, 12, file=3)]),
            (14, [call(PWRITE, 14, 15, file=3)]),
            (close[0], [call(4, *close, file=3)]),
            (opened[0], [note(opened[0], 3, "two"), call(OPEN, *opened, file=3)]),
            (40, [call(PWRITE, 40, 41, file=3)]),
            (50, [call(4, 50, 52, file=3)]),
            (60, [call(PWRITE, 60, 61, file=3)]),
        ]
        traces.add(
            run,
            [record for _, records in sorted(calls, key=lambda one: one[0]) for record in records],
            functions,
        )
        raw = raw_of(run)
        paths = ["?" if k < 0 else raw["path"].values[k] for k in raw["file_index"].values]
        begins = [begin for begin, _ in sorted(calls, key=lambda one: one[0])]
        found = dict(zip(begins, paths))
        assert (found[14], found[40], found[60]) == ("one", "two", "?")
        assert found[opened[0]] == "two"

    def test_a_handle_of_another_layer_is_another_file_where_both_were_opened(self, run):
        functions = traces.FUNCTIONS + "4\t4\tMPI_File_open\tlibmpi.so\n"
        folder = run
        plan = {"layers": traces.LAYERS, "rules": [*traces.RULES, [0, 1]]}
        shutil.rmtree(folder)
        traces.run(folder, plan)
        traces.add(
            folder,
            [
                note(10, 3, "posix file"), call(OPEN, 10, 12, file=3), note(14, 3, "mpi file"), call(4, 14, 16, file=3),
                call(PWRITE, 20, 21, file=3), call(WRITE_ALL, 30, 31, file=3),
            ],
            functions,
        )  # fmt: skip
        raw = raw_of(folder)
        assert raw["path"].values[raw["file_index"].values].tolist()[-2:] == ["posix file", "mpi file"]

    def test_a_child_knows_what_its_parent_had_open(self, run):
        parent = traces.add(run, [note(10, 3, "f"), call(OPEN, 10, 12, file=3)])
        traces.add(
            run,
            [call(PWRITE, 50, 51, file=3)],
            "",
            pid=101,
            parent=100,
            inherits=parent,
            inherited=4,
            began_ticks=40,
            began_ns=40,
        )
        raw = raw_of(run)
        assert names(raw) == ["open", "pwrite"]
        assert raw["path"].values[raw["file_index"].values].tolist() == ["f", "f"]


def test_a_socket_of_a_process_that_was_attached_to_is_no_file(tmp_path):
    run = traces.run(tmp_path / "a.run", {"open": [["n1", 100, 3, "/data/f"], ["n1", 100, 4, ""]]})
    traces.add(run, [call(PREAD, 10, 11, file=3), call(PREAD, 20, 21, file=4), call(PREAD, 30, 31, file=5)])
    raw = raw_of(run)
    assert raw["file_index"].values.tolist() == [0, UNSEEN, -1]
    assert raw["path"].values.tolist() == ["/data/f"]


DUP, FCNTL, CLOSE, FILENO, NAMELESS = range(4, 9)
OWN = {DUP: "dup", FCNTL: "fcntl", CLOSE: "close", FILENO: "fileno", NAMELESS: "tmpfile"}
STREAM = 0x7F0011223340


class TestCopies:
    """Second handles of a file: dup, fcntl with F_DUPFD, fileno."""

    @pytest.fixture
    def run(self, tmp_path):
        rules = [
            [1, 6, 0, [], 0, 1], [1, 6, 0, [0, 1030], 0, 1], [1, 2, 0, None, 0, 1], [1, 0, 0, [], 0, 0],
            [1, 1, 0, None, 0, 0],
        ]  # fmt: skip
        numbered = [[*rule, 0, None, 1, 1] for rule in traces.RULES]
        return traces.run(tmp_path / "a.run", {"rules": [*numbered, *rules]})

    @staticmethod
    def add(run, records, **more):
        """Adds a process."""
        named = (*traces.FUNCTIONS.splitlines(), *(f"{k}\t{k}\t{name}\tlibc.so" for k, name in OWN.items()))
        traces.add(run, records, "\n".join(named) + "\n" if not more else "", **more)

    @staticmethod
    def told(run):
        """What there is, and the file of each read and write."""
        raw = raw_of(run)
        path = {-1: "?", -2: "unseen"} | dict(enumerate(raw["path"].values.tolist()))
        files = [path[int(k)] for k in raw["file_index"].values]
        return raw, [file for file, name in zip(files, names(raw)) if name in ("pwrite", "pread")]

    def test_a_copy_is_the_file_that_its_original_was_then(self, run):
        self.add(run, [
            note(10, 3, "one"), call(OPEN, 10, 12, file=3),
            call(DUP, 20, 22, file=3, size=7), call(PWRITE, 30, 31, file=7),
            call(CLOSE, 40, 41, file=3), call(PWRITE, 45, 46, file=3), call(PWRITE, 47, 48, file=7),
            note(50, 3, "two"), call(OPEN, 50, 52, file=3), call(PWRITE, 55, 56, file=7),
            call(DUP, 60, 62, file=3, size=7), call(PWRITE, 65, 66, file=7),
            call(DUP, 67, 68, file=7, size=9), call(CLOSE, 70, 71, file=7),
            call(PWRITE, 75, 76, file=7), call(PWRITE, 77, 78, file=9),
        ])  # fmt: skip
        raw, files = self.told(run)
        assert files == ["one", "unseen", "one", "one", "two", "unseen", "two"]
        made = [k for k, name in enumerate(names(raw)) if name == "dup"]
        assert raw["size"].values[made].tolist() == [-1, -1, -1]  # a handle is no size

    def test_fcntl_copies_where_it_is_told_to(self, run):
        self.add(run, [
            note(10, 3, "one"), call(OPEN, 10, 12, file=3),
            call(FCNTL, 20, 22, file=3, size=7, offset=3), call(PWRITE, 30, 31, file=7),
            call(FCNTL, 40, 42, file=3, size=7, offset=1030), call(PWRITE, 50, 51, file=7),
            call(FCNTL, 60, 62, file=3, size=8, offset=0, flags=1), call(PWRITE, 70, 71, file=8),
        ])  # fmt: skip
        raw, files = self.told(run)
        assert files == ["unseen", "one", "unseen"]
        assert set(raw["offset"].values.tolist()) == {-1}

    def test_copies_of_what_nobody_was_seen_to_open(self, run):
        self.add(run, [
            note(1, 3, "one"), call(OPEN, 1, 2, file=3),
            call(DUP, 10, 12, file=5, size=3), call(PWRITE, 20, 21, file=3),
            call(DUP, 30, 32, file=1, size=8), call(PWRITE, 40, 41, file=8), call(PWRITE, 42, 43, file=1),
        ])  # fmt: skip
        # What a program is given counts as files, and so does a copy of it.
        assert self.told(run)[1] == ["unseen", "?", "?"]

    @pytest.mark.parametrize("standard", [0, 1])
    def test_the_standard_three_are_what_takes_their_place(self, run, standard):
        """As dd does. 0 is a handle of functions that have numbers for these, and none of others."""
        self.add(run, [
            call(PWRITE, 0, 1, file=standard), note(1, 3, "one"), call(OPEN, 1, 2, file=3),
            call(DUP, 5, 6, file=standard, size=9),
            call(DUP, 10, 12, file=3, size=standard), call(PWRITE, 20, 21, file=standard),
            call(DUP, 30, 32, file=9, size=standard), call(PWRITE, 40, 41, file=standard),
        ])  # fmt: skip
        assert self.told(run)[1] == ["?", "one", "?"]

    def test_a_file_without_a_name_is_called_as_what_opened_it(self, run):
        """And its descriptor is no socket's."""
        handle = int(folded(np.array([STREAM], np.uint64))[0])
        self.add(run, [
            note(1, 3, "one"), call(OPEN, 1, 2, file=3),
            call(NAMELESS, 10, 12, file=handle), call(PWRITE, 20, 21, file=handle),
            call(FILENO, 30, 31, file=handle, size=5), call(PWRITE, 40, 41, file=5),
        ])  # fmt: skip
        assert self.told(run)[1] == ["(tmpfile)", "(tmpfile)"]

    def test_a_stream_and_its_descriptor_are_closed_together(self, run):
        handle = int(folded(np.array([STREAM], np.uint64))[0])
        self.add(run, [
            note(10, handle, "one"), call(OPEN, 10, 12, file=handle), call(FILENO, 20, 21, file=handle, size=5),
            call(PWRITE, 30, 31, file=5), call(CLOSE, 40, 41, file=handle), call(PWRITE, 50, 51, file=5),
            note(60, 6, "two"), call(OPEN, 60, 62, file=6), call(FILENO, 70, 71, file=6, size=STREAM),
            call(PREAD, 80, 81, file=handle), call(CLOSE, 90, 91, file=handle), call(PREAD, 92, 93, file=6),
        ])  # fmt: skip
        assert self.told(run)[1] == ["one", "unseen", "two", "unseen"]

    def test_a_child_copies_what_its_parent_had_open_when_it_began(self, run):
        self.add(run, [
            note(10, 3, "one"), call(OPEN, 10, 12, file=3), call(CLOSE, 60, 61, file=3),
            note(70, 3, "two"), call(OPEN, 70, 72, file=3),
        ])  # fmt: skip
        child = [call(DUP, 80, 81, file=3, size=4), call(CLOSE, 90, 91, file=3), call(PWRITE, 95, 96, file=4)]
        more = {
            "pid": 101,
            "parent": 100,
            "inherits": "n1-100-ab",
            "inherited": 8,
            "began_ticks": 40,
            "began_ns": 40,
        }
        self.add(run, [call(PWRITE, 75, 76, file=3), *child], **more)
        assert self.told(run)[1] == ["one", "one"]


class TestTime:
    def test_ticks_are_as_long_as_both_clocks_say(self, tmp_path):
        folder = traces.run(
            tmp_path / "a.run", {"clocks": [["n1", 0, 5000], ["n1", 3 * 10**9, 10**9 + 5000]]}
        )
        traces.add(folder, [call(PWRITE, 3000, 6000)], began_ns=5000)
        raw = raw_of(folder)
        assert raw["begin"].values.tolist() == [1000]
        assert raw["duration"].values.tolist() == [1000]

    def test_hosts_are_put_together_by_their_clocks_of_the_day(self, run):
        day = 10**18
        traces.add(run, [call(PWRITE, 10, 20), thread(0, 10**9, 10**9)], began_utc_ns=day)
        more = {
            "host": "n2",
            "pid": 5,
            "rank": 0,
            "began_ticks": 7000,
            "began_ns": 100,
            "began_utc_ns": day + 5000,
        }
        traces.add(run, [call(PWRITE, 7300, 7400), thread(0, 7000 + 10**9, 100 + 10**9)], **more)
        raw = raw_of(run)
        assert raw["process_host"].values.tolist() == ["n2", "n1"]
        assert raw["begin"].values.tolist() == [5300, 10]
        assert raw["process_begin"].values.tolist() == [5000, 0]

    def test_a_host_that_was_seen_too_shortly_is_reported(self, run):
        traces.add(run, [call(PWRITE, 10, 20)], host="n9", pid=5)
        traces.add(run, [call(PWRITE, 10, 20)])
        path = traces.sealed(run)
        with sonde.open(path) as tree:
            codes = list(tree["warnings"]["code"].values)
            assert codes == ["io.tick_unknown"]
            assert tree["raw"]["duration"].values.tolist() == [10, 10]

    def test_a_call_under_way_ends_with_the_last_that_is_known(self, run):
        flags = {"flags": UNFINISHED}
        traces.add(run, [call(PWRITE, 10, 20), call(PREAD, 900, 950), call(PWRITE, 700, 0, **flags)])
        assert raw_of(run)["duration"].values.tolist() == [10, 50, 250]

    def test_of_a_call_whose_end_is_not_known_there_is_no_duration(self, run):
        traces.add(run, [call(PWRITE, 10, 10, flags=ENTRY_ONLY)])
        assert raw_of(run)["duration"].values.tolist() == [0]


def test_a_size_that_is_none_is_unknown(run):
    traces.add(run, [call(PWRITE, 10, 20, size=2**64 - 5)])
    assert raw_of(run)["size"].values.tolist() == [-1]


def test_a_function_that_no_table_names_is_left_out_of_sums(run):
    traces.add(run, [call(900, 10, 20), call(PWRITE, 30, 40)])
    with sonde.open(traces.sealed(run)) as tree:
        assert tree["raw"]["function_index"].values.tolist() == [-1, 0]
        assert int(tree["summary"]["calls"].sum()) == 1


def test_a_file_of_another_room_is_refused(run):
    head = traces.header() | {"fields": [["a", "<u4", []]]}
    (run / "x-1-1-0.blk").write_bytes(traces.block_file(head, [np.zeros(1, [("a", "<u4")])]))
    with pytest.raises(DataError) as told:
        traces.sealed(run)
    assert told.value.code == "io.not_io_blocks"


def test_a_process_that_called_nothing(run):
    traces.add(run, [])
    raw = raw_of(run)
    assert dict(raw.sizes) | {"event": 0, "function": 0} == dict(raw.sizes)


class TestKernel:
    """What the kernel saw, put to the programs that were traced, and into their calls."""

    KERNEL = 4  # the rule's number, and the function's among those that the kernel sees

    @pytest.fixture
    def run(self, tmp_path):
        layers = [*traces.LAYERS, {"name": "kernel", "title": "Linux"}, {"name": "tracer", "title": "Tracer"}]
        made = traces.run(tmp_path / "a.run", {"layers": layers, "rules": [*traces.RULES, [2, 4]], "own": 3})
        (made / "watch.functions").write_text(f"0\t{self.KERNEL}\tpwrite64\tkernel\n")
        return made

    def watched(self, run, records, pid=100, thread_number=None):
        number = pid if thread_number is None else thread_number
        head = traces.header(pid=pid, number=number, watched=1)
        blocks = [np.concatenate([thread(number), *records])]
        (run / f"n1-{pid}-watch-{number}.blk").write_bytes(traces.block_file(head, blocks))

    def test_a_system_call_is_within_the_call_that_made_it(self, run):
        traces.add(run, [call(PWRITE, 1000, 2000, size=8)], ready_ticks=500)
        self.watched(run, [call(0, 100, 200), call(0, 1100, 1900, size=8)], thread_number=101)
        path = traces.sealed(run)
        with sonde.open(path) as tree:
            raw, s = tree["raw"].to_dataset().load(), tree["summary"].to_dataset().load()
        assert names(raw) == ["pwrite", "pwrite64"]  # what was there before the program was ready is left out
        assert raw["function_engine"].values.tolist() == [0, 2]
        assert raw["thread_process"].values.tolist() == [0, 0]
        assert np.allclose(s["layer_self_time"].values[0], [0, 200e-9, 800e-9, 0])
        assert s["node_parent"].values.tolist() == [-1, 0]

    def test_images_under_one_number_get_what_came_in_their_time(self, run):
        traces.add(run, [call(PWRITE, 1000, 2000)], ready_ticks=500)
        later = traces.header(pid=100, began_ticks=5000, began_ns=5000, ready_ticks=5500)
        (run / "n1-100-cd.functions").write_text(traces.FUNCTIONS)
        blocks = [np.concatenate([thread(101), call(PREAD, 6000, 7000)])]
        (run / "n1-100-cd-0.blk").write_bytes(traces.block_file(later, blocks))
        self.watched(run, [call(0, 600, 700), call(0, 1500, 1600), call(0, 6100, 6200)])
        raw = raw_of(run)
        events: dict[int, list[int]] = {0: [], 1: []}
        for k in range(raw.sizes["thread"]):
            first = int(raw["thread_first"][k])
            here = slice(first, first + int(raw["thread_events"][k]))
            events[int(raw["thread_process"][k])] += raw["begin"].values[here].tolist()
        assert {process: sorted(begins) for process, begins in events.items()} == {
            0: [600, 1000, 1500],
            1: [6000, 6100],
        }

    def test_a_program_that_only_the_kernel_saw_is_a_process(self, run):
        traces.add(run, [call(PWRITE, 1000, 2000)])
        self.watched(run, [call(0, 100, 200)], pid=77)
        raw = raw_of(run)
        assert raw["process_pid"].values.tolist() == [77, 100]
        assert names(raw) == ["pwrite64", "pwrite"]

    def test_what_the_kernel_saw_of_the_tracer_is_left_out_but_not_what_a_handler_did_meanwhile(self, run):
        own = 0xFFFD
        traces.add(
            run, [call(PWRITE, 1300, 1500), call(own, 1000, 2000), call(PWRITE, 3000, 4000)], ready_ticks=1
        )
        self.watched(run, [call(0, 1100, 1200), call(0, 1350, 1450), call(0, 3100, 3900)], thread_number=101)
        with sonde.open(traces.sealed(run)) as tree:
            s = tree["summary"].to_dataset().load()
        calls = dict(zip(s["function_name"].values.astype(str), s["calls"].values[0].tolist()))
        assert calls == {"pwrite": 2, "pwrite64": 2, "(own work)": 1}
        assert np.allclose(s["layer_self_time"].values[0], [0, 300e-9, 900e-9, 800e-9])


def test_a_descriptor_that_nobody_was_seen_to_open(run):
    known = [note(10, 5, "data"), call(OPEN, 10, 20, file=5), call(PWRITE, 30, 40, file=5)]
    others = [call(PREAD, 50, 60, file=7), call(PREAD, 70, 80, file=2), call(PREAD, 90, 95)]
    traces.add(run, [*known, *others])
    assert raw_of(run)["file_index"].values.tolist() == [0, 0, -2, -1, -1]


def test_where_it_is_not_known_what_was_opened_no_descriptor_is_unseen(run):
    traces.add(run, [call(OPEN, 10, 10, flags=4), call(PREAD, 50, 60, file=7)])
    assert raw_of(run)["file_index"].values.tolist() == [-1, -1]


def test_where_no_opening_is_traced_no_descriptor_is_unseen(run):
    traces.add(run, [call(PREAD, 50, 60, file=7)])
    assert raw_of(run)["file_index"].values.tolist() == [-1]
