"""Studies: what is computed from their runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from study_raw import PITCH_S, study_plan, study_raw

from fake_clock import FakeClock
from sonde.core.deadline import Deadline
from sonde.noise.detector.block_numbers import numbers_of
from sonde.noise.detector.detectable import SEARCH
from sonde.noise.studies import analyse as studies
from sonde.noise.studies.sealing import SCHEMA

# ---- a run of one level alone ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def loud_and_quiet(tmp_path_factory):
    plan = study_plan("sensitivity", (0.02, 0.01), share=2, rounds=(7, 3, 5), spend=(0.2, 0.4, 0.4))
    return study_raw(tmp_path_factory.mktemp("raw"), plan, (0.02, 0.0), bursts=True)


def test_a_loud_level_alone_is_found_at_the_first_look(loud_and_quiet):
    found = studies.alone(loud_and_quiet, numbers_of(loud_and_quiet), 1)
    assert found["alone_s"] == pytest.approx(14 * PITCH_S)
    assert found["alone_p"] <= 0.01
    assert found["alone_limit"] == pytest.approx(30 * PITCH_S)
    assert 6 * PITCH_S <= found["alone_source_s"] <= 30 * PITCH_S


def test_a_quiet_level_alone_is_never_found(loud_and_quiet):
    found = studies.alone(loud_and_quiet, numbers_of(loud_and_quiet), 2)
    assert math.isnan(found["alone_s"])
    assert found["alone_p"] > 0.01
    assert math.isnan(found["alone_separated_s"])


def test_blocks_of_other_levels_play_no_part(loud_and_quiet):
    """The loud level does not make the quiet one slow: take it away, and nothing changes."""
    raw = loud_and_quiet.copy(deep=True)
    variant = raw["variant"].values
    counts = raw["count"].values
    counts[:, variant == 1] = 0
    raw["count"].values = counts
    before = studies.alone(loud_and_quiet, numbers_of(loud_and_quiet), 2)
    assert studies.alone(raw, numbers_of(raw), 2)["alone_p"] == before["alone_p"]


def test_a_run_cut_short_gives_the_pairs_that_all_hands_have(tmp_path):
    plan = study_plan("sensitivity", (0.02,), share=2, rounds=(7, 3), spend=(0.5, 0.5))
    raw = study_raw(tmp_path, plan, (0.02,), blocks=24)  # 21 of the first segment, 3 of the second
    found = studies.alone(raw, numbers_of(raw), 1)
    assert found["alone_limit"] in (pytest.approx(14 * PITCH_S), pytest.approx(16 * PITCH_S))
    assert found["alone_s"] == pytest.approx(14 * PITCH_S)


def test_a_run_with_nothing_to_compare_says_nothing(tmp_path):
    plan = study_plan("sensitivity", (0.02,), share=2)
    raw = study_raw(tmp_path, plan, (0.02,), blocks=1)
    found = studies.alone(raw, numbers_of(raw), 1)
    assert all(math.isnan(found[name]) for name in studies.ALONE if name != "alone_limit")
    assert found["alone_limit"] == 0 or math.isnan(found["alone_limit"])


def test_the_summary_of_a_sensitivity(loud_and_quiet):
    summary = SCHEMA.analyse(loud_and_quiet)
    assert summary["detected"].values.tolist() == [1, 0]
    assert summary["blocks"].values.tolist() == [30, 15, 15]
    assert summary["mean_low"].values[0] < summary["mean"].values[0] < summary["mean_high"].values[0]
    assert set(studies.ALONE) <= set(summary.data_vars)
    assert summary.attrs["pitch_s"] == pytest.approx(PITCH_S)


def test_the_duty_of_a_source_is_that_of_its_blocks(loud_and_quiet):
    """The burst shortly before each block, with half a second of work, is not of the block."""
    summary = SCHEMA.analyse(loud_and_quiet)
    assert summary["duty_asked"].values.tolist() == [0.02, 0.01]
    assert summary["duty"].values.tolist() == [pytest.approx(0.02), pytest.approx(0.01)]
    assert summary["duty_bursts"].values.tolist() == [pytest.approx(1.0)] * 2


def test_without_a_record_the_duty_is_not_known(tmp_path):
    summary = SCHEMA.analyse(study_raw(tmp_path, study_plan("sensitivity", (0.01,)), (0.01,)))
    assert math.isnan(float(summary["duty"][0]))


# ---- stability -----------------------------------------------------------------------------------


def stability(folder, **more):
    plan = study_plan("stability", rounds=(8,) * 6, spend=(1.0,))
    return SCHEMA.analyse(study_raw(folder, plan, **more))


def test_steady_groups_do_not_differ(tmp_path):
    summary = stability(tmp_path)
    assert summary.sizes["group"] == 6
    assert summary["group_blocks"].values.tolist() == [8] * 6
    assert float(summary["groups_p"]) > 0.01
    assert int(summary["changed"].sum()) == 0
    assert float(summary["effective"]) > 24
    assert 0 < float(summary["clean_mde"]) < 0.1


def test_a_drift_makes_groups_differ(tmp_path):
    summary = stability(tmp_path, drift=0.05)
    assert float(summary["groups_p"]) < 1e-4
    assert int(summary["changed"].sum()) >= 1
    assert float(summary["autocorrelation"]) > 0.5
    assert float(summary["effective"]) < 24


def test_a_single_block_has_no_spread(tmp_path):
    summary = stability(tmp_path, blocks=1)
    assert summary["blocks"].values.tolist() == [1]
    assert math.isnan(float(summary["groups_p"]))
    assert math.isnan(float(summary["clean_mde"]))


def test_equal_blocks_are_alike(tmp_path):
    plan = study_plan("stability", rounds=(8,) * 2, spend=(1.0,))
    raw = study_raw(tmp_path, plan)
    raw["iterations"].values = np.full_like(raw["iterations"].values, 1000)
    found = studies.steadiness(raw, numbers_of(raw), Deadline())
    assert found["groups_p"] == 1.0
    assert found["changed"].sum() == 0


def test_after_the_deadline_a_study_names_what_it_left_out(loud_and_quiet):
    clock = FakeClock()
    deadline = Deadline(clock.now - 1, clock)
    summary = SCHEMA.analyse(loud_and_quiet, deadline)
    assert {"alone_p", "slowdown"} <= set(summary.variables)
    named = [left.what for left in deadline.left_out]
    assert any(what.startswith("permutations of the test of") for what in named)
    assert all(left.done < left.of for left in deadline.left_out)


def test_the_search_on_clean_blocks_ends_by_the_deadline(tmp_path):
    clock = FakeClock()
    deadline = Deadline(clock.now - 1, clock)
    summary = SCHEMA.analyse(
        study_raw(tmp_path, study_plan("stability", rounds=(8,) * 2, spend=(1.0,))), deadline
    )
    assert float(summary["clean_mde_searched"]) == 0
    assert [(left.what, left.done) for left in deadline.left_out] == [(SEARCH, 0)]
