"""The sentences, tables and JSON values of studies."""

from __future__ import annotations

import json
import math

import pytest
from study_raw import study_plan, study_raw

from sonde.noise.studies import verdict
from sonde.noise.studies.sealing import SCHEMA


@pytest.fixture(scope="module")
def sensitivity(tmp_path_factory):
    plan = study_plan("sensitivity", (0.02, 0.01, 0.001), share=2, rounds=(7, 3, 5), spend=(0.2, 0.4, 0.4))
    raw = study_raw(tmp_path_factory.mktemp("raw"), plan, (0.02, 0.01, 0.0), bursts=True)
    return SCHEMA.analyse(raw)


@pytest.fixture(scope="module")
def stability(tmp_path_factory):
    plan = study_plan("stability", rounds=(8,) * 3, spend=(1.0,))
    return SCHEMA.analyse(study_raw(tmp_path_factory.mktemp("raw"), plan))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    names = ("together", "apart", "pinned", "free")
    plan = study_plan("sweep", (0.02,) * 4, names=names, share=2, rounds=(8,), spend=(1.0,))
    return SCHEMA.analyse(study_raw(tmp_path_factory.mktemp("raw"), plan, (0.01, 0.03, 0.02, 0.02)))


def test_a_sensitivity_in_a_sentence(sensitivity):
    text = verdict.sentence(sensitivity)
    assert text.startswith("noise is detected down to 1 %;")
    assert "disjoint 99 % intervals of means detect it down to 1 %" in text


def test_nothing_distinguished_is_reported(sensitivity):
    deaf = sensitivity.copy(deep=True)
    deaf["detected"][:] = 0
    deaf["source_detected"][:] = 0
    text = verdict.sentence(deaf)
    assert text == (
        "even 2 % of noise is not detected; disjoint 99 % intervals of means do not detect even 2 %."
    )


def test_a_lower_level_found_alone_is_reported_beside_the_threshold(sensitivity):
    odd = sensitivity.copy(deep=True)
    odd["detected"][:] = [1, 0, 1]
    text = verdict.sentence(odd)
    assert text.startswith(
        "noise is detected down to 2 % (0.1 % is also detected, but a higher level is not);"
    )


def test_a_blind_run_says_so_below_its_table(sensitivity):
    blind = sensitivity.copy(deep=True)
    blind["mde"][:] = math.nan
    assert "no burst of up to half a period" in verdict.tables(blind)[1].note


def test_json_of_a_sensitivity(sensitivity):
    told = json.loads(json.dumps(verdict.values(sensitivity), allow_nan=False))
    assert told["threshold_pct"] == 1
    assert [level["level_pct"] for level in told["levels"]] == [2, 1, 0.1]
    loud, _, quiet = told["levels"]
    assert loud["sonde"]["detected"] is True
    assert loud["sonde"]["p"] <= 0.01
    assert 0 < loud["sonde"]["seconds"] < loud["limit_s"]
    assert loud["source_rule"]["detected"] is True
    assert loud["source_rule"]["seconds"] > 0
    assert loud["source_rule"]["separated"] is True
    assert quiet["sonde"]["detected"] is False
    assert quiet["sonde"]["seconds"] is None
    assert quiet["source_rule"]["separated_seconds"] is None
    assert told["clean"]["blocks"] == 30


def test_what_a_run_alone_would_not_have_found_is_more_than_its_time(sensitivity):
    late = sensitivity.copy(deep=True)
    late["alone_s"][:] = math.nan
    row = verdict.tables(late)[1].rows[0]
    assert row[1] == "yes"
    assert row[3].startswith("> ")
    assert verdict.values(late)["levels"][0]["sonde"]["seconds"] is None
    assert verdict.tables(late)[1].rows[2][3] == "–"


