"""Cycles, homogeneity and periodic outliers of a series of delays, each with its significance.

Delays have red spectra, because they come in regimes. A cycle must therefore exceed a background fitted to the series'
own spectrum (white noise plus a Lorentzian, the spectrum of regimes), and p is corrected for every frequency tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import fft, ndimage, special
from scipy import stats as sps

from sonde.core import spectra, stats

# A cycle must be seen at least this number of times: fewer repetitions are a drift.
LEAST_CYCLES = 3
# Fewer values than this show nothing about cycles.
LEAST_VALUES = 24
# Fewer bursts, or shorter ones, show nothing about cycles within them.
LEAST_BURSTS, LEAST_BURST = 4, 16
LEAST_WINDOWS = 8
# More windows than this are compared in groups of neighbours, because each is compared with each other.
MOST_WINDOWS = 512
# A spectrum's background is fitted to this number of single ordinates; those above them are grouped.
SINGLE_ORDINATES = 4096
GROUPED_ORDINATES = 1024
# An outlier is this number of robust sd above the usual value around it.
OUTLIER_SD = 6.0
LEAST_OUTLIERS = 6
OUTLIER_BINS = 1 << 17


@dataclass(frozen=True)
class Cycle:
    """The strongest cycle of a series.

    p : probability that noise with the same background shows such a strong cycle at any tried frequency; NaN if the
    series is too short. period : unit of the given times (samples without times); NaN where p is.
    share : the part of the variance in the cycle
    """

    p: float
    period: float
    share: float


@dataclass(frozen=True)
class Homogeneity:
    """Whether successive windows of a series are alike.

    level_p : of windows whose means come in any order; shape_p : the same for their spectra without the mean.
    p : both together (twice the smaller, at most 1). windows : their number. NaN if there are too few.
    """

    p: float
    level_p: float
    shape_p: float
    windows: int


@dataclass(frozen=True)
class Outliers:
    """Outliers of a series and their period, if there is one.

    index : (m,) samples that are outliers; neighbours count as one event in the test. share : of all samples.
    p : of the period, NaN with fewer than LEAST_OUTLIERS events. period, phase : unit of the given times, NaN unless p
    is below the requested level. in_phase : share of events in phase with the period, beyond chance.
    least_period : shorter periods were not searched.
    """

    index: np.ndarray
    share: float
    p: float
    period: float
    phase: float
    in_phase: float
    least_period: float


NO_CYCLE = Cycle(float("nan"), float("nan"), float("nan"))


def cyclicity(x: np.ndarray, t: np.ndarray | None = None) -> Cycle:
    """Search a cycle in a series, evenly sampled or not.

    Parameters
    ----------
    x : (n,) delays or medians of epochs; only their ranks matter, so outliers do not create a cycle
    t : (n,) times; None for evenly spaced samples

    Returns
    -------
    Cycle; NaN with fewer than LEAST_VALUES values, for a constant series and for times without span.

    Source: exponential law of periodogram ordinates over a smooth background, Vaughan, Astronomy &
    Astrophysics 431, 2005, 391-403; uneven times by Zechmeister & Kuerster, A&A 496, 2009, 577-584.
    """
    n = len(x)
    if n < LEAST_VALUES or np.ptp(x) == 0:
        return NO_CYCLE
    scores = _normal_scores(x)
    if t is None:
        power = spectra.periodogram(scores)[1 : (n - 1) // 2 + 1] * n / 2
        frequency = np.arange(1, len(power) + 1) / n
        return _strongest(power, frequency, frequency >= LEAST_CYCLES / n, 1, len(power) - LEAST_CYCLES + 1)
    span = float(np.ptp(t))
    if span <= 0:
        return NO_CYCLE
    # Up to the highest frequency of n evenly spaced values, four points for each independent frequency.
    oversampling = 4
    frequency = np.arange(oversampling, oversampling * (n // 2) + 1) / (oversampling * span)
    share = _sine_share(t - t.min(), scores, oversampling * span, frequency.size + oversampling)[
        oversampling:
    ]
    # For white noise the share of variance in a fitted sine is beta distributed; this makes it exponential.
    power = -(n - 3) / 2 * np.log1p(-np.clip(share, 0, 1 - 1e-12))
    allowed = frequency >= LEAST_CYCLES / span
    # A grid finer than the independent frequencies finds slightly higher maxima than these alone.
    tried = 2.0 * (n // 2 - LEAST_CYCLES + 1)
    return _strongest(power, frequency, allowed, oversampling, tried)


def burst_cyclicity(bursts: np.ndarray) -> Cycle:
    """Search a cycle within bursts: their spectra are averaged, differences between bursts are left out.

    Parameters
    ----------
    bursts : (B, K) delays of B bursts of K consecutive samples

    Returns
    -------
    Cycle, period in samples; NaN with fewer than LEAST_BURSTS bursts of LEAST_BURST samples.
    """
    count, width = bursts.shape
    if count < LEAST_BURSTS or width < LEAST_BURST or np.ptp(bursts) == 0:
        return NO_CYCLE
    scores = _normal_scores(bursts.ravel()).reshape(bursts.shape)
    scores = scores - scores.mean(axis=1, keepdims=True)
    power = (np.abs(np.fft.rfft(scores, axis=1)) ** 2 / width).mean(axis=0)[1 : (width - 1) // 2 + 1]
    frequency = np.arange(1, len(power) + 1) / width
    allowed = frequency >= 2 / width
    return _strongest(power, frequency, allowed, 1, int(allowed.sum()), count)


def homogeneity(windows: np.ndarray, seed: int = 0, permutations: int = 499) -> Homogeneity:
    """Test whether the order of windows matters, that is, whether neighbours are more alike than other windows.

    Parameters
    ----------
    windows : (W, m) delays; row k is the k-th window
    seed, permutations : of the permutation test

    Returns
    -------
    Homogeneity; NaN with fewer than LEAST_WINDOWS windows or windows of fewer than 8 samples. More than MOST_WINDOWS
    windows are combined into groups of neighbours, which are then compared and counted.
    """
    count, width = windows.shape
    if count < LEAST_WINDOWS or width < 8:
        return Homogeneity(float("nan"), float("nan"), float("nan"), count)
    scores = _normal_scores(windows.ravel()).reshape(windows.shape)
    level = scores.mean(axis=1)
    power = np.abs(np.fft.rfft(scores - level[:, None], axis=1))[:, 1:] ** 2
    shape = np.stack([spectra.cumulative_spectrum(row) for row in power])
    if count > MOST_WINDOWS:
        begin = np.linspace(0, count, MOST_WINDOWS, endpoint=False).astype(int)
        sizes = np.diff(np.append(begin, count))
        level = np.add.reduceat(level, begin) / sizes
        shape = np.add.reduceat(shape, begin) / sizes[:, None]
        count = MOST_WINDOWS
    rng = np.random.default_rng(seed)
    orders = np.stack([rng.permutation(count) for _ in range(permutations)])
    level_p = _order_p(np.abs(level[:, None] - level[None, :]), orders)
    shape_p = _order_p(np.abs(shape[:, None, :] - shape[None, :, :]).max(axis=2), orders)
    return Homogeneity(min(1.0, 2 * min(level_p, shape_p)), level_p, shape_p, count)


def outliers_of(x: np.ndarray, epoch: np.ndarray) -> np.ndarray:
    """Samples far above the usual value of their epoch: (n,) bool.

    The usual value is the median of the epoch, or of a stretch of 51 samples if there is one epoch; the spread is that
    of the whole series about it, so that a regime is not an outlier.
    """
    if len(x) < 8 or not (x > 0).all():
        return np.zeros(len(x), bool)
    y = np.log(x)
    _, position, count = np.unique(epoch, return_inverse=True, return_counts=True)
    if len(count) > 1 and np.median(count) >= 5:
        rest = y - stats.epoch_medians(y, epoch)[position]
    else:
        rest = y - ndimage.median_filter(y, size=min(51, len(y) // 2 * 2 - 1), mode="nearest")
    spread = 1.4826 * float(np.median(np.abs(rest)))
    # If most delays are equal, as with a coarse clock, the MAD is 0.
    spread = max(spread, float(np.quantile(np.abs(rest), 0.8)) / 1.2816, 1e-3)
    return np.asarray(rest > OUTLIER_SD * spread)


def periodic_outliers(
    x: np.ndarray, epoch: np.ndarray, t: np.ndarray | None = None, level: float = 0.01
) -> Outliers:
    """Find outliers and test whether they come at regular times.

    Parameters
    ----------
    x : (n,) delays; epoch : (n,) int; t : (n,) times of samples, None to count samples
    level : the p below which period, phase and in_phase are reported

    Returns
    -------
    Outliers. Samples are taken at their own times, in bursts, which also have periods, and some bursts have more
    outliers than others. The test therefore uses the outliers' spectrum minus the spectrum of an equal number of random
    samples of each epoch.

    Source: Rayleigh's test on phases; expectation over random picks by subtracting the scaled spectrum of all
    times.
    """
    found = outliers_of(x, epoch)
    index = np.flatnonzero(found)
    n = len(x)
    nan = float("nan")
    none = Outliers(index, len(index) / max(n, 1), nan, nan, nan, nan, nan)
    when = np.arange(n, dtype=float) if t is None else t
    first = (
        np.concatenate([[True], (np.diff(index) > 1) | (np.diff(epoch[index]) != 0)]) if len(index) else index
    )
    event = when[index[first]] if len(index) else np.zeros(0)
    span = float(np.ptp(when)) if n else 0.0
    if len(event) < LEAST_OUTLIERS or span <= 0:
        return none
    start = float(when.min())
    step = span / OUTLIER_BINS if t is not None else max(1.0, span / OUTLIER_BINS)
    bins = int(np.ceil(span / step)) + 1
    length = fft.next_fast_len(2 * bins, real=True)

    def spectrum(times: np.ndarray, weight: np.ndarray) -> np.ndarray:
        counted = np.bincount(((times - start) / step).astype(int), weight, minlength=bins)
        # Twice as long as the span: two points for each independent frequency.
        return np.asarray(fft.rfft(counted, length))

    m = len(event)
    _, position, sizes = np.unique(epoch, return_inverse=True, return_counts=True)
    expected = np.bincount(position[index[first]], minlength=len(sizes)) / sizes
    surplus = spectrum(event, np.ones(m)) - spectrum(when, expected[position])
    power = np.abs(surplus) ** 2 / max(float((sizes * expected * (1 - expected)).sum()), 1e-9)
    frequency = np.arange(len(power)) / (length * step)
    highest = 0.5 if t is None and step == 1 else 0.25 / step
    allowed = (frequency >= LEAST_CYCLES / span) & (frequency <= highest)
    if not allowed.any():
        return none
    # Outliers in bunches raise all low frequencies alike: that is not a period.
    around = ndimage.median_filter(power, size=min(101, len(power) // 2 * 2 - 1), mode="nearest") / np.log(2)
    ratio = np.where(allowed, power / np.maximum(around, 1.0), 0.0)
    tried = 2.0 * span * (frequency[allowed][-1] - frequency[allowed][0]) + 1
    p = _paid(float(ratio.max()), tried)
    if p > level:
        return Outliers(index, len(index) / n, p, nan, nan, nan, 1 / float(highest))
    best, turns = _tuned(event - start, float(frequency[int(ratio.argmax())]), span)
    # A strict period appears at all its multiples alike: the longest one that explains as much is the period.
    for part in (2, 3, 4, 5):
        slower, its_turns = _tuned(event - start, best / part, span)
        if slower >= LEAST_CYCLES / span and abs(its_turns) >= 0.8 * abs(turns):
            best, turns = slower, its_turns
            break
    period, phase = 1 / best, float(-np.angle(turns) / (2 * np.pi) % 1.0)
    distance = np.abs((((event - start) * best - phase) + 0.5) % 1.0 - 0.5)
    in_phase = max(0.0, (float(np.mean(distance <= 0.1)) - 0.2) / 0.8)
    return Outliers(
        index, len(index) / n, p, period, (start + phase * period) % period, in_phase, 1 / float(highest)
    )


def _tuned(event: np.ndarray, near: float, span: float) -> tuple[float, complex]:
    """The frequency close to `near` at which events agree best, and the sum of their phases there."""
    fine = near + np.linspace(-0.75, 0.75, 61) / span
    fine = fine[fine > 0]
    turns = np.exp(-2j * np.pi * np.outer(fine, event)).sum(axis=1)
    at = int(np.abs(turns).argmax())
    return float(fine[at]), complex(turns[at])


# ---- spectra ----------------------------------------------------------------------------------


def _normal_scores(x: np.ndarray) -> np.ndarray:
    """Ranks as normal quantiles, mean 0 and sd 1: the law of delays no longer matters."""
    scores = special.ndtri((sps.rankdata(x) - 0.5) / len(x))
    return np.asarray((scores - scores.mean()) / max(scores.std(), 1e-12))


def _strongest(
    power: np.ndarray,
    frequency: np.ndarray,
    allowed: np.ndarray,
    oversampling: int,
    tried: float,
    averaged: int = 1,
) -> Cycle:
    """The highest ratio of power to background among the allowed frequencies."""
    if allowed.sum() < 4:
        return NO_CYCLE
    ratio = power / _background(power, frequency, oversampling, averaged)
    at = int(np.where(allowed, ratio, -1.0).argmax())
    p = (
        _paid(float(ratio[at]), tried)
        if averaged == 1
        else _bonferroni_gamma(float(ratio[at]), tried, averaged)
    )
    near = slice(max(0, at - oversampling), at + oversampling + 1)
    share = float(power[near].sum() / power.sum())
    return Cycle(p, float(1 / frequency[at]), share)


def _paid(ratio: float, tried: float) -> float:
    """p of the highest of `tried` exponential ratios."""
    if ratio <= 0:
        return 1.0
    # log(1 - exp(-ratio)) without cancellation at either end: Maechler, vignette of the R package Rmpfr, 2012.
    below = np.log(-np.expm1(-ratio)) if ratio < np.log(2) else np.log1p(-np.exp(-min(ratio, 700.0)))
    return float(-np.expm1(tried * below))


def _bonferroni_gamma(ratio: float, tried: float, averaged: int) -> float:
    return float(min(1.0, tried * sps.gamma.sf(ratio, averaged, scale=1 / averaged)))


def _sine_share(t: np.ndarray, y: np.ndarray, period: float, count: int) -> np.ndarray:
    """Share of the variance of y that a sine and a constant explain at frequencies 0, 1/period, 2/period...

    Parameters
    ----------
    t : (n,) times from 0; y : (n,) mean 0; period : longer than any time; count : of frequencies

    Returns
    -------
    (count,) float; meaningless at frequency 0.

    The sums over sines are Fourier transforms of the samples spread over an even grid, because every sample against
    every frequency takes minutes for ten thousand epochs. Cubic B-splines on a grid four times finer than needed are
    correct to 1 % at the highest frequency and far better below it.
    Source: Zechmeister & Kuerster 2009, equations 4 to 15; Greengard & Lee, SIAM Review 46, 2004, 443-454.
    """
    length = fft.next_fast_len(8 * count, real=True)
    at = t * (length / period)
    cell = np.floor(at).astype(np.int64)
    u = at - cell
    spline = ((1 - u) ** 3, 4 - 6 * u**2 + 3 * u**3, 1 + 3 * (u + u**2 - u**3), u**3)

    def sums(weight: np.ndarray, most: int) -> np.ndarray:
        grid = np.zeros(length)
        for offset, part in enumerate(spline):
            grid += np.bincount((cell + offset - 1) % length, weight * part / 6, minlength=length)
        return np.asarray(np.conj(fft.rfft(grid)[:most]) / np.sinc(np.arange(most) / length) ** 4)

    n = len(t)
    of_times = sums(np.full(n, 1 / n), 2 * count - 1)
    of_y = sums(y / n, count)
    once, twice = of_times[:count], of_times[::2]
    cc = (1 + twice.real) / 2 - once.real**2
    ss = (1 - twice.real) / 2 - once.imag**2
    cs = twice.imag / 2 - once.real * once.imag
    explained = ss * of_y.real**2 + cc * of_y.imag**2 - 2 * cs * of_y.real * of_y.imag
    return np.asarray(explained / np.maximum((cc * ss - cs**2) * np.mean(y**2), 1e-12))


# The white part of a background, and the corner of its Lorentzian as a share of the highest frequency.
_WHITE = (1.0, 0.6, 0.3, 0.15, 0.07, 0.03, 0.01, 0.003, 0.001, 0.0)
_CORNERS = 14


def _shape(frequency: np.ndarray, white: float, corner: float, even: bool) -> np.ndarray:
    """A spectrum that a background may have: white noise over a Lorentzian."""
    steep = np.sin(np.pi * frequency) if even else frequency
    return np.asarray(white + (1 - white) / (1 + (steep / corner) ** 2))


@lru_cache(maxsize=8)
def _shapes(
    count: int, lowest: float, highest: float, even: bool
) -> tuple[np.ndarray, np.ndarray, list[tuple[float, float]]]:
    """The begin of each group of ordinates, (groups,); shapes at their middles, (shapes, groups); (white, corner)."""
    begin = np.arange(count)
    if count > SINGLE_ORDINATES:
        grouped = np.geomspace(SINGLE_ORDINATES, count, GROUPED_ORDINATES, endpoint=False)
        begin = np.unique(np.concatenate([begin[:SINGLE_ORDINATES], grouped.astype(int)]))
    step = (highest - lowest) / max(count - 1, 1)
    frequency = lowest + step * (begin + np.append(begin[1:], count) - 1) / 2
    # Evenly spaced samples fold frequencies above half their rate: an autoregression's spectrum, not a Lorentzian.
    ends = np.array([lowest, highest])
    steep = np.sin(np.pi * ends) if even else ends
    corners = np.geomspace(steep[0] / 3, steep[1], _CORNERS)
    kinds = [(1.0, float(corners[0])), *((w, float(c)) for w in _WHITE[1:] for c in corners)]
    return begin, np.stack([_shape(frequency, *kind, even) for kind in kinds]), kinds


def _background(power: np.ndarray, frequency: np.ndarray, oversampling: int, averaged: int) -> np.ndarray:
    """The most likely smooth spectrum under the ordinates, by Whittle's likelihood, without the highest one."""
    even = oversampling == 1
    begin, shapes, kinds = _shapes(len(power), float(frequency[0]), float(frequency[-1]), even)
    sizes = np.diff(np.append(begin, len(power)))
    ratio = np.maximum(np.add.reduceat(power, begin) / sizes, 1e-12) / shapes
    peak = ratio.argmax(axis=1)
    column = np.arange(len(begin))
    weights = np.where(np.abs(column[None, :] - peak[:, None]) > oversampling - 1, sizes, 0)
    m = max(len(power) / oversampling, 2.0)
    # Without its highest value the mean of m exponentials is too small by this amount.
    lacking = max((m - np.log(m) - 0.5772) / (m - 1), 0.2) if averaged == 1 else 1.0
    scale = (weights * ratio).sum(axis=1) / weights.sum(axis=1) / lacking
    loglik = -((weights * np.log(shapes)).sum(axis=1) + weights.sum(axis=1) * np.log(scale))
    # White noise, unless red noise is more likely by the value of two more parameters.
    loglik[1:] -= 2.0 * oversampling / averaged
    best = int(loglik.argmax())
    return scale[best] * _shape(frequency, *kinds[best], even)


def _order_p(distance: np.ndarray, orders: np.ndarray) -> float:
    """p of neighbours this close, compared with random orders."""
    seen = distance[np.arange(len(distance) - 1), np.arange(1, len(distance))].sum()
    drawn = distance[orders[:, :-1], orders[:, 1:]].sum(axis=1)
    return float((1 + (drawn <= seen + 1e-12).sum()) / (1 + len(orders)))
