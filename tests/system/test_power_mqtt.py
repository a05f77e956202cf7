"""sonde-powerd mqtt-bridge: real processes between a real bus and a real mosquitto."""

from __future__ import annotations

import base64
import itertools
import json
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._power", reason="the power stack is not built")

import sonde.bus.client as bus
from mqtt_broker import BROKER, Bridge, Broker, Heard, Site, StandIn, end, free_port, message, packet, until
from sonde.core.launch import libexec

OVER = "cyclonedds"
DYNAMIC_SECURITY = sorted(Path("/usr").glob("lib*/*/mosquitto_dynamic_security.so"))
pytestmark = [
    pytest.mark.skipif(OVER not in bus.implementations(), reason="no Cyclone DDS is here"),
    pytest.mark.skipif(
        not Path(BROKER).exists() or not shutil.which("mosquitto_sub"), reason="no mosquitto is here"
    ),
    pytest.mark.skipif(
        "mqtt-bridge"
        not in json.loads(subprocess.run([libexec() / "sonde-powerd", "--list"], capture_output=True).stdout)[
            "roles"
        ],
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
        assert order.wait_matched(1, 20)
        assert reading.wait_matched(1, 20)
        order.write(node="n/1", number=-(2**62), text='é"\\\n', blob=bytes(range(256)))
        reading.write(node="n2", power_w=float("nan"), share=0.25, at_ns=5, on=True)
        came: list[dict[str, Any]] = []
        until(lambda: taken(orders, came), "the order")
        assert came == [{"node": "n/1", "number": -(2**62), "text": 'é"\\\n', "blob": bytes(range(256))}]
        got = until(lambda: taken(readings, []), "the reading")[0]
        assert got["power_w"] != got["power_w"]
        assert (got["share"], got["at_ns"], got["on"]) == (0.25, 5, True)
    message = until(lambda: heard.under("sonde/Orders/n%2F1"), "the order's message")[0]
    body = json.loads(message["payload"])
    assert base64.b64decode(body["blob"].removeprefix("base64:")) == bytes(range(256))
    origin = message["properties"]["user-properties"]["sonde-origin"].split()
    assert origin[0] == "alpha"
    assert len(origin[1]) == 32
    assert int(origin[2]) > 0
    assert (
        until(lambda: heard.under("sonde/alive/Monitor_report_reading/n2"), "it lives")[0]["payload"]
        == '{"alive":true}'
    )


def test_what_came_from_one_side_never_goes_back_also_with_two_bridges_on_one_bus(broker, site):
    here = site("alpha")
    heard = Heard(broker, "sonde/Orders/#")
    both = 'to_mqtt = ["Orders"]\nfrom_mqtt = ["Orders"]'
    one, two = here.bridge(broker.address, both, "one"), here.bridge(broker.address, both, "two")
    with here.bus.reader("Orders") as orders, here.bus.writer("Orders") as order:
        assert order.wait_matched(3, 20)
        came: list[dict[str, Any]] = []
        first = itertools.count()

        def both_know_who_reads() -> bool:
            broker.publish("sonde/Orders/first", json.dumps({"node": "first", "number": next(first)}))
            numbers = [s["number"] for s in taken(orders, came) if s["node"] == "first"]
            return len(set(numbers)) < len(numbers)

        until(both_know_who_reads, "one that each of them brings")
        for number in range(50):
            order.write(node="own", number=number)
            broker.publish(
                "sonde/Orders/foreign", json.dumps({"node": "foreign", "number": number})
            ) if number < 5 else None
        until(
            lambda: len([s for s in taken(orders, came) if s["node"] == "foreign"]) >= 10,
            "each bridge brings each",
        )
        until(lambda: len(heard.under("sonde/Orders/own")) >= 100, "each bridge takes each")
        time.sleep(0.5)  # what goes round would by now
        taken(orders, came)
        assert [s["number"] for s in came if s["node"] == "own"] == list(range(50))
        assert len([s for s in came if s["node"] == "foreign"]) == 10
        assert len(heard.under("sonde/Orders/own")) == 100
        assert len(heard.under("sonde/Orders/foreign")) == 5
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
        # The slower bridge's may still be under way.
        until(lambda: receiver.counted()["duplicates"] >= 200, "all once more")
        end = receiver.end()
        taken(orders, came)
    assert sorted(s["number"] for s in came) == list(range(200))
    assert end["duplicates"] == 200
    assert end["to_bus"] == 200


@pytest.mark.parametrize("how", ["the broker restarts", "the broker and the sender are killed"])
def test_no_control_message_is_lost_and_none_comes_twice(broker, site, how):
    if how != "the broker restarts":
        broker.save_each_change()
    here, there = site("alpha"), site("beta")
    sender = here.bridge(broker.address, 'to_mqtt = ["Orders"]')
    receiver = there.bridge(broker.address, 'from_mqtt = ["Orders"]')
    store = here.folder / "state" / "mqtt-b.store"
    with there.bus.reader("Orders") as orders, here.bus.writer("Orders") as order:
        assert order.wait_matched(1, 20)
        came: list[dict[str, Any]] = []
        for number in range(100):
            order.write(node="n", number=number)
        if how == "the broker restarts":
            broker.stop()
        else:
            until(lambda: len(taken(orders, came)) >= 100, "the first")
            until(lambda: store.stat().st_size == 0, "all are acknowledged")
            broker.stop(signal.SIGKILL)
        for number in range(100, 200):
            order.write(node="n", number=number)
        if how != "the broker restarts":
            until(lambda: store.read_bytes().count(b'"number":199,') == 1, "all are on disk")
            sender.kill()
            sender.start(wait=False)
            assert sender.wait_for("ready")["stored"] == 100
        broker.start()
        until(
            lambda: len(taken(orders, came)) >= 200,
            lambda: f"all: {len(came)} came; {sender.events[-4:]} {receiver.events[-4:]} {broker.log_end()}",
        )
        receiver.end()
        sent = sender.end()
        taken(orders, came)
    assert [s["number"] for s in came] == list(range(200))
    assert sent["control_lost"] == 0
    assert sent["control_waiting"] == 0


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
    bridge = here.bridge(broker.address, 'to_mqtt = ["Monitor_report_blob"]')
    with here.bus.writer("Monitor_report_blob") as blobs:
        assert blobs.wait_matched(1, 20)
        broker.stop()
        bridge.wait_for("disconnected")
        for number in range(60):  # of which 32 MiB hold 44
            blobs.write(node="n", number=number, blob=bytes(750_000))
        until(lambda: bridge.counted()["from_bus"] == 60, "the bridge has them")
        bridge.process.send_signal(signal.SIGSTOP)  # else it may be there before who is to hear it
        broker.start()
        heard = Heard(broker, "sonde/Monitor_report_blob/n")
        bridge.process.send_signal(signal.SIGCONT)
        until(
            lambda: len(heard.all()) > 0 and json.loads(heard.all()[-1]["payload"])["number"] == 59,
            "the last",
        )
    numbers = [json.loads(m["payload"])["number"] for m in heard.all()]
    dropped = bridge.end()["telemetry_dropped"]
    assert dropped >= 16
    assert numbers == list(range(60 - len(numbers), 60))
    assert len(numbers) <= 60 - dropped


READS = """
import sys
import sonde.bus.client as bus
with bus.open(sys.argv[1]) as here, here.reader("Orders") as orders:
    assert orders.wait_matched(1, 60)
    print("matched", flush=True)
    for sample in orders.samples():
        if sample.has_data:
            print(sample["number"], flush=True)
"""


@pytest.fixture
def jammed(broker, site):
    """A bridge that holds a message for which the bus has no place; which; who publishes; the stopped reader."""
    here = site()
    one = here.bridge(broker.address, 'from_mqtt = ["Orders"]')
    words = [sys.executable, "-c", READS, here.folder / "bus.xml"]
    reader = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def counted() -> tuple[int, int]:
        count = one.counted()
        return count["from_mqtt"], count["to_bus"] + count["bus_failed"]

    def waits() -> int | None:
        """The number of the oldest one that does."""
        before = counted()
        time.sleep(0.3)
        return before[1] if before == counted() and before[0] > before[1] else None

    def publish(number: int) -> None:
        # A writer holds some hundred kB for a reader that acknowledges nothing.
        payload = json.dumps({"node": "n", "number": number, "text": "x" * 200_000})
        origin = ("-D", "publish", "user-property", "sonde-origin", f"beta w {number} 0")
        broker.publish("sonde/Orders/n", payload, *origin)

    try:
        assert reader.stdout.readline() == "matched\n"
        number = 0
        publish(number)
        # Matched here says nothing of the bridge's writer, which may send its first to nobody.
        while not select.select([reader.stdout], [], [], 1)[0]:
            publish(number := number + 1)
        reader.send_signal(signal.SIGSTOP)
        for one_more in range(number + 1, number + 13):
            publish(one_more)
        yield one, until(waits, "one that waits"), publish, reader
    finally:
        end(reader, signal.SIGKILL)


def test_what_waited_for_place_on_the_bus_is_no_duplicate_for_the_next_bridge(jammed):
    bridge, held, publish, reader = jammed
    bridge.kill()
    reader.send_signal(signal.SIGCONT)
    bridge.start()
    publish(held)  # as a second bridge that carries the same would
    publish(99)
    came = list(itertools.takewhile(lambda number: number != 99, map(int, reader.stdout)))
    assert came.count(held) == 1, (held, came)


def test_what_still_waits_for_place_on_the_bus_at_the_end_is_counted(jammed):
    told = jammed[0].end()
    assert told["bus_failed"] >= 1
    assert told["from_mqtt"] == told["to_bus"] + told["bus_failed"]
    assert "bus.timed_out" in told["troubles"]


@pytest.mark.parametrize("naming", ["examon", "sparkplug"])
def test_control_that_goes_out_as_metrics_waits_in_memory_while_the_broker_is_away(broker, site, naming):
    here = site()
    bridge = here.bridge(broker.address, f'to_mqtt = ["Orders"]\nqos = 0\nnaming = "{naming}"')
    with here.bus.writer("Orders") as order:
        assert order.wait_matched(1, 20)
        broker.stop()
        bridge.wait_for("disconnected")
        for number in range(1, 51):
            order.write(node="n", number=number)
        until(lambda: bridge.counted()["from_bus"] == 50, "the bridge has them")
        bridge.process.send_signal(signal.SIGSTOP)  # else it may be there before who is to hear it
        broker.start()
        broker.publish("here", "here", "-r")
        words = ("-V", "5", "-q", "1", "-F", "%t %x", "-t", "org/#", "-t", "spBv1.0/#", "-t", "here")
        listener = broker.client("mosquitto_sub", *words)
        assert listener.stdout.readline().startswith("here ")
        bridge.process.send_signal(signal.SIGCONT)
        numbers: list[int] = []
        alias = None
        while len(numbers) < 50:
            topic, payload = listener.stdout.readline().split()
            raw = bytes.fromhex(payload)
            if topic.endswith("/data/number"):
                numbers.append(int(raw.split(b";")[0]))
            elif "/DBIRTH/" in topic or "/DDATA/" in topic:
                metrics = [dict(protobuf(value)) for field, value in protobuf(raw) if field == 2]
                alias = next((m[2] for m in metrics if m.get(1) == b"Orders/number"), alias)
                numbers += [m[11] for m in metrics if m[2] == alias]
    assert numbers == list(range(1, 51))
    end = bridge.end()
    assert (end["telemetry_dropped"], end["control_lost"], end["control_waiting"]) == (0, 0, 0)


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
    port = free_port()

    class Counting:
        def refused(self, code: str) -> int:
            with socket.create_connection(("127.0.0.1", port), 10) as s:
                s.sendall(
                    b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n"
                    b"Connection: close\r\n\r\n"
                )
                text = b""
                while part := s.recv(65536):
                    text += part
            assert text.rstrip().endswith(b"# EOF"), text
            for line in text.decode().splitlines():
                if line.startswith(f'sonde_power_bridge_troubles_total{{code="{code}"}}'):
                    return int(line.split()[-1])
            return 0

    with closing(Broker(folder)) as broker, closing(Site(folder, OVER)) as there:
        bridge = there.bridge(broker.address, f'from_mqtt = ["Orders"]\nmetrics = "127.0.0.1:{port}"')
        with there.bus.reader("Orders") as orders:
            assert orders.wait_matched(1, 20)
            yield broker, Counting(), orders
        assert bridge.process.poll() is None
        assert bridge.wait_for("counts")["from_mqtt"] > 0  # told now and then


BROKERS_TLS = {"cafile": "ca.pem", "certfile": "broker.pem", "keyfile": "broker.key"}  # of mosquitto


def certificates(folder: Path) -> None:
    """An authority, the broker's certificate for localhost, and one for a client."""

    def ssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    (folder / "san").write_text("subjectAltName=DNS:localhost\n")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    ssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2")
    for name, more in (("broker", ("-extfile", "san")), ("bridge", ())):
        ssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        ssl(
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-out",
            f"{name}.pem",
            "-days",
            "2",
            *more,
        )


def test_over_tls_with_a_password_and_a_certificate_and_not_without(tmp_path, site):
    certificates(tmp_path)
    subprocess.run(
        ["mosquitto_passwd", "-b", "-c", tmp_path / "users", "bridge", "secret"],
        check=True,
        capture_output=True,
    )
    (tmp_path / "users").chmod(0o644)
    broker = Broker(
        tmp_path,
        f"allow_anonymous false\npassword_file {tmp_path}/users\n"
        f"cafile {tmp_path}/ca.pem\ncertfile {tmp_path}/broker.pem\n"
        f"keyfile {tmp_path}/broker.key\nrequire_certificate true\n",
        [
            *["-u", "bridge", "-P", "secret", "--cafile"],
            f"{tmp_path}/ca.pem",
            "--cert",
            f"{tmp_path}/bridge.pem",
            "--key",
            f"{tmp_path}/bridge.key",
        ],
    )
    try:
        here = site()
        (tmp_path / "password").write_text("secret\n")
        (tmp_path / "wrong").write_text("guessed\n")
        for name in ("password", "wrong"):
            (tmp_path / name).chmod(0o600)
        tls = f'to_mqtt = ["Orders"]\nca = "{tmp_path}/ca.pem"\n'
        tls += f'certificate = "{tmp_path}/bridge.pem"\nkey = "{tmp_path}/bridge.key"\n'
        address = f"localhost:{broker.port}"
        for lines, said, where in (
            (tls + f'user = "bridge"\npassword_file = "{tmp_path}/wrong"', "bridge.refused", address),
            (tls, "bridge.refused", address),
            (
                tls + f'user = "bridge"\npassword_file = "{tmp_path}/password"',
                "bridge.",
                broker.address,
            ),  # not its name
            ('to_mqtt = ["Orders"]', "bridge.", address),
        ):
            refused = here.bridge(where, lines, "refused", wait=False)
            until(lambda: any(code.startswith(said) for code in refused.troubles()), said)  # noqa: B023
            assert not refused.told("connected")
            refused.end()
        bridge = here.bridge(address, tls + f'user = "bridge"\npassword_file = "{tmp_path}/password"')
        heard = Heard(broker, "sonde/Orders/#")
        with here.bus.writer("Orders") as order:
            assert order.wait_matched(1, 20)
            order.write(node="n", number=3)
            assert (
                json.loads(until(lambda: heard.under("sonde/Orders/n"), "the order")[0]["payload"])["number"]
                == 3
            )
        assert bridge.told("connected")[0]["tls"]
    finally:
        broker.close()


def access(folder: Path, *readable: str) -> Path:
    """Access lists of mosquitto's dynamic security: all may write, these filters may be subscribed to."""
    acls = [{"acltype": "subscribePattern", "topic": one, "priority": 0, "allow": True} for one in readable]
    lists = {
        "defaultACLAccess": {
            "publishClientSend": True,
            "publishClientReceive": True,
            "subscribe": False,
            "unsubscribe": True,
        },
        "clients": [],
        "groups": [{"groupname": "all", "roles": [{"rolename": "reads"}], "clients": []}],
        "roles": [{"rolename": "reads", "acls": acls}],
        "anonymousGroup": "all",
    }
    file = folder / "access.json"
    file.write_text(json.dumps(lists))
    return file


@pytest.mark.skipif(not DYNAMIC_SECURITY, reason="mosquitto's dynamic security is not here")
def test_a_topic_that_the_broker_does_not_let_it_read_is_named_and_the_others_come_in(tmp_path, site):
    lists = access(tmp_path, "sonde/Orders/#", "here/#")
    broker = Broker(
        tmp_path, f"allow_anonymous true\nplugin {DYNAMIC_SECURITY[0]}\nplugin_opt_config_file {lists}\n"
    )
    try:
        here = site()
        with here.bus.reader("Orders") as orders, here.bus.reader("Plain") as plain:
            one = here.bridge(
                broker.address,
                'to_mqtt = ["Monitor_report_reading"]\nfrom_mqtt = ["Orders", "Plain"]\n'
                f'metrics = "127.0.0.1:{(port := free_port())}"',
            )
            assert one.told("connected")[-1]["not_subscribed"] == ["sonde/Plain/#"]
            trouble = one.told("trouble")[-1]
            assert trouble["code"] == "bridge.not_subscribed"
            assert "sonde/Plain/#: Not authorized" in trouble["what"]
            assert not one.told("disconnected")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                metrics = answer.read().decode().splitlines()
            assert "sonde_power_bridge_not_subscribed 1" in metrics
            assert "sonde_power_bridge_connected 1" in metrics
            broker.publish("sonde/Plain", '{"number": 1}')
            broker.publish("sonde/Orders/n", '{"node": "n", "number": 2}')
            assert [one["number"] for one in until(lambda: taken(orders, []), "what may be read")] == [2]
            assert taken(plain, []) == []

            broker.stop()
            access(tmp_path, "sonde/#", "here/#")
            broker.start()
            assert one.wait_for("connected", 2)["not_subscribed"] == []
            broker.publish("sonde/Plain", '{"number": 3}')
            assert [one["number"] for one in until(lambda: taken(plain, []), "what may be read now")] == [3]
            assert one.end()["not_subscribed"] == 0
    finally:
        broker.close()


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ('to_mqtt = ["Ordres"]', "bridge.unknown_topic"),
        ("", "bridge.no_topics"),
        ('to_mqtt = ["Orders"]\nprefix = "a/#"', "bridge.bad_prefix"),
        ('to_mqtt = ["Orders"]\npassword_file = "nowhere"', "bridge.no_file"),
        ('to_mqtt = ["Orders"]\npassword_file = "open"', "bridge.open_password"),
    ],
)
def test_what_is_asked_wrongly_ends_it_with_a_name(site, lines, code):
    here = site()
    (here.folder / "open").write_text("secret\n")
    (here.folder / "open").chmod(0o644)
    bridge = here.bridge("127.0.0.1:1", lines, wait=False)
    assert bridge.wait_for("error")["code"] == code
    assert bridge.process.wait(20) == 2


