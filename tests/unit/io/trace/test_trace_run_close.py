"""What a program left is made whole, wherever the kill came."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import traces
from traces import OPEN, PREAD, PWRITE, block_file, call, header, note, thread

from sonde.core.blocks import BlockFile
from sonde.io.trace.events import RECORD, UNFINISHED, pieces
from sonde.io.trace.run_close import close

FRAME = struct.Struct("<9QHBBIQQ")  # native/io/record.hpp
UNFILLED = 2**64 - 1


def calls(n: int, begin: int = 1000) -> np.ndarray:
    return np.concatenate(
        [call(PWRITE, begin + 10 * k, begin + 10 * k + 5, size=8, offset=8 * k) for k in range(n)]
    )


@pytest.fixture
def left(tmp_path):
    """left(blocks in the file, blocks in the tail, current, ...) makes the files of one thread."""

    def make(appended, mapped, current=0, torn=b"", **more):
        text = block_file(header(), appended, checked=False)
        (tmp_path / "n1-100-ab-0.blk").write_bytes(text + torn)
        (tmp_path / "n1-100-ab-0.tail").write_bytes(
            traces.tail(100, mapped, current, len(text), len(appended), **more)
        )
        return tmp_path

    return make


def kept(folder, number: int = 0) -> np.ndarray:
    file = BlockFile(folder / f"n1-100-ab-{number}.blk")
    found = np.concatenate([piece.calls for piece in pieces(file)])
    assert file.warnings == []
    return found


NONE = np.zeros(0, RECORD)


def test_blocks_get_checksums_and_the_tail_becomes_the_last(left):
    first, second, third = calls(409), calls(409, 9000), calls(7, 20000)
    folder = left([first, second], [third, NONE])
    close(folder)
    assert kept(folder)["begin"].tolist() == np.concatenate([first, second, third])["begin"].tolist()
    assert not list(folder.glob("*.tail"))


def test_the_block_that_was_left_comes_before_the_one_that_is_filled(left):
    old, new = calls(409), calls(3, 9000)
    folder = left([], [new, old], current=0)
    close(folder)
    assert kept(folder)["begin"].tolist() == np.concatenate([old, new])["begin"].tolist()


def test_what_was_written_of_a_block_when_the_kill_came_is_cut_off(left):
    folder = left([calls(409)], [calls(5, 9000), NONE], torn=b"SBLK\0\0\0\0" + b"\1" * 700)
    close(folder)
    assert len(kept(folder)) == 414


def test_closing_twice_is_closing_once(left):
    folder = left([calls(409)], [calls(5, 9000), NONE])
    close(folder)
    text = (folder / "n1-100-ab-0.blk").read_bytes()
    close(folder)
    assert (folder / "n1-100-ab-0.blk").read_bytes() == text


def test_closing_that_was_cut_short_begins_again(left):
    folder = left([calls(409)], [calls(5, 9000), NONE])
    path, tail = folder / "n1-100-ab-0.blk", (folder / "n1-100-ab-0.tail").read_bytes()
    close(folder)
    whole = path.read_bytes()
    for length in (len(whole), len(whole) - 1, len(whole) - 250):  # its tail was not removed yet
        path.write_bytes(whole[:length])
        (folder / "n1-100-ab-0.tail").write_bytes(tail)
        close(folder)
        assert path.read_bytes() == whole


def test_a_place_that_was_taken_and_not_written_is_left_out(left):
    stale = calls(1, 50)  # of the block that stood there before: it ended before the last append
    folder = left([calls(409)], [np.concatenate([calls(5, 9000), stale]), NONE], last_ticks=8000)
    close(folder)
    assert kept(folder)["begin"].tolist()[-5:] == calls(5, 9000)["begin"].tolist()


def test_calls_under_way_are_reported_inner_first(left):
    frames = b"".join(
        FRAME.pack(0, 0, 7000 - k, begin, 64, 128, 5, 0, 0, function, k, 0, 0, 0, 0)
        for k, (begin, function) in enumerate(((9100, OPEN), (9200, PREAD)))
    )
    half = FRAME.pack(0, 0, UNFILLED, 1, 0, 0, 0, 0, 0, PWRITE, 2, 0, 0, 0, 0)
    told = FRAME.pack(0, 0, 6000, 9300, 0, 0, 0, 0, 0, PWRITE, 3, 128, 0, 0, 0)
    folder = left([], [calls(2), NONE], depth=4, frames=frames + half + told)
    close(folder)
    last = kept(folder)[2:]
    assert last["function"].tolist() == [PREAD, OPEN]
    assert last["begin"].tolist() == [9200, 9100]
    assert set(last["flags"]) == {UNFINISHED}
    assert (last["size"][0], last["offset"][0], last["file"][0]) == (64, 128, 5)


def test_a_count_of_more_records_than_a_block_holds_is_not_believed(left):
    folder = left([], [NONE, NONE])
    path = folder / "n1-100-ab-0.tail"
    text = bytearray(path.read_bytes())
    struct.pack_into("<I", text, 56, 2**31)
    path.write_bytes(text)
    close(folder)
    assert len(kept(folder)) <= 409


def test_a_tail_without_its_file_or_cut_short_is_of_a_thread_that_recorded_nothing(tmp_path):
    (tmp_path / "n1-100-ab-0.tail").write_bytes(b"SONDETHR")
    (tmp_path / "n1-100-ab-1.tail").write_bytes(traces.tail(100, [NONE, NONE], 0, 0, 0))
    assert close(tmp_path) == ({"tables": [], "table_of": {}}, [])


def test_tables_of_functions_are_kept_once(tmp_path):
    for pid in (1, 2):
        (tmp_path / f"n1-{pid}-ab.functions").write_text(traces.FUNCTIONS + "a line cut sh")
    gained, _ = close(tmp_path)
    assert gained["table_of"] == {"n1-1-ab": 0, "n1-2-ab": 0}
    assert gained["tables"][0][1] == (1, 1, "pwrite", "libc.so")
    assert len(gained["tables"][0]) == 4


def test_a_library_that_was_found_in_several_ways_is_one(tmp_path):
    for pid, library in ((1, "/opt/sonde/lib/libs.so"), (2, "/opt/sonde/libexec/../lib/libs.so")):
        (tmp_path / f"n1-{pid}-ab.functions").write_text(f"0\t0\tput\t{library}\n")
    gained, _ = close(tmp_path)
    assert gained["tables"] == [[(0, 0, "put", "/opt/sonde/lib/libs.so")]]


def account(refused: dict[int, int], lost: dict[int, int], unseen: dict[int, int]) -> bytes:
    """The shared part of a node's processes, by the numbers of native/io/trace/unseen.hpp."""
    numbers = [one.get(k, 0) for one in (refused, lost, unseen) for k in range(8)]
    return struct.pack("<8sQQ24Q", b"SONDESH2", 1000, 0, *numbers).ljust(4096, b"\0")


