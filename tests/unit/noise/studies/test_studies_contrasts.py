"""Sweeps: which of two variants costs more."""

from __future__ import annotations

import pytest
from study_raw import study_plan, study_raw

from sonde.noise.studies.contrasts import contrast, contrasts
from sonde.noise.studies.sealing import SCHEMA


def test_questions_need_both_answers():
    names = ["off", "together", "apart", "each 10 ms", "each 100 ms", "each 1 s", "pinned", "free"]
    assert contrasts(names) == [
        ("sync", "apart", "together"),
        ("period", "each 10 ms", "each 1 s"),
        ("placement", "pinned", "free"),
    ]
    assert contrasts(["off", "pinned", "sibling"]) == [("sibling", "pinned", "sibling")]
    assert contrasts(["off", "together", "each 1 s"]) == []


def test_the_dearer_way_is_found(tmp_path):
    plan = study_plan("sweep", (0.02, 0.02), names=("apart", "together"), rounds=(10,), spend=(1.0,))
    summary = SCHEMA.analyse(study_raw(tmp_path, plan, (0.04, 0.01)))
    shift = contrast(summary, "apart", "together")
    assert shift.low < 0.03 < shift.high
    assert shift.low > 0
    back = contrast(summary, "together", "apart")
    assert back.estimate == pytest.approx(-shift.estimate)
