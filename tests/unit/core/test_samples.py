"""Arguments of statistics: what is no series, no epoch, no share and no count is refused."""

from __future__ import annotations

import numpy as np
import pytest

from sonde.core import samples
from sonde.core.errors import DataError, UsageError


def test_a_series_becomes_floats():
    assert samples.samples([1, 2]).dtype == np.float64
    assert samples.samples([]).shape == (0,)


@pytest.mark.parametrize(
    ("given", "code"),
    [(["a"], "core.not_numbers"), ([[1.0]], "core.not_a_series"), (1.0, "core.not_a_series")],
)
def test_what_is_no_series_is_refused(given, code):
    with pytest.raises(DataError) as raised:
        samples.samples(given)
    assert raised.value.code == code


def test_epochs_are_integers():
    assert samples.epochs([0, -1]).dtype == np.int32
    with pytest.raises(DataError) as raised:
        samples.epochs([0.5])
    assert raised.value.code == "core.not_epochs"


def test_shares_and_counts_have_limits():
    assert samples.share("p", 1, open_ends=False) == 1
    assert samples.count("n", 3.0, 1) == 3
    with pytest.raises(UsageError, match="between 0 and 1"):
        samples.share("p", 1)
    with pytest.raises(UsageError, match="at least 1"):
        samples.count("n", 0, 1)
