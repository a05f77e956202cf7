"""A peer that is not ours: Cyclone DDS' own Python package, from PyPI, another version than the one behind the bus."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import uuid

import pytest

from claimed import free_domain

pytest.importorskip("sonde._bus", reason="the bus is not built")
pytest.importorskip("cyclonedds", reason="no foreign peer for this Python")

from sonde._bus import implementations

from sonde.bus import client as bus

OVER = [name for name in ("cyclonedds", "fastdds") if name in implementations()]

IDL = """
module t {
  enum State { OFF, ON };
  struct Inner { octet id; @unit("W") double power_w; };
  struct Node {
    @key string name;
    long number;
    double power_w;
    boolean up;
    State state;
    Inner inner;
    sequence<double> cores_w;
    sequence<octet> raw;
    short grid[3];
    unsigned long long total;
  };
};
"""

# argv: domain, topic, "echo" or "end". Echoes each sample on <topic>_back with number + 1, until its input ends.
PEER = """
import sys, threading
from dataclasses import dataclass
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlEnum, IdlStruct
from cyclonedds.idl.annotations import key
from cyclonedds.idl.types import array, float64, int16, int32, sequence, uint8, uint64
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

class State(IdlEnum, typename="t::State", default="OFF"):
    OFF = 0
    ON = 1

@dataclass
class Inner(IdlStruct, typename="t::Inner"):
    id: uint8
    power_w: float64

@dataclass
class Node(IdlStruct, typename="t::Node"):
    name: str
    key("name")
    number: int32
    power_w: float64
    up: bool
    state: State
    inner: Inner
    cores_w: sequence[float64]
    raw: sequence[uint8]
    grid: array[int16, 3]
    total: uint64

qos = Qos(Policy.Reliability.Reliable(1_000_000_000), Policy.History.KeepLast(64), Policy.Durability.TransientLocal)
here = DomainParticipant(int(sys.argv[1]))
reader = DataReader(here, Topic(here, sys.argv[2], Node), qos=qos)
writer = DataWriter(here, Topic(here, sys.argv[2] + "_back", Node), qos=qos)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
while not ended.is_set():
    for sample in reader.take(64):
        if isinstance(sample, Node):
            sample.number += 1
            writer.write(sample)
        else:
            print(sample.sample_info.instance_state, flush=True)
    ended.wait(0.02)
