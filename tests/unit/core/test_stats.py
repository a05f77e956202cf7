from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import signal
from scipy import stats as scipy_stats

from sonde import _core
from sonde.core import lognormal, spectra, stats
from sonde.core.errors import DataError, UsageError

seconds = st.floats(1e-9, 1e3)
delays = arrays(np.float64, st.integers(1, 80), elements=seconds)
numbers = arrays(np.float64, st.integers(1, 80), elements=st.floats(-1e6, 1e6))
powers = st.integers(-40, 40).map(lambda k: 2.0**k)


def random(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- golden values, which tests/native/core/test_stats_golden.cpp checks in C++ as well --------------------

GOLDEN = Path(__file__).parents[2] / "data" / "stats" / "golden.txt"


def law(arguments: list[float]) -> lognormal.Lognormal3:
    return lognormal.Lognormal3(*arguments, ks=0.0, loglik=0.0, n=1, converged=True)


def summary(field: str) -> Callable[..., Any]:
    return lambda x: getattr(stats.summarise(x), field)


ON_GOLDEN: dict[str, Callable[..., Any]] = {
    "normal_cdf": _core.normal_cdf,
    "normal_quantile": _core.normal_quantile,
    "incomplete_beta": _core.incomplete_beta,
    "student_cdf": _core.student_cdf,
    "student_quantile": _core.student_quantile,
    "binomial_pmf": lambda k, n, p: _core.binomial_pmf(int(k), int(n), p),
    "binomial_cdf": lambda k, n, p: _core.binomial_cdf(int(k), int(n), p),
    **{f"summarise.{field}": summary(field) for field in stats.Summary._fields},
    "quantile": stats.quantile,
    "mean_ci": stats.mean_ci,
    "quantile_ranks": stats.quantile_ranks,
    "epoch_median_ci.medians": lambda x, level: stats.epoch_median_ci(x, level=level),
    "epoch_medians": stats.epoch_medians,
    "epoch_means": stats.epoch_means,
    "effective_samples.epoch": stats.effective_samples,
    "epoch_quantile_ci": stats.epoch_quantile_ci,
    "autocorrelation": stats.autocorrelation,
    "effective_samples": stats.effective_samples,
    "periodogram": spectra.periodogram,
    "welch": spectra.welch,
    "welch.epoch": lambda x, epoch, window, overlap: spectra.welch(x, window, overlap, epoch),
    "sliding_amplitude": lambda x, window, row: spectra.sliding_amplitude(x, window)[int(row)],
    "lognormal3_cdf": lambda x, *a: lognormal.lognormal3_cdf([x], law(a)),
    "lognormal3_quantile": lambda p, *a: lognormal.lognormal3_quantile([p], law(a)),
    "ks_distance": lambda x, *a: lognormal.ks_distance(x, law(a)),
    "fit_lognormal3": lambda x: lognormal.fit_lognormal3(x)[:3],
    "pettitt": lambda x: tuple(stats.pettitt(x)),
}


def golden_cases() -> list[tuple[str, list[np.ndarray], list[float], np.ndarray, float, str]]:
    arrays: dict[str, np.ndarray] = {}
    cases = []
    for line in GOLDEN.read_text().splitlines():
        kind, name, *words = line.split()
        if kind in ("series", "epochs"):
            arrays[name] = np.array(words, dtype=float if kind == "series" else np.int32)
            continue
        colon, equals, tilde = words.index(":"), words.index("="), words.index("~")
        inputs = [arrays[w] for w in words[:colon]]
        arguments = [float(w) for w in words[colon + 1 : equals]]
        values = np.array([float(w) for w in words[equals + 1 : tilde]])
        cases.append((name, inputs, arguments, values, float(words[tilde + 1]), line[:100]))
    return cases


CASES = golden_cases()


@pytest.mark.parametrize("name", sorted(ON_GOLDEN))
def test_agrees_with_golden_values(name: str) -> None:
    lines = [case for case in CASES if case[0] == name]
    assert lines
    for _, inputs, arguments, expected, tolerance, line in lines:
        got = np.atleast_1d(ON_GOLDEN[name](*inputs, *arguments))
        scale = np.nanmax(np.abs(expected))
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * scale, err_msg=line)


def test_every_golden_function_is_known() -> None:
    assert {case[0] for case in CASES} == set(ON_GOLDEN)


