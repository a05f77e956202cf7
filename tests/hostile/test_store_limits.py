"""A storage server with little memory and few threads, and clients that want more than there is.

Raw frames, as docs/reference/store-wire.md defines them: a client of this project sends none of these.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
from contextlib import AbstractContextManager

import pytest

pytest.importorskip("sonde._store", reason="the store is not built")

from sonde.core import launch
from sonde.store.client import connect
from store_frames import GOODBYE, KV, MOST_OPS, REQUEST, STATUS, TRANSPORT, Caller, Stored, frame, stored

KV_PUT, KV_GET = 48, 49
MORE = 1  # the flag of a frame that is followed by another one of its message
INVALID = 3
RECORD = struct.Struct("<BBHIQQII")

# A uid that nobody else has, so that a limit of processes counts only this server's threads.
ALONE = 61_000 + os.getpid() % 3000


def limited(limit: int, most: int) -> AbstractContextManager[Stored]:
    """A server with this limit on a resource, which asks nobody for a proof."""
    alone = ALONE if os.geteuid() == 0 else None
    return stored(
        "--auth",
        "none",
        user=alone,
        group=alone,
        extra_groups=None if alone is None else [],
        cwd="/",
        preexec_fn=lambda: resource.setrlimit(limit, (most, most)),
    )


def serves(server: Stored) -> bool:
    assert server.process.poll() is None, "the server has ended"
    with connect(server.address, auth="none") as client:
        client.put("s", "k", b"v")
        return client.get("s", "k") == b"v"


def test_batches_that_claim_a_million_operations_take_no_memory() -> None:
    record = RECORD.pack(KV_GET, 0, 1, 1, 0, 0, 0, 0) + b"sk".ljust(8, b"\0")
    giant = frame(REQUEST, table=record, ops=1, role=KV, batch=MOST_OPS)
    callers = []
    with limited(resource.RLIMIT_AS, 1 << 30) as server:
        for _ in range(30):
            callers.append(Caller(server.address))
            callers[-1].be_welcomed()
            callers[-1].say(giant)
            _, body = callers[-1].hear()
            assert struct.unpack_from("<H", body)[0] == INVALID
        assert serves(server)
        for caller in callers:
            caller.end()


def test_what_all_clients_together_have_a_server_hold_has_a_bound() -> None:
    piece = bytes(256 << 10)
    callers, ends = [], []
    with stored("--auth", "none", "--client-memory", "16MiB") as server:
        for _ in range(
            6
        ):  # each begins a batch, of which 5 MiB come; more than three quarters of 16 MiB in all
            caller = Caller(server.address)
            callers.append(caller)
            caller.be_welcomed()
            try:
                for part in range(20):
                    table = RECORD.pack(KV_PUT, 0, 1, 3, 0, 0, len(piece), part) + b"sk%02d" % part + bytes(4)
                    more = {"part": part, "flags": MORE, "batch": 1000, "ops": 1, "role": KV}
                    caller.say(frame(REQUEST, piece, table, **more))
                caller.say(frame(STATUS))
                ends.append(caller.hear())
            except ConnectionError:  # it was disconnected while it still wrote, and the message to it is lost
                ends.append((GOODBYE, b"no room for more"))
        assert [kind for kind, _ in ends] == [STATUS] * 2 + [GOODBYE] * 4
        assert all(b"no room for more" in told for kind, told in ends if kind == GOODBYE)
        assert serves(server)  # a client with small needs is served
        report = json.loads(ends[1][1])
        assert 10 << 20 < report["client_memory_bytes"] <= report["client_memory_max_bytes"] == 16 << 20
        with connect(server.address, auth="none") as client:
            assert client.status()[0].report["client_memory_refused"] > 0
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
    with limited(resource.RLIMIT_NPROC, 8) as server:
        callers = [Caller(server.address) for _ in range(40)]
        for caller in callers:
            caller.be_welcomed("ofi-msg")
            caller.say(frame(TRANSPORT, b"try=none\nstyle=msg\n"))  # refused; the server waits for more
        assert serves(server)
        for caller in callers:
            caller.end()
        assert serves(server)
