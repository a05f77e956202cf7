"""A stranger on another host sends DDS datagrams to each port of a bus that is on loopback alone.

The stranger does not run a DDS: that would wait for answers, and a bus on loopback has no address from which it could
send any. The test builds the messages in DDSI-RTPS 2.2 itself: they announce a participant with a writer and a reader,
and a sample.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sonde._bus", reason="the bus is not built")

from sonde._bus import implementations

from sonde.cluster import Cluster, plan, run
from watching import wait_for

MISSING = [name for name in run.PROGRAMS if not shutil.which(name, path=run.program_path(os.environ))]
OVER = [name for name in ("cyclonedds", "fastdds") if name in implementations()]
pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not OVER, reason="no DDS is here"),
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)}: not there"),
]

GROUP = "239.255.0.1"  # DDSI-RTPS 2.2, 9.6.1.4.1
INNER = "10.99.7.1"
V6 = Path("/proc/net/if_inet6").exists()
V6_ADDRESSES = ("fd07::1", "fd07::2")
needs_v6 = pytest.mark.skipif(not V6, reason="no IPv6 here")
DOMAIN = 7
FORGED, WITNESSED = 666, 1

# Programs on the attacked host. argv: profile, implementation, role. Each prints "ready" and its UDP ports, and then
# answers each input line.
HERE = """
import json, os, re, sys
import sonde.bus.client as bus

def ports():
    inodes = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            inodes |= set(re.findall(r"socket:.(\\d+)", os.readlink(f"/proc/self/fd/{fd}")))
        except OSError:
            pass
    rows = [line.split() for name in ("udp", "udp6") for line in open(f"/proc/self/net/{name}").readlines()[1:]]
    return sorted({int(row[1].split(":")[1], 16) for row in rows if row[9] in inodes})

def say(**what):
    print(json.dumps(what), flush=True)

with bus.open_text(sys.argv[1], implementation=sys.argv[2]) as here:
    if sys.argv[3] == "witness":
        with here.writer("numbers") as writer:
            say(ready=writer.wait_matched(1, 60), ports=ports(), guid=here.guid)
            for line in sys.stdin:
                writer.write(n=int(line))
                say(written=int(line))
    else:
        with here.reader("numbers") as reader, here.writer("secrets") as writer:
            say(ready=reader.wait_matched(1, 60), ports=ports(), guid=here.guid)
            for line in sys.stdin:
                writer.write(n=int(line))
                seen = []
                for sample in reader.samples(timeout_s=60):
                    seen.append(sample["n"])
                    if sample["n"] == int(line):
                        break
                say(seen=seen, peers=[peer["guid"] for peer in here.peers()])
"""

# On the stranger's host. argv: its address. Sends the contents of each line of stdin; for an empty line it prints what
# it received.
THERE = """
import json, socket, sys
kind = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(kind, socket.SOCK_DGRAM) as here:
    here.bind(socket.getaddrinfo(sys.argv[1], 0, kind)[0][4])
    if kind == socket.AF_INET:
        here.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
    here.setblocking(False)
    print(json.dumps({"port": here.getsockname()[1]}), flush=True)
    for line in sys.stdin:
        came = []
        if line.strip():
            sent = json.loads(line)
            for host, port in sent["to"]:
                where = socket.getaddrinfo(host, port, kind)[0][4]
                for datagram in sent["datagrams"]:
                    try:
                        here.sendto(bytes.fromhex(datagram), where)
                    except ConnectionRefusedError:
                        pass  # nobody has the port: the report on an earlier datagram
        else:
            while True:
                try:
                    came.append(here.recv(65536).hex())
                except BlockingIOError:
                    break
                except ConnectionRefusedError:
                    continue
        print(json.dumps({"came": came}), flush=True)