def test_who_was_not_traced_and_what_found_no_room_is_reported(tmp_path):
    (tmp_path / "n1-7.refused").write_text("the layer table cannot be read\n")
    (tmp_path / "n1-8.refused").write_text("the layer table cannot be read\n")
    (tmp_path / "n1.shared").write_bytes(account({0: 2, 3: 1}, {0: 30, 1: 7, 2: 8}, {0: 1, 1: 3}))
    _, warnings = close(tmp_path)
    assert [warning.code for warning in warnings] == [
        "io.not_traced",
        "io.trace_full",
        "io.calls_lost",
        "io.calls_lost",
        "io.threads_not_traced",
        "io.threads_not_traced",
        "io.not_seen",
        "io.not_seen",
    ]
    told = [warning.evidence for warning in warnings]
    assert "2 processes were not traced: the layer table cannot be read (n1-7, n1-8)" in told[0]
    assert "30 calls on n1" in told[1]
    assert "7 calls on n1: a filter of system calls" in told[2]
    assert "8 calls on n1: the program may not write files as large" in told[3]
    assert "no file descriptor left" in told[5]
    assert "a process on n1 loaded libraries into their own namespace (dlmopen)" in told[6]
    assert "3 processes on n1 passed requests to the kernel through io_uring" in told[7]


def place(name: bytes, number: int, header: bytes, tail: bytes) -> bytes:
    """The place of a thread that can have no files."""
    head = struct.pack("<IIII1008s", 1, number, len(header), 0, name)
    return head.ljust(4096, b"\0") + header.ljust(12288, b"\0") + tail


