"""Block files as `native/core/block.hpp` defines them: read in pieces, checked, never trusted."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sonde.core.errors import DataError, EnvironmentFailure, Warning, reason_not_written
from sonde.core.owned_files import Folder, reading

FILE_MAGIC = b"SONDEBLK"
_FREE_BYTES = 256 << 20
_PACKED_RATIO = 1032
"""The largest expansion of a byte by a file system that compresses with deflate. A file of holes claims far more."""
BLOCK_MAGIC = b"SBLK"
VERSION = 1

_FILE_HEAD = struct.Struct("<8sIIII")  # magic, version, header bytes, crc, zero
_BLOCK_HEAD = struct.Struct("<4sIIIQ")  # magic, crc, sequence, records, dropped so far
_MAX_HEADER_BYTES = 64 << 20
_PIECE_BYTES = 4 << 20
# Little-endian only: the format says so, and one flipped bit turns '<' into '>'.
_FIELD_TYPE = re.compile(r"<[iuf][248]|[<|][iu]1|\|S[1-9][0-9]{0,5}")


@dataclass(frozen=True)
class Loss:
    """The cost of a damaged tail: where it begins, how many bytes and blocks are lost, and why.

    blocks is the number of frames that can be recognised in the lost bytes, with the damaged one; at least 1.
    """

    offset: int
    bytes: int
    blocks: int
    reason: str


class BlockFile:
    """One block file: its header, and its records in pieces, any number of times.

    Iterating gives structured arrays of `dtype`, in the order written, each at most one block and at most 4 MiB (but
    never less than a record). A block is given only after its checksum was verified. The first block that is cut off or
    damaged ends the iteration; `loss` and `warnings` then describe the missing part. Later iterations do not see data
    that was appended after the first whole one. The file is open only during an iteration.

    Parameters
    ----------
    path : the file
    folder : an open folder; the file is reached by its name in it, as a plain file of the folder's owner
    (core.unsafe_file)

    Attributes
    ----------
    header : dict  the probe's description of itself
    dtype : numpy dtype of a record

    Raises
    ------
    DataError  core.not_a_file, core.not_a_block_file (empty, foreign), core.damaged_header, core.newer_block_format.
    EnvironmentFailure  core.cannot_read.

    Source: native/core/block.hpp.
    """

    def __init__(self, path: str | PathLike[str], folder: Folder | None = None) -> None:
        self.path, self._folder = Path(path), folder
        self.header: dict[str, Any]
        self.dtype: np.dtype[Any]
        self._state: tuple[int, int, int, Loss | None] | None = None
        self._size = 0
        try:
            with self._opened() as file:
                self._read_header(file)
        except OSError as error:
            raise _unreadable(self.path, error) from None

    def _opened(self) -> contextlib.AbstractContextManager[BinaryIO]:
        return self._folder.reading(self.path.name) if self._folder else reading(self.path)

    def __repr__(self) -> str:
        return f"BlockFile({str(self.path)!r})"

    def __iter__(self) -> Iterator[np.ndarray]:
        try:
            with self._opened() as file:
                yield from self._pieces(file)
        except OSError as error:
            raise _unreadable(self.path, error) from None

    @property
    def records(self) -> int:
        """The number of records that can be read."""
        return self._scanned()[0]

    @property
    def blocks(self) -> int:
        """The number of blocks that can be read."""
        return self._scanned()[1]

    @property
    def dropped(self) -> int:
        """The number of records that the probe had no room for, from its last readable block."""
        return self._scanned()[2]

    @property
    def loss(self) -> Loss | None:
        """The fault at the file's end, or None if the file is whole."""
        return self._scanned()[3]

    @property
    def warnings(self) -> list[Warning]:
        """core.truncated_block for a damaged end, core.records_dropped for records without room, or an empty list."""
        found = []
        if (loss := self.loss) is not None:
            found.append(
                Warning(
                    "core.truncated_block",
                    f"{self.path.name}: {loss.reason} at byte {loss.offset}; {loss.bytes} bytes in "
                    f"{loss.blocks} {'block' if loss.blocks == 1 else 'blocks'} are lost, "
                    f"{self.records} records before them are whole",
                    "a killed run or a full disk leaves such a file; measure again for the missing part",
                )
            )
        if self.dropped:
            found.append(
                Warning(
                    "core.records_dropped",
                    f"{self.path.name}: {self.dropped} records were dropped because there was no room; "
                    f"{self.records} are stored",
                    "give it more room (--cap, --max-trace, a larger disk), or record less",
                )
            )
        return found

    def _scanned(self) -> tuple[int, int, int, Loss | None]:
        if self._state is None:
            for _ in self:
                pass
        assert self._state is not None  # the iteration sets this at its end
        return self._state

    def _read_header(self, file: BinaryIO) -> None:
        size = file.seek(0, 2)
        file.seek(0)
        stored = 512 * os.fstat(file.fileno()).st_blocks
        if (
            stored and size > _FREE_BYTES + _PACKED_RATIO * stored
        ):  # some file systems do not report their stored bytes
            raise DataError(
                "core.damaged_file",
                f"{self.path} claims {size} B and stores {stored} B; allowed: 256 MiB, and {_PACKED_RATIO} B for each "
                "byte stored",
                "copy it again from where it was measured",
            )
        head = file.read(_FILE_HEAD.size)
        hint = "block files are written by Sonde's probes into the run folder (rank-00000.blk)"
        if size == 0:
            raise DataError(
                "core.not_a_block_file", f"{self.path} is empty: its probe ended before it wrote", hint
            )
        if not FILE_MAGIC.startswith(head[:8]):
            raise DataError("core.not_a_block_file", f"{self.path} is not a block file of Sonde", hint)

        def damaged(why: str) -> DataError:
            return DataError(
                "core.damaged_header",
                f"{self.path}: {why}, so its {size} bytes cannot be read as blocks",
                "the other ranks' files can still be recovered: move this one out of the run folder",
            )

        if len(head) < _FILE_HEAD.size:
            raise damaged("the header is cut off")
        _, version, length, crc, _ = _FILE_HEAD.unpack(head)
        text = file.read(length) if length <= min(size, _MAX_HEADER_BYTES) else b""
        if zlib.crc32(text, zlib.crc32(head[8:16])) != crc or len(text) != length:
            # A later format may have another head: only a valid head gives its version.
            raise damaged("the header is cut off" if length > size - len(head) else "the header is damaged")
        if version != VERSION:
            raise DataError(
                "core.newer_block_format",
                f"{self.path} has block format {version}; this Sonde reads format {VERSION}",
                "read it with the Sonde that wrote it",
            )
        try:
            header = json.loads(text.decode("utf-8"))
        except (ValueError, RecursionError):
            raise damaged("the header is not JSON") from None
        if not isinstance(header, dict):
            raise damaged("the header is not a JSON object")
        self.header = header
        self.dtype = _record_dtype(header.get("fields"), damaged)
        self._begin = _FILE_HEAD.size + length

    def _pieces(self, file: BinaryIO) -> Iterator[np.ndarray]:
        size = file.seek(0, 2) if self._state is None else self._size
        step = self.dtype.itemsize
        at, records, blocks, dropped = self._begin, 0, 0, 0
        reason = ""
        while at < size:
            file.seek(at)
            head = file.read(_BLOCK_HEAD.size)
            if len(head) < _BLOCK_HEAD.size:
                reason = "a block is cut off"
                break
            magic, crc, sequence, count, drops = _BLOCK_HEAD.unpack(head)
            length = count * step
            if magic != BLOCK_MAGIC:
                reason = "a block has no valid beginning"
                break
            if length > size - at - len(head):
                reason = "a block is cut off"
                break
            if length <= _PIECE_BYTES:
                payload = file.read(length)
                if len(payload) < length or zlib.crc32(payload, zlib.crc32(head[8:])) != crc:
                    reason = "a block's checksum does not match"
                    break
            elif not _checks(file, head, length, crc):
                reason = "a block's checksum does not match"
                break
            if sequence != blocks:
                reason = f"block {sequence} follows where block {blocks} must"
                break
            if drops < dropped:
                reason = "a block counts fewer dropped records than the one before it"
                break
            if length <= _PIECE_BYTES:
                if count:
                    yield np.frombuffer(payload, self.dtype)
            else:
                rows = max(1, _PIECE_BYTES // step)
                for first in range(0, count, rows):
                    file.seek(at + len(head) + first * step)
                    want = min(rows, count - first) * step
                    if len(piece := file.read(want)) < want:
                        raise DataError(
                            "core.file_changed",
                            f"{self.path} became shorter while it was read",
                            "wait until nothing writes to it, then try again",
                        )
                    yield np.frombuffer(piece, self.dtype)
            records, blocks, dropped, at = records + count, blocks + 1, drops, at + len(head) + length
        loss = Loss(at, size - at, self._frames(file, at, size), reason) if at < size else None
        self._state, self._size = (records, blocks, dropped, loss), size

    def _frames(self, file: BinaryIO, at: int, size: int) -> int:
        """The number of block frames between `at` and `size`, including the one that begins at `at`."""
        frames = 1
        while True:
            file.seek(at)
            head = file.read(_BLOCK_HEAD.size)
            known = len(head) == _BLOCK_HEAD.size and head[:4] == BLOCK_MAGIC
            end = at + _BLOCK_HEAD.size + _BLOCK_HEAD.unpack(head)[3] * self.dtype.itemsize if known else size
            file.seek(min(end, size))
            if end >= size or file.read(4) != BLOCK_MAGIC:
                end = _find(file, BLOCK_MAGIC, at + 4, size)
            if end >= size:
                return frames
            frames, at = frames + 1, end


def _record_dtype(fields: Any, damaged: Any) -> np.dtype[Any]:
    if not isinstance(fields, list) or not fields:
        raise damaged("the header names no fields")
    layout = []
    for entry in fields:
        match entry:
            case [str(name), str(kind), list(shape)] if (
                name.isidentifier()
                and _FIELD_TYPE.fullmatch(kind)
                and all(type(k) is int and 0 < k < 2**31 for k in shape)
                and len(shape) <= 32
            ):
                layout.append((name, kind, tuple(shape)))
            case _:
                raise damaged(f"the header's field {json.dumps(entry)} is not understood")
    try:
        return np.dtype(layout)
    except (ValueError, TypeError, OverflowError) as error:
        raise damaged(f"the header's fields make no record ({error})") from None


def _checks(file: BinaryIO, head: bytes, length: int, crc: int) -> bool:
    """Whether a block that is too large for memory matches its checksum; the file position is behind its head."""
    found = zlib.crc32(head[8:])
    while length:
        piece = file.read(min(length, _PIECE_BYTES))
        if not piece:
            return False
        found = zlib.crc32(piece, found)
        length -= len(piece)
    return found == crc


def _data_after(file: BinaryIO, begin: int) -> int:
    """The first byte at or after `begin` that is not in a hole: a hole of any length costs its maker nothing.

    The file position stays as it is, because the buffer of the stream relies on it.
    """
    descriptor = file.fileno()
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        return os.lseek(descriptor, begin, os.SEEK_DATA)
    except OSError as error:
        return os.fstat(descriptor).st_size if error.errno == errno.ENXIO else begin
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)