# --- agreement on any input ---------------------------------------------------------------------------


@given(numbers, st.floats(0, 1))
def test_quantiles_are_numpys(x, p):
    assert stats.quantile(x, p) == pytest.approx(np.quantile(x, p), rel=1e-12, abs=1e-9)
    assert stats.median(x) == pytest.approx(np.median(x), rel=1e-12, abs=1e-12)


@given(numbers)
def test_summary_is_numpys(x):
    s = stats.summarise(x)
    assert s.n == x.size
    assert (s.min, s.max) == (x.min(), x.max())
    assert s.mean == pytest.approx(x.mean(), rel=1e-9, abs=1e-9)
    assert s.min <= s.q05 <= s.q25 <= s.median <= s.q75 <= s.q95 <= s.q99 <= s.max
    if x.size > 1:
        assert s.sd == pytest.approx(x.std(ddof=1), rel=1e-7, abs=1e-9)


@given(numbers)
def test_the_periodogram_sums_to_the_variance_and_is_scipys(x):
    power = spectra.periodogram(x)
    assert power.size == x.size // 2 + 1
    # Squares of what is smaller than 1e-154 have few digits left.
    least = 1e-12 * np.abs(x).max() ** 2 + np.finfo(float).tiny
    assert power.sum() == pytest.approx(x.var(), rel=1e-9, abs=least)
    expected = signal.periodogram(x, scaling="spectrum", detrend="constant")[1]
    np.testing.assert_allclose(power, expected, rtol=0, atol=least)


@given(arrays(np.float64, st.integers(4, 200), elements=st.floats(-1, 1)), st.data())
def test_welch_is_scipys(x, data):
    window = data.draw(st.integers(2, x.size))
    overlap = data.draw(st.integers(0, window - 1))
    expected = signal.welch(x, nperseg=window, noverlap=overlap)[1] / window
    np.testing.assert_allclose(spectra.welch(x, window, overlap), expected, rtol=0, atol=1e-13)


@given(arrays(np.float64, st.integers(1, 150), elements=st.floats(-1, 1)), st.data())
def test_sliding_amplitudes_are_numpys(x, data):
    window = data.draw(st.integers(1, x.size))
    expected = np.abs(np.fft.rfft(np.lib.stride_tricks.sliding_window_view(x, window), axis=1))
    got = spectra.sliding_amplitude(x, window)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11)


def test_sliding_amplitudes_stay_within_a_billionth_over_a_long_series():
    """The bar of the project, on delays in s and on numbers near 1, in the scale of each."""
    x = 2 + random().lognormal(0, 0.7, 40_000)
    expected = np.abs(np.fft.rfft(np.lib.stride_tricks.sliding_window_view(x, 256), axis=1))
    assert np.abs(spectra.sliding_amplitude(x, 256) - expected).max() < 1e-9
    assert np.abs(spectra.sliding_amplitude(x * 1e-6, 256) - expected * 1e-6).max() < 1e-15


@given(arrays(np.float64, st.integers(2, 60), elements=st.integers(0, 5).map(float)))
def test_pettitt_is_the_sum_of_signs_with_any_ties(x):
    u = np.array([np.sign(x[t:, None] - x[None, :t]).sum() for t in range(1, x.size)])
    found = stats.pettitt(x)
    assert found.statistic == np.abs(u).max()
    if found.statistic > 0:
        assert found.index == np.abs(u).argmax() + 1


@given(st.integers(0, 400), st.floats(0.01, 0.99), st.floats(0.5, 0.999))
def test_ranks_cover_and_no_closer_pair_does(n, p, level):
    ranks = stats.quantile_ranks(n, p, level)
    mass = scipy_stats.binom.pmf(np.arange(n + 1), n, p)
    if ranks.low == 0:
        assert n < 2 or mass[1:n].sum() < level + 1e-9
        return
    assert ranks.level == pytest.approx(mass[ranks.low : ranks.high].sum(), abs=1e-10)
    assert ranks.level >= level - 1e-9
    width = ranks.high - ranks.low - 1
    if width > 0:
        closer = np.convolve(mass[1:n], np.ones(width), "valid") if width < n else np.zeros(1)
        assert closer.max() < level + 1e-9


