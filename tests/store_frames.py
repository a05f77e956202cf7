"""Frames of the store's wire format, from docs/reference/store-wire.md alone: no client of this project sends them."""

from __future__ import annotations

import socket
import struct

HELLO, WELCOME, CHALLENGE, PROOF, REQUEST, PING, TRANSPORT, STATUS = 1, 2, 3, 4, 5, 7, 9, 12
KV, KV_GET = 1, 49
INVALID = 3
HEADER = struct.Struct("<4sBBHQIIIBBHIIIIIII")  # all but its own checksum
RECORD = struct.Struct("<BBHIQQII")
MOST_OPS = 1 << 20


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
    number: int | None = None,
) -> bytes:
    """A frame whose checksums are right. number: of its message; None: 1 for a request, else 0."""
    if number is None:
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
        """Of a server that asks for no proof."""
        self.say(frame(HELLO, f"client=stranger\nnonce=0\ntransport={transport}\n".encode()))
        assert self.hear()[0] == CHALLENGE
        self.say(frame(PROOF))
        assert self.hear()[0] == WELCOME

    def end(self) -> None:
        self.socket.close()
