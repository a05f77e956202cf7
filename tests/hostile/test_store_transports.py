"""Transports that a server's owner did not choose: no client makes it open the ports of one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde.core import launch
from sonde.core.errors import SondeError
from sonde.store.client import connect

SERVER = str(launch.libexec() / "sonde-stored")
THERE = json.loads(subprocess.run([SERVER, "--list"], capture_output=True, check=True).stdout)["transports"]
ASKED = "ofi-rdm"
pytestmark = pytest.mark.skipif(ASKED not in THERE, reason="no transport of libfabric is built")


def had(tmp_path: Path, listen: str, *words: str) -> str:
    """The result for a client with the token that requests the transport: "", or the code of the refusal."""
    token = tmp_path / "token"
    token.write_text("a-token-of-at-least-16-characters\n")
    token.chmod(0o600)
    line = [SERVER, "--with-parent", "--listen", listen, "--backend", "kv=memory", "--auth", "token"]
    server = subprocess.Popen(
        [*line, "--token-file", str(token), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout
        address = f"127.0.0.1:{json.loads(server.stdout.readline())['port']}"
        secret = {"auth": "token", "token_file": str(token)}
        try:
            with connect(address, transport=ASKED, **secret) as client:
                client.put("s", "k", b"v")
            said = ""
        except SondeError as error:
            said = error.code
        with connect(address, **secret) as client:  # over tcp the server is still available
            client.put("s", "k", b"w")
            assert client.get("s", "k") == b"w"
        return said
    finally:
        server.kill()
        server.communicate()


def test_where_others_reach_a_server_it_serves_tcp_alone(tmp_path: Path):
    assert had(tmp_path, "0.0.0.0:0") == "store.not_served"


def test_what_is_named_is_served_and_nothing_else(tmp_path: Path):
    assert had(tmp_path, "0.0.0.0:0", "--transports", f"tcp,{ASKED}") == ""
    assert had(tmp_path, "127.0.0.1:0", "--transports", "tcp") == "store.not_served"
    assert had(tmp_path, "127.0.0.1:0") == ""


def test_a_transport_that_there_is_not_is_reported_before_anybody_can_ask():
    line = [SERVER, "--listen", "127.0.0.1:0", "--backend", "kv=memory", "--transports", "tcp,ofi-rmd"]
    ran = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, "'ofi-rmd'" in ran.stderr) == (2, True)
