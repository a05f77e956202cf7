"""One run against another: what was made worse is found, what was not is not."""

from __future__ import annotations

import numpy as np
import pytest
from probe_runs import made, near, planned, sealed
from whole_run import PLAN, dataset

import sonde
from sonde.bus.cases import Case
from sonde.bus.limits import diff
from sonde.bus.plan import Plan
from sonde.bus.variants import variant_of
from sonde.core.errors import DataError, UsageError


def summaries(*paths):
    out = []
    for path in paths:
        with sonde.open(path) as tree:
            out.append(tree["summary"].to_dataset().load())
    return out


FEW = Plan(PLAN.variants[:3], tuple(c for c in PLAN.cases if c.test in ("latency", "throughput")))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return summaries(dataset(tmp_path_factory.mktemp("base"), plan=FEW))[0]


def against(base, tmp_path, **worse):
    return diff(base, *summaries(dataset(tmp_path, "b", plan=FEW, **worse)))


def test_the_same_again_is_no_finding(base, tmp_path):
    found = against(base, tmp_path)
    assert found.findings == []
    assert found.cells > 20
    assert not found.blunt


def test_what_takes_longer_is_found(base, tmp_path):
    found = against(base, tmp_path, slower={"latency": 1.3})
    assert {f.evidence["quantity"] for f in found.findings} == {"rtt"}
    assert len(found.findings) == 9
    assert "30% higher" in found.findings[0].text


def test_a_rate_that_falls_is_found(base, tmp_path):
    found = against(base, tmp_path, slower={"throughput": 1.5})
    assert {f.evidence["quantity"] for f in found.findings} == {"message_rate"}
    assert "33% lower" in found.findings[0].text


def test_what_is_faster_is_no_finding(base, tmp_path):
    found = against(base, tmp_path, slower={"latency": 0.7})
    assert found.findings == []
    assert found.faster == 9


def test_more_loss_is_a_finding_of_its_own(base, tmp_path):
    found = against(base, tmp_path, lost=0.05)
    assert {f.code for f in found.findings} == {"bus.more_lost"}
    assert len(found.findings) == 12


def test_one_variant_is_held_against_another(base):
    found = diff(base, base, ("a.nc", "a.nc"), variants=("cyclonedds/udp4", "fastdds/udp4"))
    told = [f for f in found.findings if "more" not in f.evidence]
    assert {f.evidence["against"] for f in told} == {"cyclonedds/udp4"}
    assert found.median_ratio == pytest.approx(1.8, rel=0.02)
    assert "rtt of fastdds/udp4 (compared with cyclonedds/udp4) is 80% higher" in " ".join(
        f.text for f in found.findings
    )
    assert found.table.columns == ("case", "A", "B", "ratio", "")
    assert "A: cyclonedds/udp4 of a.nc" in found.table.note
    with pytest.raises(UsageError) as caught:
        diff(base, base, variants=("cyclonedds/udp4", "fastdds/udp"))
    assert "nearest: fastdds/udp4" in caught.value.what


def test_runs_of_other_things_are_not_compared(base, tmp_path):
    other = Plan(PLAN.variants[:1], tuple(c for c in PLAN.cases if c.test == "calls"))
    with pytest.raises(DataError) as caught:
        diff(base, *summaries(dataset(tmp_path, "c", plan=other)))
    assert caught.value.code == "bus.not_comparable"


BURSTS = planned([Case("throughput", 64, 4, treatment="reliable")], variant_of("cyclonedds", "udp4"))


def losing(folder, name, epochs, share, seed=1, lost=0.3):
    """A run in which so many bursts lose some of their messages, to one subscriber of four."""
    hit = np.random.default_rng(seed).permutation(epochs) < round(share * epochs)

    def level(variant, case, epoch, rng):
        return {"message_rate": near(rng, 1e5, 4), "lost": [lost * hit[epoch], 0, 0, 0]}

    return sealed(folder, BURSTS, made(BURSTS, level, epochs), name).path


def found_of(*paths):
    return [(f.code, f.evidence["lost"]) for f in diff(*summaries(*paths)).findings]


@pytest.mark.parametrize(("epochs", "share"), [(24, 0.4), (60, 0.2), (300, 0.1)])
def test_loss_that_most_bursts_do_not_have_is_found(tmp_path, epochs, share):
    before, after = losing(tmp_path, "a", epochs, 0), losing(tmp_path, "b", epochs, share)
    assert found_of(before, after) == [("bus.more_lost", pytest.approx(share * 0.3 / 4, rel=0.1))]
    assert found_of(after, before) == []


def test_loss_of_one_subscriber_in_every_burst_is_found(tmp_path):
    assert len(found_of(losing(tmp_path, "a", 12, 0), losing(tmp_path, "b", 12, 1))) == 1


def test_a_burst_more_or_less_is_no_finding(tmp_path):
    before = losing(tmp_path, "a", 24, 4 / 24)
    assert found_of(before, losing(tmp_path, "b", 24, 5 / 24, seed=2)) == []
    assert found_of(before, losing(tmp_path, "c", 24, 4 / 24, seed=3)) == []


def test_the_same_loss_is_none_more_in_a_run_of_more_epochs(tmp_path):
    # Ten bursts of which one in twenty loses some mostly lose nothing; stretches of a hundred times as many all do.
    assert found_of(losing(tmp_path, "a", 10, 0), losing(tmp_path, "b", 1000, 0.05)) == []
    assert len(found_of(losing(tmp_path, "a", 10, 0), losing(tmp_path, "c", 1000, 0.9))) == 1


def test_loss_is_seldom_found_where_there_is_none_more(tmp_path):
    base = losing(tmp_path, "a", 30, 0.2)
    alarms = [
        found_of(base, losing(tmp_path, f"b{k}", 30, share, seed=k))
        for k, share in enumerate((0.1, 0.2, 0.25, 0.3))
    ]
    assert alarms == [[]] * 4
