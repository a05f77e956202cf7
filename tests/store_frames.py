"""Raw frames to a storage server, after docs/reference/store-wire.md: no client of this project sends them."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sonde.core import launch

HELLO, WELCOME, CHALLENGE, PROOF, REQUEST, REPLY, PING, TRANSPORT, GOODBYE, STATUS = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    9,
    10,
    12,
)
KV = 1
MOST_OPS = 1 << 20  # in a batch, as a frame can claim them
HEADER = struct.Struct("<4sBBHQIIIBBHIIIIIII")  # all but its own checksum


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def frame(
    kind: int,
    data: bytes = b"",
    table: bytes = b"",
    ops: int = 0,
    role: int = 0,
    batch: int = 0,
    part: int = 0,
    flags: int = 4,
    number: int | None = None,
) -> bytes:
    if number is None:
        number = 1 if kind == REQUEST else 0
    sizes = ops, len(table), len(data), role, 1, 0, part, batch, 0, 0, 0, 0
    summed = table + data if flags & 4 else table
    head = HEADER.pack(b"SNS1", 1, kind, flags, number, *sizes, crc32c(summed))
    return head + struct.pack("<I", crc32c(head)) + table + data


def text(**words: str) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in words.items()).encode()


class Caller:
    """One connection, from a client or, with an accepted socket, from a server."""

    def __init__(self, address: str | socket.socket) -> None:
        if isinstance(address, socket.socket):
            self.socket = address
            return
        host, _, port = address.rpartition(":")
        # create_connection would load a codec, which another user may not be able to load.
        self.socket = socket.socket()
        self.socket.settimeout(60)
        self.socket.connect((host, int(port)))

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
        """Completes the greeting with a server that asks for no proof."""
        self.say(frame(HELLO, text(client="stranger", nonce="0", transport=transport)))
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
def stored(*words: str, listen: str = "127.0.0.1:0", **how: Any) -> Iterator[Stored]:
    """A server. how: further arguments of Popen."""
    process = subprocess.Popen(
        [str(launch.libexec() / "sonde-stored"), "--listen", listen, "--backend", "kv=memory", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        event = json.loads(line)
        assert event["event"] == "ready", event
        yield Stored(process, event["listen"])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
