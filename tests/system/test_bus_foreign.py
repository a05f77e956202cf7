"""A peer that is not ours: Cyclone DDS' own Python package, from PyPI, another version than the one behind the bus."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pytest

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
    topic, domain = f"t_{uuid.uuid4().hex[:8]}", 140 + OVER.index(implementation)
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
