"""An attacker between a client of a store and its server, whose address the server knows."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from relays import Relay, port_of, to

from sonde.core.errors import SondeError
from sonde.store.client import connect
from sonde.store.errors import NotFound
from store_frames import stored

VALUE = b"the value that nobody else is to see" * 100


@pytest.fixture
def secret(tmp_path: Path) -> dict[str, str]:
    """Options of a client."""
    token = tmp_path / "token"
    token.write_text("a-token-of-at-least-16-characters\n")
    token.chmod(0o600)
    return {"auth": "token", "token_file": str(token)}


def served_behind(
    secret: dict[str, str], tls: str, change: Callable[[bytes, int], bytes] | None = None
) -> Any:
    """A server, and the attacker in front of it."""
    port: list[int] = []
    middle = Relay(
        lambda: socket.create_connection(("127.0.0.1", port[0])), change=change or (lambda piece, _: piece)
    )
    words = [
        "--backend",
        "data=memory",
        "--auth",
        "token",
        "--token-file",
        secret["token_file"],
        "--tls",
        tls,
    ]
    server = stored(*words, "--known-as", middle.address)

    def open_port(address: str) -> None:
        port.append(port_of(address))

    return server, middle, open_port


def test_who_stands_between_reads_a_plain_stream_and_none_in_tls(secret: dict[str, str]) -> None:
    server, middle, open_port = served_behind(secret, "offer")
    with server as there:
        open_port(there.address)
        for tls in (False, True):
            middle.asked.clear()
            middle.said.clear()
            with connect(middle.address, tls=tls, **secret) as client:
                client.put("secret-space", "secret-key", VALUE)
                assert client.get("secret-space", "secret-key") == VALUE
                client.create("secret-space", "secret-object")
                client.write("secret-space", "secret-object", VALUE)
                assert bytes(client.read("secret-space", "secret-object", 0, len(VALUE))) == VALUE
            for stream in (b"".join(middle.asked), b"".join(middle.said)):
                assert (VALUE[:36] in stream) is not tls
            assert (b"secret-key" in b"".join(middle.asked)) is not tls
    middle.end()


@pytest.mark.parametrize("at", [0, 3, 60, 300, 700, 1500, 3000])
def test_one_bit_that_is_changed_on_the_way_ends_the_connection_and_nothing_is_done(
    secret: dict[str, str], at: int
) -> None:
    changed: list[int] = []

    def change(piece: bytes, before: int) -> bytes:
        if before <= at < before + len(piece):
            changed.append(at)
            piece = bytearray(piece)
            piece[at - before] ^= 4
            return bytes(piece)
        return piece

    server, middle, open_port = served_behind(secret, "require", change)
    with server as there:
        open_port(there.address)
        with (
            pytest.raises(SondeError) as caught,
            connect(middle.address, tls=True, **secret, connect_timeout_s=30) as client,
        ):
            client.put("s", "k", VALUE)
        assert caught.value.code in (
            "store.denied",
            "store.disconnected",
            "store.bad_frame",
            "store.timed_out",
        )
        assert changed
        with connect(there.address, tls=True, **secret) as own, pytest.raises(NotFound):
            own.get("s", "k")
    middle.end()


def test_without_tls_nobody_talks_to_a_server_that_requires_it(secret: dict[str, str]) -> None:
    with stored("--auth", "token", "--token-file", secret["token_file"], "--tls", "require") as there:
        with pytest.raises(SondeError) as caught:
            connect(there.address, **secret)
        assert caught.value.code == "store.denied"
        assert "--tls" in str(caught.value)
        with connect(there.address, tls=True, **secret) as client:
            assert "TLS 1.3" in client.status()[0].detail


def test_strangers_who_say_that_they_talk_tls_get_nowhere(secret: dict[str, str]) -> None:
    with stored("--auth", "token", "--token-file", secret["token_file"], "--tls", "offer") as there:
        for length in (1, 4, 5, 6, 100, 1000, 5000, 20_000):
            for head in (b"\x16", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
                with suppress(OSError), to(there.address)() as one:  # the server may end it at once
                    one.sendall((head + os.urandom(length))[:length])
                    one.shutdown(socket.SHUT_WR)
                    while one.recv(65536):
                        pass
        with connect(there.address, tls=True, **secret) as client:
            client.put("s", "k", b"v")
            report = client.status()[0].report
        assert report["client_memory_bytes"] < 1 << 20


def client_hello(claim: int, length: int) -> bytes:
    """The beginning of a handshake: its message claims this many bytes, and contains others. RFC 8446, 4.1.2."""
    body = b"\x03\x03" + bytes(32) + b"\0\0\2\x13\1\1\0"
    message = (b"\1" + claim.to_bytes(3, "big") + body).ljust(length, b"\0")
    pieces = [message[at : at + 16384] for at in range(0, len(message), 16384)]
    return b"".join(b"\x16\3\1" + struct.pack(">H", len(piece)) + piece for piece in pieces)


def most_mib(pid: int) -> float:
    """The maximum memory that a process ever used."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


@pytest.mark.parametrize(
    "begun",
    [
        b"\x16",
        client_hello(131_000, 100),
        client_hello(131_000, 60_000),
        client_hello(16_000, 15_000)[:15_000],
    ],
    ids=["a byte", "a large claim", "half of a large message", "most of a message"],
)
def test_handshakes_that_are_never_finished_hold_little_memory_and_keep_nobody_out(
    secret: dict[str, str], begun: bytes
) -> None:
    with stored(
        *(
            "--auth",
            "token",
            "--token-file",
            secret["token_file"],
            "--tls",
            "offer",
            "--client-memory",
            "16MiB",
        )
    ) as there:
        with connect(there.address, tls=True, **secret) as client:
            client.put("s", "k", b"v")
        before = most_mib(there.process.pid)
        strangers = []
        for _ in range(600):
            one = to(there.address)()
            strangers.append(one)
            with suppress(OSError):  # it may have been disconnected before
                one.sendall(begun)
        with connect(there.address, tls=True, **secret) as client:
            assert client.get("s", "k") == b"v"
            assert client.status()[0].report["client_memory_bytes"] < 16 << 20
        # A quarter of the 16 MiB is for clients without a proof; as much again for memory that an allocator does not
        # return.
        assert most_mib(there.process.pid) - before < 12
        for one in strangers:
            one.close()
