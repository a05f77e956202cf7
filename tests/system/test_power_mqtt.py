"""sonde-powerd mqtt-bridge: real processes between a real bus and a real mosquitto."""

from __future__ import annotations

import base64
import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

import sonde.bus.client as bus
from mqtt_broker import BROKER, Bridge, Broker, Heard, Site, until
from sonde.core.launch import libexec

OVER = "cyclonedds"
pytestmark = [
    pytest.mark.skipif(OVER not in bus.implementations(), reason="no Cyclone DDS is here"),
    pytest.mark.skipif(not Path(BROKER).exists() or not shutil.which("mosquitto_sub"), reason="no mosquitto is here"),
    pytest.mark.skipif(
        "mqtt-bridge"
        not in json.loads(subprocess.run([libexec() / "sonde-powerd", "--list"], capture_output=True).stdout)["roles"],
        reason="this build has no mqtt-bridge",
    ),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    one = Broker(tmp_path)
    yield one
    one.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    made: list[Site] = []

    def make(cluster: str = "alpha") -> Site:
        made.append(Site(tmp_path, OVER, cluster))
        return made[-1]

    yield make
    for one in made:
        one.close()


def taken(reader: Any, into: list[dict[str, Any]]) -> list[dict[str, Any]]:
    into += [sample.value for sample in reader.take() if sample.has_data]
    return into


def test_a_sample_goes_out_as_json_under_its_key_and_comes_back_elsewhere_as_it_was(broker, site):
    here, there = site("alpha"), site("beta")
    heard = Heard(broker, "sonde/#")
    here.bridge(broker.address, 'to_mqtt = ["Orders", "Monitor_*"]')
    with (
        there.bus.reader("Orders") as orders,
        there.bus.reader("Monitor_report_reading") as readings,
        here.bus.writer("Orders") as order,
        here.bus.writer("Monitor_report_reading") as reading,
    ):
        there.bridge(broker.address, 'from_mqtt = ["Orders", "Monitor_*"]')
        assert order.wait_matched(1, 20) and reading.wait_matched(1, 20)
        order.write(node="n/1", number=-(2**62), text='é"\\\n', blob=bytes(range(256)))
        reading.write(node="n2", power_w=float("nan"), share=0.25, at_ns=5, on=True)
        came: list[dict[str, Any]] = []
        until(lambda: taken(orders, came), "the order")
        assert came == [{"node": "n/1", "number": -(2**62), "text": 'é"\\\n', "blob": bytes(range(256))}]
        got = until(lambda: taken(readings, []), "the reading")[0]
        assert got["power_w"] != got["power_w"] and (got["share"], got["at_ns"], got["on"]) == (0.25, 5, True)
    message = until(lambda: heard.under("sonde/Orders/n%2F1"), "the order's message")[0]
    body = json.loads(message["payload"])
    assert base64.b64decode(body["blob"].removeprefix("base64:")) == bytes(range(256))
    origin = message["properties"]["user-properties"]["sonde-origin"].split()
    assert origin[0] == "alpha" and len(origin[1]) == 32 and int(origin[2]) > 0
    assert until(lambda: heard.under("sonde/alive/Monitor_report_reading/n2"), "it lives")[0]["payload"] == '{"alive":true}'


def test_what_came_from_one_side_never_goes_back_also_with_two_bridges_on_one_bus(broker, site):
    here = site("alpha")
    heard = Heard(broker, "sonde/Orders/#")
    both = 'to_mqtt = ["Orders"]\nfrom_mqtt = ["Orders"]'
    one, two = here.bridge(broker.address, both, "one"), here.bridge(broker.address, both, "two")
    with here.bus.reader("Orders") as orders, here.bus.writer("Orders") as order:
        assert order.wait_matched(3, 20)
        came: list[dict[str, Any]] = []
        for number in range(50):
            order.write(node="own", number=number)
            broker.publish("sonde/Orders/foreign", json.dumps({"node": "foreign", "number": number})) if number < 5 else None
        until(lambda: len([s for s in taken(orders, came) if s["node"] == "foreign"]) >= 10, "each bridge brings each")
        until(lambda: len(heard.under("sonde/Orders/own")) >= 100, "each bridge takes each")
        time.sleep(0.5)  # what goes round would by now
        taken(orders, came)
        assert [s["number"] for s in came if s["node"] == "own"] == list(range(50))
        assert len([s for s in came if s["node"] == "foreign"]) == 10
        assert len(heard.under("sonde/Orders/own")) == 100 and len(heard.under("sonde/Orders/foreign")) == 5
    ends = [one.end(), two.end()]
    assert all(e["loops"] > 0 for e in ends), ends


def test_two_bridges_that_carry_the_same_bring_it_once(broker, site):
    here, there = site("alpha"), site("beta")
    for name in ("one", "two"):
        here.bridge(broker.address, 'to_mqtt = ["Orders"]', name)
    with there.bus.reader("Orders") as orders, here.bus.writer("Orders") as order:
        receiver = there.bridge(broker.address, 'from_mqtt = ["Orders"]')
        assert order.wait_matched(2, 20)
        for number in range(200):
            order.write(node="n", number=number)
        came: list[dict[str, Any]] = []
        until(lambda: len(taken(orders, came)) >= 200, "all")
        end = until(lambda: receiver.process.poll() is None and receiver, "it runs").end()
        taken(orders, came)
    assert sorted(s["number"] for s in came) == list(range(200))
    assert end["duplicates"] == 200 and end["to_bus"] == 200


@pytest.mark.parametrize("how", ["the broker restarts", "the broker and the sender are killed"])
def test_no_control_message_is_lost_and_none_comes_twice(broker, site, how):
    here, there = site("alpha"), site("beta")
    sender = here.bridge(broker.address, 'to_mqtt = ["Orders"]')
    receiver = there.bridge(broker.address, 'from_mqtt = ["Orders"]')
    with there.bus.reader("Orders") as orders, here.bus.writer("Orders") as order:
        assert order.wait_matched(1, 20)
        came: list[dict[str, Any]] = []
        for number in range(100):
            order.write(node="n", number=number)
        if how == "the broker restarts":
            broker.stop()
        else:
            until(lambda: len(taken(orders, came)) >= 100, "the first")
            broker.stop(signal.SIGKILL)
        for number in range(100, 200):
            order.write(node="n", number=number)
        if how != "the broker restarts":
            store = here.folder / "state" / "mqtt-b.store"
            until(lambda: store.read_bytes().count(b'"number":199,') == 1, "all are on disk")
            sender.kill()
            sender.start(wait=False)
            assert sender.wait_for("ready")["stored"] == 100
        broker.start()
        until(lambda: len(taken(orders, came)) >= 200, f"all; {sender.events[-2:]} {receiver.events[-2:]}")
        receiver.end()
        sent = sender.end()
        taken(orders, came)
    assert [s["number"] for s in came] == list(range(200))
    assert sent["control_lost"] == 0 and sent["control_waiting"] == 0


def test_a_receiver_that_was_away_gets_what_came_meanwhile(broker, site):
    here, there = site("alpha"), site("beta")
    here.bridge(broker.address, 'to_mqtt = ["Orders"]')
    receiver = there.bridge(broker.address, 'from_mqtt = ["Orders"]')
    with there.bus.reader("Orders") as orders, here.bus.writer("Orders") as order:
        assert order.wait_matched(1, 20)
        came: list[dict[str, Any]] = []
        order.write(node="n", number=0)
        until(lambda: taken(orders, came), "the first")
        receiver.kill()
        for number in range(1, 20):
            order.write(node="n", number=number)
        receiver.start()
        assert receiver.told("connected")[0]["session"]
        until(lambda: len(taken(orders, came)) >= 20, "all")
        receiver.end()
        taken(orders, came)
    assert [s["number"] for s in came] == list(range(20))


def test_telemetry_drops_the_oldest_while_the_broker_is_away_and_counts(broker, site):
    here = site()
    bridge = here.bridge(broker.address, 'to_mqtt = ["Plain"]\nqos = 0')
    heard = Heard(broker, "sonde/Plain")
    with here.bus.writer("Plain") as plain:
        assert plain.wait_matched(1, 20)
        plain.write(number=-1)
        until(lambda: heard.under("sonde/Plain"), "one")
    assert bridge.end()["telemetry_dropped"] == 0


@pytest.mark.parametrize(
    ("topic", "payload", "code"),
    [
        ("Orders/n", b"", "bridge.bad_json"),
        ("Orders/n", b"{", "bridge.bad_json"),
        ("Orders/n", b"[" * 100000, "bridge.wrong_type"),
        ("Orders/n", b'{"node":"n","number":1}garbage', "bridge.bad_json"),
        ("Orders/n", b'{"node":"n","number":NaN}', "bridge.bad_json"),
        ("Orders/n", b'{"node":"n","number":1e3}', "bridge.wrong_type"),
        ("Orders/n", b'{"node":"n","number":99999999999999999999}', "bridge.wrong_type"),
        ("Orders/n", b'{"node":"n","number":"1"}', "bridge.wrong_type"),
        ("Orders/n", b'{"node":"n","nummer":1}', "bridge.wrong_type"),
        ("Orders/n", b'{"node":"n","node":"n"}', "bridge.wrong_type"),
        ("Orders/n", b'{"node":"n\x00"}', "bridge.bad_json"),
        ("Orders/n", b'{"node":"n","text":"\\u0000"}', "bridge.wrong_type"),
        ("Orders/n", b'{"node":"n","text":"\\ud800"}', "bridge.bad_json"),
        ("Orders/n", b'{"node":"\xff"}', "bridge.bad_utf8"),
        ("Orders/n", b'{"node":"n","text":"' + b"x" * 2000000 + b'"}', "bridge.too_large"),
        ("Orders/n", b'{"node":"m"}', "bridge.wrong_key"),
        ("Orders", b'{"node":"n"}', "bridge.wrong_key"),
    ],
)
def test_a_hostile_message_is_counted_named_and_holds_up_nobody(hostile, topic, payload, code):
    broker, bridge, orders = hostile
    before = bridge.refused(code)
    broker.publish(f"sonde/{topic}", payload)
    broker.publish("sonde/Orders/good", b'{"number":7,"node":"good"}')
    came: list[dict[str, Any]] = []
    until(lambda: taken(orders, came), "the good one")
    assert [s["node"] for s in came] == ["good"]
    assert bridge.refused(code) == before + 1


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Any, Any]]:
    folder = tmp_path_factory.mktemp("hostile")
    broker = Broker(folder)
    there = Site(folder, OVER)
    port = free_metrics_port()
    bridge = there.bridge(broker.address, f'from_mqtt = ["Orders"]\nmetrics = "127.0.0.1:{port}"')

    class Counting:
        def refused(self, code: str) -> int:
            with socket.create_connection(("127.0.0.1", port), 10) as s:
                s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n")
                text = b""
                while part := s.recv(65536):
                    text += part
            assert text.rstrip().endswith(b"# EOF"), text
            for line in text.decode().splitlines():
                if line.startswith(f'sonde_power_bridge_troubles_total{{code="{code}"}}'):
                    return int(line.split()[-1])
            return 0

    with there.bus.reader("Orders") as orders:
        assert orders.wait_matched(1, 20)
        yield broker, Counting(), orders
    assert bridge.process.poll() is None
    there.close()
    broker.close()


def free_metrics_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
