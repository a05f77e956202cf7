"""The client that the commands make from their options."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde.store import client, errors
from sonde.store.cli_client import CONNECT_S, Where

GIVEN = {"transport": None, "provider": None, "auth": None, "token_file": None}


def where(timeout_s: float) -> Where:
    return Where(("n1:5440", "n2:5440"), None, "network", GIVEN | {"timeout_s": timeout_s})


@pytest.mark.parametrize(
    ("timeout_s", "connect_s"), [(2.0, 2.0), (30.0, CONNECT_S), (CONNECT_S, CONNECT_S), (0.0, CONNECT_S)]
)
def test_connecting_takes_no_longer_than_the_timeout(monkeypatch, timeout_s, connect_s):
    made = []
    monkeypatch.setattr(client, "Client", lambda *words: nullcontext(made.append(words)))
    with where(timeout_s).open(("kv",)):
        pass
    ((servers, _, _, options),) = made
    assert servers == ("n1:5440", "n2:5440")
    assert options["timeout_s"] == timeout_s
    assert options["connect_timeout_s"] == connect_s


def test_connecting_has_as_long_as_the_library_gives_it():
    import sonde._store as native

    assert native.CONNECT_S == CONNECT_S


@pytest.mark.parametrize(("timeout_s", "helps"), [(2.0, True), (30.0, False), (0.0, False)])
def test_raising_the_timeout_is_advised_only_where_it_helps(monkeypatch, timeout_s, helps):
    def late(*_):
        raise errors.TimedOut(
            "store.timed_out", "the server did not answer in time", "raise connect_timeout_s"
        )

    monkeypatch.setattr(client, "Client", late)
    with pytest.raises(errors.TimedOut) as caught, where(timeout_s).open(("kv",)):
        pass
    assert "one of n1:5440, n2:5440 did not answer within" in caught.value.what
    assert ("--timeout" in caught.value.hint) == helps


def test_other_advice_is_left_as_it_is(monkeypatch):
    def late(*_):
        raise errors.TimedOut("store.timed_out", "no answer", "is the host up?")

    monkeypatch.setattr(client, "Client", late)
    with pytest.raises(errors.TimedOut) as caught, where(2.0).open(("kv",)):
        pass
    assert caught.value.hint == "is the host up?"


def test_a_batch_that_is_late_is_reported_with_the_option_that_was_typed(monkeypatch):
    monkeypatch.setattr(client, "Client", lambda *_: nullcontext())
    with pytest.raises(errors.TimedOut) as caught, where(2.0).open(("kv",)):
        raise errors.TimedOut("store.timed_out", "late", "see its log; or raise timeout_s")
    assert caught.value.hint == "see its log; or raise --timeout"
