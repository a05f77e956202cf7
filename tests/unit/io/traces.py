"""Traces put together by hand, as the tracer leaves them (native/io/record.hpp)."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sonde.core import run_folder, seal
from sonde.io.kinds import SCHEMA
from sonde.io.maps.layers import KINDS
from sonde.io.trace.events import CLOCK, NOTE, RECORD, UNKNOWN
from sonde.io.trace.schema import NAME

FIELDS = [["begin", "<u8", []], ["end", "<u8", []], ["size", "<u8", []], ["offset", "<u8", []], ["file", "<u4", []],
          ["function", "<u2", []], ["depth", "|u1", []], ["flags", "|u1", []]]  # fmt: skip
LAYERS = [{"name": "mpiio", "title": "MPI-IO"}, {"name": "posix", "title": "POSIX"}]
RULES = [
    [0, KINDS.index("write")],
    [1, KINDS.index("write")],
    [1, KINDS.index("open")],
    [1, KINDS.index("read")],
]
FUNCTIONS = (
    "0\t0\tMPI_File_write\tlibmpi.so\n1\t1\tpwrite\tlibc.so\n2\t2\topen\tlibc.so\n3\t3\tpread\tlibc.so\n"
)
WRITE_ALL, PWRITE, OPEN, PREAD = range(4)


def call(function: int, begin: int, end: int, depth: int = 0, **more: Any) -> np.ndarray:
    """A record. begin, end: ticks. more: size, offset, file, flags."""
    record = np.zeros(1, RECORD)
    record["size"], record["offset"] = UNKNOWN, UNKNOWN
    record["function"], record["begin"], record["end"], record["depth"] = function, begin, end, depth
    for name, value in more.items():
        record[name] = value
    return record


def thread(number: int, ticks: int = 0, ns: int = 0) -> np.ndarray:
    return call(CLOCK, ticks, ns, size=number, offset=0)


def note(begin: int, handle: int, name: str) -> np.ndarray:
    text = name.encode()
    slots = -(-len(text) // RECORD.itemsize)
    head = call(NOTE, begin, handle, size=len(text), offset=0, file=handle)
    return np.concatenate([head, np.frombuffer(text.ljust(slots * RECORD.itemsize, b"\0"), RECORD)])


def header(pid: int = 100, host: str = "n1", rank: int = -1, **more: Any) -> dict[str, Any]:
    return {
        "fields": FIELDS, "schema": NAME, "host": host, "pid": pid, "parent": 1, "rank": rank, "program": "/bin/prog",
        "ticks": "tsc", "began_ticks": 0, "began_ns": 0, "began_utc_ns": 10**18, "inherits": "", "inherited": 0,
        "number": 0,
    } | more  # fmt: skip


def block_file(
    head: dict[str, Any], blocks: Sequence[np.ndarray], checked: bool = True, dropped: int = 0
) -> bytes:
    """checked: with checksums, which the tracer leaves out."""
    text = json.dumps(head).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    fixed = struct.pack("<II", 1, len(text))
    out = b"SONDEBLK" + fixed + struct.pack("<II", zlib.crc32(text, zlib.crc32(fixed)), 0) + text
    for number, records in enumerate(blocks):
        rest = struct.pack("<IIQ", number, len(records), dropped) + records.tobytes()
        out += b"SBLK" + struct.pack("<I", zlib.crc32(rest) if checked else 0) + rest
    return out


def tail(
    pid: int, blocks: Sequence[np.ndarray], current: int, appended: int, sequence: int, **more: Any
) -> bytes:
    """A thread's mapped file. blocks: of its two; more: depth, frames (bytes), dropped, last_ticks, last_ns."""
    fixed = struct.pack(
        "<8sIIIIIIQQQIIQQQ", b"SONDETHR", 1, pid, pid, more.get("depth", 0), current, sequence, more.get("dropped", 0),
        more.get("last_ticks", 0), more.get("last_ns", 0), len(blocks[0]), len(blocks[1]), 0, 0, appended,
    )  # fmt: skip
    out = bytearray(49152)
    out[: len(fixed)] = fixed
    frames = more.get("frames", b"")
    out[4096 : 4096 + len(frames)] = frames
    for k, records in enumerate(blocks):
        at = 16384 + k * 16384 + 24
        out[at : at + records.nbytes] = records.tobytes()
    return bytes(out)


def run(folder: Path, plan: dict[str, Any] | None = None) -> Path:
    """A run's folder without files of processes."""
    run_folder.start(
        folder,
        room="io",
        schema=NAME,
        attrs={"stop_reason": "ended"},
        plan={"layers": LAYERS, "rules": RULES, "clocks": [["n1", 0, 0], ["n1", 10**9, 10**9]]}
        | (plan or {}),
    )
    return folder


def add(folder: Path, records: Sequence[np.ndarray], functions: str = FUNCTIONS, **more: Any) -> str:
    """A process of one thread, closed already. Returns the name that its files begin with."""
    head = header(**more)
    name = f"{head['host']}-{head['pid']}-ab"
    if functions:
        (folder / f"{name}.functions").write_text(functions)
    (folder / f"{name}-{head['number']}.blk").write_bytes(
        block_file(head, [np.concatenate([thread(head["pid"] + 1), *records])])
    )
    return name


def sealed(folder: Path) -> Path:
    return seal.seal(folder, folder.with_suffix(".nc"), SCHEMA)[0].path
