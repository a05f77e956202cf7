"""A stranger sends garbage to the ports that a fabric transport of the store opens, at server and client."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde.store.client import connect
from store_frames import stored

Ports = set[tuple[str, int]]  # "tcp", 40123

# In a separate process, which garbage may end: prints the result of its connection, then of a call for each input line.
CLIENT = """
import sys
from sonde.core.errors import SondeError
from sonde.store.client import connect
try:
    client = connect(sys.argv[1], transport=sys.argv[2], provider=sys.argv[3], auth="none")
except SondeError as error:
    sys.exit(print(str(error).replace(chr(10), " "), flush=True))
with client:
    print("connected", flush=True)
    for line in sys.stdin:
        client.put("s", "k", line.encode())
        print("called" if client.get("s", "k") == line.encode() else "changed", flush=True)
"""


class Client:
    """providers: the first of them that libfabric has here is used."""

    def __init__(self, address: str, transport: str, *providers: str) -> None:
        for provider in providers:
            self._start(address, transport, provider)
            if "has no provider" not in self.said and "no transport" not in self.said:
                return
            self.end()
        pytest.skip(self.said)

    def _start(self, address: str, transport: str, provider: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, address, transport, provider],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.said = self.process.stdout.readline().strip()

    def call(self) -> str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("x\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def client_of(address: str, transport: str, *providers: str) -> Iterator[Client]:
    client = Client(address, transport, *providers)
    try:
        yield client
    finally:
        client.end()


def ports_of(pid: int) -> Ports:
    """The ports at which a process accepts connections, or datagrams."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            name = os.readlink(entry)
            if name.startswith("socket:["):
                inodes.add(name[8:-1])
    ports = set()
    for kind in ("tcp", "udp"):
        for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
            words = line.split()
            listens = kind == "udp" or words[3] == "0A"
            if words[9] in inodes and listens:
                ports.add((kind, int(words[1].rpartition(":")[2], 16)))
    return ports


def send_garbage(kind: str, port: int) -> None:
    """Data that looks like the beginning of a message, and data that does not; over TCP, also half a message and then
    the end.
    """
    chance = random.Random(port)
    for number in range(300 if kind == "udp" else 40):
        text = bytearray(chance.randbytes(chance.choice((0, 1, 4, 8, 16, 24, 32, 64, 200, 1400))))
        if number % 2:
            text[:4] = bytes(chance.randrange(16) for _ in text[:4])
        with suppress(OSError):
            if kind == "udp":
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                    one.sendto(text, ("127.0.0.1", port))
            else:
                with socket.create_connection(("127.0.0.1", port), timeout=60) as one:
                    one.sendall(text)


@pytest.mark.parametrize("provider", ["udp;ofi_rxd", "sockets"])
def test_a_server_that_was_not_told_to_has_no_port_that_garbage_ends(provider: str) -> None:
    with stored("--auth", "none") as server:
        before = ports_of(server.process.pid)
        with client_of(server.address, "ofi-rdm", provider) as client:
            for kind, port in ports_of(server.process.pid) - before:
                send_garbage(kind, port)
            with suppress(OSError):
                client.call()
            assert server.process.poll() is None, "garbage has ended the server"
            with connect(server.address, auth="none", timeout_s=60) as owner:
                owner.put("s", "k", b"v")
            assert f"--allow-provider '{provider}'" in client.said


@pytest.mark.parametrize("provider", ["udp;ofi_rxd", "sockets"])
def test_what_the_owner_names_is_served(provider: str) -> None:
    with (
        stored("--auth", "none", "--allow-provider", "none", "--allow-provider", provider) as server,
        client_of(server.address, "ofi-rdm", provider) as client,
    ):
        assert client.said == "connected"
        assert client.call() == "called"


@pytest.mark.parametrize(
    ("transport", "provider"),
    [("ofi-rdm", "the first there is"), ("ofi-rdm", "tcp;ofi_rxm"), ("ofi-msg", "tcp")],
)
def test_garbage_ends_neither_server_nor_client_over_a_provider_that_is_served_to_all(
    transport: str, provider: str
) -> None:
    with stored("--auth", "none") as server:
        before = ports_of(server.process.pid)
        # "net" in libfabric 1.17, "tcp" from 2.0 on.
        names = ("net", "tcp") if provider == "the first there is" else (provider,)
        with client_of(server.address, transport, *names) as client:
            assert client.said == "connected"
            for pid in (server.process.pid, client.process.pid):
                for kind, port in ports_of(pid) - before:
                    send_garbage(kind, port)
                    assert client.call() == "called"
            assert client.call() == "called"
            assert server.process.poll() is None
