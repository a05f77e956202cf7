import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.report import scale


@pytest.mark.parametrize(
    ("values", "unit", "expected"),
    [
        ([1.2e-6, 3.4e-6], "s", "µs"),
        ([240e-9, 610e-9], "s", "ns"),
        ([0.9e-3, 2e-3], "s", "ms"),
        ([3.0, 80.0], "s", "s"),
        ([9000.0], "s", "s"),
        ([8, 64, 512], "B", "B"),
        ([8, 64, 65536], "B", "KiB"),
        ([2.0**21], "B", "MiB"),
        ([3e9], "Hz", "GHz"),
        ([0.2, 0.9], "%", "%"),
        ([5.0], "", ""),
    ],
)
def test_axis_unit_follows_the_data(values, unit, expected):
    assert scale.choose(values, unit).unit == expected


def test_axis_factor_turns_si_into_the_shown_unit():
    chosen = scale.choose([2e-6], "s")
    assert 2e-6 * chosen.factor == pytest.approx(2.0)


@pytest.mark.parametrize("values", [[], [math.nan, math.nan], [0.0, 0.0], [math.inf]])
def test_axis_unit_without_a_usable_value_is_the_si_unit(values):
    assert scale.choose(values, "s") == scale.Scale("s", 1.0)


def test_one_outlier_does_not_choose_the_unit():
    assert scale.choose([1e-6] * 99 + [5.0], "s").unit == "µs"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (12, "12"),
        (-12.5, "−12.5"),
        (1234, "1234"),
        (12345, "12\u2009345"),
        (12345678, "12\u2009345\u2009678"),
        (0.123456, "0.1235"),
        (1.5, "1.5"),
        (1e-9, "10⁻⁹"),
        (2.5e-9, "2.5·10⁻⁹"),
        (1.25e8 + 0.5, "1.25·10⁸"),
    ],
)
def test_number_text(value, text):
    assert scale.number(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.2344e-6, "s", "1.234 µs"),
        (999.96e-9, "s", "1000 ns"),
        (1e-6 * (1 - 1e-12), "s", "1 µs"),
        (125, "s", "2 min 5 s"),
        (7325, "s", "2 h 2 min 5 s"),
        (3600, "s", "1 h"),
        (0, "B", "0 B"),
        (1024, "B", "1 KiB"),
        (1000, "B", "1000 B"),
        (1536, "B", "1.5 KiB"),
        (1 << 20, "B", "1 MiB"),
        (1025, "B", "1025 B"),
        (12.5, "%", "12.5 %"),
        (2.1e9, "Hz", "2.1 GHz"),
        (7, "", "7"),
        (7.5, "1", "7.5"),
        ("mlx5", "s", "mlx5"),
        (True, "", "yes"),
        (math.nan, "s", "–"),
    ],
)
def test_quantity_text(value, unit, text):
    assert scale.quantity(value, unit).replace("\u00a0", " ").replace("\u2009", "") == text


@given(st.lists(st.integers(0, 1 << 40), min_size=2, max_size=2, unique=True))
def test_no_two_sizes_share_a_text(sizes):
    assert scale.quantity(sizes[0], "B") != scale.quantity(sizes[1], "B")


@given(st.floats(-1e6, 1e6), st.floats(1e-9, 1e6))
def test_linear_ticks_lie_inside_and_are_few(low, width):
    high = low + width
    if high == low:
        return
    marks = [v for v, _ in scale.ticks(low, high, most=7)]
    slack = 1e-6 * max(abs(low), abs(high), width)
    assert all(low - slack <= v <= high + slack for v in marks)
    assert len(marks) <= 9


@given(st.floats(1e-9, 1.0), st.floats(1.001, 1e9))
def test_logarithmic_ticks_lie_inside_and_ascend(low, ratio):
    marks = [v for v, _ in scale.ticks(low, low * ratio, "s", log=True)]
    assert all(low * 0.999 <= v <= low * ratio * 1.001 for v in marks)
    assert marks == sorted(set(marks))
    assert 1 <= len(marks) <= 12


def test_logarithmic_ticks_carry_their_own_units():
    texts = [t.replace("\u00a0", " ") for _, t in scale.ticks(1e-7, 1e-2, "s", log=True)]
    assert texts == ["100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms"]


def test_logarithmic_ticks_of_bytes_are_powers_of_two():
    values = [v for v, _ in scale.ticks(1, 2**20, "B", log=True)]
    assert all(np.log2(v).is_integer() for v in values)
    assert scale.ticks(1, 2**20, "B", log=True, most=5)[-1] == (2.0**20, "1\u00a0MiB")


def test_ticks_of_equal_ends_are_that_value():
    assert scale.ticks(3.0, 3.0) == [(3.0, "3")]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (10_538_080, "B", "10.05 MiB"),
        (8192, "B", "8 KiB"),
        (0, "B", "0 B"),
        (0.00123456, "s", "1.235 ms"),
        (3477, "1", "3477"),
        (1234.56, "", "1235"),
        (float("nan"), "s", "–"),
    ],
)
def test_sums_are_rounded(value, unit, text):
    assert scale.rounded(value, unit).replace("\u00a0", " ") == text
