"""The MQTT bridge beside mosquitto's own clients, in rounds that take turns: messages/s, lost, twice.

`python -m bench.power.bridge` prints the rows alone. All of it is on loopback: one broker, `mosquitto_pub -l`
and `mosquitto_sub` alone for comparison; a bus, the bridge and `mosquitto_sub`; a bus, two bridges and another bus.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from mqtt_broker import Broker, Site, end, until

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


def through(broker: Broker, site: Site, other: Site, qos: int) -> dict[str, float]:
    """A bus, two bridges, another bus."""
    sender = site.bridge(broker.address, f'to_mqtt = ["Monitor_report_reading"]\nqos = {qos}')
    numbers: list[int] = []
    last = [0.0]
    ending = threading.Event()
    with other.bus.reader("Monitor_report_reading") as reader:
        receiver = other.bridge(broker.address, f'from_mqtt = ["Monitor_report_reading"]\nqos = {qos}')

        def take() -> None:
            while not ending.is_set():
                got = [sample.value["at_ns"] for sample in reader.take() if sample.has_data]
                if got:
                    numbers.extend(got)
                    last[0] = time.perf_counter()
                else:
                    time.sleep(0.002)

        thread = threading.Thread(target=take)
        thread.start()
        began = write_all(site)
        settle(numbers)
        ending.set()
        thread.join()
        sender.end()
        receiver.end()
    return figures(began, last[0], numbers)


def rows() -> list[dict[str, Any]]:
    """Rows of this bench."""
    measured: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="sonde-bench-bridge-") as folder:
        broker = Broker(Path(folder))
        site, other = Site(Path(folder), "cyclonedds", "alpha"), Site(Path(folder), "cyclonedds", "beta")
        try:
            until(lambda: broker.process, "mosquitto runs")
            for _ in range(ROUNDS):
                for qos in (0, 1):
                    measured.setdefault(f"mosquitto_pub and _sub alone, QoS {qos}", []).append(
                        plain(broker, qos)
                    )
                    measured.setdefault(f"bus, bridge, mosquitto_sub, QoS {qos}", []).append(
                        out(broker, site, qos)
                    )
                    measured.setdefault(f"bus, bridge, bridge, bus, QoS {qos}", []).append(
                        through(broker, site, other, qos)
                    )
        finally:
            site.close()
            other.close()
            broker.close()
    told = []
    for what, rounds in measured.items():
        rates = sorted(one["rate"] for one in rounds)
        barred = "alone" not in what
        rate = statistics.median(rates)
        told.append(
            {
                "what": f"{what}: messages/s",
                "bar": f">= {BAR:.0f}" if barred else "(reported)",
                "value": rate,
                "ci": [rates[0], rates[-1]],
                "met": rate >= BAR if barred else None,
                "note": f"median of {len(rounds)} rounds of {MESSAGES} messages; interval: least and most",
            }
        )
        for figure, words in (("lost", "lost"), ("twice", "came twice")):
            value = sum(one[figure] for one in rounds)
            told.append(
                {
                    "what": f"{what}: {words}",
                    "bar": "0" if barred else "(reported)",
                    "value": value,
                    "ci": None,
                    "met": value == 0 if barred else None,
                    "note": f"of {len(rounds) * MESSAGES}",
                }
            )
    return told


if __name__ == "__main__":
    for row in rows():
        met = "" if row["met"] is None else "met" if row["met"] else "NOT MET"
        span = "" if row["ci"] is None else f"{row['ci'][0]:.0f} to {row['ci'][1]:.0f}"
        print(f"{row['what']:56} {row['value']:9.0f}  bar {row['bar']:11} {met:8} {span}")
