"""The power monitor, as strangers and peers with odd numbers would have it end or be silent."""

from __future__ import annotations

import http.client
import math
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

from sonde.power.config import Listen
from sonde.power.run_http import MOST_CONNECTIONS, Content, Site
from sonde.power.telemetry import JobSample, Latest, NodeSample, known, total

TOKEN = "a-token-of-16-or-more"
HUGE = 1.7e308  # two of them are no number any more


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
    for k in range(2 * MOST_CONNECTIONS):
        one = socket.create_connection(("127.0.0.1", site.port))
        one.sendall(b"GET /metrics HTTP/1.1\r\n"[: k % 20])  # some have begun to say something
        strangers.append(one)
    try:
        for _ in range(
            3
        ):  # of one connection: who was let in is not dropped between two requests by its neighbours
            owner = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
            owner.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
            answer = owner.getresponse()
            assert (answer.status, answer.read()) == (200, b"up 1\n")
            owner.close()
    finally:
        for one in strangers:
            one.close()


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
