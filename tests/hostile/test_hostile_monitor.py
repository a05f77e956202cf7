"""The power monitor, attacked by strangers, and by peers with unusual numbers, that try to end or silence it."""

from __future__ import annotations

import http.client
import math
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from sonde.power.monitor import run_http
from sonde.power.monitor.run_http import (
    FOLLOWER,
    IDLE,
    MAX_CONNECTIONS,
    PLACES,
    REQUEST,
    Content,
    Places,
    Site,
    peer_of,
)
from sonde.power.stack.config import Listen
from sonde.power.stack.telemetry import JobSample, Latest, NodeSample, known, total

TOKEN = "a-token-of-16-or-more"
HUGE = 1.7e308  # the sum of two is no longer finite


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    content = Content(
        lambda openmetrics: "up 1\n", lambda: (0, "{}"), lambda number, seconds: None, lambda: "{}"
    )
    made = Site(Listen("127.0.0.1", 0, str(token)), content)
    yield made
    made.close()


def test_strangers_who_say_nothing_shut_nobody_out(site: Site):
    strangers = []
    for k in range(2 * MAX_CONNECTIONS):
        one = socket.create_connection(("127.0.0.1", site.port))
        one.sendall(b"GET /metrics HTTP/1.1\r\n"[: k % 20])  # some have begun a request
        strangers.append(one)
    try:
        # On one connection: neighbours do not push out an accepted client between two requests.
        for _ in range(3):
            owner = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
            owner.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
            answer = owner.getresponse()
            assert (answer.status, answer.read()) == (200, b"up 1\n")
            owner.close()
    finally:
        for one in strangers:
            one.close()


LARGE = "#" * (8 << 20)  # more than sockets can buffer


class Events:
    """The answers of a monitor without a token. Each next() is an event; large() makes all its answers large."""

    def __init__(self) -> None:
        self.changed, self.number, self.text = threading.Condition(), 0, "{}"

    def next(self, text: str = "{}") -> None:
        with self.changed:
            self.number, self.text = self.number + 1, text
            self.changed.notify_all()

    def wait(self, number: int, seconds: float) -> tuple[int, str] | None:
        with self.changed:
            if not self.changed.wait_for(lambda: self.number > number, seconds):
                return None
            return self.number, self.text


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def open_site(events: Events) -> Iterator[Site]:
    """Without a token; its metrics are large, its other answers small."""
    content = Content(lambda openmetrics: LARGE, lambda: (events.number, "{}"), events.wait, lambda: "{}")
    made = Site(Listen("127.0.0.1", 0), content)
    yield made
    made.close()


def asking(site: Site, path: str) -> socket.socket:
    """A client that sends a request and does not read."""
    one = socket.create_connection(("127.0.0.1", site.port), timeout=60)
    one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return one


def until(one: socket.socket, end: bytes) -> bytes:
    """The data up to an end mark, or until the server ends the connection."""
    got = b""
    with suppress(ConnectionError):
        while end not in got and (more := one.recv(1 << 16)):
            got += more
    return got


def reads_now(site: Site) -> bytes:
    with asking(site, "/now") as one:
        return until(one, b"{}")


def test_who_follows_without_reading_shuts_nobody_out(open_site: Site):
    """Each user of the machine reaches a monitor without a token, with more connections than there are slots."""
    with ExitStack() as opened:
        for _ in range(2 * MAX_CONNECTIONS):
            opened.enter_context(asking(open_site, "/events"))
        for _ in range(3):
            assert b"HTTP/1.1 200 " in reads_now(open_site)
            with asking(open_site, "/events") as mine:
                assert b"data: {}" in until(mine, b"\r\n\r\ndata: {}\n\n")


def test_who_takes_no_answer_shuts_nobody_out(open_site: Site):
    with ExitStack() as opened:
        for _ in range(2 * MAX_CONNECTIONS):
            opened.enter_context(asking(open_site, "/metrics"))
        for _ in range(3):
            assert b"HTTP/1.1 200 " in reads_now(open_site)
            with asking(open_site, "/events") as mine:
                assert b"data: {}" in until(mine, b"\r\n\r\ndata: {}\n\n")


def test_a_follower_that_reads_nothing_loses_its_place(
    open_site: Site, events: Events, monkeypatch: pytest.MonkeyPatch
):
    """The time limit belongs to the slot: a socket's own starts again with each piece that TLS sends."""
    monkeypatch.setattr(run_http._Handler, "timeout", 3600.0)
    with asking(open_site, "/events") as idle:
        assert b"data: {}" in until(idle, b"\r\n\r\ndata: {}\n\n")
        assert open_site.watchers == 1
        monkeypatch.setattr(run_http, "PATIENCE_S", 0.1)
        events.next(LARGE)
        with open_site.places.changed:
            assert open_site.places.changed.wait_for(lambda: open_site.watchers == 0, 60)


