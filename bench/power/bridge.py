"""The MQTT bridge beside mosquitto's own clients, in rounds that take turns: messages/s, lost, twice; loops; restarts.

All of it is on loopback: one broker, `mosquitto_pub -l` and `mosquitto_sub` alone for comparison; a bus, the bridge and
`mosquitto_sub`; `mosquitto_pub -l`, the bridge and a bus; a bus, two bridges and another bus. Writers and readers of
the buses are of Python, and have the cores with all the others.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from bench.rows import Row, row
from mqtt_broker import Broker, Site, end

MESSAGES, ROUNDS, BAR = 60_000, 3, 20_000.0


def payload(number: int) -> str:
    """Of one message, as the bridge writes it."""
    return json.dumps(
        {"node": "n001", "power_w": 211.5, "share": 0.25, "at_ns": number, "on": True}, separators=(",", ":")
    )


class Counted:
    """mosquitto_sub, and the numbers that it has heard."""

    def __init__(self, broker: Broker, topic: str, qos: int) -> None:
        self.process = broker.client("mosquitto_sub", "-V", "5", "-q", str(qos), "-F", "%p", "-t", topic)
        self.numbers: list[int] = []
        self.last = 0.0
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        time.sleep(0.3)  # it subscribes

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            # The number stands behind its name; to parse all of it would measure Python.
            at = line.find('"at_ns":')
            if at >= 0:
                self.numbers.append(int(line[at + 8 : line.index(",", at)]))
                self.last = time.perf_counter()


def settle(numbers: list[int]) -> None:
    """Until all are there, or none has come for a second."""
    seen, since = -1, time.perf_counter()
    while len(numbers) < MESSAGES and time.perf_counter() - since < 1.5:
        if len(numbers) != seen:
            seen, since = len(numbers), time.perf_counter()
        time.sleep(0.005)


def figures(began: float, last: float, numbers: Iterable[int]) -> dict[str, float]:
    """Rate of what came, what did not come, what came again."""
    counted = Counter(numbers)
    return {
        "rate": len(counted) / (last - began) if last > began else 0.0,
        "lost": MESSAGES - len(counted),
        "twice": sum(counted.values()) - len(counted),
    }


def plain(broker: Broker, qos: int) -> dict[str, float]:
    """mosquitto_pub and mosquitto_sub."""
    heard = Counted(broker, "plain", qos)
    lines = "".join(payload(number) + "\n" for number in range(MESSAGES))
    began = time.perf_counter()
    sender = broker.client(
        "mosquitto_pub", "-V", "5", "-q", str(qos), "-t", "plain", "-l", stdin=subprocess.PIPE
    )
    assert sender.stdin
    sender.stdin.write(lines)
    sender.stdin.close()
    sender.wait(120)
    settle(heard.numbers)
    end(heard.process)
    heard.thread.join(5)
    return figures(began, heard.last, heard.numbers)


def write_all(site: Site) -> float:
    """Samples as fast as one writer gives them; when it began."""
    with site.bus.writer("Monitor_report_reading") as writer:
        assert writer.wait_matched(1, 20)
        time.sleep(0.2)
        began = time.perf_counter()
        for number in range(MESSAGES):
            writer.write(node="n001", power_w=211.5, share=0.25, at_ns=number, on=True)
        writer.wait_acknowledged(30)
    return began


def out(broker: Broker, site: Site, qos: int) -> dict[str, float]:
    """A bus, the bridge, mosquitto_sub."""
    bridge = site.bridge(broker.address, f'to_mqtt = ["Monitor_report_reading"]\nqos = {qos}')
    heard = Counted(broker, "sonde/Monitor_report_reading/#", qos)
    began = write_all(site)
    settle(heard.numbers)
    bridge.end()
    end(heard.process)
    heard.thread.join(5)
    return figures(began, heard.last, heard.numbers)


class Taken:
    """A reader of a bus, and the numbers that it has taken."""

    def __init__(self, site: Site, topic: str, field: str) -> None:
        self.reader, self.field = site.bus.reader(topic), field
        self.numbers: list[int] = []
        self.last = 0.0
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._take)
        self.thread.start()

    def _take(self) -> None:
        while not self.ending.is_set():
            got = [sample.value[self.field] for sample in self.reader.take() if sample.has_data]
            if got:
                self.numbers.extend(got)
                self.last = time.perf_counter()
            else:
                time.sleep(0.002)

    def __enter__(self) -> Taken:
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.thread.join()
        self.reader.close()


def into(broker: Broker, other: Site, qos: int) -> dict[str, float]:
    """mosquitto_pub, the bridge, a bus. With QoS 1 the bridge is stopped until all is at the broker: mosquitto_pub -l,
    which waits for acknowledgements, would be the slowest part.
    """
    with Taken(other, "Monitor_report_reading", "at_ns") as taken:
        receiver = other.bridge(broker.address, f'from_mqtt = ["Monitor_report_reading"]\nqos = {qos}')
        lines = "".join(payload(number) + "\n" for number in range(MESSAGES))
        words = "-V", "5", "-q", str(qos), "-t", "sonde/Monitor_report_reading/n001", "-l"
        if qos:
            receiver.process.send_signal(signal.SIGSTOP)
        began = time.perf_counter()
        sender = broker.client("mosquitto_pub", *words, stdin=subprocess.PIPE)
        assert sender.stdin
        sender.stdin.write(lines)
        sender.stdin.close()
        sender.wait(120)
        if qos:
            began = time.perf_counter()
            receiver.process.send_signal(signal.SIGCONT)
        settle(taken.numbers)
        receiver.end()
    return figures(began, taken.last, taken.numbers)


def through(broker: Broker, site: Site, other: Site, qos: int) -> dict[str, float]:
    """A bus, two bridges, another bus."""
    sender = site.bridge(broker.address, f'to_mqtt = ["Monitor_report_reading"]\nqos = {qos}')
    with Taken(other, "Monitor_report_reading", "at_ns") as taken:
        receiver = other.bridge(broker.address, f'from_mqtt = ["Monitor_report_reading"]\nqos = {qos}')
        began = write_all(site)
        settle(taken.numbers)
        sender.end()
        receiver.end()
    return figures(began, taken.last, taken.numbers)


def looped(broker: Broker, site: Site, other: Site) -> tuple[int, int, int]:
    """Two buses whose bridges carry one topic both ways: what came again anywhere, what did not come, what was told."""
    both = 'to_mqtt = ["Monitor_report_reading"]\nfrom_mqtt = ["Monitor_report_reading"]\nqos = 1'
    count = 3000
    heard = Counted(broker, "sonde/Monitor_report_reading/#", 1)
    topic = "Monitor_report_reading"
    with Taken(site, topic, "at_ns") as here, Taken(other, topic, "at_ns") as there:
        bridges = [site.bridge(broker.address, both), other.bridge(broker.address, both)]
        with site.bus.writer(topic) as one, other.bus.writer(topic) as two:
            for writer in (one, two):
                assert writer.wait_matched(2, 20)
            time.sleep(0.2)
            for number in range(count):
                one.write(node="n001", power_w=1.0, share=0.25, at_ns=number, on=True)
                two.write(node="n002", power_w=1.0, share=0.25, at_ns=count + number, on=True)
            deadline = time.perf_counter() + 20
            while time.perf_counter() < deadline and min(len(here.numbers), len(there.numbers)) < 2 * count:
                time.sleep(0.02)
            time.sleep(1)  # what goes round would by now
        for bridge in bridges:
            bridge.end()
    end(heard.process)
    heard.thread.join(5)
    places = (here.numbers, there.numbers, heard.numbers)
    again = sum(len(numbers) - len(set(numbers)) for numbers in places)
    return again, sum(2 * count - len(set(numbers)) for numbers in places), 3 * 2 * count


# What of a broker outlives its kill -9: docs/howto/power-mqtt.md.
KEPT = "allow_anonymous true\nautosave_on_changes true\nautosave_interval 1\n"
RESTARTS, CONTROL_S = 6, 0.004


def restarted(broker: Broker, site: Site, other: Site, how: signal.Signals) -> tuple[int, int, int]:
    """Control messages from bus to bus while the broker is ended and started again: lost, came twice, sent."""
    sender = site.bridge(broker.address, 'to_mqtt = ["Orders"]', name="restarted")
    ended = threading.Event()
    sent = 0
    with Taken(other, "Orders", "number") as taken, site.bus.writer("Orders") as orders:
        receiver = other.bridge(broker.address, 'from_mqtt = ["Orders"]', name="restarted")
        assert orders.wait_matched(1, 20)

        def flow() -> None:
            nonlocal sent
            while not ended.wait(CONTROL_S):
                orders.write(node="n", number=sent, text="a cap, for example")
                sent += 1

        flowing = threading.Thread(target=flow)
        flowing.start()
        try:
            for k in range(RESTARTS):
                time.sleep(0.7 + 0.1 * k)
                broker.stop(how)
                time.sleep(0.3)
                broker.start()
                for bridge in (sender, receiver):
                    bridge.wait_for("connected", k + 2)
        finally:
            ended.set()
            flowing.join()
        seen, since = -1, time.perf_counter()
        while len(set(taken.numbers)) < sent and time.perf_counter() - since < 10:
            if len(taken.numbers) != seen:
                seen, since = len(taken.numbers), time.perf_counter()
            time.sleep(0.02)
        sender.end()
        receiver.end()
    return sent - len(set(taken.numbers)), len(taken.numbers) - len(set(taken.numbers)), sent


def rates(broker: Broker, site: Site, other: Site) -> list[Row]:
    """Rows of messages/s."""
    ways: dict[str, Callable[[int], dict[str, float]]] = {
        "mosquitto_pub and _sub alone": lambda qos: plain(broker, qos),
        "bus, bridge, mosquitto_sub": lambda qos: out(broker, site, qos),
        "mosquitto_pub, bridge, bus": lambda qos: into(broker, other, qos),
        "bus, bridge, bridge, bus": lambda qos: through(broker, site, other, qos),
    }
    measured: dict[str, list[dict[str, float]]] = {}
    for _ in range(ROUNDS):
        for qos in (0, 1):
            for what, way in ways.items():
                measured.setdefault(f"{what}, QoS {qos}", []).append(way(qos))
    told = []
    for what, rounds in measured.items():
        each = sorted(one["rate"] for one in rounds)
        barred = "alone" not in what
        lost, twice = (int(sum(one[figure] for one in rounds)) for figure in ("lost", "twice"))
        note = f"median of {len(rounds)} rounds of {MESSAGES} messages, least and most; "
        note += f"lost {lost}, came twice {twice} of {len(rounds) * MESSAGES}"
        told.append(
            row(
                f"{what}: messages/s" + (", none lost, none twice" if barred else ""),
                f">= {BAR:.0f}" if barred else "(reported)",
                statistics.median(each),
                [each[0], each[-1]],
                (lambda rate, bad=lost + twice: rate >= BAR and not bad) if barred else None,
                note,
            )
        )
    return told


def rows() -> list[Row]:
    """Rows of this bench."""
    with tempfile.TemporaryDirectory(prefix="sonde-bench-bridge-") as name, ExitStack() as stays:
        folder = Path(name)
        broker, keeping = Broker(folder), Broker(folder, KEPT)
        for each in (broker, keeping):
            stays.callback(each.close)
        site, other = (Site(folder, "cyclonedds", which) for which in ("alpha", "beta"))
        for each in (site, other):
            stays.callback(each.close)
        told = rates(broker, site, other)
        again, lost, of = looped(broker, site, other)
        told.append(
            row(
                "two bridges, one topic both ways: messages that came again, on either bus or at the broker",
                "0",
                again,
                None,
                lambda v: v == 0,
                f"of {of}, {lost} did not come",
            )
        )
        for how, words in ((signal.SIGKILL, "killed by kill -9"), (signal.SIGTERM, "ended in order")):
            lost, twice, sent = restarted(keeping, site, other, how)
            told.append(
                row(
                    f"control messages from bus to bus, the broker {words} and started again: lost",
                    "0",
                    lost,
                    None,
                    lambda v: v == 0,
                    f"of {sent} sent meanwhile, {RESTARTS} times; {twice} came twice; persistence at each change",
                )
            )
    return told
