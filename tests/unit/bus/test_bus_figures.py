"""Every figure is there for a run that has the data, can be drawn, and shows what was planted."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from probe_runs import made, near, planned, sealed
from whole_run import PLAN, dataset

import sonde
from sonde.bus import cli_run, figures, lessons
from sonde.bus.cases import Case, Wanted, cases_of, read_tests
from sonde.bus.plan import Plan
from sonde.bus.variants import choose_variants, read_variant, variant_of
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
    assert "Round trip with keys: cs relative to cyclonedds/udp4: 1.50 times" in keys.caption


def test_laws_are_drawn_beside_what_was_measured(by_id):
    data = by_id["bus-discovery"].data.sel(position="datagrams")
    source = data.sel(series="source: 2.37·N²")
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
    assert float(data["y"].sel(bar="the first access to memory")) == pytest.approx(0, abs=0.04)


def test_the_section_says_which_way_suits(section):
    table = next(table for table in section.tables if table.title == "Recommended variants")
    local = next(row for row in table.rows if row[0] == "one host" and row[1] == "1" and row[2] == "64 B")
    assert local[3] == "fastdds/shm"
    remote = next(row for row in table.rows if row[0] == "several" and row[1] == "1" and row[2] == "64 B")
    assert remote[3] == "cyclonedds/udp4"


def test_a_run_of_one_test_has_its_figures_alone(tmp_path):
    cases = tuple(case for case in PLAN.cases if case.test == "calls")
    with sonde.open(dataset(tmp_path, plan=Plan(PLAN.variants[:2], cases))) as tree:
        found = figures.section(tree).figures
    assert [figure.id for figure in found] == ["bus-latency", "bus-loss", "bus-calls"]


def test_a_run_in_which_some_did_not_find_each_other_in_time_has_a_section(tmp_path):
    plan = planned([Case("discovery", entities=n, treatment="star") for n in (8, 96)], PLAN.variants[0])

    def level(variant, case, epoch, rng):
        if case.entities == 96 and epoch == 1:
            return {"datagrams": np.nan, "matched": 0.25, "datagrams_unmatched": 52930.0}
        return {"datagrams": near(rng, 9.0 * case.entities, 1), "matched": 1.0}

    with sonde.open(sealed(tmp_path, plan, made(plan, level, 3)).path) as tree:
        found = figures.section(tree, "bus.nc")
    table = next(table for table in found.tables if table.title == "Lessons")
    assert any("timed out" in row[1] for row in table.rows)


def test_what_each_lesson_is_about_is_known():
    calls = [
        node.args[0]
        for node in ast.walk(ast.parse(Path(lessons.__file__).read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_lesson"
    ]
    codes = {node.value for node in calls if isinstance(node, ast.Constant)}
    # Those that are no constants, by what they can be.
    others = {
        "kind": {"message_rate", "byte_rate"},
        "f'fanout_{quantity}'": {"fanout_publish", "fanout_last"},
    }
    assert {ast.unparse(node) for node in calls if not isinstance(node, ast.Constant)} == set(others)
    assert codes.union(*others.values()) == set(figures.LESSONS)


def test_latency_of_one_size_is_drawn_by_variant(tmp_path):
    plan = planned([Case("latency", 64)], *PLAN.variants[:4])
    with sonde.open(dataset(tmp_path, plan=plan)) as tree:
        found = {figure.id: figure for figure in figures.section(tree).figures}
    size = found["bus-size"]
    assert draw(size)
    assert list(size.data["bar"].values) == [variant.name for variant in plan.variants]
    y = size.data["y"].sel(position="round trip", series="64 B")
    assert float(y.sel(bar="fastdds/udp4") / y.sel(bar="cyclonedds/udp4")) == pytest.approx(1.8, rel=0.02)
    assert "bus-early" not in found  # what a settled burst begins with is no first message


def test_the_first_messages_of_programs_are_drawn_and_the_first_of_all_is_slow(by_id):
    early = by_id["bus-early"]
    y = early.data["y"].sel(series="cyclonedds/udp4", position="first-message, first-ever, 64 B").values
    assert y[0] == pytest.approx(350e-6, rel=0.05)
    assert y[1:8] == pytest.approx([36e-6] * 7, rel=0.05)
    assert "Nothing was sent before the first" in early.caption


def test_reception_of_each_subscriber_is_on_the_slider(by_id):
    data = by_id["bus-fanout"].data
    (name,) = (name for name in data["position"].values if name.startswith("one way"))
    y = data["y"].sel(position=name, series="cyclonedds/udp4").values
    assert y[np.isfinite(y)] == pytest.approx([25e-6, 40e-6, 100e-6], rel=0.02)


ROWS = [
    row.split("|")[1:-1]
    for row in (Path(__file__).parents[3] / "docs/explain/bus-figures.md").read_text().splitlines()
    if row.startswith("| 6.")
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip() for row in ROWS])
def test_the_commands_of_the_page_give_what_its_figures_are_drawn_from(tmp_path, row):
    words = shlex.split(row[2].strip().strip("`"))
    assert words[:3] == ["sonde", "bus", "run"]
    told = cli_run.run.make_context("run", words[3:]).params
    tests = read_tests(told["tests"])
    wanted = Wanted(told["sizes"] or (), told["subscribers"] or (), told["participants"] or ())
    variants = choose_variants(told["variants"], tests)[:5]
    cases = tuple(case for case in cases_of(tests, wanted) if any(v.takes(case) for v in variants))
    with sonde.open(dataset(tmp_path, plan=Plan(variants, cases))) as tree:
        found = {figure.id: figure for figure in figures.section(tree).figures}
    named = re.findall(r"`(bus-[\w-]+)`", row[3])
    assert named
    assert set(named) <= set(found)
    for slider in re.findall(r"slider on \*([\w ]+)\*", row[3]):
        assert any(str(name).startswith(slider) for name in found[named[0]].data["position"].values)
