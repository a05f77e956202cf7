"""What scrapers read."""

from __future__ import annotations

import math

import pytest

from sonde.power.openmetrics import Family, OfMonitor, accepted, families, heard, render
from sonde.power.telemetry import ClusterSample, JobSample, Latest, NodeSample


def known() -> Latest:
    latest = Latest()
    sensors = (
        {"name": "inlet", "kind": "SENSOR_TEMPERATURE", "value": 24.5},
        {"name": "x", "kind": "?", "value": 1.0},
    )
    latest.take(
        NodeSample("n1", 1, 1.0, "simulated", 180.0, 7.0, 230.0, 230.0, 2.0, True, sensors=sensors), 100.0
    )
    latest.take(NodeSample("n2", 1, 1.0, "powercap", math.nan, 7.0, 230.0), 100.0)
    latest.take(ClusterSample("demo", 1, "m1", 3, budget_w=1000.0, nodes=2, heard=2), 100.0)
    latest.take(JobSample("17", 1, "ada", nodes=("n1",), power_w=180.0), 100.0)
    return latest


def lines(openmetrics: bool = False, now: float = 101.0) -> list[str]:
    return render(families(known(), "demo", now, OfMonitor(version="1")), openmetrics).splitlines()


def test_what_is_known_is_told_and_what_is_not_is_absent():
    text = lines()
    assert 'sonde_power_node_watts{cluster="demo",node="n1",source="simulated"} 180.0' in text
    assert not any("node_watts" in line and "n2" in line for line in text)
    assert 'sonde_power_node_cap_watts{cluster="demo",node="n2"} 230.0' in text
    assert 'sonde_power_node_sensor_celsius{cluster="demo",node="n1",sensor="inlet"} 24.5' in text
    assert 'sonde_power_job_watts{cluster="demo",job="17",user="ada"} 180.0' in text


def test_a_node_that_is_not_heard_has_no_present():
    text = lines(now=200.0)
    assert 'sonde_power_node_up{cluster="demo",node="n1"} 0.0' in text
    assert not any("node_watts" in line or "node_cap" in line for line in text)
    assert heard(NodeSample("n1", 1, period_s=30.0), 80.0)
    assert not heard(NodeSample("n1", 1, period_s=30.0), 91.0)
    assert heard(NodeSample("n1", 1, period_s=0.1), 4.0)  # never sooner than a scrape comes


def test_names_of_counters_differ_between_the_formats():
    family = Family("a_joules", "counter", "joules", "Energy.")
    family.add(2.0, node="n1")
    family.add(math.inf, node="n2")
    assert render([family], False).splitlines() == [
        "# HELP a_joules_total Energy.",
        "# TYPE a_joules_total counter",
        'a_joules_total{node="n1"} 2.0',
    ]
    assert render([family], True).splitlines() == [
        "# HELP a_joules Energy.",
        "# TYPE a_joules counter",
        "# UNIT a_joules joules",
        'a_joules_total{node="n1"} 2.0',
        "# EOF",
    ]


def test_labels_cannot_break_a_line():
    family = Family("a", "gauge", "", "b")
    family.add(1.0, node='x"} 7\n\\')
    assert render([family], False).splitlines()[-1] == 'a{node="x\\"} 7\\n\\\\"} 1.0'
    assert render([Family("empty", "gauge", "", "b")], False) == "\n"


def test_another_parser_reads_it():
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    text = "\n".join(lines(True)) + "\n"
    found = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert found["sonde_power_node_energy_joules"].type == "counter"
    assert found["sonde_power_budget_watts"].unit == "watts"
    assert accepted("application/openmetrics-text; version=1.0.0,text/plain;q=0.5")
    assert not accepted("text/plain")