"""

VALUE = {
    "name": "n017",
    "number": 41,
    "power_w": 211.5,
    "up": True,
    "state": "ON",
    "inner": {"id": 200, "power_w": -0.25},
    "cores_w": [1.5, 2.5],
    "raw": bytes(range(5)),
    "grid": [-1, 0, 32767],
    "total": 2**64 - 1,
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("implementation", OVER)
def test_what_a_foreign_peer_reads_and_writes_is_what_was_written(sonde, implementation):
    (sonde.cwd / "t.idl").write_text(IDL)
    topic, domain = f"t_{uuid.uuid4().hex[:8]}", free_domain()
    (sonde.cwd / "bus.xml").write_text(
        f'<sonde-bus version="1"><profile name="default" domain="{domain}"><types idl="t.idl"/>'
        + "".join(
            f'<topic name="{name}" type="t::Node" durability="transient-local"/>'
            for name in (topic, f"{topic}_back")
        )
        + "</profile></sonde-bus>"
    )
    # Both on loopback alone: a peer that listens elsewhere is not found there.
    interfaces = "<Interfaces><NetworkInterface address='127.0.0.1'/></Interfaces>"
    own = f"<CycloneDDS><Domain><General>{interfaces}</General></Domain></CycloneDDS>"
    peer = subprocess.Popen(
        [sys.executable, "-c", PEER, str(domain), topic],
        env=sonde.env | {"CYCLONEDDS_URI": own}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with (
            bus.open(sonde.cwd / "bus.xml", implementation=implementation) as here,
            here.writer(topic) as writer,
            here.reader(f"{topic}_back") as reader,
        ):
            assert writer.wait_matched(1, 30)
            assert reader.wait_matched(1, 30)
            writer.write(VALUE)
            sample = next(reader.samples(timeout_s=30))
            assert sample.value == VALUE | {"number": 42}
            assert reader.status()["malformed"] == 0
            # Fast DDS tells of a disposal no more than the key's hash, of which the peer can make no name.
            if implementation == "cyclonedds":
                writer.dispose(name="n017")
                assert peer.stdout.readline() == "32\n"  # DDS_NOT_ALIVE_DISPOSED_INSTANCE_STATE
        peer.communicate("", timeout=30)
    finally:
        peer.kill()
        peer.wait()
    assert peer.returncode == 0


# Keys by how they become key hashes: 8 bytes lie otherwise in XCDR versions 1 and 2, which decides about the bytes of
# the hash, and about whether it is one; texts may be short by chance.
KEYED = {
    "Number": (["a"], {"a": "uint32"}),
    "Padded": (["a", "b"], {"a": "uint32", "b": "uint64"}),
    "Byted": (["a", "b"], {"a": "uint8", "b": "float64"}),
    "Between": (["a", "b", "c"], {"a": "uint32", "b": "uint64", "c": "uint32"}),
    "Brief": (["a"], {"a": "bounded_str[7]"}),
    "Text": (["a"], {"a": "str"}),
    "Named": (["a"], {"a": "str"}),
}
# Longer than 12 bytes. Without a hash beside it Fast DDS 2.9 does not look at the key of a disposal then.
LONG = ("Padded", "Byted", "Between", "Named")
IDL_OF = {
    "uint8": "octet",
    "uint32": "unsigned long",
    "uint64": "unsigned long long",
    "float64": "double",
    "str": "string",
    "bounded_str[7]": "string<7>",
}

CLASSES = [
    f"@dataclass\nclass {name}(IdlStruct, typename='t::{name}'):\n"
    + "".join(
        f"    {field}: {kind}\n" + f"    key({field!r})\n" * (field in keys) for field, kind in fields.items()
    )
    + "    value: uint32\n"
    for name, (keys, fields) in KEYED.items()
]
IDL_KEYED = [
    f"module t {{ struct {name} {{ "
    + "".join("@key " * (field in keys) + f"{IDL_OF[kind]} {field}; " for field, kind in fields.items())
    + "unsigned long value; }; };\n"
    for name, (keys, fields) in KEYED.items()
]


def key_of(name: str, k: int) -> dict[str, object]:
    if name == "Named":
        return {"a": f"a name of more than sixteen bytes {k}"}
    values: dict[str, object] = {
        "uint8": 200 + k,
        "uint32": 2**31 + k,
        "uint64": 2**63 + k,
        "float64": -0.5 - k,
    }
    return {field: values.get(kind, f"n{k}") for field, kind in KEYED[name][1].items()}


# argv: domain, prefix of topics. Lines "write NAME VALUE KEY", "dispose NAME 0 KEY", KEY in JSON; "settle NAME N {}":
# wait for N readers that have acknowledged all. It says "seen NAME VALUE KEY", "ended NAME - KEY", "settled NAME N {}".
KEY_PEER = f"""
import json, queue, sys, threading, time
from dataclasses import dataclass
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import key
from cyclonedds.idl.types import bounded_str, float64, uint8, uint32, uint64
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
{"".join(CLASSES)}
qos = Qos(Policy.Reliability.Reliable(1_000_000_000), Policy.History.KeepAll, Policy.Durability.TransientLocal)
here = DomainParticipant(int(sys.argv[1]))
TYPES = {{name: globals()[name] for name in {list(KEYED)}}}
writers = {{n: DataWriter(here, Topic(here, f"{{sys.argv[2]}}_from_{{n}}", t), qos=qos) for n, t in TYPES.items()}}
readers = {{n: DataReader(here, Topic(here, f"{{sys.argv[2]}}_to_{{n}}", t), qos=qos) for n, t in TYPES.items()}}
lines = queue.Queue()
threading.Thread(target=lambda: [lines.put(line) for line in sys.stdin] + [lines.put("")], daemon=True).start()
while True:
    try:
        line = lines.get(timeout=0.02)
    except queue.Empty:
        pass
    else:
        if not line:
            break
        what, name, value, values = line.split(" ", 3)
        if what == "settle":
            while len(writers[name].get_matched_subscriptions()) < int(value):
                time.sleep(0.01)
            if writers[name].wait_for_acks(20_000_000_000):
                print("settled", name, value, "{{}}", flush=True)
            continue
        sample = TYPES[name](**json.loads(values), value=int(value))
        (writers[name].write if what == "write" else writers[name].dispose)(sample)
    for name, reader in readers.items():
        for sample in reader.take(64):
            whole = isinstance(sample, TYPES[name])
            if not whole and sample.sample_info.instance_state != 32:  # DDS_NOT_ALIVE_DISPOSED_INSTANCE_STATE
                continue
            of = sample if whole else sample.key_sample
            values = {{field: getattr(of, field) for field in TYPES[name].__annotations__ if field != "value"}}
            print("seen" if whole else "ended", name, sample.value if whole else "-", json.dumps(values), flush=True)