@given(delays)
def test_student_intervals_are_scipys(x):
    assume(x.size > 1 and np.ptp(x) > 1e-6 * x.max())
    expected = scipy_stats.t.interval(0.95, x.size - 1, loc=x.mean(), scale=scipy_stats.sem(x))
    assert stats.mean_ci(x) == pytest.approx(expected, rel=1e-8, abs=1e-8 * x.max())


def test_the_lognormal_fit_is_as_likely_as_scipys_best():
    x = 1e-6 + 1e-6 * random(4).lognormal(0.1, 0.6, 2000)
    fit = lognormal.fit_lognormal3(x)
    sigma, shift, scale = scipy_stats.lognorm.fit(x, fit.sigma, loc=fit.shift, scale=np.exp(fit.mu))
    best = scipy_stats.lognorm.logpdf(x, sigma, shift, scale).sum()
    own = scipy_stats.lognorm.logpdf(x, fit.sigma, fit.shift, np.exp(fit.mu)).sum()
    assert fit.loglik == pytest.approx(own, rel=1e-10)
    assert fit.loglik > best - 0.2  # half the log-likelihood that separates two fits at any usual level
    assert fit.ks == pytest.approx(lognormal.ks_distance(x, fit))


# --- properties ---------------------------------------------------------------------------------------


@given(delays, st.randoms(use_true_random=False))
def test_order_does_not_matter_where_it_must_not(x, shuffler):
    y = list(x)
    shuffler.shuffle(y)
    assert stats.summarise(y) == pytest.approx(stats.summarise(x), nan_ok=True)
    assert stats.median_ci(y) == pytest.approx(stats.median_ci(x), nan_ok=True)
    assert lognormal.fit_lognormal3(y) == pytest.approx(lognormal.fit_lognormal3(x), nan_ok=True)


@given(delays, powers)
def test_units_do_not_matter(x, unit):
    """Powers of two scale without rounding, so equality is exact but for logarithms."""
    assert stats.median_ci(x * unit) == pytest.approx([v * unit for v in stats.median_ci(x)], nan_ok=True)
    assert stats.effective_samples(x * unit) == pytest.approx(stats.effective_samples(x))
    assert stats.pettitt(x * unit) == stats.pettitt(x)
    np.testing.assert_allclose(spectra.periodogram(x * unit), spectra.periodogram(x) * unit**2)
    here, there = lognormal.fit_lognormal3(x), lognormal.fit_lognormal3(x * unit)
    assert here.converged == there.converged
    if here.converged:
        assert there.shift == pytest.approx(here.shift * unit)
        assert there.mu == pytest.approx(here.mu + np.log(unit), abs=1e-6)
        assert there.sigma == pytest.approx(here.sigma)


@given(arrays(np.int64, st.integers(2, 60), elements=st.integers(0, 1000)), st.integers(-1000, 1000))
def test_a_common_offset_shifts_levels_and_leaves_the_rest(whole, offset):
    x, y = whole.astype(float), (whole + offset).astype(float)
    assert stats.median_ci(y) == pytest.approx([v + offset for v in stats.median_ci(x)], nan_ok=True)
    assert stats.summarise(y).sd == pytest.approx(stats.summarise(x).sd, abs=1e-9)
    assert stats.pettitt(y) == stats.pettitt(x)
    assert stats.effective_samples(y) == pytest.approx(stats.effective_samples(x))


@given(arrays(np.float64, st.integers(1, 120), elements=st.floats(-1, 1)), st.integers(1, 12))
def test_effective_samples_are_between_one_and_n(x, epochs):
    epoch = np.arange(x.size) * epochs // x.size
    for value in (stats.effective_samples(x), stats.effective_samples(x, epoch)):
        assert 1 <= value <= x.size


@given(numbers, st.integers(2, 9), st.floats(0.5, 0.99))
def test_epoch_intervals_lie_within_the_samples_and_grow_with_the_level(x, epochs, level):
    epoch = np.arange(x.size) * epochs // x.size
    assume(len(set(epoch)) >= 6)
    low, high = stats.epoch_median_ci(x, epoch, level)
    wider = stats.epoch_median_ci(x, epoch, 0.5 + level / 2)
    assert x.min() <= wider.low <= low <= high <= wider.high <= x.max()
    # Samples that look counted by a clock are known to within a tick, so the median may lie beside them.
    found = stats.steady_median(x, epoch, level)
    if found.skipped == 0:
        assert (found.low, found.high) == (low, high)
        assert low <= found.median <= high


