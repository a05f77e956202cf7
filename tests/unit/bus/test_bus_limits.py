"""One run against another: what was made worse is found, what was not is not."""

from __future__ import annotations

import pytest
from whole_run import PLAN, dataset

import sonde
from sonde.bus.limits import diff
from sonde.bus.plan import Plan
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
    assert {f.evidence["against"] for f in found.findings} == {"cyclonedds/udp4"}
    assert found.median_ratio == pytest.approx(1.8, rel=0.02)
    assert "rtt of fastdds/udp4, against cyclonedds/udp4, is 80% higher" in " ".join(
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
