"""A server and the descriptors it may have: it takes what the system gives, and says so when there are none left."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde.core import launch
from sonde.store.client import connect
from sonde.store.errors import Unreachable


@dataclass
class Stored:
    process: subprocess.Popen[str]
    address: str

    def limits(self) -> tuple[str, str]:
        """How many descriptors it may have: soft, hard."""
        for line in Path(f"/proc/{self.process.pid}/limits").read_text().splitlines():
            if line.startswith("Max open files"):
                return tuple(line.split()[3:5])  # type: ignore[return-value]
        raise AssertionError("no such limit")

    def end(self) -> str:
        """Its log."""
        self.process.terminate()
        return self.process.communicate(timeout=30)[1]


@contextmanager
def stored(soft: int, hard: int) -> Iterator[Stored]:
    process = subprocess.Popen(
        [str(launch.libexec() / "sonde-stored"), "--listen", "127.0.0.1:0", "--backend", "kv=memory"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
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


def caller(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_the_soft_limit_is_raised_to_the_hard_one():
    with stored(64, 256) as server, ExitStack() as open_:
        assert server.limits() == ("256", "256")
        for _ in range(150):
            open_.enter_context(caller(server.address))
        with connect(server.address) as client:
            client.put("s", "k", b"v")
            assert client.get("s", "k") == b"v"
            assert client.status()[0].report["refused"] == 0
        assert "descriptors" not in server.end()


def test_without_a_descriptor_left_the_caller_and_the_log_are_reported_why():
    with stored(64, 64) as server, ExitStack() as open_:
        for _ in range(80):
            open_.enter_context(caller(server.address))
        with pytest.raises(Unreachable) as told:
            connect(server.address)
        assert told.value.code == "store.unavailable"
        assert "this server may have 64 descriptors open" in told.value.what
        assert "LimitNOFILE" in told.value.what
        open_.close()
        # It had not given up: once others have gone there is room again.
        for _ in range(100):
            try:
                with connect(server.address) as client:
                    report = client.status()[0].report
                break
            except Unreachable:
                continue
        assert report["refused"] >= 80 - 64
        assert "64 descriptors" in report["last_error"]
        log = server.end()
        assert log.count("cannot accept a connection: Too many open files") == 1
        assert "ulimit -Hn" in log