@given(numbers, st.integers(1, 5))
def test_no_part_between_change_points_is_shorter_than_asked(x, least):
    at = [c.index for c in stats.change_points(x, 0.5, least)]
    assert at == sorted(set(at))
    assert all(b - a >= least for a, b in zip([0, *at], [*at, x.size], strict=True)) or not at


# --- degenerate input ---------------------------------------------------------------------------------

ON_SAMPLES = {
    "summarise": stats.summarise,
    "quantile": lambda x: stats.quantile(x, 0.5),
    "median": stats.median,
    "epoch_medians": lambda x: stats.epoch_medians(x, np.zeros(len(x), int)),
    "epoch_means": lambda x: stats.epoch_means(x, np.zeros(len(x), int)),
    "block_medians": lambda x: stats.block_medians(x, 2),
    "quantile_ci": lambda x: stats.quantile_ci(x, 0.9),
    "median_ci": stats.median_ci,
    "mean_ci": stats.mean_ci,
    "epoch_median_ci": lambda x: stats.epoch_median_ci(x, np.zeros(len(x), int)),
    "epoch_median_ci of medians": stats.epoch_median_ci,
    "epoch_quantile_ci": lambda x: stats.epoch_quantile_ci(x, np.zeros(len(x), int), 0.9),
    "steady_median": lambda x: stats.steady_median(x, np.zeros(len(x), int)),
    "autocorrelation": lambda x: stats.autocorrelation(x, 1),
    "effective_samples": stats.effective_samples,
    "effective_samples of epochs": lambda x: stats.effective_samples(x, np.zeros(len(x), int)),
    "fit_lognormal3": lognormal.fit_lognormal3,
    "hodges_lehmann": stats.hodges_lehmann,
    "periodogram": spectra.periodogram,
    "welch": lambda x: spectra.welch(x, 2),
    "welch of epochs": lambda x: spectra.welch(x, 2, epoch=np.zeros(len(x), int)),
    "sliding_amplitude": lambda x: spectra.sliding_amplitude(x, 2),
    "cumulative_spectrum": spectra.cumulative_spectrum,
    "pettitt": stats.pettitt,
    "change_points": stats.change_points,
    "change_points of epochs": lambda x: stats.change_points(x, epoch=np.zeros(len(x), int)),
    "ks_distance": lambda x: lognormal.ks_distance(x, lognormal.Lognormal3(0, 0, 1, 0, 0, 1, True)),
    "ks_p": lambda x: lognormal.ks_p(x, lognormal.Lognormal3(0, 0, 1, 0, 0, 1, True), 3),
    "lognormal3_cdf": lambda x: lognormal.lognormal3_cdf(x, lognormal.Lognormal3(0, 0, 1, 0, 0, 1, True)),
    "lognormal3_quantile": lambda x: lognormal.lognormal3_quantile(
        x, lognormal.Lognormal3(0, 0, 1, 0, 0, 1, True)
    ),
}


def test_the_list_above_is_complete():
    named = {name.split()[0] for name in ON_SAMPLES}
    classes = {"ChangePoint", "Interval", "Lognormal3", "Ranks", "Shift", "SteadyMedian", "Summary"}
    assert named | classes | {"quantile_ranks", "false_discovery"} == {
        *stats.__all__,
        *lognormal.__all__,
        *spectra.__all__,
    }


@pytest.mark.parametrize("function", ON_SAMPLES.values(), ids=ON_SAMPLES)
class TestSamples:
    def test_empty_series_is_not_an_error(self, function):
        function([])

    def test_one_sample_and_constant_series_are_not_errors(self, function):
        function([0.25])
        function([0.25] * 40)

    def test_nan_is_refused_with_its_place(self, function):
        with pytest.raises(
            DataError, match=r"sample 2 is nan; 2 of 4 samples are not finite numbers"
        ) as caught:
            function([0.1, 0.2, np.nan, np.inf])
        assert caught.value.code == "core.not_finite"
        assert "numpy.isfinite" in caught.value.hint

    def test_two_dimensions_are_refused(self, function):
        with pytest.raises(DataError, match=r"samples have shape \(2, 2\); a series has one dimension"):
            function(np.zeros((2, 2)))

    def test_words_are_refused(self, function):
        with pytest.raises(DataError, match="samples are not numbers"):
            function(["fast", "slow"])

    def test_other_number_types_and_strides_are_taken(self, function):
        x = np.linspace(0.1, 0.9, 80)
        expected = function(x[::2].copy())
        for form in (x[::2], x[::2].tolist(), x[::2].astype(np.longdouble)):
            np.testing.assert_array_equal(function(form), expected)


