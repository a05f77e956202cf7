"""The Python face of native units; errors are UsageError. tests/native/core/test_units.cpp goes deeper."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.errors import UsageError
from sonde.core.units import (
    LEAST_RATE,
    MOST_RATE,
    format_duration,
    format_power,
    format_rate,
    format_share,
    format_size,
    parse_duration,
    parse_power,
    parse_rate,
    parse_size,
)


def test_durations_are_written_in_engineering_units():
    assert format_duration(1.234e-6) == "1.23 µs"
    assert format_duration(125) == "2 min 5 s"
    assert format_duration(math.nan) == "nan"


def test_durations_are_read():
    assert parse_duration("1h30min") == 5400
    assert parse_duration("1.23 µs") == 1.23e-6
    assert parse_duration("60") == 60


def test_sizes_are_written_and_read():
    assert format_size(65536) == "64 KiB"
    assert format_size(10010) == "9.78 KiB"
    assert format_size(10010, exact=True) == "10010 B"
    assert parse_size("64KiB") == 65536
    assert parse_size("64kB") == 64000


@pytest.mark.parametrize("text", ["", "soon", "-1s", "5 parsecs", "1e999", "٣s"])
def test_what_is_no_duration_is_a_usage_error(text):
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    assert caught.value.code == "core.bad_duration"
    assert caught.value.hint == "write it like 60s, 2min, 1h30min or 250ms"


@pytest.mark.parametrize("text", ["", "big", "-1", "64K", "1.3B", "1e3", "٣"])
def test_what_is_no_size_is_a_usage_error(text):
    with pytest.raises(UsageError) as caught:
        parse_size(text)
    assert caught.value.code == "core.bad_size"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1gbit", 10**9),
        ("100 Mbit/s", 10**8),
        ("1.5mbit", 1_500_000),
        ("8000bit", 8000),
        ("64mibit", 2**26),
        ("1tbit", 10**12),
    ],
)
def test_rates_are_read_as_tc_reads_them(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "fast", "-1gbit", "1000", "1g", "1gb", "999bit", "2tbit", "٣gbit", "1ibit"]
)
def test_what_is_no_rate_is_a_usage_error(text):
    with pytest.raises(UsageError) as caught:
        parse_rate(text)
    assert caught.value.code == "core.bad_rate"
    assert "1gbit" in caught.value.hint


@pytest.mark.parametrize("text", ["10mbps", "1GBps", "5 bps"])
def test_a_unit_that_is_read_both_ways_is_refused_with_the_reason(text):
    with pytest.raises(UsageError) as caught:
        parse_rate(text)
    assert "'bps' means bytes to tc" in caught.value.hint


def test_rates_are_written():
    assert [format_rate(rate) for rate in (1500, 10**9, 2**26, 8e3)] == [
        "1.5 kbit/s",
        "1 Gbit/s",
        "67.1089 Mbit/s",
        "8 kbit/s",
    ]


@given(st.integers(LEAST_RATE, MOST_RATE))
def test_a_rate_reads_back_to_the_digits_shown(rate):
    text = format_rate(rate)
    assert abs(parse_rate(text) - rate) <= 1e-5 * rate


@given(st.integers(0, 2**62))
def test_an_exact_size_reads_back(size):
    assert parse_size(format_size(size, exact=True)) == size


@given(st.floats(0, 36525 * 86400, allow_subnormal=False))
def test_a_duration_reads_back_to_the_digits_shown(value_s):
    text = format_duration(value_s)
    assert format_duration(parse_duration(text)) == text


@given(st.text())
def test_any_text_is_read_or_refused(text):
    for parse in (parse_duration, parse_size):
        told = answer(parse, text)
        assert told >= 0 if not isinstance(told, str) else 0 < len(told) < 250


def answer(parse, text):
    try:
        return parse(text)
    except UsageError as error:
        return error.what


def test_negative_or_huge_numbers_of_bytes_cannot_be_written():
    with pytest.raises(TypeError):
        format_size(-1)
    with pytest.raises(TypeError):
        format_size(2**64)


@pytest.mark.parametrize(
    ("share", "digits", "trim", "text"),
    [
        (0.0098, 2, False, "0.98 %"),
        (0.00001, 2, False, "0.0010 %"),
        (0.0, 2, False, "0 %"),
        (12.0, 2, False, "1200 %"),
        (-0.00123, 2, False, "-0.12 %"),
        (float("nan"), 2, False, "–"),
        (0.01, 4, True, "1 %"),
        (0.0100321, 4, True, "1.003 %"),
        (0.0005, 6, True, "0.05 %"),
        (0.5, 1, True, "50 %"),  # its zeros are not after a point
    ],
)
def test_shares(share, digits, trim, text):
    assert format_share(share, digits, trim) == text


@pytest.mark.parametrize(
    ("text", "power_w"), [("1500", 1500), ("1.5 kW", 1500), ("20MW", 2e7), ("350 mW", 0.35)]
)
def test_power_is_read_and_reported(text, power_w):
    assert parse_power(text) == pytest.approx(power_w)
    assert parse_power(format_power(power_w)) == pytest.approx(power_w)


@pytest.mark.parametrize("text", ["", "5w", "-5W", "5KW"])
def test_what_is_no_power_is_a_usage_error(text):
    with pytest.raises(UsageError) as caught:
        parse_power(text)
    assert caught.value.code == "core.bad_power"
    assert "kW" in caught.value.hint
