"""Servers of the store that a client has connected to, with arbitrary answers: their effect on Python.

Their effect on the memory of a client is tested in tests/native/hostile/test_hostile_client.cpp.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde.core.errors import SondeError
from sonde.store import cli, errors, server_status
from sonde.store.client import Client, connect
from sonde_shell import Typed
from store_frames import CHALLENGE, KV, REPLY, REQUEST, STATUS, WELCOME, Caller, frame, text

ANSWER = struct.Struct("<HHIQqII")  # status, 0, index, value, time, bytes of data, run
Answer = Callable[[Caller, int, int], None]  # client, kind of its frame, number of the request


@contextmanager
def impostor(answer: Answer) -> Iterator[str]:
    """The address of a server that admits everybody, and passes each frame to `answer`."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(caller: Caller) -> None:
        with suppress(OSError):
            caller.hear()
            caller.say(frame(CHALLENGE, text(auth="none")))
            caller.hear()
            caller.say(frame(WELCOME, text(roles="data,kv,db")))
            number = 0
            while True:
                kind, _ = caller.hear()
                number += kind == REQUEST  # as a client numbers them
                answer(caller, kind, number)

    def take() -> None:
        with suppress(OSError):
            while True:
                caller = Caller(listener.accept()[0])
                threading.Thread(target=serve, args=(caller,), daemon=True).start()

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        taker.join()
        listener.close()


def let_in(address: str) -> Client:
    return connect(address, auth="none", timeout_s=60)


def listing(number: int, role: int, names: list[bytes], follows: bool) -> bytes:
    page = b"".join(struct.pack("<II", len(name), 0) + name for name in names)
    table = ANSWER.pack(0, 0, 0, len(names), follows, len(page), 1)
    return frame(REPLY, page, table, 1, role, 1, number=number)


ROLE = (
    b'{"role":"kv","backend":"b","detail":"d","messages":1,"wait_p50_s":0,"wait_p99_s":0,"backend_p50_s":0,'
    b'"backend_p99_s":0%s}'
)
REPORTS = [
    b"[]",
    b"null",
    b"5",
    b'"text"',
    b"{",
    b"\xff",
    b"[" * 100_000,
    b'{"roles": 5}',
    b'{"roles": [1]}',
    b'{"roles": [[]]}',
    b'{"roles": [{}]}',
    b'{"roles": [%s]}' % ROLE.replace(b'"kv"', b"[]").replace(b"%s", b""),
    b'{"roles": [%s]}' % ROLE.replace(b'"d"', b"{}").replace(b"%s", b""),
    b'{"roles": [%s]}' % (ROLE % b',"broken":5'),
    b'{"roles": [%s]}' % (ROLE % b',"syncs":1,"sync_p50_s":"x","sync_p99_s":0'),
    b'{"roles": [%s]}' % ROLE.replace(b'"wait_p50_s":0', b'"wait_p50_s":NaN').replace(b"%s", b""),
    b'{"operations": [1]}',
    b'{"operations": {"kv.put": "many"}}',
    b'{"outcomes": {"ok": null}}',
    b'{"up_s": "long"}',
    b'{"up_s": null}',
    b'{"up_s": 1e999}',
    b'{"up_s": -1}',
    b'{"up_s": %s}' % (b"9" * 5000),
    b'{"bytes_in": {}}',
    b'{"bad_frames": "x"}',
    b'{"bad_frames": NaN}',
    b'{"refused": []}',
    b'{"last_error": "disk full"}',
    b'{"last_error": 5, "last_error_s_ago": 1}',
    b'{"last_refused": "x", "last_refused_s_ago": "y"}',
]


@pytest.mark.parametrize("report", REPORTS)
def test_a_status_that_is_not_one_is_an_error_that_names_the_server(report: bytes) -> None:
    def answer(caller: Caller, kind: int, number: int) -> None:
        assert kind == STATUS
        caller.say(frame(STATUS, report))

    with impostor(answer) as address, let_in(address) as client, pytest.raises(errors.StoreError) as refused:
        client.status()
    assert refused.value.code == "store.bad_report"
    assert address in refused.value.what
    assert len(refused.value.what) < 500


@pytest.mark.parametrize(
    "report",
    [
        b"",
        b"{}",
        b'{"roles": [%s]}' % (ROLE % b""),
        b'{"up_s": 5, "auth": [], "operations": null, "roles": []}',
        b'{"last_error": "\xff", "last_error_s_ago": 5}',
        b'{"operations": [], "outcomes": 0}',
        b'{"unknown": {"of": ["a later", "version"]}}',
    ],
)
def test_a_status_that_lacks_something_or_has_more_is_shown(report: bytes) -> None:
    with (
        impostor(lambda caller, kind, number: caller.say(frame(STATUS, report))) as address,
        let_in(address) as client,
    ):
        servers = client.status()
    assert server_status.verdict(servers).startswith("1 server answers")
    assert not server_status.troubled(servers[0])
    assert len(server_status.tables(servers[0])) == 3
    assert server_status.warnings(servers) == []
    assert server_status.as_json(address, servers[0])["address"] == address


def test_a_status_that_is_not_one_leaves_the_command_with_a_sentence(typed: Typed) -> None:
    with impostor(lambda caller, kind, number: caller.say(frame(STATUS, b'{"roles": 5}'))) as address:
        done = typed("store", "status", "--server", address, "--auth", "none")
    assert "cannot read: 'roles' is not a list of objects" in done.expect(3).said


def test_names_of_items_that_are_too_short_are_an_error_of_the_store() -> None:
    def answer(caller: Caller, kind: int, number: int) -> None:
        caller.say(listing(number, KV, [b"x"], False))

    with impostor(answer) as address, let_in(address) as client, pytest.raises(SondeError) as refused:
        list(client.items("collection"))
    assert refused.value.code == "store.bad_frame"


def test_a_listing_that_gives_the_same_names_again_ends_with_an_error() -> None:
    def answer(caller: Caller, kind: int, number: int) -> None:
        caller.say(listing(number, KV, [b"p1", b"p2"], number < 100))

    with impostor(answer) as address, let_in(address) as client, pytest.raises(SondeError) as refused:
        list(client.keys("s", "p"))
    assert refused.value.code == "store.bad_frame"


def test_a_listing_without_an_end_is_cut_off_and_said_to_be(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = 0

    def answer(caller: Caller, kind: int, number: int) -> None:
        nonlocal pages
        pages += 1
        caller.say(listing(number, KV, [b"p%012d" % (pages * 1000 + k) for k in range(1000)], pages < 50))

    monkeypatch.setattr(cli, "LISTED_MAX", 3000)
    with impostor(answer) as address:
        done = typed("store", "ls", "kv:s/p", "--server", address, "--auth", "none")
    assert done.expect(0).out.count("\n") == 3000
    assert "there are more than 3000" in done.said
    assert pages < 50
