"""A real mosquitto on loopback, its clients, and a bridge with its own bus: for tests and benches."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading
import urllib.request
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import sonde.bus.client as bus
from claimed import a_domain
from power_daemons import powerd, until, within_keys

BROKER = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
TYPES = """module site {
  struct Order { @key string node; long long number; string text; sequence<octet> blob; };
  struct Reading { @key string node; double power_w; float share; long long at_ns; boolean on; };
  struct Plain { long long number; };
};
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def end(process: subprocess.Popen[Any], how: signal.Signals = signal.SIGTERM) -> int:
    if process.poll() is None:
        process.send_signal(how)
    code = process.wait(20)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()
    return code


class Broker:
    """mosquitto with a database that outlives it."""

    def __init__(self, folder: Path, more: str = "allow_anonymous true\n", words: Sequence[str] = ()) -> None:
        self.folder, self.port = folder / f"broker-{uuid.uuid4().hex[:6]}", free_port()
        self.folder.mkdir()
        self.words = list(words)  # options for its clients
        conf = f"listener {self.port} 127.0.0.1\npersistence true\npersistence_location {self.folder}/\n"
        conf += "max_queued_messages 0\nmax_inflight_messages 0\nset_tcp_nodelay true\n"
        if os.geteuid() == 0:
            conf += "user root\n"
        (self.folder / "conf").write_text(conf + more)
        self.process: subprocess.Popen[bytes] | None = None
        self.clients: list[subprocess.Popen[Any]] = []
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen([BROKER, "-c", self.folder / "conf"], stdout=log, stderr=log)
        log.close()

        def answers() -> bool:
            assert self.process
            assert self.process.poll() is None, (self.folder / "log").read_text()
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.port)) == 0

        try:
            until(answers, "mosquitto listens")
        except BaseException:
            end(self.process, signal.SIGKILL)
            raise

    def save_each_change(self) -> None:
        """As in docs/howto/power-mqtt.md: otherwise a broker that is killed also forgets its subscribers."""
        self.stop()
        with (self.folder / "conf").open("a") as conf:
            conf.write("autosave_on_changes true\nautosave_interval 1\n")
        self.start()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self.process
        end(self.process, how)

    def log_end(self) -> str:
        """The last lines of its log, for the words of a failure."""
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def client(self, program: str, *words: str, **options: Any) -> subprocess.Popen[Any]:
        host = "localhost" if "--cafile" in self.words else "127.0.0.1"
        command = [program, "-h", host, "-p", str(self.port), *self.words, *words]
        one = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        self.clients.append(one)
        return one

    def publish(self, topic: str, payload: str | bytes, *words: str) -> None:
        raw = payload.encode() if isinstance(payload, str) else payload
        file = self.folder / "payload"
        file.write_bytes(raw)
        one = self.client("mosquitto_pub", "-V", "5", "-q", "1", "-t", topic, *words, "-f", str(file))
        told = one.communicate(timeout=30)
        assert one.returncode == 0, told

    def close(self) -> None:
        for one in self.clients:
            end(one, signal.SIGKILL)
        if self.process:
            end(self.process)


def packet(first: int, body: bytes, length: int | None = None) -> bytes:
    """An MQTT packet; with `length` it claims that length, whatever its body has."""
    left = len(body) if length is None else length
    out = bytes([first])
    while True:
        left, digit = left >> 7, left & 127
        out += bytes([digit | (128 if left else 0)])
        if not left:
            return out + body


def message(topic: str, payload: bytes, qos: int = 0, number: int = 1, length: int | None = None) -> bytes:
    """PUBLISH of MQTT 5, without properties."""
    head = struct.pack(">H", len(topic)) + topic.encode() + (struct.pack(">H", number) if qos else b"")
    return packet(0x30 | qos << 1, head + b"\0" + payload, length)


class StandIn:
    """A stranger at a broker's address: accepts each connection, and sends the answers that a test chooses."""

    ACCEPTED = packet(0x20, b"\0\0\0")  # CONNACK

    def __init__(self, sends: Iterable[bytes], tls: ssl.SSLContext | None = None, reads: bool = True) -> None:
        """sends: data after the bridge's first packet, as far as the bridge reads it. reads: whether received data is
        read too.
        """
        self.sends, self.tls, self.reads = list(sends), tls, reads
        self.connections = self.sent = 0
        self.received = b""
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.server.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self.server.accept()
                self.connections += 1
                with suppress(OSError), one:
                    one.settimeout(20)
                    with self.tls.wrap_socket(one, server_side=True) if self.tls else one as talk:
                        self._talk(talk)

    def _talk(self, talk: socket.socket) -> None:
        self.received += talk.recv(65536)
        for part in self.sends:
            talk.sendall(part)
            self.sent += len(part)
        while self.reads and (came := talk.recv(65536)):
            self.received += came

    def close(self) -> None:
        """A conversation in progress ends when the bridge does, or after 20 s."""
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)  # this ends accept(); close() does not
        self.server.close()