def test_what_empty_and_constant_series_come_to():
    assert stats.summarise([]).n == 0
    assert np.isnan(stats.summarise([]).median)
    assert np.isnan(stats.median_ci([])).all()
    assert stats.effective_samples([]) == 0
    assert spectra.periodogram([]).size == 0
    assert spectra.sliding_amplitude([], 4).shape == (0, 3)
    assert spectra.sliding_amplitude([1, 2], 4).shape == (0, 3)
    assert stats.pettitt([]) == (0, 0.0, 1.0)
    assert stats.change_points([]) == []
    constant = [0.1] * 20
    assert stats.summarise(constant).sd == 0
    assert stats.median_ci(constant) == (0.1, 0.1)
    assert stats.effective_samples(constant) == 20
    assert not lognormal.fit_lognormal3(constant).converged
    assert not spectra.periodogram(constant).any()
    assert spectra.cumulative_spectrum([0, 0, 0, 0]).tolist() == [0.25, 0.5, 0.75, 1]


def test_samples_without_an_epoch_may_be_nan_as_datasets_pad_with_it():
    x, epoch = random(5).lognormal(size=200), np.repeat(np.arange(10), 20)
    padded, numbers = np.r_[x, [np.nan] * 30], np.r_[epoch, [-1] * 30]
    assert stats.epoch_median_ci(padded, numbers) == stats.epoch_median_ci(x, epoch)
    assert stats.epoch_quantile_ci(padded, numbers, 0.8) == stats.epoch_quantile_ci(x, epoch, 0.8)
    assert stats.effective_samples(padded, numbers) == stats.effective_samples(x, epoch)
    assert stats.epoch_medians(padded, numbers).tolist() == stats.epoch_medians(x, epoch).tolist()
    assert stats.change_points(padded, 0.9, 1, numbers) == stats.change_points(x, 0.9, 1, epoch)
    assert spectra.welch(padded, 8, 4, numbers).tolist() == spectra.welch(x, 8, 4, epoch).tolist()
    with pytest.raises(DataError, match="sample 3 is nan; 1 of 230 samples"):
        stats.epoch_median_ci(np.r_[padded[:3], np.nan, padded[4:]], numbers)


def test_epoch_numbers_must_fit_the_samples():
    with pytest.raises(DataError, match="3 samples have 2 epoch numbers"):
        stats.epoch_median_ci([1, 2, 3], [0, 1])
    with pytest.raises(DataError, match="float64"):
        stats.epoch_median_ci([1, 2, 3], [0.0, 1.0, 1.0])
    assert np.isnan(stats.epoch_median_ci([], [])).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: stats.median_ci([1.0], 95), "level is 95; it must be between 0 and 1"),
        (lambda: stats.quantile([1.0], 1.5), "p is 1.5; it must be from 0 to 1"),
        (lambda: stats.quantile_ci([1.0], 0), "p is 0; it must be between 0 and 1"),
        (lambda: stats.block_medians([1.0], 0), "block is 0; it must be a whole number of at least 1"),
        (lambda: stats.autocorrelation([1.0], -1), "lag is -1; it must be a whole number of at least 0"),
        (lambda: spectra.welch([1.0], 4, 4), "overlap is 4 samples; it must be below the window of 4"),
        (lambda: spectra.sliding_amplitude([1.0], 2.5), "window is 2.5; it must be a whole number"),
        (lambda: stats.change_points([1.0], np.nan), "alpha is nan"),
    ],
)
def test_arguments_out_of_range_say_what_is_allowed(call, words):
    with pytest.raises(UsageError) as caught:
        call()
    assert words in caught.value.what


def test_arrays_come_in_without_a_copy_and_go_out_writable():
    x = random().standard_normal(1000)
    x.flags.writeable = False
    assert stats.median(x) == np.median(x)
    out = spectra.sliding_amplitude(x, 8)
    out[0, 0] = 1
    with pytest.raises(TypeError):
        _core.median(np.zeros(4, dtype=complex))


