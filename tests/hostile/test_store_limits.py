"""A storage server with little memory and few threads, and clients who would take more than there is.

Raw frames, as docs/reference/store-wire.md has them: a client of this project sends none of these.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde.core import launch
from sonde.store.client import connect

HELLO, WELCOME, CHALLENGE, PROOF, REQUEST, TRANSPORT = 1, 2, 3, 4, 5, 9
KV, KV_GET = 1, 49
INVALID = 3
HEADER = struct.Struct("<4sBBHQIIIBBHIIIIIII")  # all but its own checksum
RECORD = struct.Struct("<BBHIQQII")
MOST_OPS = 1 << 20
# Of nobody else, so that a limit of processes counts this server's threads alone.
ALONE = 61_000 + os.getpid() % 3000


def crc32c(data: bytes, crc: int = 0) -> int:
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frame(
    kind: int, data: bytes = b"", table: bytes = b"", ops: int = 0, role: int = 0, batch: int = 0
) -> bytes:
    number = 1 if kind == REQUEST else 0
    sizes = ops, len(table), len(data), role, 1, 0, 0, batch, 0, 0, 0, 0
    head = HEADER.pack(b"SNS1", 1, kind, 4, number, *sizes, crc32c(table + data))
    return head + struct.pack("<I", crc32c(head)) + table + data


class Caller:
    """One connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)

    def say(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def _read(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            more = self.socket.recv(size - len(got))
            if not more:
                raise ConnectionError("the server ended the connection")
            got += more
        return got

    def hear(self) -> tuple[int, bytes]:
        """The kind and the body of the next frame."""
        head = self._read(64)
        table, data = struct.unpack_from("<II", head, 20)
        return head[5], self._read(table + data)

    def be_welcomed(self, transport: str = "tcp") -> None:
        self.say(frame(HELLO, f"client=stranger\nnonce=0\ntransport={transport}\n".encode()))
        assert self.hear()[0] == CHALLENGE
        self.say(frame(PROOF))
        assert self.hear()[0] == WELCOME

    def end(self) -> None:
        self.socket.close()


@dataclass
class Stored:
    process: subprocess.Popen[str]
    address: str


@contextmanager
def stored(limit: int, most: int, *words: str) -> Iterator[Stored]:
    """A server that has at most so much of what the limit is of."""
    process = subprocess.Popen(
        [str(launch.libexec() / "sonde-stored"), "--listen", "127.0.0.1:0", "--backend", "kv=memory", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        user=ALONE if os.geteuid() == 0 else None,
        group=ALONE if os.geteuid() == 0 else None,
        extra_groups=[] if os.geteuid() == 0 else None,
        cwd="/",
        preexec_fn=lambda: resource.setrlimit(limit, (most, most)),
    )
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        yield Stored(process, json.loads(line)["listen"])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def serves(server: Stored) -> bool:
    assert server.process.poll() is None, "the server has ended"
    with connect(server.address) as client:
        client.put("s", "k", b"v")
        return client.get("s", "k") == b"v"


def test_batches_that_claim_a_million_operations_take_no_memory() -> None:
    record = RECORD.pack(KV_GET, 0, 1, 1, 0, 0, 0, 0) + b"sk".ljust(8, b"\0")
    giant = frame(REQUEST, table=record, ops=1, role=KV, batch=MOST_OPS)
    callers = []
    with stored(resource.RLIMIT_AS, 1 << 30) as server:
        for _ in range(30):
            callers.append(Caller(server.address))
            callers[-1].be_welcomed()
            callers[-1].say(giant)
            _, body = callers[-1].hear()
            assert struct.unpack_from("<H", body)[0] == INVALID
        assert serves(server)
        for caller in callers:
            caller.end()


@pytest.mark.root
def test_links_for_which_there_is_no_thread_are_refused_and_the_server_goes_on() -> None:
    listed = subprocess.run(
        [str(launch.libexec() / "sonde-stored"), "--list"], capture_output=True, text=True, check=True
    )
    transports = json.loads(listed.stdout)["transports"]
    if "ofi-msg" not in transports:
        pytest.skip("this build has no libfabric")
    with stored(resource.RLIMIT_NPROC, 8) as server:
        callers = [Caller(server.address) for _ in range(40)]
        for caller in callers:
            caller.be_welcomed("ofi-msg")
            caller.say(frame(TRANSPORT, b"try=none\nstyle=msg\n"))  # refused; then it is waited for another
        assert serves(server)
        for caller in callers:
            caller.end()
        assert serves(server)