class Heard:
    """The messages that one mosquitto_sub receives, as JSON with properties."""

    def __init__(self, broker: Broker, *filters: str) -> None:
        # Retained messages under the last filter arrive when the broker has all filters.
        self.here = f"here/{uuid.uuid4().hex}"
        broker.publish(self.here, "here", "-r")
        words = [word for one in (*filters, self.here) for word in ("-t", one)]
        self.process = broker.client("mosquitto_sub", "-V", "5", "-q", "1", "-F", "%j", *words)
        self.messages: list[dict[str, Any]] = []
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        until(lambda: self.under(self.here), "it is subscribed")

    def _read(self) -> None:
        assert self.process.stdout
        try:
            for line in self.process.stdout:
                self.lines.put(line)
        except ValueError:
            pass  # it was closed

    def _come(self) -> list[dict[str, Any]]:
        while not self.lines.empty():
            self.messages.append(json.loads(self.lines.get()))
        return self.messages

    def all(self) -> list[dict[str, Any]]:
        return [message for message in self._come() if message["topic"] != self.here]

    def under(self, topic: str) -> list[dict[str, Any]]:
        return [message for message in self._come() if message["topic"] == topic]


class Site:
    """A bus for one test, by its domain."""

    def __init__(self, folder: Path, over: str, cluster: str = "alpha", keys: bool = False) -> None:
        self.folder, self.cluster = folder / f"{cluster}-{uuid.uuid4().hex[:6]}", cluster
        self.folder.mkdir()
        (self.folder / "site.idl").write_text(TYPES)
        secured = within_keys(self.folder) if keys else ""
        (self.folder / "bus.xml").write_text(
            f'<sonde-bus version="1"><profile name="power" domain="{a_domain()}" implementation="{over}">'
            '<types idl="site.idl"/><topic name="Orders" type="site::Order" history="keep-all"/>'
            '<topic name="Monitor_report_reading" type="site::Reading" history="keep-all"/>'
            '<topic name="Monitor_report_blob" type="site::Order" depth="4096"/>'
            f'<topic name="Plain" type="site::Plain" depth="4096"/>{secured}</profile></sonde-bus>'
        )
        self.bus = bus.open(self.folder / "bus.xml")
        self.bridges: list[Bridge] = []

    def bridge(self, broker: str, lines: str, name: str = "b", **options: Any) -> Bridge:
        one = Bridge(self, broker, lines, name, **options)
        self.bridges.append(one)
        return one

    def close(self) -> None:
        for bridge in self.bridges:
            bridge.kill()
        self.bus.close()


class Bridge:
    """sonde-powerd mqtt-bridge."""

    def __init__(
        self, site: Site, broker: str, lines: str, name: str, wait: bool = True, more: str = ""
    ) -> None:
        self.site, self.name = site, name
        self.config = site.folder / f"{name}.toml"
        self.port = 0 if "metrics =" in lines else free_port()
        metrics = f'metrics = "127.0.0.1:{self.port}"\n' if self.port else ""
        self.config.write_text(
            f'cluster = "{site.cluster}"\n[bus]\nprofile = "bus.xml"\n[budget]\npower_limit = "1kW"\n'
            f'[[nodes]]\nhosts = "n[1-4]"\nmin = 50\nmax = 300\nsafe = 60\n{more}\n'
            f'[mqtt-bridge]\nname = "{name}"\nbroker = "{broker}"\nstate = "state"\n{metrics}{lines}\n'
        )
        self.start(wait)

    def start(self, wait: bool = True) -> None:
        self.events: list[dict[str, Any]] = []
        with (self.site.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                powerd("mqtt-bridge", self.config),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.reading = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self.reading.start()
        if wait:
            self.wait_for("connected")

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        for line in process.stdout:
            self.events.append(json.loads(line))

    def counted(self) -> dict[str, int]:
        """Its counters up to now, by the names of its metrics without prefix and _total."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=20) as answer:
            lines = [
                line.split()
                for line in answer.read().decode().splitlines()
                if line[0] != "#" and "{" not in line
            ]
        prefix, total = "sonde_power_bridge_", "_total"
        return {name.removeprefix(prefix).removesuffix(total): int(n) for name, n in lines}

    def told(self, event: str) -> list[dict[str, Any]]:
        return [one for one in list(self.events) if one["event"] == event]

    def troubles(self) -> set[str]:
        return {one["code"] for one in self.told("trouble")}

    def wait_for(self, event: str, times: int = 1) -> dict[str, Any]:
        def there() -> list[dict[str, Any]]:
            going = self.reading.is_alive()  # checked before the lines: it ends when the last line was read
            found = self.told(event)
            if len(found) >= times:
                return found
            assert going, (self.site.folder / "log").read_text()
            return []

        return dict(until(there, f"{event}; {self.events}")[-1])

    def end(self) -> dict[str, Any]:
        """In order; the last one counts."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0, (self.site.folder / "log").read_text()
        self.reading.join(10)
        self._close()
        return dict(self.told("end")[-1])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reading.join(10)
        self._close()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