"""


class KeyPeer:
    """The process of KEY_PEER, on loopback; hashes: it sends key hashes with its samples."""

    def __init__(self, sonde, domain: int, prefix: str, hashes: bool) -> None:
        interfaces = "<Interfaces><NetworkInterface address='127.0.0.1'/></Interfaces>"
        internal = f"<Internal><GenerateKeyhash>{str(hashes).lower()}</GenerateKeyhash></Internal>"
        own = f"<CycloneDDS><Domain><General>{interfaces}</General>{internal}</Domain></CycloneDDS>"
        self.process = subprocess.Popen(
            [sys.executable, "-c", KEY_PEER, str(domain), prefix], env=sonde.env | {"CYCLONEDDS_URI": own},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def does(self, what: str, name: str, value: int, k: int) -> None:
        self.process.stdin.write(f"{what} {name} {value} {json.dumps(key_of(name, k))}\n")
        self.process.stdin.flush()

    def settles(self, name: str, readers: int) -> None:
        """So many readers of NAME have all that it wrote. Raises AssertionError where that takes 20 s."""
        self.process.stdin.write(f"settle {name} {readers} {{}}\n")
        self.process.stdin.flush()
        assert self._told(f"its readers of {name} have not all") == ("settled", name, str(readers), {})

    def says(self, what: str, name: str, value: object, k: int) -> None:
        """The next line that it says is this. Raises AssertionError, also where it says nothing for 20 s."""
        assert self._told(f"the peer was not told: {what} {name} {k}") == (
            what,
            name,
            str(value),
            key_of(name, k),
        )

    def _told(self, otherwise: str) -> tuple[str, str, str, object]:
        assert select.select([self.process.stdout], [], [], 20)[0], otherwise
        what, name, value, rest = self.process.stdout.readline().split(" ", 3)
        return what, name, value, json.loads(rest)

    def close(self) -> int:
        try:
            self.process.communicate("", timeout=30)
        finally:
            self.process.kill()
            self.process.wait()
        return self.process.returncode


def take(reader, n: int) -> list:
    """n samples, or as many as come within 20 s."""
    got: list = []
    for sample in reader.samples(timeout_s=20):
        got.append(sample)
        if len(got) >= n:
            break
    return got


@pytest.mark.timeout(300)
@pytest.mark.parametrize("hashes", [True, False])
@pytest.mark.parametrize("implementation", OVER)
def test_instances_and_their_end_are_the_same_for_a_foreign_peer(sonde, implementation, hashes):
    prefix, domain = f"k_{uuid.uuid4().hex[:8]}", free_domain()
    (sonde.cwd / "k.idl").write_text("".join(IDL_KEYED))
    (sonde.cwd / "bus.xml").write_text(
        f'<sonde-bus version="1"><profile name="default" domain="{domain}"><types idl="k.idl"/>'
        + "".join(
            f'<topic name="{prefix}_{way}_{name}" type="t::{name}" history="keep-all" durability="transient-local"/>'
            for name in KEYED
            for way in ("from", "to")
        )
        + "</profile></sonde-bus>"
    )
    peer = KeyPeer(sonde, domain, prefix, hashes)
    try:
        with bus.open(sonde.cwd / "bus.xml", implementation=implementation) as here:
            for name in KEYED:
                with (
                    here.writer(f"{prefix}_to_{name}") as writer,
                    here.reader(f"{prefix}_from_{name}") as reader,
                ):
                    assert writer.wait_matched(1, 30)
                    assert reader.wait_matched(1, 30)
                    for k in range(2):
                        writer.write(**key_of(name, k), value=k)
                        peer.says("seen", name, k, k)
                        peer.does("write", name, k, k)
                        assert [s.value for s in take(reader, 1)] == [key_of(name, k) | {"value": k}]
                    for k in (1, 0):
                        # Fast DDS' disposals are hashes, of which cyclonedds 11 makes no key, though some are one.
                        if implementation == "cyclonedds":
                            writer.dispose(**key_of(name, k))
                            peer.says("ended", name, "-", k)
                        if implementation == "fastdds" and not hashes and name in LONG:
                            continue
                        peer.does("dispose", name, 0, k)
                        ends = take(reader, 1)
                        assert [(s.state, s.has_data) for s in ends] == [("disposed", False)], name
                        assert {field: ends[0].value[field] for field in key_of(name, k)} == key_of(name, k)
                    assert reader.status()["malformed"] == 0
    finally:
        code = peer.close()
    assert code == 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("implementation", OVER)
def test_a_foreign_peers_key_hash_is_that_of_the_bus(sonde, implementation):
    prefix, domain = f"h_{uuid.uuid4().hex[:8]}", free_domain()
    (sonde.cwd / "k.idl").write_text("".join(IDL_KEYED))
    (sonde.cwd / "bus.xml").write_text(
        '<sonde-bus version="1"><types idl="k.idl"/>'
        + "".join(
            f'<profile name="{depth}" domain="{domain}">'
            + "".join(
                f'<topic name="{prefix}_from_{name}" type="t::{name}" depth="{depth}" durability="transient-local"/>'
                for name in KEYED
            )
            + "</profile>"
            for depth in (1, 64)
        )
        + "</sonde-bus>"
    )
    peer = KeyPeer(sonde, domain, prefix, hashes=True)
    try:
        with (
            bus.open(sonde.cwd / "bus.xml", "1", implementation=implementation) as here,
            bus.open(sonde.cwd / "bus.xml", "64", implementation=implementation) as there,
        ):
            alike = {}
            for name in KEYED:
                topic = f"{prefix}_from_{name}"
                with there.writer(topic) as writer, there.reader(topic) as all_of, here.reader(topic) as last:
                    assert writer.wait_matched(2, 30)
                    assert last.wait_matched(2, 30)
                    assert all_of.wait_matched(2, 30)
                    peer.does("write", name, 1, 0)
                    peer.does("write", name, 2, 1)
                    assert len(take(all_of, 2)) == 2
                    peer.settles(name, 2)  # it may have matched one reader later than the other
                    writer.write(**key_of(name, 0), value=3)
                    assert writer.wait_acknowledged(30)
                    # One sample of each instance: of two, if both peers' hashes are the same.
                    alike[name] = sorted(sample["value"] for sample in last.take())
    finally:
        code = peer.close()
    assert code == 0
    # cyclonedds 11 asks how long a text is, DDSI-RTPS how long it may be; Cyclone DDS' own readers ask for no hash.
    both = {name: implementation == "fastdds" and name == "Text" for name in KEYED}
    assert alike == {name: [1, 2, 3] if both[name] else [2, 3] for name in KEYED}
