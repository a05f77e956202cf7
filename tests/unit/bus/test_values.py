"""A summary's series are found by what they are of."""

from __future__ import annotations

import numpy as np
import pytest
from whole_run import CYCLONE, PLAN, dataset

import sonde
from sonde.bus.cases import TESTS, Case
from sonde.bus.values import Values


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    with sonde.open(dataset(tmp_path_factory.mktemp("values"))) as tree:
        return Values(tree["summary"].to_dataset().load())


def test_cases_and_variants_are_those_of_the_plan(told):
    assert [case.title for case in told.cases] == [case.title for case in PLAN.cases]
    assert [way.name for way in told.ways] == [variant.name for variant in PLAN.variants]
    assert [way.discovery for way in told.ways] == ["simple"] * 4 + ["server"]
    assert [way.raw for way in told.ways] == [False, False, False, True, False]
    assert told.tests == list(TESTS)


def test_values_are_found_by_test_quantity_number_and_variant(told):
    assert {value.quantity for value in told.find("latency")} == {"rtt"}
    assert {value.quantity for value in told.find("latency", "publish")} == {"publish"}
    (one,) = told.find("fanout", "publish", told.ways[0], subscribers=16)
    assert one.median == pytest.approx(5e-6 + 16e-5, rel=0.01)
    assert one.number == 16
    assert told.find("fanout", "datagrams") == []
    assert told.of(told.ways[0], Case("latency", 64), "rtt").median == pytest.approx(40e-6, rel=0.01)
    assert told.of(told.ways[0], Case("latency", 65), "rtt") is None


def test_a_cell_is_a_case_on_a_variant(told):
    cells = told.cells()
    taken = sum(variant.takes(case) for variant in PLAN.variants for case in PLAN.cases)
    assert len(cells) == taken == len({(value.way.row, value.case) for value in cells})
    assert {value.quantity for value in cells} == {test.quantity for test in TESTS.values()}
    assert (told.statuses() == 1).all()


def test_values_keep_what_each_stretch_of_time_said(told):
    value = told.find("latency", way=told.ways[0])[0]
    assert value.way.name == CYCLONE.name
    assert np.isfinite(value.blocks).sum() == 8
    assert not value.drifted
