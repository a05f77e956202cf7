"""Samples as values, and what was heard last."""

from __future__ import annotations

import math

import pytest

from sonde.power.stack.telemetry import (
    CLUSTER,
    NODE,
    STALE_S,
    TYPES,
    ClusterSample,
    JobSample,
    Latest,
    NodeSample,
    known,
    read,
    source_of,
    total,
)

LEASE = {
    "cap_w": 230.0,
    "lease_w": 230.0,
    "left_s": 2.0,
    "leased": True,
    "seen_epoch": 3,
    "seen_manager": "m1",
}
SAID = {
    "node": "n1",
    "at_ns": 5,
    "period_s": 1.0,
    "source": "SOURCE_SIMULATED",
    "power_w": math.inf,
    "energy_j": 7.0,
    "lease": LEASE,
    "trouble": "",
    "domains": [],
    "frequencies": [],
    "sensors": [],
}


def test_a_sample_is_read_and_what_cannot_be_is_not_known():
    one = read(NODE, SAID)
    assert isinstance(one, NodeSample)
    assert (one.node, one.source, one.cap_w, one.epoch, one.leased) == ("n1", "simulated", 230.0, 3, True)
    assert math.isnan(one.power_w)
    assert [known(value) for value in (3, "4.5")] == [3.0, 4.5]
    assert all(math.isnan(known(value)) for value in (None, "x", math.nan, -math.inf))
    assert source_of("SOURCE_IPMI") == "ipmi"


def test_what_lacks_a_field_is_refused():
    with pytest.raises(KeyError):
        read(NODE, {"node": "n1"})


def test_an_older_sample_does_not_replace_a_newer():
    latest = Latest()
    assert latest.take(NodeSample("n1", 10, power_w=1.0), 100.0)
    assert not latest.take(NodeSample("n1", 9, power_w=2.0), 100.1)
    assert latest.nodes["n1"].power_w == 1.0
    assert latest.samples[NODE] == 2
    assert latest.age_s(NODE, "n1", 103.0) == pytest.approx(3)


def test_of_managers_the_epoch_counts_before_the_clock():
    latest = Latest()
    latest.take(ClusterSample("demo", 10, "m1", epoch=2), 0.0)
    assert not latest.take(ClusterSample("demo", 99, "m0", epoch=1), 0.1)
    assert latest.take(ClusterSample("demo", 5, "m2", epoch=3), 0.2)
    assert latest.clusters["demo"].manager == "m2"


def test_one_wrong_time_does_not_silence_a_node_for_ever():
    latest = Latest()
    latest.take(NodeSample("n1", 1 << 62), 0.0)
    assert not latest.take(NodeSample("n1", 10), STALE_S - 1)
    assert latest.take(NodeSample("n1", 10), STALE_S + 1)


def test_jobs_are_forgotten_and_nodes_are_not():
    latest = Latest()
    latest.take(JobSample("17", 1), 0.0)
    latest.take(NodeSample("n1", 1), 0.0)
    latest.forget(601.0, 600.0)
    assert (list(latest.jobs), list(latest.nodes)) == ([], ["n1"])
    assert latest.age_s(CLUSTER, "demo", 5.0) == math.inf


def test_sums_of_what_is_known():
    assert total([1.0, math.nan, 2.0]) == 3
    assert math.isnan(total({}))


def test_types_are_those_of_the_idl():
    power = pytest.importorskip("sonde._power", reason="the power stack is not built")
    for kind in TYPES.values():
        assert f"struct {kind.rpartition(':')[2]} " in power.idl()