def with_password(here: Site) -> str:
    (here.folder / "secret").write_text("the-password\n")
    (here.folder / "secret").chmod(0o600)
    return 'user = "u"\npassword_file = "secret"\n'


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("more", ["", 'certificate = "c"\nkey = "k"\n'])
def test_whoever_listens_at_the_broker_s_address_gets_no_password(site, local, more):
    here = site()
    with closing(StandIn([StandIn.ACCEPTED])) as stranger:
        where = f"127.0.0.1:{stranger.port}" if local else "192.0.2.1:1883"
        lines = f'to_mqtt = ["Orders"]\nrequests = true\n{with_password(here)}{more}'
        bridge = here.bridge(where, lines, wait=False)
        refused = bridge.wait_for("error")
        assert refused["code"] == ("power.bad_value" if more else "bridge.plain_password")
        assert bridge.process.wait(20) == 2
        assert not stranger.connections
    assert " ca " in refused["what"] if more else "`ca`" in refused["hint"]
    assert ("unprotected = true" in refused["hint"]) == (local and not more)


def test_only_a_broker_of_this_machine_without_ca_can_be_named_unprotected(site):
    here = site()
    for where, more in (
        ("192.0.2.1:1883", ""),
        ("127.site.example:1883", ""),
        ("127.0.0.1:1883", 'ca = "ca.pem"\n'),
    ):
        bridge = here.bridge(where, f'to_mqtt = ["Orders"]\nunprotected = true\n{more}', wait=False)
        assert bridge.wait_for("error")["code"] == "bridge.bad_unprotected"
        assert bridge.process.wait(20) == 2


