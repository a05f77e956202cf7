"""Which values are allowed: ranges, positions in a dim, codes, texts, order; and how the first that is not is named."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from sonde.core import values
from sonde.core.allowed import (
    COUNT,
    FINITE,
    LEVELS,
    NUMBERED,
    SHARE,
    Allowed,
    codes,
    count_of,
    first_wrong,
    from_,
    index,
)

SIZES = {"variant": 3, "sample": 5}


def found(values: object, allowed: Allowed, dim: str = "row") -> str:
    """How the first wrong value of a column is named; "" where none is."""
    wrong = first_wrong(xr.Variable(dim, np.asarray(values)), allowed, SIZES)
    return wrong.text("/raw/x") if wrong else ""


@pytest.mark.parametrize(
    ("values", "allowed"),
    [
        ([0, 2], index("variant")),
        ([-1, 2], index("variant", -1)),
        ([7], index("unknown")),  # a group without that dim says nothing about its length
        ([0, 5], count_of("sample")),
        ([0, 4], codes(0, 4)),
        ([0.0, np.nan, 1.0], SHARE),
        ([-5.0, np.nan], FINITE),
        ([-1, 0], NUMBERED),
        ([1.5, np.nan], from_(1)),
        ([-1.0, 1e-3], from_(1e-9, -1)),
        ([np.inf], Allowed(infinite=True)),
        (["b", "a"], Allowed(texts=("a", "b"))),
        ([1, 2], Allowed(texts=("a",))),  # of another type: what `described` says
        (["x"], COUNT),
        (np.zeros(0), COUNT),
    ],
)
def test_what_is_allowed_is_not_found(values, allowed):
    assert found(values, allowed) == ""


@pytest.mark.parametrize(
    ("values", "allowed", "text"),
    [
        ([0, 3], index("variant"), "/raw/x at row 1 is 3; allowed: 0 to 2 (a position in variant)"),
        ([-1, 0], index("variant"), "/raw/x at row 0 is -1; allowed: 0 to 2 (a position in variant)"),
        ([-7], index("variant", -1), "/raw/x at row 0 is -7; allowed: 0 to 2 (a position in variant), or -1"),
        ([6, 9], count_of("sample"), "is 6; allowed: 0 to 5 (the length of sample); 2 values are wrong"),
        ([3], codes(0, 1, besides=(-1,)), "is 3; allowed: 0, 1, or -1"),
        ([np.nan], Allowed(low=0, high=1, nan=False), "is nan; allowed: 0 to 1"),
        ([1.0, np.inf], FINITE, "/raw/x at row 1 is inf; allowed: any finite number"),
        ([-0.5], COUNT, "is -0.5; allowed: 0 and above"),
        ([2**62], Allowed(high=1e18), "allowed: up to 1e+18"),
        (["c"], Allowed(texts=("a", "b")), "is 'c'; allowed: 'a', 'b'"),
    ],
)
def test_what_is_not_allowed_is_named_with_its_position_and_what_is(values, allowed, text):
    assert text in found(values, allowed)


def test_a_position_in_a_dim_of_no_length_allows_nothing():
    wrong = first_wrong(xr.Variable("row", [0]), index("variant"), {"variant": 0})
    assert wrong is not None
    assert wrong.allowed == "nothing (a position in variant)"


def test_a_position_is_reported_by_dim_and_a_scalar_has_none():
    wrong = first_wrong(xr.Variable(("a", "b"), [[1, 2], [3, -4]]), COUNT, {})
    assert wrong is not None
    assert (wrong.at, wrong.value, wrong.count) == ({"a": 1, "b": 1}, -4, 1)
    scalar = first_wrong(xr.Variable((), -1.0), COUNT, {})
    assert scalar is not None
    assert scalar.text("/summary/x") == "/summary/x is -1.0; allowed: 0 and above"


def test_what_rises_may_stand_still_unless_it_rises_strictly():
    times = Allowed(rises="row")
    assert found([0.0, 0.0, 1.0, np.nan], times) == ""
    assert "at row 2 is 0.5; allowed: no less than the one before it along row" in found(
        [0.0, 1.0, 0.5], times
    )
    assert found([0.1, 0.5, 1.0], LEVELS, "quantile") == ""
    assert "allowed: more than the one before it along quantile" in found([0.5, 0.5], LEVELS, "quantile")


def test_order_is_held_across_the_pieces_in_which_a_long_column_is_read(monkeypatch):
    monkeypatch.setattr(values.pieces, "__defaults__", (8 * 10,))
    rising = np.arange(35.0)
    assert found(rising, Allowed(rises="row")) == ""
    rising[10] = 3.0  # the first of the second piece
    assert "at row 10 is 3.0" in found(rising, Allowed(rises="row"))


def test_only_positions_and_codes_are_read_at_any_size():
    assert index("variant").at_any_size
    assert codes(1).at_any_size
    assert not COUNT.at_any_size