def test_a_follower_that_reads_keeps_its_place(open_site: Site, events: Events):
    with asking(open_site, "/events") as mine:
        until(mine, b"\r\n\r\ndata: {}\n\n")
        for k in range(5):
            events.next(f"number {k}")
            assert f"data: number {k}\n\n".encode() in until(mine, b"\n\n")
        assert open_site.watchers == 1


@pytest.fixture
def pair() -> Iterator[Callable[[], socket.socket]]:
    with ExitStack() as opened:

        def made() -> socket.socket:
            near, far = socket.socketpair()
            opened.enter_context(far)
            return opened.enter_context(near)

        yield made


def follower(places: Places, one: socket.socket, peer: str) -> bool:
    return places.take(one, peer, IDLE) and places.take(one, peer, FOLLOWER)


def test_the_peer_that_has_the_most_gives_way_by_what_does_not_read(pair: Callable[[], socket.socket]):
    now_s = 0.0
    places = Places({IDLE: 4, REQUEST: 1, FOLLOWER: 4}, lambda: now_s)
    a, b, c = [pair() for _ in range(5)], [pair() for _ in range(2)], pair()
    assert all(follower(places, one, "a") for one in a[:3])
    assert follower(places, b[0], "b")
    places.sends(a[1], 10.0)  # the client does not read it
    assert follower(places, c, "c")
    assert [places.has(one) for one in (*a[:3], b[0], c)] == [True, False, True, True, True]
    assert follower(places, a[3], "a")  # with its own
    assert [places.has(one) for one in (*a[:4], b[0], c)] == [False, False, True, True, True, True]
    assert follower(places, b[1], "b")  # with its own: with one more it would have as many as any other
    assert [places.has(one) for one in (a[2], a[3], *b, c)] == [True, True, False, True, True]
    now_s = 1e6
    places.end_late()
    assert places.count(FOLLOWER) == 4


def test_where_nobody_has_two_places_who_comes_last_follows_later(pair: Callable[[], socket.socket]):
    places = Places({IDLE: 4, REQUEST: 1, FOLLOWER: 2})
    one, other, last = pair(), pair(), pair()
    assert follower(places, one, "a")
    assert follower(places, other, "b")
    assert not follower(places, last, "c")
    assert places.has(last)  # and can still send another request
    assert places.take(last, "c", REQUEST)


def test_a_place_that_was_lost_is_no_way_to_another(pair: Callable[[], socket.socket]):
    places = Places({IDLE: 1, REQUEST: 1, FOLLOWER: 1})
    one, other = pair(), pair()
    assert places.take(one, "a", IDLE)
    assert places.take(other, "b", IDLE)
    assert not places.has(one)
    assert not places.take(one, "a", REQUEST)
    assert places.take(other, "b", REQUEST)


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.2", "loopback"),
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_host_of_many_addresses_is_one_peer(address: str, peer: str):
    assert peer_of(address) == peer


def test_the_page_says_how_many_there_may_be():
    page = (Path(__file__).parents[2] / "docs/reference/power-monitor.md").read_text()
    said = f"{PLACES[FOLLOWER]} that follow the events, {PLACES[REQUEST]} that are being answered, {PLACES[IDLE]} that"
    assert f"At most {MAX_CONNECTIONS} connections are open at a time: {said}" in page
    assert f"within {run_http.PATIENCE_S:g} s, or an answer within {run_http.ANSWER_S:g} s" in page


def sample(node: str, power_w: float) -> NodeSample:
    lease = {
        "cap_w": power_w,
        "lease_w": power_w,
        "left_s": power_w,
        "leased": True,
        "seen_epoch": 1,
        "seen_manager": "",
    }
    said = {"node": node, "at_ns": 1, "period_s": power_w, "source": "simulated", "power_w": power_w}
    more = {"energy_j": power_w, "trouble": "", "domains": (), "frequencies": (), "sensors": ()}
    return NodeSample.of({**said, **more, "lease": lease})


def test_numbers_that_no_cluster_draws_end_no_sum():
    latest = Latest()
    for k in range(3):
        latest.take(sample(f"n{k}", HUGE if k < 2 else 100.0), 0.0)
    assert total([one.power_w for one in latest.nodes.values()]) == 100.0
    job = {"job": "j", "at_ns": 1, "user": "", "name": "", "nodes": (), "power_w": HUGE, "energy_j": -HUGE}
    told = JobSample.of({**job, "iteration_s": HUGE, "progress": HUGE, "state": ""})
    assert all(map(math.isnan, (told.power_w, told.energy_j, told.iteration_s, told.progress)))
    assert math.isnan(known(10**400))
