"""From the recorder's file to what a dataset says: schema, analyse, verdict, figures."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from recordings import S, recorded, report, steady

import sonde
from sonde.core.blocks import BlockFile
from sonde.core.errors import DataError
from sonde.power.monitor import verdict as monitor_verdict
from sonde.power.monitor.budget import Held
from sonde.power.recording import figures, verdict
from sonde.power.recording.analyse import analyse, node_series_of
from sonde.power.recording.schema import RAW, SUMMARY
from sonde.power.recording.sealing import SCHEMA
from sonde.power.stack.telemetry import JobSample, NodeSample


@pytest.fixture
def killed(tmp_path):
    """20 s under m1, which is killed, then 10 s under m2."""
    samples = steady(20)
    samples += [report((22 + k) * S, manager="m2", epoch=2, committed_w=500.0) for k in range(10)]
    return recorded(tmp_path, samples, [("m1", "killed")])


def test_a_recording_says_what_was_recorded(killed):
    with sonde.open(killed.path) as tree:
        assert SCHEMA.validate(tree) == []
        raw = tree["raw"].to_dataset()
        assert [str(name) for name in raw["node_name"].values] == ["n1", "n2"]
        assert [str(name) for name in raw["node_source"].values] == ["simulated"] * 2
        assert raw["node_time"].values[0].tolist() == pytest.approx(range(20))
        assert raw["node_cap"].values[1].tolist() == [250.0] * 20
        assert raw["budget"].values.tolist() == [600.0] * 30
        assert [str(word) for word in raw["event_what"].values] == ["killed"]
        assert set(raw.variables) <= set(RAW)
        summary = tree["summary"].to_dataset().load()
    assert set(summary.variables) <= set(SUMMARY)
    told = verdict.held_of(summary)
    assert (told.budget_w, told.max_sum_caps_w, told.violations) == (600, 500, 0)
    assert told.failovers[0].after == "m2"
    assert told.failover_s == 3  # the kill was seen only after that: the last report counts
    assert float(summary["job_energy"].values[0]) == pytest.approx(200 * 19)
    assert killed.complete


def test_words_on_it(killed):
    with sonde.open(killed.path) as tree:
        summary = tree["summary"].to_dataset().load()
    said = verdict.sentence(summary)
    assert said.startswith("The sum of caps stayed within the budget of 600 W: at most 500 W")
    assert said.endswith("(simulated nodes)")
    assert "another manager took over after 3.00 s" in said
    assert verdict.findings(summary) == []
    assert verdict.sound(summary)
    told = verdict.values(summary)
    assert (told["violations"], told["lease_s"], told["failover_s"], told["simulated"]) == (0, 3, 3, True)
    assert [node["node"] for node in told["nodes"]] == ["n1", "n2"]
    titles = [table.title for table in verdict.tables(summary)]
    assert titles == ["Budget", "Nodes", "Jobs", "Telemetry on the bus"]


def test_figures_of_it(killed):
    with sonde.open(killed.path) as tree:
        section = figures.section(tree, "a.nc")
        names = [figure.id for figure in section.figures]
        assert names == [
            "power-course",
            "power-leases",
            "power-nodes-cap",
            "power-nodes-power",
            "power-energy",
        ]
        course = section.figures[0].data
        assert course["series"].values.tolist() == ["power drawn", "caps", "lent at most", "budget"]
        assert course["mark_name"].values.tolist() == ["m2 leads"]
        assert "simulated" in section.title
        assert [fact.value for fact in section.facts][:2] == ["500 W", "400 W"]


def test_what_a_new_manager_did_not_know_is_a_curve_of_its_own(tmp_path):
    samples = [*steady(20), report(22 * S, manager="m2", epoch=2, unknown_nodes=1, unknown_w=300.0)]
    samples += [report((23 + k) * S, manager="m2", epoch=2) for k in range(5)]
    file = recorded(tmp_path, samples, [("m1", "killed")])
    with sonde.open(file.path) as tree:
        assert SCHEMA.validate(tree) == []
        summary = tree["summary"].to_dataset().load()
        course = figures.course(summary)
    assert course is not None
    curves = dict(zip(course.data["series"].values.tolist(), course.data["y"].values))
    apart = curves["with unknown nodes"]
    lent = curves["lent at most"]
    assert max(lent) == 500
    assert (apart != apart).tolist() == (lent != lent).tolist()  # no gap that a line would bridge
    differs = apart[apart != lent]
    assert set(differs[differs == differs].tolist()) == {800}
    told = verdict.held_of(summary)
    assert (told.max_committed_w, told.max_unknown_w) == (500, 300)
    assert ("most unknown after a takeover", "300 W") in verdict.tables(summary)[0].rows
    assert "does not know" in course.caption


def test_since_when_a_cap_is_is_recorded(tmp_path):
    begin = 100 * S
    samples = [
        replace(one, cap_since_ns=begin + S // 2) if isinstance(one, NodeSample) else one
        for one in steady(20, begin_ns=begin)
    ]
    file = recorded(tmp_path, samples)
    with sonde.open(file.path) as tree:
        series = node_series_of(tree["raw"].to_dataset().load())
    assert series["n1"].cap_since_s is not None
    assert series["n1"].cap_since_s.tolist() == pytest.approx([0.5] * 20)


def test_a_broken_budget_is_found(tmp_path):
    file = recorded(tmp_path, steady(20, caps=(350.0, 300.0)))
    with sonde.open(file.path) as tree:
        summary = tree["summary"].to_dataset().load()
        (found,) = verdict.findings(summary, "a.nc")
        assert figures.section(tree, "a.nc").findings == [found]
    assert found.code == "power.above_budget"
    assert found.next == "sonde power show a.nc"
    assert "650 W" in verdict.sentence(summary)


def test_who_was_not_heard_is_missing(tmp_path):
    samples = [one for one in steady(20) if isinstance(one, NodeSample) and one.node == "n1"]
    file = recorded(tmp_path, samples)
    assert not file.complete
    (warning,) = [w for w in file.warnings if w.code == "power.not_heard"]
    assert warning.evidence == "no reports of n2; no system manager was heard"
    with sonde.open(file.path) as tree:
        assert SCHEMA.validate(tree) == []
        summary = tree["summary"].to_dataset().load()
        assert list(node_series_of(tree["raw"].to_dataset())) == ["n1"]
    assert verdict.sentence(summary).startswith("No budget was reported")
    assert not verdict.sound(summary)


def test_analysing_again_gives_the_same(killed):
    with sonde.open(killed.path) as tree:
        again = analyse(tree["raw"].to_dataset().load())
        before = tree["summary"].to_dataset().load()
    assert set(again.variables) == set(before.variables)
    assert float(again["max_power"]) == float(before["max_power"])


def test_a_foreign_block_file_is_refused(tmp_path):
    import numpy as np

    from sonde.core.blocks import BlockWriter

    with pytest.raises(DataError) as told:
        SCHEMA.layout({}, [], "")
    assert told.value.code == "power.not_power_blocks"
    writer = BlockWriter(tmp_path / "a.blk", np.dtype([("x", "<f8")]), {"schema": "net/1"})
    writer.close()
    with pytest.raises(DataError):
        SCHEMA.layout({}, [BlockFile(tmp_path / "a.blk")], "")


def test_energies_in_words():
    assert [monitor_verdict.joules(value) for value in (5.0, 1500.0, 7.2e6, 3.6e9)] == [
        "5 J",
        "1.5 kJ",
        "2 kWh",
        "1 MWh",
    ]
    assert monitor_verdict.joules(math.nan) == "–"
    assert monitor_verdict.values(None)["violations"] is None


@pytest.mark.parametrize(("drawn_w", "codes"), [(305.0, []), (310.0, ["power.drawn_above_budget"])])
def test_power_above_the_budget_is_found_where_a_meter_can_tell(tmp_path, drawn_w, codes):
    samples = [
        replace(one, power_w=drawn_w) if isinstance(one, NodeSample) else one for one in steady(20)
    ]  # of a budget of 600 W
    file = recorded(tmp_path, samples)
    with sonde.open(file.path) as tree:
        summary = tree["summary"].to_dataset().load()
    assert [one.code for one in verdict.findings(summary)] == codes
    assert verdict.held_of(summary).over_budget_s > 10


@pytest.mark.parametrize(("drawn_w", "within"), [(610.0, True), (620.0, False)])
def test_power_that_no_meter_can_tell_from_the_budget_is_said_to_be(drawn_w, within):
    """Beside a mark that says that all is well."""
    held = Held(budget_w=600, max_sum_caps_w=590, max_power_w=drawn_w, over_budget_s=3.0, reports=9, nodes=1)
    text = f"{drawn_w:.0f} W, above the budget for 3.00 s"
    assert monitor_verdict.sentence(held).endswith(
        text + (", within the meters' error of 2 %" if within else "")
    )


def test_words_on_a_budget_that_was_higher_before():
    said = monitor_verdict.sentence(
        Held(budget_w=640, max_sum_caps_w=900, max_power_w=800, reports=9, nodes=1)
    )
    assert (
        said == "The sum of caps stayed within the budget, which was 640 W at the end: at most 900 W; "
        "power drawn: at most 800 W"
    )
    assert "above" in monitor_verdict.sentence(
        Held(budget_w=640, max_sum_caps_w=900, violations=1, violation_s=1)
    )


def test_the_mean_of_a_job_is_that_of_its_time(tmp_path):
    """It is told of for a while after it, with no power."""
    job = [one for one in steady(20) if isinstance(one, JobSample)]
    over = [replace(job[-1], at_ns=(20 + k) * S, power_w=0.0, state="ended") for k in range(20)]
    paused = [replace(one, job="18", power_w=0.0 if k > 9 else 200.0) for k, one in enumerate(job)]
    with sonde.open(recorded(tmp_path, [*job, *over, *paused]).path) as tree:
        summary = tree["summary"].to_dataset().load()
    assert summary["job_mean"].values[0] == pytest.approx(200)
    assert summary["job_energy"].values[0] == pytest.approx(200 * 19)
    assert summary["job_mean"].values[1] == pytest.approx(100)  # it runs yet


def test_counts_that_no_cluster_has_end_no_recording(tmp_path):
    """On a bus they have 32 bits, and anybody may send them where there are no keys."""
    file = recorded(tmp_path, [report(S, nodes=2**32 - 1, heard=2**32 - 1, leased=2**32 - 1)])
    with sonde.open(file.path) as tree:
        assert tree["raw/leased"].values.tolist() == [2**31 - 1]