@pytest.mark.parametrize(
    ("secret", "named", "answer"),
    [(False, False, "denied"), (True, True, "expired"), (False, True, "denied")],
)
def test_an_order_over_a_plain_connection_counts_only_where_the_broker_is_named_unprotected(
    tmp_path, broker, secret, named, answer
):
    """With keys of the bus. Nobody serves the order: one that is not refused waits for that."""
    with closing(Site(tmp_path, OVER, keys=True)) as here:
        lines = "requests = true\nto_mqtt = []\n" + (with_password(here) if secret else 'user = "u"\n')
        bridge = here.bridge(broker.address, lines + ("unprotected = true" if named else ""))
        heard = Heard(broker, "sonde/reply/#")
        expiry = ("-D", "publish", "message-expiry-interval", "1")
        broker.publish("sonde/request/SystemPowerManager_set/active/a", "{}", *expiry)
        reply = until(lambda: heard.under("sonde/reply/SystemPowerManager_set/active/a"), "the reply")[0]
        assert json.loads(reply["payload"])["code"] == answer
        assert bridge.told("connected")[0]["tls"] is False
        assert ("bridge.unprotected" in bridge.troubles()) == named


def tls_server(folder: Path) -> ssl.SSLContext:
    """With the certificate for localhost that certificates() wrote."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "broker.pem", folder / "broker.key")
    return server


def test_an_order_over_tls_counts_where_the_broker_has_proved_who_it_is(tmp_path):
    certificates(tmp_path)
    files = "".join(f"{key} {tmp_path}/{name}\n" for key, name in BROKERS_TLS.items())
    broker = Broker(tmp_path, f"allow_anonymous true\n{files}", ["--cafile", f"{tmp_path}/ca.pem"])
    with closing(broker), closing(Site(tmp_path, OVER, keys=True)) as here:
        lines = f'requests = true\nto_mqtt = []\n{with_password(here)}ca = "{tmp_path}/ca.pem"'
        bridge = here.bridge(f"localhost:{broker.port}", lines)
        heard = Heard(broker, "sonde/reply/#")
        expiry = ("-D", "publish", "message-expiry-interval", "1")
        broker.publish("sonde/request/SystemPowerManager_set/active/a", "{}", *expiry)
        reply = until(lambda: heard.under("sonde/reply/SystemPowerManager_set/active/a"), "the reply")[0]
        assert json.loads(reply["payload"])["code"] == "expired"  # nobody serves it
        assert bridge.told("connected")[0]["tls"] is True
        assert "bridge.unprotected" not in bridge.troubles()


@pytest.mark.parametrize(("host", "authority"), [("127.0.0.1", "ca.pem"), ("localhost", "bridge.pem")])
def test_a_broker_of_another_name_or_authority_gets_no_password_and_no_word(tmp_path, site, host, authority):
    certificates(tmp_path)
    here = site()
    with closing(StandIn([StandIn.ACCEPTED], tls_server(tmp_path))) as stranger:
        lines = f'to_mqtt = ["Orders"]\n{with_password(here)}ca = "{tmp_path}/{authority}"'
        bridge = here.bridge(f"{host}:{stranger.port}", lines, wait=False)
        until(lambda: "bridge.tls" in bridge.troubles(), "it says so")
        assert not bridge.told("connected")
        assert stranger.connections
        assert stranger.received == b""


HOSTILE_BROKERS = {
    "a CONNACK of 200 MiB": [packet(0x20, b"", 200 << 20), *[bytes(1 << 16)] * 3200],
    "a message of 250 MiB": [
        StandIn.ACCEPTED,
        message("sonde/Plain", b"", length=250 << 20),
        *[bytes(1 << 16)] * 4000,
    ],
    "messages of QoS 2 that are never released": [
        StandIn.ACCEPTED,
        *(message("sonde/Plain", b" " * (1 << 16), 2, n) for n in range(1, 4001)),
    ],
}


@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize("sends", HOSTILE_BROKERS.values(), ids=HOSTILE_BROKERS)
def test_a_broker_does_not_decide_the_bridge_s_memory(tmp_path, site, sends, over_tls):
    tls, lines = None, 'from_mqtt = ["Plain"]\n'
    if over_tls:
        certificates(tmp_path)
        tls = tls_server(tmp_path)
        lines += f'ca = "{tmp_path}/ca.pem"\n'
    with closing(StandIn(sends, tls)) as stranger:
        bridge = site().bridge(f"localhost:{stranger.port}", lines, wait=False)
        until(lambda: "bridge.bad_packet" in bridge.troubles() or stranger.sent > 100 << 20, "it ends that")
        peak = Path(f"/proc/{bridge.process.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
        bridge.end()
    # The stand-in serves one after the other: a later attempt may find it busy.
    assert bridge.troubles() - {"bridge.unreachable"} == {"bridge.bad_packet"}
    assert stranger.sent < 64 << 20
    assert int(peak) < 100_000


def test_it_ends_in_order_also_while_nobody_answers(site):
    here = site()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)  # takes connections, and says nothing
        bridge = here.bridge(f"127.0.0.1:{silent.getsockname()[1]}", 'to_mqtt = ["Orders"]', wait=False)
        bridge.wait_for("ready")
        time.sleep(0.3)
        assert bridge.end()["connected"] is False
    bridge = here.bridge("127.0.0.1:1", 'to_mqtt = ["Orders"]', wait=False)
    until(lambda: "bridge.unreachable" in bridge.troubles(), "it says so")
    bridge.process.stdin.close()  # who started it is gone
    assert bridge.process.wait(20) == 0


NO_NAME_SERVER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
  typedef int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
  while (node && !strcmp(node, "broker.example") && !(hints && hints->ai_flags & AI_NUMERICHOST)) pause();
  return ((real)dlsym(RTLD_NEXT, "getaddrinfo"))(node, service, hints, found);
}
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler is here")
def test_it_ends_and_keeps_control_also_while_no_name_server_answers(site, monkeypatch):
    here = site()
    (here.folder / "no_name_server.c").write_text(NO_NAME_SERVER)
    words = ["cc", "-w", "-shared", "-fPIC", "-o", "no_name_server.so", "no_name_server.c", "-ldl"]
    subprocess.run(words, cwd=here.folder, check=True)
    with here.bus.writer("Orders") as order:
        with monkeypatch.context() as patched:
            patched.setenv("LD_PRELOAD", str(here.folder / "no_name_server.so"))
            bridge = here.bridge("broker.example:1883", 'to_mqtt = ["Orders"]', wait=False)
        until(lambda: "bridge.unreachable" in bridge.troubles(), "it says so")
        assert "name servers do not answer" in bridge.told("trouble")[0]["what"]
        assert order.wait_matched(1, 20)
        order.write(node="n", number=4711)
        store = here.folder / "state" / "mqtt-b.store"
        until(lambda: b'"number":4711' in store.read_bytes(), "it is on disk")
        end = bridge.end()
    assert (end["connected"], end["control_waiting"]) == (False, 1)


def power_bus(here: Site, bridge: Bridge) -> Any:
    import sonde._power as _power

    (here.folder / "client.xml").write_text(_power.bus_profile(str(bridge.config), "test"))
    return bus.open(here.folder / "client.xml")


TYPES_OF_NODE = {"request": "sonde::power::NodeQuery", "reply": "sonde::power::NodeAnswer"}


def test_requests_come_by_mqtt_and_are_answered_but_none_that_sets_without_security(broker, site):
    here = site()
    bridge = here.bridge(broker.address, "requests = true")
    heard = Heard(broker, "sonde/reply/#", "my/own")
    with power_bus(here, bridge) as client:
        asked: list[Any] = []

        def answer(body: Any) -> dict[str, Any]:
            asked.append(body)
            return {"node": "n1", "power_w": 212.5}

        with client.serve("NodeManager_get", answer, name="n1", **TYPES_OF_NODE):
            ask = '{"ask":"GET_POWER_NODE"}'
            # MQTT 3.1.1, with an ID of the asker's.
            old = broker.client(
                "mosquitto_pub",
                "-V",
                "311",
                "-q",
                "1",
                "-t",
                "sonde/request/NodeManager_get/n1/id-7",
                "-m",
                ask,
            )
            assert old.wait(20) == 0
            reply = json.loads(
                until(lambda: heard.under("sonde/reply/NodeManager_get/n1/id-7"), "the reply")[0]["payload"]
            )
            assert (reply["code"], reply["server"], reply["body"]["power_w"]) == ("ok", "n1", 212.5)
            # MQTT 5: where to, and whose.
            broker.publish(
                "sonde/request/NodeManager_get/n*",
                ask,
                *["-D", "publish", "response-topic", "my/own", "-D", "publish", "correlation-data", "abc"],
            )
            got = until(lambda: heard.under("my/own"), "the reply")[0]
            assert json.loads(got["payload"])["body"]["node"] == "n1"
            assert got["properties"]["correlation-data"] == "abc"
            assert [a["ask"] for a in asked] == ["GET_POWER_NODE"] * 2

            def told(topic: str, payload: str) -> dict[str, Any]:
                before = len(heard.under(f"sonde/reply/{topic}"))
                broker.publish(f"sonde/request/{topic}", payload)
                return dict(
                    json.loads(
                        until(lambda: heard.under(f"sonde/reply/{topic}")[before:], topic)[0]["payload"]
                    )
                )

            assert told("NodeManager_set/n1/a", "{}")["code"] == "denied"
            assert told("SystemPowerManager_set/active/a", "{}")["code"] == "denied"
            assert told("NodeManager_gte/n1/a", "{}")["code"] == "not_found"
            assert told("NodeManager_get/n1/b", '{"ask":"GET_ALL"}')["code"] == "bad_request"
            assert told("NodeManager_get/n1/c", "nonsense")["code"] == "bad_request"
            # A reply that would be a request, a sample or the broker's own: nobody is answered.
            for where in ("sonde/request/NodeManager_get/n1", "sonde/Orders/n", "$SYS/x", "spBv1.0/g/NCMD/n"):
                broker.publish(
                    "sonde/request/NodeManager_get/n1", ask, "-D", "publish", "response-topic", where
                )
            broker.publish("sonde/request/NodeManager_get/n1", ask)
            until(lambda: bridge.told("trouble"), "it says so")
            assert told("NodeManager_get/n1/d", ask)["code"] == "ok"
            assert len(asked) == 3
        # Nobody serves any more; how long to wait is the message's own expiry.
        broker.publish(
            "sonde/request/NodeManager_get/n1/e", ask, *["-D", "publish", "message-expiry-interval", "1"]
        )
        gone = until(lambda: heard.under("sonde/reply/NodeManager_get/n1/e"), "the refusal")[0]
        assert json.loads(gone["payload"])["code"] == "expired"
    counted = bridge.end()
    assert counted["troubles"]["bridge.bad_request"] >= 5
    assert counted["requests_refused"] == 10


def test_examon_gets_one_message_a_metric(broker, site):
    here = site("clu#1 a")
    here.bridge(broker.address, 'to_mqtt = ["Monitor_report_reading"]\nnaming = "examon"\nprefix = "uni/bo"')
    heard = Heard(broker, "org/#")
    with here.bus.writer("Monitor_report_reading") as reading:
        assert reading.wait_matched(1, 20)
        reading.write(
            node="r1/n 2", power_w=211.5, share=float("nan"), at_ns=1_700_000_000_250_000_000, on=True
        )
        until(lambda: len(heard.all()) >= 2, "both")
    time.sleep(0.2)
    tags = "org/uni_bo/cluster/clu_1_a/node/r1_n_2/plugin/sonde/chnl/data/"
    assert {m["topic"]: m["payload"] for m in heard.all()} == {
        tags + "power_w": "211.5;1700000000.250000",
        tags + "on": "1;1700000000.250000",
    }


def protobuf(raw: bytes) -> list[tuple[int, Any]]:
    """(field, value) of a message; what has a length stays bytes."""
    out: list[tuple[int, Any]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(raw):
        tag = varint()
        kind, field = tag & 7, tag >> 3
        if kind == 0:
            out.append((field, varint()))
            continue
        n = {1: 8, 5: 4}.get(kind) or varint()
        out.append((field, raw[at : at + n]))
        at += n
    assert at == len(raw)
    return out


def test_sparkplug_is_born_tells_by_alias_is_born_again_when_asked_and_dies(broker, site):
    here = site("grid")
    broker.publish("here", "here", "-r")
    filters = ("-t", "spBv1.0/#", "-t", "here")
    process = broker.client("mosquitto_sub", "-V", "5", "-q", "1", "-F", "%t %x", *filters)
    subscribed = threading.Event()
    lines: list[tuple[str, dict[int, Any]]] = []

    def read() -> None:
        for line in process.stdout:
            topic, payload = line.split()
            if topic == "here":
                subscribed.set()
            if topic == "here" or "/NCMD/" in topic:
                continue
            fields = protobuf(bytes.fromhex(payload))
            metrics = [dict(protobuf(value)) for field, value in fields if field == 2]
            lines.append((topic, {**dict(fields), 2: metrics}))

    threading.Thread(target=read, daemon=True).start()
    assert subscribed.wait(90)
    bridge = here.bridge(broker.address, 'to_mqtt = ["Monitor_report_reading"]\nnaming = "sparkplug"', "edge")

    def of(kind: str) -> list[dict[int, Any]]:
        return [body for topic, body in list(lines) if topic.split("/")[2] == kind]

    born = until(lambda: of("NBIRTH"), "the birth")[0]
    assert born[3] == 0
    assert {m[1] for m in born[2]} == {b"bdSeq", b"Node Control/Rebirth"}
    with here.bus.writer("Monitor_report_reading") as reading:
        assert reading.wait_matched(1, 20)
        for power in (200.0, 201.0, float("nan")):
            reading.write(node="n1", power_w=power, on=True)
        data = until(lambda: len(of("DDATA")) >= 2 and of("DDATA"), "data")
        device = of("DBIRTH")[0]
        assert [topic for topic, _ in lines if "DBIRTH" in topic] == ["spBv1.0/grid/DBIRTH/edge/n1"]
        by_name = {m[1]: m for m in device[2]}
        power = by_name[b"Monitor_report_reading/power_w"]
        assert power[4] == 10
        assert struct.unpack("<d", power[13]) == (200.0,)
        assert by_name[b"Monitor_report_reading/on"][4] == 11
        again = next(m for m in data[0][2] if m[2] == power[2])
        assert 1 not in again
        assert struct.unpack("<d", again[13]) == (201.0,)
        assert next(m for m in data[1][2] if m[2] == power[2])[7] == 1  # not known
        assert [born[3], device[3], data[0][3], data[1][3]] == [0, 1, 2, 3]
        broker.publish("spBv1.0/grid/NCMD/edge", b"\xff\xff\xff hostile")
        rebirth = b"\x0a\x14Node Control/Rebirth\x70\x01"
        broker.publish("spBv1.0/grid/NCMD/edge", b"\x12" + bytes([len(rebirth)]) + rebirth)
        until(lambda: len(of("NBIRTH")) == 2 and len(of("DBIRTH")) == 2, "both again")
        assert of("NBIRTH")[1][3] == 0
        assert of("DBIRTH")[1][3] == 1
    until(lambda: of("DDEATH"), "its writer is gone")
    bridge.kill()
    death = until(lambda: of("NDEATH"), "the last will")[0]

    def bd_seq(body: dict[int, Any]) -> int:
        return int(next(m for m in body[2] if m.get(1) == b"bdSeq")[11])

    assert bd_seq(death) == bd_seq(born)
    bridge.start()
    until(lambda: len(of("NBIRTH")) == 3, "born")
    assert bd_seq(of("NBIRTH")[2]) != bd_seq(born)


def test_who_lives_is_reported_and_who_dies(broker, site):
    here = site()
    bridge = here.bridge(broker.address, 'to_mqtt = ["Monitor_*"]')
    heard = Heard(broker, "sonde/#")
    with here.bus.writer("Monitor_report_reading") as reading:
        assert reading.wait_matched(1, 20)
        reading.write(node="n1")
        alive = "sonde/alive/Monitor_report_reading/n1"
        until(lambda: [m["payload"] for m in heard.under(alive)] == ['{"alive":true}'], "it lives")
    until(
        lambda: [m["payload"] for m in heard.under(alive)] == ['{"alive":true}', '{"alive":false}'],
        "it is gone",
    )
    bridge.kill()
    until(lambda: '"offline"' in heard.under("sonde/bridge/b")[-1]["payload"], "the last will")
    late = Heard(broker, "sonde/bridge/b")
    assert until(late.all, "it is retained")[0]["retain"] == 1
    bridge.start()
    until(lambda: '"online"' in heard.under("sonde/bridge/b")[-1]["payload"], "it is back")
    bridge.end()
    until(lambda: '"offline"' in heard.under("sonde/bridge/b")[-1]["payload"], "it said good bye")