"""

# Another program on the attacked host that has joined the group on the interface that the stranger reaches.
LISTENER = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
    joined = socket.inet_aton(sys.argv[1]) + socket.inet_aton(sys.argv[2])
    here.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
    print("{}", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with Cluster.up(f"l{uuid.uuid4().hex[:8]}", 2) as cluster:
        # An interface that leads nowhere, and that a profile may name.
        cluster.run(0, ["ip", "link", "add", "inner", "type", "veth", "peer", "name", "end"])
        cluster.run(0, ["ip", "address", "add", f"{INNER}/24", "dev", "inner"])
        for name in ("inner", "end"):
            cluster.run(0, ["ip", "link", "set", name, "up"])
        enabled = f"/proc/sys/net/ipv6/conf/{plan.DEVICE}/disable_ipv6"
        for node in range(2 if V6 else 0):
            address = f"ip -6 address replace {V6_ADDRESSES[node]}/64 dev {plan.DEVICE} nodad"
            cluster.run(node, ["sh", "-c", f"echo 0 >{enabled} && {address}"])
        yield cluster
        assert wait_for(lambda: cluster.reaper.inside() == [])


# DDSI-RTPS 2.2, 8.3 and 9.4


@dataclass(frozen=True)
class Participant:
    """A participant that announces its address as `place`."""

    prefix: bytes
    place: tuple[str, int]

    def message(self, *submessages: bytes) -> str:
        """In hexadecimal."""
        return (b"RTPS\x02\x01\x01\x7f" + self.prefix + b"".join(submessages)).hex()

    def entity(self, entity: bytes) -> bytes:
        return self.prefix + entity

    def announced(self) -> str:
        """The announcement of the participant, for every listener."""
        payload = parameters(
            (0x15, b"\x02\x01\0\0"),  # protocol version
            (0x16, b"\x01\x7f\0\0"),  # vendor
            (0x50, self.entity(b"\0\0\x01\xc1")),
            (0x58, struct.pack("<I", 0xC3F)),  # the builtin endpoints that it has
            (0x02, struct.pack("<iI", 600, 0)),  # lease
            (0x31, locator(*self.place)),  # default unicast
            (0x32, locator(*self.place)),  # metatraffic unicast
        )
        return self.message(data(b"\0\x01\0\xc7", b"\0\x01\0\xc2", 1, payload))

    def endpoint(self, entity: bytes, topic: str) -> list[str]:
        """A best-effort writer (…03) or reader (…04), announced by the reliable writer for that purpose."""
        writes = entity[3] == 0x03
        builtin = b"\0\0\x03" if writes else b"\0\0\x04"
        reader, writer = builtin + b"\xc7", builtin + b"\xc2"
        payload = parameters(
            (0x15, b"\x02\x01\0\0"),
            (0x16, b"\x01\x7f\0\0"),
            (0x5A, self.entity(entity)),
            (0x70, self.entity(entity)),
            (0x50, self.entity(b"\0\0\x01\xc1")),
            (0x05, text(topic)),
            (0x07, text("t::Number")),
            (0x1A, struct.pack("<IiI", 1, 0, 0)),  # best effort
            (0x2F, locator(*self.place)),
        )
        heartbeat = submessage(0x07, 3, reader + writer + struct.pack("<iIiIi", 0, 1, 0, 1, 1))
        return [self.message(heartbeat), self.message(data(reader, writer, 1, payload))]

    def sample(self, entity: bytes, sequence: int, n: int) -> str:
        return self.message(data(b"\0\0\0\0", entity, sequence, b"\0\x01\0\0" + struct.pack("<i", n)))


def submessage(number: int, flags: int, body: bytes) -> bytes:
    return struct.pack("<BBH", number, flags, len(body)) + body


def data(reader: bytes, writer: bytes, sequence: int, payload: bytes) -> bytes:
    timestamp = submessage(0x09, 1, struct.pack("<II", 1_600_000_000, 0))
    return timestamp + submessage(
        0x15, 5, struct.pack("<HH", 0, 16) + reader + writer + struct.pack("<iI", 0, sequence) + payload
    )


def parameters(*of: tuple[int, bytes]) -> bytes:
    each = [struct.pack("<HH", number, len(value)) + value for number, value in of]
    return b"\0\x03\0\0" + b"".join(each) + struct.pack("<HH", 1, 0)


def text(word: str) -> bytes:
    ended = word.encode() + b"\0"
    return struct.pack("<I", len(ended)) + ended + bytes(-len(ended) % 4)


def locator(host: str, port: int) -> bytes:
    if ":" in host:
        return struct.pack("<iI", 2, port) + socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return struct.pack("<iI", 1, port) + bytes(12) + socket.inet_aton(host)


# the attack


class Program:
    """A program in a node that answers each line with one of JSON."""

    def __init__(self, nodes: Cluster, node: int, script: str, *words: str) -> None:
        self.process = nodes.popen(
            node, [sys.executable, "-c", script, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        assert line, "the program has ended"
        return json.loads(line)

    def ask(self, line: object) -> dict[str, Any]:
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.answer()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.stdin.close()
            self.process.stdout.read()


def profile(transport: str = '<transport kind="udp4"/>', discovery: str = "", more: str = "") -> str:
    topics = "".join(
        f'<topic name="{name}" type="t::Number" reliability="best-effort"/>'
        for name in ("numbers", "secrets")
    )
    return (
        f'<sonde-bus version="1"><profile name="default" domain="{DOMAIN}" {more}>{transport}{discovery}'
        f'<types><struct name="t::Number"><field name="n" type="int32"/></struct></types>{topics}</profile></sonde-bus>'
    )


@dataclass(frozen=True)
class Came:
    """The result of an attack."""

    samples: list[int]  # taken by the bus's reader
    known: bool  # whether the bus accepts the stranger as a participant
    heard: list[str]  # data that the stranger received


@contextmanager
def attacked(nodes: Cluster, words: str, implementation: str) -> Iterator[Callable[..., Came]]:
    """attack(to, source, group) -> its result. Two programs of node 0 are on the bus; the stranger is node 1."""
    with ExitStack() as stack:
        victim = stack.enter_context(Program(nodes, 0, HERE, words, implementation, "victim"))
        witness = stack.enter_context(Program(nodes, 0, HERE, words, implementation, "witness"))
        others = stack.enter_context(Program(nodes, 0, LISTENER, GROUP, nodes.address(0)))
        others.answer()
        told = victim.answer()
        assert told["ready"]
        assert witness.answer()["ready"]

        def attack(to: str, source: str, group: bool = False) -> Came:
            with Program(nodes, 1, THERE, source) as there:
                port = there.answer()["port"]
                # The second one announces an address at which participants of a bus on loopback are.
                loopback = "::1" if ":" in source else "127.0.0.1"
                writer, reader = b"\0\0\x01\x03", b"\0\0\x02\x04"
                hosts = [to, *([GROUP] if group else [])]
                where = [(host, port) for host in hosts for port in told["ports"]]
                for begin, place in ((b"\x01\x7fs1", source), (b"\x01\x7fs2", loopback)):
                    stranger = Participant(begin + uuid.uuid4().bytes[:8], (place, port))
                    said = [
                        stranger.announced(),
                        *stranger.endpoint(writer, "numbers"),
                        *stranger.endpoint(reader, "secrets"),
                    ]
                    for sequence in range(1, 31):
                        sample = stranger.sample(writer, sequence, FORGED)
                        there.ask(json.dumps({"to": where, "datagrams": [*said, sample]}))
                witness.ask(WITNESSED)
                answer = victim.ask(WITNESSED)
                heard = there.ask("")["came"]
            return Came(answer["seen"], any("017f73" in guid for guid in answer["peers"]), heard)

        yield attack


def check_open(nodes: Cluster, implementation: str, kind: str, to: str, source: str) -> None:
    transport = f'<transport kind="{kind}" interfaces="{to}"/>'
    with attacked(nodes, profile(transport, more='unprotected="yes"'), implementation) as attack:
        came = attack(to, source)
    assert FORGED in came.samples
    assert came.known
    assert came.heard


@pytest.mark.parametrize("implementation", OVER)
def test_a_bus_on_a_named_interface_without_keys_is_open_to_whoever_reaches_it(
    nodes: Cluster, implementation: str
):
    """Shows that the attack works: it succeeds if a profile allows it."""
    check_open(nodes, implementation, "udp4", nodes.address(0), nodes.address(1))


@needs_v6
@pytest.mark.skipif("cyclonedds" not in OVER, reason="no Cyclone DDS is here")
def test_and_so_it_is_by_ipv6(nodes: Cluster):
    check_open(nodes, "cyclonedds", "udp6", *V6_ADDRESSES)


@pytest.mark.parametrize("discovery", ["simple", "peers"])
@pytest.mark.parametrize("implementation", OVER)
def test_a_stranger_on_another_host_neither_writes_to_nor_reads_from_a_bus_on_loopback(
    nodes: Cluster, implementation: str, discovery: str
):
    peers = '<discovery kind="peers" peers="localhost:4"/>' if discovery == "peers" else ""
    with attacked(nodes, profile(discovery=peers), implementation) as attack:
        came = attack(nodes.address(0), nodes.address(1), group=True)
    assert came == Came([WITNESSED], False, [])


@needs_v6
@pytest.mark.parametrize("implementation", OVER)
def test_loopback_of_ipv6_is_as_closed(nodes: Cluster, implementation: str):
    with attacked(nodes, profile('<transport kind="udp6"/>'), implementation) as attack:
        came = attack(*V6_ADDRESSES)
    assert came == Came([WITNESSED], False, [])


@pytest.mark.parametrize("implementation", OVER)
def test_an_interface_that_the_profile_does_not_name_takes_nothing(nodes: Cluster, implementation: str):
    transport = f'<transport kind="udp4" interfaces="{INNER}"/>'
    with attacked(nodes, profile(transport, more='unprotected="yes"'), implementation) as attack:
        came = attack(nodes.address(0), nodes.address(1), group=True)
    assert came == Came([WITNESSED], False, [])


# Opens a bus after this process has loaded Cyclone DDS itself, so that none of Sonde's code is between that and the
# system. argv: attributes of the profile.
AFTER = """
import ctypes, ctypes.util, json, sys
import sonde.bus.client as bus
from sonde.core.errors import SondeError
assert ctypes.CDLL(ctypes.util.find_library("ddsc"))
try:
    with bus.open_text(
        f'<sonde-bus version="1"><profile name="default" domain="{sys.argv[1]}" {sys.argv[2]}/></sonde-bus>',
        implementation="cyclonedds",
    ):
        print(json.dumps({}))
except SondeError as error:
    print(json.dumps({"code": error.code, "text": str(error), "hint": error.hint}))
"""


@pytest.mark.skipif("cyclonedds" not in OVER, reason="no Cyclone DDS is here")
def test_a_bus_whose_sockets_cannot_be_confined_is_not_opened(nodes: Cluster):
    def opened(more: str) -> dict[str, str]:
        return json.loads(nodes.run(0, [sys.executable, "-c", AFTER, str(DOMAIN), more]).stdout)

    refused = opened("")
    assert refused["code"] == "bus.open"
    assert "this process had loaded Cyclone DDS before Sonde's bus" in refused["text"]
    assert 'unprotected="yes"' in refused["hint"]
    assert opened('unprotected="yes"') == {}
