"""Block files: what the probes' writer wrote is read back exactly, and never anything else."""

from __future__ import annotations

import errno
import json
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde import _core
from sonde.core.blocks import BlockFile, BlockWriter
from sonde.core.errors import DataError, EnvironmentFailure, SondeError

FIELDS = [["id", "<u4", []], ["rank", "<i4", []], ["value", "<f8", [3]], ["label", "|S4", []]]
RECORD = np.dtype([("id", "<u4"), ("rank", "<i4"), ("value", "<f8", (3,)), ("label", "S4")])
HEADER = {"fields": FIELDS, "rank": 3, "host": "n017"}


def records(first: int, count: int) -> np.ndarray:
    made = np.zeros(count, RECORD)
    made["id"] = np.arange(first, first + count)
    made["rank"] = 3
    made["value"] = made["id"][:, None] + np.array([0.25, 0.5, 0.75])
    made["label"] = b"ab"
    return made


def write(path: Path, blocks: list[int], buffer_records: int = 64, **more) -> np.ndarray:
    """Writes blocks of so many records each with the real writer; returns all records."""
    writer = _core.BlockWriter(str(path), json.dumps(HEADER | more), RECORD.itemsize, buffer_records)
    parts, first = [np.zeros(0, RECORD)], 0
    for count in blocks:
        part = records(first, count)
        assert writer.append(part) == count
        writer.flush()
        parts.append(part)
        first += count
    writer.close()
    return np.concatenate(parts)


def read(path: Path) -> np.ndarray:
    return np.concatenate([np.zeros(0, RECORD), *BlockFile(path)])


def by_hand(header: bytes, blocks: bytes = b"", version: int = 1) -> bytes:
    head = struct.pack("<II", version, len(header))
    return b"SONDEBLK" + head + struct.pack("<II", zlib.crc32(header, zlib.crc32(head)), 0) + header + blocks


def block(sequence: int, payload: bytes, count: int, dropped: int = 0) -> bytes:
    body = struct.pack("<IIQ", sequence, count, dropped) + payload
    return b"SBLK" + struct.pack("<I", zlib.crc32(body)) + body


def test_what_the_probes_write_is_read_back(tmp_path):
    path = tmp_path / "rank-00003.blk"
    wrote = write(path, [5, 1, 64])
    file = BlockFile(path)
    assert file.header == HEADER
    assert file.dtype == RECORD
    assert [len(piece) for piece in file] == [5, 1, 64]
    np.testing.assert_array_equal(np.concatenate(list(file)), wrote)
    assert (file.records, file.blocks, file.dropped, file.loss, file.warnings) == (70, 3, 0, None, [])


def test_it_can_be_iterated_again_and_half_way(tmp_path):
    path = tmp_path / "a.blk"
    wrote = write(path, [2, 3])
    file = BlockFile(path)
    assert len(next(iter(file))) == 2
    np.testing.assert_array_equal(np.concatenate(list(file)), wrote)
    np.testing.assert_array_equal(np.concatenate(list(file)), wrote)
    assert file.records == 5


def test_what_is_appended_after_the_first_reading_is_not_seen_by_the_next(tmp_path):
    path = tmp_path / "a.blk"
    write(path, [2, 3])
    file = BlockFile(path)
    assert file.records == 5
    with path.open("ab") as end:
        end.write(block(2, records(5, 1).tobytes(), 1))
    assert sum(len(piece) for piece in file) == 5
    assert BlockFile(path).records == 6


def test_a_file_without_blocks_holds_no_records(tmp_path):
    write(tmp_path / "a.blk", [])
    file = BlockFile(tmp_path / "a.blk")
    assert list(file) == []
    assert (file.records, file.loss) == (0, None)


def test_a_block_without_records_is_whole(tmp_path):
    header = json.dumps(HEADER).encode()
    one = records(0, 1).tobytes()
    (tmp_path / "a.blk").write_bytes(by_hand(header, block(0, b"", 0) + block(1, one, 1)))
    file = BlockFile(tmp_path / "a.blk")
    assert [len(piece) for piece in file] == [1]
    assert (file.blocks, file.loss) == (2, None)