def test_long_functions_run_beside_each_other():
    """They release the interpreter's lock; here only that this is safe on shared input."""
    x = random(2).lognormal(size=4000)
    expected = spectra.sliding_amplitude(x, 64).sum(), lognormal.fit_lognormal3(x), stats.effective_samples(x)
    results: list[tuple] = []

    def work():
        results.append(
            (spectra.sliding_amplitude(x, 64).sum(), lognormal.fit_lognormal3(x), stats.effective_samples(x))
        )

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


# --- the shift of pairs -------------------------------------------------------------------------------


def test_hodges_lehmann_inverts_the_signed_rank_test():
    x = np.sort(random(3).normal(0.3, 1, 12))
    found = stats.hodges_lehmann(x)
    walsh = np.sort([(a + b) / 2 for i, a in enumerate(x) for b in x[i:]])
    assert found.estimate == pytest.approx(np.median(walsh))

    def p(shift: float) -> float:
        return float(scipy_stats.wilcoxon(x - shift, method="exact").pvalue)

    # Just inside the interval the test does not reject, just outside it does.
    step = 1e-6
    assert p(found.low + step) > 0.05 >= p(found.low - step)
    assert p(found.high - step) > 0.05 >= p(found.high + step)


def test_hodges_lehmann_on_depression_scores():
    # Hollander and Wolfe's Hamilton scores of nine patients, before and after.
    before = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
    after = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])
    found = stats.hodges_lehmann(before - after)
    assert found.estimate == pytest.approx(0.46)
    assert (found.low, found.high) == pytest.approx((0.01, 0.786), abs=1e-9)


@pytest.mark.parametrize("n", range(6))
def test_hodges_lehmann_of_too_few_pairs_has_no_interval(n):
    found = stats.hodges_lehmann(np.arange(n) + 1.0)
    assert np.isnan([found.low, found.high]).all()
    assert np.isnan(found.estimate) if n == 0 else found.estimate == (n + 1) / 2


def test_hodges_lehmann_of_six_pairs_reaches_from_end_to_end():
    assert stats.hodges_lehmann([3.0, 1, 2, 6, 5, 4]) == (3.5, 1, 6)
    assert np.isnan(stats.hodges_lehmann([3.0, 1, 2, 6, 5, 4], 0.99).low)


@pytest.mark.parametrize("n", [6, 12, 60])
def test_hodges_lehmann_of_equal_differences_is_that_difference(n):
    assert stats.hodges_lehmann([0.25] * n) == (0.25, 0.25, 0.25)


@pytest.mark.parametrize("n", [8, 50, 51, 120])
def test_hodges_lehmann_keeps_its_level_with_heavy_tails(n):
    draw, runs, covered = random(n), 400, 0
    for _ in range(runs):
        found = stats.hodges_lehmann(draw.standard_t(1.5, n) + 2)
        covered += found.low <= 2 <= found.high
    assert scipy_stats.binomtest(covered, runs, 0.95, "less").pvalue > 0.001
    assert covered < runs  # an interval that always holds is too wide to be one


def test_hodges_lehmann_goes_over_to_the_normal_law_without_a_jump():
    x = random(9).normal(0, 1, 51)
    widths = [found.high - found.low for found in map(stats.hodges_lehmann, (x[:50], x))]
    assert widths[0] == pytest.approx(widths[1], rel=0.1)


def test_hodges_lehmann_refuses_what_it_cannot_take():
    with pytest.raises(DataError):
        stats.hodges_lehmann([1.0, float("nan")])
    with pytest.raises(UsageError):
        stats.hodges_lehmann([1.0, 2.0], 1.0)


def test_false_discoveries_leave_out_what_was_not_tested_and_count_what_else_was():
    p = [0.01, np.nan, 0.04, 0.03]
    assert stats.false_discovery(p) == pytest.approx([0.03, np.nan, 0.04, 0.04], nan_ok=True)
    assert stats.false_discovery(p, of=6) == pytest.approx([0.06, np.nan, 0.08, 0.08], nan_ok=True)
    assert np.isnan(stats.false_discovery([np.nan])).all()
    assert stats.false_discovery([]).tolist() == []