def test_tables_of_a_sensitivity_have_a_row_a_level(sensitivity):
    means, told = verdict.tables(sensitivity)
    assert [row[0] for row in means.rows] == ["off", "2 %", "1 %", "0.1 %"]
    assert [row[0] for row in told.rows] == ["2 %", "1 %", "0.1 %"]
    assert means.rows[0][1] == "–"
    assert means.rows[1][1] == "2.00 %"
    assert [row[1] for row in told.rows] == ["yes", "yes", "no"]
    assert all(len(row) == len(table.columns) for table in (means, told) for row in table.rows)


def test_a_source_that_does_too_little_is_reported(tmp_path):
    plan = study_plan("sensitivity", (0.02,), rounds=(7,), spend=(1.0,))
    lazy = SCHEMA.analyse(study_raw(tmp_path, plan, (0.02,), bursts=True, duty=0.85))
    found = [warning for warning in verdict.warnings(lazy) if warning.code == "noise.duty_off"]
    assert len(found) == 1
    assert "2 %" in found[0].evidence
    assert "1.70 %" in found[0].evidence


def test_a_source_that_does_its_part_is_not(sensitivity):
    assert "noise.duty_off" not in [warning.code for warning in verdict.warnings(sensitivity)]


def test_a_steady_loop(stability):
    assert verdict.sentence(stability).startswith("alltoall of 1 KiB, 2 ranks: stable,")
    told = json.loads(json.dumps(verdict.values(stability), allow_nan=False))
    assert told["stable"] is True
    assert told["width_pct"] < 1
    assert [group["blocks"] for group in told["groups"]] == [8, 8, 8]
    assert told["change_points_s"] == []


def test_a_wide_interval_is_not_stable(tmp_path):
    plan = study_plan("stability", rounds=(4,) * 3, spend=(1.0,))
    summary = SCHEMA.analyse(study_raw(tmp_path, plan, drift=0.2))
    assert not verdict.stable(summary)
    assert ": not stable," in verdict.sentence(summary)


def test_configurations_stand_side_by_side(stability):
    other = stability.copy()
    other.attrs["op"] = "barrier"
    table, *groups = verdict.stability_tables([stability, other])
    assert len(table.columns) == 3
    assert all(len(row) == 3 for row in table.rows)
    assert [len(group.rows) for group in groups] == [3, 3]


def test_one_block_is_too_few(tmp_path):
    plan = study_plan("stability", rounds=(4,) * 2, spend=(1.0,))
    summary = SCHEMA.analyse(study_raw(tmp_path, plan, blocks=1))
    assert "too few blocks" in verdict.sentence(summary)
    assert not verdict.sound(summary)
    json.dumps(verdict.values(summary), allow_nan=False)
    verdict.tables(summary)


def test_a_sweep_says_which_way_it_went(sweep):
    text = verdict.sentence(sweep)
    assert "apart costs more than together" in text
    assert "no significant difference between pinned and free" in text
    assert verdict.tables(sweep)[1].title == "Slowdown by sources at 2 %, against nothing on"
    lines = verdict.answer_lines(sweep)
    assert len(lines) == 2
    assert "here apart costs more" in lines[0]
    assert "not significant here" in lines[1]
    told = json.loads(json.dumps(verdict.values(sweep), allow_nan=False))
    assert [answer["costs_more"] for answer in told["answers"]] == ["apart", None]
    assert [variant["variant"] for variant in told["variants"]] == ["together", "apart", "pinned", "free"]


@pytest.mark.parametrize("study", ["sensitivity", "sweep", "stability"])
@pytest.mark.parametrize("blocks", [1, 2, 3, 5])
def test_a_study_cut_short_still_says_what_it_has(tmp_path, study, blocks):
    levels = () if study == "stability" else (0.02, 0.01)
    names = ("pinned", "free") if study == "sweep" else ()
    plan = study_plan(study, levels, names=names, share=1, rounds=(7, 3))
    summary = SCHEMA.analyse(study_raw(tmp_path, plan, (0.02, 0.01), blocks=blocks))
    assert verdict.sentence(summary)
    assert verdict.tables(summary)
    json.dumps(verdict.values(summary), allow_nan=False)
    assert isinstance(verdict.answer_lines(summary), list)
    verdict.warnings(summary)
