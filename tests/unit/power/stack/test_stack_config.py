"""Where the monitor may listen, and what is taken from a configuration."""

from __future__ import annotations

import pytest

from sonde.core.errors import UsageError
from sonde.power.stack.config import Stack, listen_of


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "[::1]"])
def test_loopback_needs_no_token(host):
    assert listen_of({"listen": f"{host}:9440"}).loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "monitor", "127.evil.example", "[::]"])
def test_elsewhere_a_token_is_needed(host):
    with pytest.raises(UsageError) as told:
        listen_of({"listen": f"{host}:9440"})
    assert told.value.code == "power.no_token"
    assert listen_of({"listen": f"{host}:9440", "token_file": "t"}).token_file == "t"


@pytest.mark.parametrize(
    "text", ["9440", ":9440", "localhost", "localhost:x", "localhost:70000", "localhost:-1"]
)
def test_what_is_no_address(text):
    with pytest.raises(UsageError) as told:
        listen_of({"listen": text})
    assert told.value.code == "power.bad_value"


def test_a_certificate_without_its_key():
    with pytest.raises(UsageError, match="tls_key"):
        listen_of({"listen": "localhost:1", "tls_certificate": "c.pem"})


def test_a_whole_configuration():
    power = pytest.importorskip("sonde._power", reason="the power stack is not built")
    text = (
        'cluster = "demo"\n[budget]\npower_limit = "1kW"\n[[nodes]]\nhosts = "n[1-2]"\nmin = "100W"\nmax = "400W"\n'
        'safe = "150W"\n[monitor]\nkeep = "2d"\n'
    )
    stack = Stack.of(power.parse_config(text))
    assert (stack.cluster, stack.budget_w, stack.keep_s) == ("demo", 1000, 172800)
    assert [(node.name, node.safe_w) for node in stack.nodes] == [("n1", 150), ("n2", 150)]
    assert stack.listen.port == 9440
