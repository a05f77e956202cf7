"""Every figure is there for a run that has the data, can be drawn, and shows what was planted."""

from __future__ import annotations

import numpy as np
import pytest
from probe_runs import made, near, planned, sealed
from whole_run import PLAN, dataset

import sonde
from sonde.bus import figures
from sonde.bus.plan import Case, Plan, read_variant, variant_of
from sonde.report.render_html import draw

IDS = [
    "bus-size",
    "bus-latency",
    "bus-above-raw",
    "bus-cycles",
    "bus-fanout",
    "bus-early",
    "bus-discovery",
    "bus-discovery-bytes",
    "bus-discovery-time",
    "bus-discovery-cycles",
    "bus-divisions",
    "bus-divisions-cycles",
    "bus-throughput",
    "bus-throughput-subscribers",
    "bus-throughput-bytes",
    "bus-loss",
    "bus-first",
    "bus-first-parts",
    "bus-calls",
]


@pytest.fixture(scope="module")
def section(tmp_path_factory):
    with sonde.open(dataset(tmp_path_factory.mktemp("figures"))) as tree:
        return figures.section(tree, "bus.nc")


@pytest.fixture(scope="module")
def by_id(section):
    return {figure.id: figure for figure in section.figures}


def test_all_are_there(by_id):
    assert list(by_id) == IDS


@pytest.mark.parametrize("name", IDS)
def test_each_can_be_drawn(by_id, name):
    assert draw(by_id[name])


def test_what_keys_cost_is_drawn_where_it_was_measured(tmp_path):
    with_keys = read_variant("cs=cyclonedds,security=keys,identity=probe")
    plan = planned([Case("latency", 64)], variant_of("cyclonedds", "udp4"), with_keys)

    def level(variant, case, epoch, rng):
        return {"rtt": near(rng, 45e-6 if variant is with_keys else 30e-6)}

    with sonde.open(sealed(tmp_path, plan, made(plan, level)).path) as tree:
        found = {figure.id: figure for figure in figures.section(tree, "bus.nc").figures}
    keys = found["bus-keys"]
    assert draw(keys)
    assert float(keys.data["value"].sel(row="64 B", col="cs")) == pytest.approx(1.5, rel=0.01)
    assert "With keys a round trip takes: cs, against cyclonedds/udp4, 1.50 times" in keys.caption


def test_laws_are_drawn_beside_what_was_measured(by_id):
    data = by_id["bus-discovery"].data.sel(position="datagrams")
    source = data.sel(series="the source's: 2.37·N²")
    known = np.isfinite(source["y"].values)
    assert source["y"].values[known] == pytest.approx(2.37 * source["x"].values[known] ** 2)
    measured = data.sel(series="cyclonedds/udp4")
    known = np.isfinite(measured["y"].values)
    assert measured["y"].values[known] == pytest.approx(2.37 * measured["x"].values[known] ** 2, rel=0.02)
    laws = [str(name) for name in data["series"].values if str(name).startswith("fastdds/udp4/server: ")]
    assert any("N^1.0" in name or "N^0.99" in name for name in laws)


def test_what_is_lost_stands_beside_what_arrived(by_id):
    data = by_id["bus-throughput"].data
    lossy = data.sel(position="throughput, best-effort, 1 subscriber, 64 B", bar="cyclonedds/udp4")
    received, gone = (float(lossy["y"].sel(series=name)) for name in ("received", "written and lost"))
    assert gone / (gone + received) == pytest.approx(0.08, rel=0.01)


def test_causes_have_the_shares_that_were_planted(by_id):
    data = by_id["bus-first-parts"].data.sel(position="cyclonedds/udp4, first-ever", series="share")
    assert float(data["y"].sel(bar="the silence before it")) == pytest.approx(304 / 314, abs=0.04)
    assert float(data["y"].sel(bar="memory that is touched for the first time")) == pytest.approx(0, abs=0.04)


def test_the_section_says_which_way_suits(section):
    table = next(table for table in section.tables if table.title == "Which way over the bus")
    local = next(row for row in table.rows if row[0] == "one host" and row[1] == "1" and row[2] == "64 B")
    assert local[3] == "fastdds/shm"
    remote = next(row for row in table.rows if row[0] == "several" and row[1] == "1" and row[2] == "64 B")
    assert remote[3] == "cyclonedds/udp4"


def test_a_run_of_one_test_has_its_figures_alone(tmp_path):
    cases = tuple(case for case in PLAN.cases if case.test == "calls")
    with sonde.open(dataset(tmp_path, plan=Plan(PLAN.variants[:2], cases))) as tree:
        found = figures.section(tree).figures
    assert [figure.id for figure in found] == ["bus-latency", "bus-loss", "bus-calls"]
