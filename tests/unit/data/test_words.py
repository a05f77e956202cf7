import math

import pytest

from sonde.data.words import count, cut, quantity, share


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (1.234e-6, "s", "1.23 µs"),
        (65536, "B", "64 KiB"),
        (1.5, "B", "1.5 B"),
        (3.14159, "B/s", "3.142 B/s"),
        (0.5, "1", "0.5"),
        (0.5, "", "0.5"),
        (math.nan, "s", "none"),
    ],
)
def test_quantities_are_reported_with_their_unit(value, unit, said):
    assert quantity(value, unit) == said


def test_shares_have_a_sign_and_nan_is_none():
    assert (share(0.123), share(-1.0), share(math.nan)) == ("+12.3 %", "-100.0 %", "none")


def test_counts_agree_with_their_noun():
    assert (count(1, "run"), count(0, "run"), count(2, "loss", "losses")) == ("1 run", "0 runs", "2 losses")


def test_long_text_is_cut_to_one_line():
    assert cut("a\n b", 10) == "a b"
    assert cut("x" * 100, 10) == "x" * 9 + "…"
    assert cut(7) == "7"
