"""Numbers of the bus room as text."""

import math

import pytest

from sonde.bus.texts import rate_text, ratio_text, short_text, text_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (math.nan, "–"),
        (0.00123456, "0.0012"),
        (2.3149, "2.31"),
        (23.149, "23.1"),
        (54321.0, "54321"),
    ],
)
def test_a_number_has_three_digits_at_most_and_no_exponent(value, text):
    assert short_text(value) == text


def test_a_ratio_has_its_interval_where_there_is_one():
    assert ratio_text(2.3149, 2.2, 2.4) == "2.31 times (2.20 to 2.40)"
    assert ratio_text(2.3149) == "2.31 times"


@pytest.mark.parametrize(
    ("rate", "unit", "text"),
    [
        (31200.0, "messages/s", "31.2 k messages/s"),
        (12.0, "messages/s", "12.0 messages/s"),
        (2.5e9, "B/s", "2.50 GB/s"),
    ],
)
def test_a_rate_has_a_prefix(rate, unit, text):
    assert rate_text(rate, unit) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (math.nan, "s", "–"),
        (1.5e-6, "s", "1.50 µs"),
        (2000.0, "1/s", "2.00 k/s"),
        (4096.0, "B", "4 KiB"),
        (12345.0, "1", "12 345"),
    ],
)
def test_a_quantity_has_its_unit(value, unit, text):
    assert text_of(value, unit) == text