def test_dropped_records_are_counted_and_reported(tmp_path):
    writer = _core.BlockWriter(str(tmp_path / "a.blk"), json.dumps(HEADER), RECORD.itemsize, 4)
    assert writer.append(records(0, 10)) == 4
    assert writer.dropped == 6
    writer.close()
    file = BlockFile(tmp_path / "a.blk")
    assert file.dropped == 6
    (warning,) = file.warnings
    assert warning.code == "core.records_dropped"
    assert "6 records were dropped" in warning.evidence
    assert "4 are stored" in warning.evidence


def test_a_cut_tail_costs_its_block_only_and_says_so(tmp_path):
    path = tmp_path / "rank-00001.blk"
    wrote = write(path, [5, 7])
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    file = BlockFile(path)
    np.testing.assert_array_equal(read(path), wrote[:5])
    lost = 24 + 7 * RECORD.itemsize - 1
    assert (file.loss.bytes, file.loss.blocks, file.loss.offset) == (lost, 1, len(whole) - lost - 1)
    (warning,) = file.warnings
    assert warning.code == "core.truncated_block"
    assert f"{lost} bytes in 1 block are lost" in warning.evidence
    assert "rank-00001.blk: a block is cut off" in warning.evidence


def test_damage_in_the_middle_ends_the_file_there_and_counts_what_follows(tmp_path):
    path = tmp_path / "a.blk"
    wrote = write(path, [5, 7, 2, 3])
    data = bytearray(path.read_bytes())
    second = len(data) - 3 * 24 - 12 * RECORD.itemsize
    data[second + 40] ^= 1
    path.write_bytes(data)
    file = BlockFile(path)
    np.testing.assert_array_equal(read(path), wrote[:5])
    assert (file.loss.offset, file.loss.bytes, file.loss.blocks) == (second, len(data) - second, 3)
    assert file.loss.reason == "a block's checksum does not match"


@pytest.mark.parametrize("field", ["magic", "count"])
def test_lost_blocks_are_counted_where_the_damaged_one_hides_its_length(tmp_path, field):
    path = tmp_path / "a.blk"
    write(path, [5, 7, 2])
    data = bytearray(path.read_bytes())
    second = len(data) - 2 * 24 - 9 * RECORD.itemsize
    data[second if field == "magic" else second + 13] ^= 4
    path.write_bytes(data)
    assert BlockFile(path).loss.blocks == 2


def test_a_block_out_of_order_is_not_taken(tmp_path):
    header = json.dumps(HEADER).encode()
    one = records(0, 1).tobytes()
    (tmp_path / "a.blk").write_bytes(by_hand(header, block(0, one, 1) + block(0, one, 1)))
    file = BlockFile(tmp_path / "a.blk")
    assert file.records == 1
    assert file.loss.reason == "block 0 follows where block 1 must"


def test_a_block_whose_drop_count_falls_is_not_taken(tmp_path):
    one = records(0, 1).tobytes()
    blocks = block(0, one, 1, dropped=3) + block(1, one, 1, dropped=2)
    (tmp_path / "a.blk").write_bytes(by_hand(json.dumps(HEADER).encode(), blocks))
    file = BlockFile(tmp_path / "a.blk")
    assert (file.records, file.dropped, file.loss.blocks) == (1, 3, 1)


