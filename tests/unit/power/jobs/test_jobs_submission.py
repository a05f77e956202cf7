"""Submissions that are refused whatever the queue."""

from __future__ import annotations

import math

import pytest

from sonde.power.jobs.jobs import Spec
from sonde.power.jobs.submission import LARGEST, Refusal, check


@pytest.mark.parametrize(
    "spec",
    [
        Spec("j/..", ("true",), "ada"),
        Spec("", ("true",), "ada"),
        Spec("j" * 65, ("true",), "ada"),
        Spec("j", (), "ada"),
        Spec("j", ("",), "ada"),
        Spec("j", ("true",), ""),
        Spec("j", ("true",), "a\nb"),
        Spec("j", ("a\0b",), "ada"),
        Spec("j", ("true",), "ada", environment=("PATH",)),
        Spec("j", ("true",), "ada", environment=("=x",)),
        Spec("j", ("true",), "ada", folder="here"),
        Spec("j", ("true",), "ada", nodes=0),
        Spec("j", ("true",), "ada", hosts=("n1", "n1")),
        Spec("j", ("true",), "ada", limit_s=-1),
        Spec("j", ("true",), "ada", limit_s=math.nan),
        Spec("j", ("true",), "ada", guaranteed_w=math.inf),
        Spec("j", ("true",), "ada", weight=0),
        Spec("j", ("true", "x" * LARGEST), "ada"),
    ],
)
def test_a_submission_that_cannot_be_is_refused(spec):
    with pytest.raises(Refusal) as no:
        check(spec)
    assert no.value.word == "bad_job"
    check(Spec("j", ("true",), "ada"))