def _find(file: BinaryIO, pattern: bytes, begin: int, end: int) -> int:
    """Offset of the first `pattern` at or after `begin`, or `end`."""
    while begin < end:
        if (begin := _data_after(file, begin)) >= end:
            break
        file.seek(begin)
        window = file.read(min(_PIECE_BYTES, end - begin))
        if (found := window.find(pattern)) >= 0:
            return begin + found
        if len(window) < len(pattern) or begin + len(window) >= end:
            break
        begin += len(window) - len(pattern) + 1
    return end


def _unreadable(path: Path, error: OSError) -> EnvironmentFailure:
    return EnvironmentFailure(
        "core.cannot_read",
        f"cannot read {path}: {error.strerror or error}",
        "check that it is there and readable",
    )


class BlockWriter:
    """Writes a block file from Python, for slow recordings: each write() makes one complete block.

    path : a new file. dtype : packed, little-endian. header : the writer's description of itself; `schema` at least.

    Raises
    ------
    EnvironmentFailure  core.cannot_write, core.disk_full.
    """

    def __init__(self, path: str | PathLike[str], dtype: np.dtype[Any], header: Mapping[str, Any]) -> None:
        self.path, self.dtype, self.dropped, self._sequence = Path(path), dtype, 0, 0
        fields = []
        for name in dtype.names or ():
            kind, shape = dtype[name].subdtype or (dtype[name], ())
            fields.append([name, kind.str, list(shape)])
        text = json.dumps({"fields": fields, **header}).encode()
        text += b" " * (-len(text) % 8)
        front = struct.pack("<II", VERSION, len(text))
        crc = zlib.crc32(text, zlib.crc32(front))
        try:
            self._file = self.path.open("xb", buffering=0)
            self._file.write(_FILE_HEAD.pack(FILE_MAGIC, VERSION, len(text), crc, 0) + text)
        except OSError as error:
            raise _unwritten(self.path, error) from None

    def write(self, records: np.ndarray) -> None:
        """Add records. If the disk is full, `dropped` counts them, and the file stays whole."""
        if not len(records):
            return
        body = struct.pack("<IIQ", self._sequence, len(records), self.dropped) + records.tobytes()
        block = BLOCK_MAGIC + struct.pack("<I", zlib.crc32(body)) + body
        begin = self._file.tell()
        try:
            written = self._file.write(block)
            if written == len(block):
                self._sequence += 1
                return
            self._file.seek(begin)
            self._file.truncate()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise _unwritten(self.path, error) from None
            self._file.seek(begin)
            self._file.truncate()
        self.dropped += len(records)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.fsync(self._file.fileno())
        self._file.close()


def _unwritten(path: Path, error: OSError) -> EnvironmentFailure:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return EnvironmentFailure(
        "core.disk_full" if full else "core.cannot_write",
        f"cannot write {path}: {reason_not_written(error)}",
        "make room, or choose another folder with --output"
        if full
        else "choose another folder with --output",
    )