def test_a_large_block_comes_in_pieces_and_in_bounded_memory(tmp_path):
    path = tmp_path / "a.blk"
    count = 1_000_000  # 36 MB in one block
    wrote = write(path, [count], buffer_records=count)
    del wrote
    file = BlockFile(path)
    tracemalloc.start()
    total = last = 0
    for piece in file:
        assert piece.nbytes <= 4 << 20
        assert piece["id"][0] == total
        total, last = total + len(piece), int(piece["id"][-1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (total, last) == (count, count - 1)
    assert peak < 16 << 20


def test_a_large_damaged_block_gives_nothing(tmp_path):
    path = tmp_path / "a.blk"
    write(path, [200_000], buffer_records=200_000)
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x80
    path.write_bytes(data)
    assert list(BlockFile(path)) == []
    assert BlockFile(path).loss.blocks == 1


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"", "core.not_a_block_file", "is empty"),
        (b"CDF\x02 and more", "core.not_a_block_file", "is not a block file"),
        (b"SON", "core.damaged_header", "cut off"),
        (b"SONDEBLK\x01\x00\x00\x00", "core.damaged_header", "cut off"),
        (by_hand(b"{}"), "core.damaged_header", "names no fields"),
        (by_hand(b"[1]"), "core.damaged_header", "not a JSON object"),
        (by_hand(b"not json"), "core.damaged_header", "not JSON"),
        (by_hand(b"\xff\xfe"), "core.damaged_header", "not JSON"),
        (by_hand(b"[" * 100_000), "core.damaged_header", "not JSON"),
        (by_hand(b'{"fields": [["a", ">f8", []]]}'), "core.damaged_header", "'a', '>f8'"),
        (by_hand(b'{"fields": [["a", "|O", []]]}'), "core.damaged_header", "not understood"),
        (by_hand(b'{"fields": [["a", "<f8", [0]]]}'), "core.damaged_header", "not understood"),
        (by_hand(b'{"fields": [["a", "<f8", [true]]]}'), "core.damaged_header", "not understood"),
        (by_hand(b'{"fields": [["a", "<f8", []], ["a", "<f8", []]]}'), "core.damaged_header", "no record"),
        (by_hand(b'{"fields": [["a", "<f8", [99999, 99999, 99999]]]}'), "core.damaged_header", "no record"),
        (by_hand(json.dumps(HEADER).encode(), version=2), "core.newer_block_format", "block format 2"),
        (by_hand(json.dumps(HEADER).encode())[:-1], "core.damaged_header", "cut off"),
    ],
)
def test_what_is_no_block_file_is_refused_in_words(tmp_path, content, code, said):
    (tmp_path / "a.blk").write_bytes(content)
    with pytest.raises(DataError) as raised:
        BlockFile(tmp_path / "a.blk")
    assert raised.value.code == code
    assert said.replace("'", '"') in raised.value.what or said in raised.value.what
    assert raised.value.hint


def test_a_missing_file_is_reported_as_such(tmp_path):
    with pytest.raises(EnvironmentFailure, match="No such file") as raised:
        BlockFile(tmp_path / "none.blk")
    assert raised.value.code == "core.cannot_read"


def test_the_writer_refuses_what_is_not_whole_records(tmp_path):
    writer = _core.BlockWriter(str(tmp_path / "a.blk"), json.dumps(HEADER), RECORD.itemsize, 4)
    with pytest.raises(ValueError, match="whole number of records"):
        writer.append(np.zeros(RECORD.itemsize + 1, np.uint8))
    with pytest.raises(ValueError, match="contiguous"):
        writer.append(records(0, 4)[::2])
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.flush()


def test_the_writer_says_when_the_cap_is_reached_and_where_it_cannot_write(tmp_path):
    writer = _core.BlockWriter(str(tmp_path / "a.blk"), json.dumps(HEADER), RECORD.itemsize, 8, 400)
    writer.append(records(0, 8))
    with pytest.raises(EnvironmentFailure, match="reached its cap of 400 bytes") as raised:
        writer.flush()
    assert raised.value.code == "core.cap_reached"
    with pytest.raises(EnvironmentFailure) as raised:
        _core.BlockWriter(str(tmp_path / "none" / "a.blk"), "{}", 8, 8)
    assert raised.value.code == "core.cannot_write"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "a.blk"
    wrote = write(path, [3, 0, 1, 8, 2])
    return path.read_bytes(), wrote


