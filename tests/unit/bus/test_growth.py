"""Laws that were planted are found, with intervals that say how well."""

from __future__ import annotations

import numpy as np
import pytest

from sonde.bus.growth import crossing, estimate_at, power_law, slope_of, straight

N = np.array([4, 8, 16, 32, 64, 96], float)


class TestPowerLaw:
    def test_a_planted_square_is_found(self):
        rng = np.random.default_rng(3)
        law = power_law(N, 2.37 * N**2 * np.exp(0.03 * rng.standard_normal(len(N))))
        assert law.exponent == pytest.approx(2, abs=0.05)
        assert law.quadratic is True
        assert law.exponential is False
        assert law.square_low < 2.37 < law.square_high
        assert law.numbers == (4, 96)
        assert 0.005 < law.misfit < 0.08
        assert law.at(50) == pytest.approx(2.37 * 2500, rel=0.1)

    def test_a_planted_line_is_not_called_a_square(self):
        rng = np.random.default_rng(4)
        law = power_law(N, 77 * N * np.exp(0.03 * rng.standard_normal(len(N))))
        assert law.quadratic is False
        assert law.exponent_low < 1 < law.exponent_high

    def test_an_exponential_is_called_one(self):
        law = power_law(N, 30 * np.exp(0.07 * N))
        assert law.exponential is True
        assert law.quadratic is not True or law.against_exponential < -2

    def test_intervals_hold_as_often_as_they_say(self):
        rng = np.random.default_rng(5)
        laws = [power_law(N, 3 * N**1.7 * np.exp(0.1 * rng.standard_normal(len(N)))) for _ in range(400)]
        assert 0.92 < np.mean([law.exponent_low < 1.7 < law.exponent_high for law in laws]) < 0.98

    def test_two_numbers_have_no_interval(self):
        law = power_law([4, 8], [10, 40])
        assert law.exponent == pytest.approx(2)
        assert law.quadratic is None
        assert law.exponential is None

    def test_a_wide_interval_is_not_called_a_square(self):
        law = power_law([8, 16, 32], [700, 5000, 55000])
        assert law.exponent_low < 2 < law.exponent_high
        assert law.quadratic is None
        assert law.exponential is None  # three numbers fit both

    def test_what_is_not_above_zero_is_left_out(self):
        assert power_law([4, 8, 16], [10, 0, np.nan]) is None
        assert power_law([0, 4, 8], [5, 16, 64]).points == 2

    def test_crossing(self):
        square, line = power_law(N, 2 * N**2), power_law(N, 80 * N)
        assert crossing(square, line) == pytest.approx(40)
        assert crossing(line, square) is None
        assert crossing(None, line) is None


class TestLines:
    def test_a_slope_and_its_interval(self):
        rng = np.random.default_rng(6)
        subs = np.array([1, 2, 4, 8, 16])
        # What moves a whole stretch of time by half makes the medians useless, not the slopes.
        drift = 1 + 0.5 * rng.random(30)
        blocks = 20e-6 * drift + subs[:, None] * 3e-6 * (1 + 0.02 * rng.standard_normal((5, 30)))
        line = slope_of(subs, blocks)
        assert line.slope == pytest.approx(3e-6, rel=0.02)
        assert line.slope_low < 3e-6 < line.slope_high
        assert line.slope_high - line.slope_low < 0.2e-6

    def test_few_stretches_go_through_the_medians(self):
        blocks = np.array([[10.0, 10.0], [20.0, 20.0], [30.0, 30.0]])
        line = slope_of([1, 2, 3], blocks)
        assert line.slope == pytest.approx(10)
        assert line.at(5) == pytest.approx(50)

    def test_a_number_without_data_does_not_take_part(self):
        blocks = np.array([[10.0] * 8, [np.nan] * 8, [30.0] * 8])
        assert slope_of([1, 2, 3], blocks).slope == pytest.approx(10)

    def test_one_number_has_no_line(self):
        assert straight([4, 4], [1, 2]) is None


class TestTold:
    POINTS = ((1, (10.0, 9.0, 11.0)), (3, (30.0, 28.0, 32.0)), (8, (40.0, 39.0, 41.0)))

    def told(self, at):
        return estimate_at([n for n, _ in self.POINTS], [v for _, v in self.POINTS], at)

    def test_what_was_measured_is_reported_as_it_is(self):
        found = self.told(3)
        assert (found.value, found.low, found.high, found.beyond) == (30, 28, 32, False)
        assert found.measured == (3,)

    def test_between_two_on_the_straight_line(self):
        found = self.told(2)
        assert found.value == pytest.approx(20)
        assert (found.low, found.high) == pytest.approx((18.5, 21.5))
        assert found.measured == (1, 3)
        assert not found.beyond

    def test_beyond_the_last_it_is_said(self):
        found = self.told(13)
        assert found.beyond
        assert found.value == pytest.approx(50)
        assert np.isnan(found.low)

    def test_a_cost_does_not_shrink_where_nobody_looked(self):
        found = estimate_at([1, 2], [(10, 9, 11), (5, 4, 6)], 100)
        assert found.value == 5
        assert estimate_at([10, 20], [(1, 1, 1), (100, 90, 110)], 1).value == 0

    def test_nothing(self):
        assert estimate_at([], [], 3) is None
        assert estimate_at([1], [(float("nan"),) * 3], 3) is None

    @pytest.mark.parametrize("at", [3, 96])
    def test_one_number_says_nothing_of_another(self, at):
        found = estimate_at([4], [(7, 6, 8)], at)
        assert found.beyond
        assert np.isnan(found.value)
        assert found.measured == (4,)