class TestPlaces:
    def test_a_thread_without_files_is_in_the_trace(self, tmp_path):
        folder = tmp_path
        header = traces.block_file(traces.header(), [])
        tail = traces.tail(100, [call(PWRITE, 1, 2, size=5), NONE], 0, 0, 0)
        shared = account({}, {}, {}) + place(b"n1-100-ab", 3, header, tail) + bytes(65536)
        (folder / "n1.shared").write_bytes(shared)
        (folder / "n1-100-ab.functions").write_text(traces.FUNCTIONS)
        assert close(folder)[1] == []
        (file,) = folder.glob("*.blk")
        assert file.name == "n1-100-ab-3.blk"
        assert [int(one["size"]) for one in kept(folder, 3) if one["function"] == PWRITE] == [5]
        assert close(folder)[1] == []  # once more: nothing comes twice
        assert [int(one["size"]) for one in kept(folder, 3) if one["function"] == PWRITE] == [5]

    def test_one_whose_file_could_be_made_later_keeps_what_is_there(self, tmp_path):
        folder = tmp_path
        there = traces.block_file(traces.header(), [call(PWRITE, 1, 2, size=4)], checked=False)
        (folder / "n1-100-ab-3.blk").write_bytes(there)
        tail = traces.tail(100, [call(PWRITE, 3, 4, size=5), NONE], 0, len(there), 1)
        header = traces.block_file(traces.header(), [])
        (folder / "n1.shared").write_bytes(account({}, {}, {}) + place(b"n1-100-ab", 3, header, tail))
        close(folder)
        assert [int(one["size"]) for one in kept(folder, 3) if one["function"] == PWRITE] == [4, 5]

    @pytest.mark.parametrize("name", [b"../n1-100-ab", b"n1", b"", b"\xff/../x-1-a"])
    def test_a_name_that_is_none_of_a_process_is_left(self, tmp_path, name):
        folder = tmp_path / "run"
        folder.mkdir()
        tail = traces.tail(100, [NONE, NONE], 0, 0, 0)
        (folder / "n1.shared").write_bytes(account({}, {}, {}) + place(name, 3, b"", tail))
        before = sorted(path.name for path in tmp_path.rglob("*"))
        close(folder)
        assert sorted(path.name for path in tmp_path.rglob("*")) == before


class TestPieces:
    def test_names_are_distinguished_from_calls_wherever_they_end(self):
        name = "/a/long/name/" + "x" * 90
        block = np.concatenate(
            [thread(7), call(PWRITE, 1, 2), note(5, 3, name), call(OPEN, 5, 9), call(PWRITE, 10, 11)]
        )
        (piece,) = pieces([block])
        assert piece.calls["function"].tolist() == [PWRITE, OPEN, PWRITE]
        assert [(one.call, one.handle, one.name) for one in piece.notes] == [(1, 3, name)]
        assert [(one.call, one.thread) for one in piece.clocks] == [(0, 7)]

    def test_a_note_at_a_piece_s_end_goes_with_its_call(self, monkeypatch):
        monkeypatch.setattr("sonde.io.trace.events.PIECE", 3)
        blocks = [np.concatenate([call(PWRITE, 1, 2), note(5, 3, "f")]), np.concatenate([call(OPEN, 5, 9)])]
        found = list(pieces(blocks))
        assert [len(piece.calls) for piece in found] == [1, 1]
        assert [[(one.call, one.name) for one in piece.notes] for piece in found] == [[], [(0, "f")]]

    def test_a_note_whose_call_is_lost_is_no_call(self):
        (piece,) = pieces([np.concatenate([call(PWRITE, 1, 2), note(5, 3, "f")])])
        assert len(piece.calls) == 1
        assert piece.notes == []

    def test_a_name_that_looks_like_records_is_a_name(self):
        name = ("\x7f" * 34 + "\x7f\x7f" + "ab") * 3  # the bytes of a function's number among them
        (piece,) = pieces([np.concatenate([note(5, 3, name), call(OPEN, 5, 9)])])
        assert piece.calls["function"].tolist() == [OPEN]
        assert piece.notes[0].name == name