def check_damaged(path: Path, wrote: np.ndarray) -> None:
    """What is still read is what was written, from its beginning; the rest is refused or accounted for."""
    try:
        file = BlockFile(path)
        pieces = list(file)
    except SondeError:
        return
    assert file.header == HEADER
    got = np.concatenate([np.zeros(0, RECORD), *pieces])
    assert got.tobytes() == wrote[: len(got)].tobytes()
    assert file.records == len(got)
    lost = file.loss.bytes if file.loss else 0
    assert file._begin + file.blocks * 24 + got.nbytes + lost == path.stat().st_size
    assert bool(file.warnings) == (lost > 0)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_damage_gives_a_wrong_record_or_an_uncaught_error(sound, tmp_path_factory, data):
    content, wrote = sound
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(0, 3), "flips")):
        bit = data.draw(st.integers(0, len(content) * 8 - 1), "bit")
        damaged[bit // 8] ^= 1 << bit % 8
    if data.draw(st.booleans(), "splice"):
        at = data.draw(st.integers(0, len(damaged)), "at")
        out = data.draw(st.integers(0, 200), "out")
        damaged[at : at + out] = data.draw(st.binary(max_size=64), "in")
    if data.draw(st.booleans(), "cut"):
        del damaged[data.draw(st.integers(0, len(damaged)), "length") :]
    path = tmp_path_factory.getbasetemp() / "fuzzed.blk"
    path.write_bytes(damaged)
    check_damaged(path, wrote)


def test_every_single_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "a.blk"
    write(path, [2, 0, 1])
    content = path.read_bytes()
    unnoticed = []
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            file = BlockFile(path)
        except DataError:
            continue
        if file.loss is None:
            unnoticed.append(bit // 8)
    assert set(unnoticed) <= set(range(20, 24))  # the four zero bytes of the head carry nothing


def test_every_truncation_keeps_the_whole_blocks_before_it(sound, tmp_path):
    content, wrote = sound
    path = tmp_path / "a.blk"
    before = 0
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        check_damaged(path, wrote)
        try:
            kept = BlockFile(path).records
        except DataError:
            kept = 0
        assert kept >= before
        before = kept
    assert before == len(wrote)


class TestWriter:
    DTYPE = np.dtype([("kind", "|u1"), ("x", "<f8"), ("name", "|S8")])

    def test_what_it_writes_is_read(self, tmp_path):
        writer = BlockWriter(tmp_path / "a.blk", self.DTYPE, {"schema": "power/1", "of": "ä"})
        for k in range(3):
            writer.write(np.array([(1, k, b"n1"), (2, -k, b"n2")], self.DTYPE))
        writer.write(np.zeros(0, self.DTYPE))
        file = BlockFile(tmp_path / "a.blk")  # before it is closed: as a kill would leave it
        assert (file.header["of"], file.records, file.blocks, file.loss) == ("ä", 6, 3, None)
        assert np.concatenate(list(file))["x"].tolist() == [0, 0, 1, -1, 2, -2]
        writer.close()

    def test_a_full_disk_is_counted_and_the_file_stays_whole(self, tmp_path, monkeypatch):
        writer = BlockWriter(tmp_path / "a.blk", self.DTYPE, {"schema": "power/1"})
        records = np.zeros(5, self.DTYPE)
        writer.write(records)
        whole = writer._file

        class Full:
            def write(self, data):
                whole.write(data[:20])  # as far as there is room
                raise OSError(errno.ENOSPC, "full")

            def __getattr__(self, name):
                return getattr(whole, name)

        monkeypatch.setattr(writer, "_file", Full())
        writer.write(records)
        monkeypatch.setattr(writer, "_file", whole)
        writer.write(records)
        writer.close()
        file = BlockFile(tmp_path / "a.blk")
        assert (file.records, file.dropped, file.loss) == (10, 5, None)

    def test_it_replaces_nothing(self, tmp_path):
        BlockWriter(tmp_path / "a.blk", self.DTYPE, {"schema": "power/1"}).close()
        with pytest.raises(EnvironmentFailure) as told:
            BlockWriter(tmp_path / "a.blk", self.DTYPE, {"schema": "power/1"})
        assert told.value.code == "core.cannot_write"
