"""The client for Python over `null`: no DDS, no network."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("sonde._bus", reason="the bus is not built")

from sonde.bus import client as bus
from sonde.bus.errors import BusError, Refused, TimedOut
from sonde.core.errors import UsageError

IDL = """
module site {
  enum State { ON, OFF };
  struct Core { @unit("W") double power_w; octet id; };
  struct Node {
    @key string name;
    @unit("W") double power_w;
    sequence<double> cores_w;
    sequence<octet> raw;
    long counts[3];
    State state;
    Core first;
    unsigned long long total;
  };
  struct Flags { boolean of[16777217]; };
  struct Wide { long number; sequence<Flags> flags; };
  struct Question { string what; };
  struct Number { double value; };
};
"""


@pytest.fixture
def here(tmp_path, request):
    (tmp_path / "site.idl").write_text(IDL)
    domain = 1 + sum(request.node.nodeid.encode()) % 200
    with bus.open(
        idl=tmp_path / "site.idl", topics={"Power": "site::Node"}, domain=domain, implementation="null"
    ) as made:
        yield made


@pytest.fixture
def power(here):
    with here.reader("Power") as reader, here.writer("Power") as writer:
        assert writer.wait_matched(1, 5)
        yield SimpleNamespace(reader=reader, writer=writer)


def test_a_sample_comes_as_it_was_written(power):
    value = {
        "name": "n017",
        "power_w": 211.5,
        "cores_w": [20.0, 21.5],
        "raw": b"\x00\xff",
        "counts": [1, -2, 3],
        "state": "OFF",
        "first": {"power_w": 1.5, "id": 7},
        "total": 2**64 - 1,
    }
    power.writer.write(value)
    (sample,) = power.reader.samples(timeout_s=0.5)
    assert sample.value == value
    assert sample["power_w"] == 211.5
    assert (sample.state, sample.has_data) == ("alive", True)
    assert sample.writer == power.writer._native.guid


def test_what_is_left_out_is_zero_and_numpy_is_taken(power):
    power.writer.write(name="n1", cores_w=np.arange(3, dtype="f4"), total=np.uint64(5))
    (sample,) = power.reader.samples(timeout_s=0.5)
    assert sample["cores_w"] == [0.0, 1.0, 2.0]
    assert sample["total"] == 5
    assert (sample["power_w"], sample["counts"], sample["state"], sample["raw"]) == (
        0.0,
        [0, 0, 0],
        "ON",
        b"",
    )


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"nam": "x"}, "nam"),
        ({"name": "a\0b"}, "name"),
        ({"total": -1}, "total"),
        ({"counts": [1, 2]}, "counts"),
        ({"state": "HALF"}, "state"),
        ({"first": {"id": 256}}, "id"),
        ({"power_w": "much"}, "power_w"),
        ({"total": 2**70}, "64 bits"),
        ({"first": object()}, "object"),
    ],
)
def test_a_value_that_is_none_of_the_type_is_reported_and_not_sent(power, value, what):
    with pytest.raises(UsageError, match=what) as told:
        power.writer.write(value)
    assert told.value.code == "bus.bad_value"
    assert power.reader.take() == []
    assert power.writer.status()["samples"] == 0


def test_an_instance_that_is_disposed_is_reported(power):
    power.writer.write(name="n1", power_w=5)
    power.writer.dispose(name="n1")
    assert [sample.state for sample in power.reader.samples(timeout_s=0.5)][-1] == "disposed"


def test_a_sample_with_too_many_values_costs_none_of_the_others(here):
    with here.reader("Wide", type="site::Wide") as reader, here.writer("Wide", type="site::Wide") as writer:
        assert writer.wait_matched(1, 5)
        came = []
        for number, flags in enumerate([[], [], [{}], [], [{}], [{}], [], []]):
            writer.write(number=number, flags=flags)
        for _ in range(3):
            with pytest.raises(UsageError, match="more than 16777216 values") as told:
                came.extend(sample["number"] for sample in reader.samples(timeout_s=0))
            assert told.value.code == "bus.too_large"
        came += [sample["number"] for sample in reader.take(1)]
        assert came == [0, 1, 3, 6]
        assert [sample["number"] for sample in reader.samples(timeout_s=0)] == [7]


@pytest.fixture
def asking(here):
    def handler(body):
        if body["what"] == "nothing":
            raise Refused("bus.denied", "not for you", reply="denied")
        return {"value": {"power": 211.5}[body["what"]]}

    words = {"request": "site::Question", "reply": "site::Number"}
    with here.serve("Ask", handler, name="n017", **words), here.client("Ask", **words) as made:
        yield made


def test_a_request_is_answered(asking):
    reply = asking.call({"what": "power"}, target="n0*", timeout_s=5)
    assert (reply.body, reply.server) == ({"value": 211.5}, "n017")
    assert asking.counts()["answered"] == 1


def test_what_a_handler_raises_is_told_to_who_asked(asking):
    with pytest.raises(Refused, match="server 'n017' refused: KeyError: 'energy'") as told:
        asking.call({"what": "energy"}, timeout_s=5)
    assert told.value.reply == "failed"
    with pytest.raises(Refused, match="not for you") as told:
        asking.call({"what": "nothing"}, timeout_s=5)
    assert told.value.reply == "denied"


def test_nobody_of_that_name_is_a_timeout(asking):
    with pytest.raises(TimedOut, match="n018"):
        asking.call({"what": "power"}, target="n018", timeout_s=0.3)


def test_threads_ask_at_once(asking):
    seen = []
    threads = [
        threading.Thread(target=lambda: seen.append(asking.call({"what": "power"}).body["value"]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [211.5] * 8


def test_what_is_closed_says_so(here):
    writer = here.writer("Power")
    writer.close()
    writer.close()
    with pytest.raises(UsageError, match="closed"):
        writer.write(name="x")
    here.close()
    with pytest.raises(UsageError, match="closed"):
        here.writer("Power")


def test_what_is_not_known_is_named(here):
    with pytest.raises(UsageError, match="Powr"):
        here.reader("Powr")
    with pytest.raises(UsageError, match="no type 'site::Nod'"):
        here.reader("Other", type="site::Nod")
    with pytest.raises(BusError, match="nonesuch"):  # it may be right, and only not installed
        bus.open(implementation="nonesuch")


def test_a_profile_file_and_words_beside_it_are_too_much(tmp_path):
    with pytest.raises(UsageError, match="together with"):
        bus.open(tmp_path / "bus.xml", domain=3)
