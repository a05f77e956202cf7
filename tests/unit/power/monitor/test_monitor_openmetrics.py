"""What scrapers read."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from sonde.power.monitor.openmetrics import Family, OfMonitor, accepted, families, heard, names, render
from sonde.power.stack.telemetry import ClusterSample, JobSample, Latest, NodeSample

ROOT = Path(__file__).parents[4]


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


def test_what_is_known_is_reported_and_what_is_not_is_absent():
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


def test_sensors_and_domains_of_one_name_are_all_there():
    chips = [("coretemp/Package id 0", 41.0), ("coretemp/Package id 1", 51.0), ("nvme/Composite", 61.0)]
    chips += [("coretemp/Core 0", 42.0), ("coretemp/Core 1", 43.0), ("coretemp/Core 0", 52.0)]
    chips += [("coretemp/Core 1", 53.0), ("nvme/Composite", 71.0)]
    sensors = tuple({"name": name, "kind": "SENSOR_TEMPERATURE", "value": value} for name, value in chips)
    domains = tuple({"name": "node", "power_w": power_w} for power_w in (100.0, 120.0))
    latest = Latest()
    latest.take(NodeSample("n1", 1, 1.0, sensors=sensors, domains=domains), 100.0)
    text = render(families(latest, "demo", 101.0, OfMonitor()), True).splitlines()
    warm = [line for line in text if line.startswith("sonde_power_node_sensor_celsius{")]
    assert sorted(float(line.split()[-1]) for line in warm) == sorted(value for _, value in chips)
    assert len({line.split("}")[0] for line in warm}) == 8
    assert any('sensor="coretemp/Core 0#2"' in line for line in warm)
    assert sum(line.startswith("sonde_power_domain_watts{") for line in text) == 2


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


def test_dashboard_and_page_name_metrics_that_there_are():
    latest = known()
    kinds = ("TEMPERATURE", "VOLTAGE", "FAN", "POWER", "UTILISATION")
    sensors = tuple({"name": "x", "kind": f"SENSOR_{kind}", "value": 1.0} for kind in kinds)
    parts = ({"name": "package-0", "power_w": 1.0},)
    cores = ({"name": "policy0", "current_hz": 1.0},)
    full = NodeSample("n3", 1, 1.0, "ipmi", 1.0, 1.0, 1.0, 1.0, 1.0, True, 1, "m1", "", parts, cores, sensors)
    latest.take(full, 100.0)
    latest.take(JobSample("18", 1, "ada", nodes=("n1",), power_w=1.0, energy_j=1.0, progress=0.5), 100.0)
    latest.take(ClusterSample("demo", 2, "m1", 3, 1, "active", "fair", 1, 3, 1, 1, 1, 1, 2, 2, 2), 100.0)
    text = render(families(latest, "demo", 101.0, OfMonitor(1, 1, 1, 1, 1, "1")), False)
    there = set(names(text))
    board = (ROOT / "deploy/grafana/sonde-power.json").read_text()
    named = set(re.findall(r"sonde_power_[a-z_]+", board))
    assert len(named) > 10
    assert named - there == set()
    json.loads(board)
    page = (ROOT / "docs/reference/power-monitor.md").read_text()
    table = page.partition("## Metrics")[2].partition("`deploy/grafana")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {f"sonde_power_{name}" for row in rows for name in re.findall(r"`([a-z_]+)`", row)} <= there


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
