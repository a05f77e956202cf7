"""Statistics: the Python interface of `native/core/stats`. Functions that scipy has are used from scipy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from sonde import _core
from sonde.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats: TypeAlias = NDArray[np.float64]

__all__ = [
    "ChangePoint",
    "Interval",
    "Lognormal3",
    "Ranks",
    "Shift",
    "SteadyMedian",
    "Summary",
    "autocorrelation",
    "block_medians",
    "change_points",
    "cumulative_spectrum",
    "effective_samples",
    "epoch_means",
    "epoch_median_ci",
    "epoch_medians",
    "epoch_quantile_ci",
    "false_discovery",
    "fit_lognormal3",
    "hodges_lehmann",
    "ks_distance",
    "ks_p",
    "lognormal3_cdf",
    "lognormal3_quantile",
    "mean_ci",
    "median",
    "median_ci",
    "periodogram",
    "pettitt",
    "quantile",
    "quantile_ci",
    "quantile_ranks",
    "sliding_amplitude",
    "steady_median",
    "summarise",
    "welch",
]


class Summary(NamedTuple):
    """Twelve numbers about a set of samples. All but `n` in the samples' unit; NaN for a missing value."""

    n: int
    mean: float
    sd: float  # sample standard deviation, divisor n - 1
    min: float
    max: float
    median: float
    mad: float  # median of |x - median|, not scaled
    q05: float
    q25: float
    q75: float
    q95: float
    q99: float


class Interval(NamedTuple):
    """A confidence interval, in the samples' unit; (nan, nan) if there is none to give."""

    low: float
    high: float


class Shift(NamedTuple):
    """A typical difference and its confidence interval, in the differences' unit."""

    estimate: float
    low: float
    high: float


class Ranks(NamedTuple):
    """Order statistics that bound a quantile, counted from 1, and their exact coverage."""

    low: int
    high: int
    level: float


class Lognormal3(NamedTuple):
    """A fitted three-parameter lognormal: log(x - shift) is normal with mean mu and sd sigma."""

    shift: float
    mu: float
    sigma: float
    ks: float
    loglik: float
    n: int
    converged: bool


class ChangePoint(NamedTuple):
    """A change of level: the first sample of the new level, Pettitt's K, and p."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on this class
    statistic: float
    p: float


def _samples(x: ArrayLike) -> Floats:
    try:
        array = np.ascontiguousarray(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            "core.not_numbers", f"samples are not numbers: {error}", "give floats, in s"
        ) from None
    if array.ndim != 1 or np.ndim(x) != 1:
        raise DataError(
            "core.not_a_series",
            f"samples have shape {np.shape(x)}; a series has one dimension",
            "pick one cell, or flatten with x.ravel()",
        )
    return array


def _epochs(epoch: ArrayLike) -> NDArray[np.int32]:
    array = np.asarray(epoch)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(
            "core.not_epochs",
            f"epoch numbers have shape {array.shape} and type {array.dtype}; they are a series of integers",
            "give one integer for every sample, -1 for none",
        )
    return np.ascontiguousarray(array, dtype=np.int32)


def _share(name: str, value: float, *, open_ends: bool = True) -> float:
    inside = 0 < value < 1 if open_ends else 0 <= value <= 1
    if not inside:
        ends = "between 0 and 1" if open_ends else "from 0 to 1"
        raise UsageError(
            "core.not_a_share", f"{name} is {value:g}; it must be {ends}", f"{name}=0.95, not 95"
        )
    return float(value)


def _count(name: str, value: int, least: int) -> int:
    if value != int(value) or value < least:
        raise UsageError(
            "core.not_a_count", f"{name} is {value}; it must be a whole number of at least {least}"
        )
    return int(value)


def summarise(x: ArrayLike) -> Summary:
    """Summarise samples in twelve numbers.

    Parameters
    ----------
    x : (n,) float           any unit; n = 0 gives NaN, n = 1 gives NaN for sd

    Returns
    -------
    Summary, same unit as x. Quantiles are linear between order statistics.

    Raises
    ------
    DataError  x holds NaN or infinity.

    Source: quantiles of type 7, Hyndman and Fan, The American Statistician 50, 1996.
    """
    return Summary(*_core.summarise(_samples(x)))


def quantile(x: ArrayLike, p: float) -> float:
    """Quantile of samples, linear between order statistics.

    Parameters
    ----------
    x : (n,) float           n = 0 gives NaN
    p : float in [0, 1]

    Returns
    -------
    float, same unit as x; equal to numpy.quantile.

    Raises
    ------
    DataError   x holds NaN or infinity.
    UsageError  p is outside [0, 1].

    Source: type 7, Hyndman and Fan, The American Statistician 50, 1996.
    """
    return float(_core.quantile(_samples(x), _share("p", p, open_ends=False)))


def median(x: ArrayLike) -> float:
    """Middle sample, or the mean of the middle two.

    Parameters
    ----------
    x : (n,) float           n = 0 gives NaN

    Returns
    -------
    float, same unit as x.

    Raises
    ------
    DataError  x holds NaN or infinity.
    """
    return float(_core.median(_samples(x)))


def epoch_medians(x: ArrayLike, epoch: ArrayLike) -> Floats:
    """Median of every epoch.

    Parameters
    ----------
    x : (n,) float
    epoch : (n,) int         epoch of each sample; negative: no epoch, left out whatever its value

    Returns
    -------
    (epochs,) float, same unit as x, in ascending order of epoch number; empty without epochs.

    Raises
    ------
    DataError  x holds NaN or infinity; lengths differ.
    """
    return np.asarray(_core.epoch_medians(_samples(x), _epochs(epoch)))


def epoch_means(x: ArrayLike, epoch: ArrayLike) -> Floats:
    """Mean of every epoch; as `epoch_medians`."""
    return np.asarray(_core.epoch_means(_samples(x), _epochs(epoch)))


def block_medians(x: ArrayLike, block: int) -> Floats:
    """Medians of consecutive blocks.

    Parameters
    ----------
    x : (n,) float
    block : int >= 1         samples in a block; an incomplete last block is left out

    Returns
    -------
    (n // block,) float, same unit as x.

    Raises
    ------
    DataError   x holds NaN or infinity.
    UsageError  block is below 1.
    """
    return np.asarray(_core.block_medians(_samples(x), _count("block", block, 1)))


def quantile_ranks(n: int, p: float, level: float = 0.95) -> Ranks:
    """Ranks of the closest two order statistics that cover a quantile.

    Parameters
    ----------
    n : int >= 0             samples
    p : float in (0, 1)      which quantile
    level : float in (0, 1)  least coverage

    Returns
    -------
    Ranks (low, high, level): the exact coverage for independent samples from a continuous law.
    (0, 0, nan) when n is too small for any pair.

    Raises
    ------
    UsageError  p or level is outside (0, 1).

    Source: Le Boudec 2010, Theorem 2.1 and Table A.1.
    """
    return Ranks(*_core.quantile_ranks(_count("n", n, 0), _share("p", p), _share("level", level)))


def quantile_ci(x: ArrayLike, p: float, level: float = 0.95) -> Interval:
    """Distribution-free confidence interval of a quantile, for independent samples.

    Parameters
    ----------
    x : (n,) float
    p : float in (0, 1)      which quantile
    level : float in (0, 1)  least coverage; `quantile_ranks` gives the exact one

    Returns
    -------
    Interval (low, high), same unit as x; (nan, nan) when n is too small.

    Raises
    ------
    DataError   x holds NaN or infinity.
    UsageError  p or level is outside (0, 1).

    Source: order statistics, Le Boudec 2010, Table A.1.
    """
    return Interval(*_core.quantile_ci(_samples(x), _share("p", p), _share("level", level)))


def median_ci(x: ArrayLike, level: float = 0.95) -> Interval:
    """Distribution-free confidence interval of the median, for independent samples.

    Parameters
    ----------
    x : (n,) float           at level 0.95 n >= 6, else the interval is (nan, nan)
    level : float in (0, 1)  least coverage

    Returns
    -------
    Interval (low, high), same unit as x.

    Raises
    ------
    DataError   x holds NaN or infinity.
    UsageError  level is outside (0, 1).

    Source: order statistics, Le Boudec 2010, Table A.1.
    """
    return Interval(*_core.median_ci(_samples(x), _share("level", level)))


def mean_ci(x: ArrayLike, level: float = 0.95) -> Interval:
    """Student's confidence interval of the mean, for independent samples.

    Parameters
    ----------
    x : (n,) float           n >= 2, else the interval is (nan, nan)
    level : float in (0, 1)

    Returns
    -------
    Interval (low, high), same unit as x.

    Raises
    ------
    DataError   x holds NaN or infinity.
    UsageError  level is outside (0, 1).
    """
    return Interval(*_core.mean_ci(_samples(x), _share("level", level)))


def hodges_lehmann(differences: ArrayLike, level: float = 0.95) -> Shift:
    """Typical difference of pairs: the median of all means of two, with the interval of the signed-rank test.

    It keeps its level when differences are heavy-tailed, as long as they are symmetric about the shift. Differences of
    pairs are symmetric if the treated member of each pair was chosen at random.

    Parameters
    ----------
    differences : (n,) float    one of each pair
    level : float in (0, 1)

    Returns
    -------
    Shift (estimate, low, high); low and high are NaN where n is too small for the level (n < 6 for 0.95), all
    are NaN for n = 0.

    Raises
    ------
    DataError  differences hold NaN or infinity. UsageError  level outside (0, 1).

    Source: Hodges and Lehmann 1963; interval: Hollander and Wolfe 1999, 3.3. Up to 50 pairs exact.
    """
    x = _samples(differences)
    _share("level", level)
    n = x.size
    _core.median(x)  # raises an error for values that are not finite
    if n == 0:
        return Shift(float("nan"), float("nan"), float("nan"))
    first, second = np.triu_indices(n)
    walsh = np.sort((x[first] + x[second]) / 2)
    estimate = float(np.median(walsh))
    tail = (1 - level) / 2
    if n <= 50:
        ways = np.zeros(
            walsh.size + 1
        )  # for each sum of signed ranks: how many of the 2^n sign patterns give it
        ways[0] = 1
        for rank in range(1, n + 1):
            ways[rank:] += ways[:-rank].copy()
        below = np.cumsum(ways) / 2.0**n
        cut = int(np.searchsorted(below, tail, side="right"))  # P(T < cut) <= tail
    else:
        from scipy.stats import norm

        spread = np.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        cut = int(np.floor(n * (n + 1) / 4 + norm.ppf(tail) * spread))
    if cut < 1:
        return Shift(estimate, float("nan"), float("nan"))
    return Shift(estimate, float(walsh[cut - 1]), float(walsh[-cut]))


def epoch_quantile_ci(x: ArrayLike, epoch: ArrayLike, p: float, level: float = 0.95) -> Interval:
    """Confidence interval of a quantile from the differences between epochs.

    Valid for dependence within epochs and for regimes that come and go between them.

    Parameters
    ----------
    x : (n,) float           n must be large enough that the quantile is not beyond all samples
    epoch : (n,) int         epoch of each sample; negative: no epoch, left out. At least 6 epochs
    p : float in (0, 1)      which quantile
    level : float in (0, 1)

    Returns
    -------
    Interval (low, high), same unit as x; (nan, nan) if there are too few data.

    Raises
    ------
    DataError   x holds NaN or infinity; lengths differ.
    UsageError  p or level is outside (0, 1).

    Source: Woodruff, J. Amer. Statist. Assoc. 47, 1952, 635-646, with epochs as clusters, inverted.
    """
    return Interval(
        *_core.epoch_quantile_ci(_samples(x), _epochs(epoch), _share("p", p), _share("level", level))
    )


def epoch_median_ci(x: ArrayLike, epoch: ArrayLike | None = None, level: float = 0.95) -> Interval:
    """Confidence interval of the median from the differences between epochs.

    Parameters
    ----------
    x : (n,) float           samples; without `epoch`, the medians of the epochs
    epoch : (n,) int         epoch of each sample; negative: no epoch, left out whatever its value
    level : float in (0, 1)

    Returns
    -------
    Interval (low, high), same unit as x; (nan, nan) with fewer than two epochs. With 2 to 5 epochs it
    assumes one regime. From medians alone it covers the median of the epochs' medians.

    Raises
    ------
    DataError   x holds NaN or infinity; lengths differ.
    UsageError  level is outside (0, 1).

    Source: as `epoch_quantile_ci`; from medians, Hettmansperger and Sheather, Statistics & Probability
    Letters 4, 1986, 75-79.
    """
    if epoch is None:
        return Interval(*_core.epoch_median_ci(_samples(x), _share("level", level)))
    return Interval(*_core.epoch_median_ci(_samples(x), _epochs(epoch), _share("level", level)))


class SteadyMedian(NamedTuple):
    """The median after the warm-up is left out, and its precision. Unit of the samples."""

    median: float
    low: float
    high: float
    skipped: int  # samples at the beginning that were left out as warm-up
    steady: bool  # False: the warm-up is longer than these data can show; nothing was left out
    dependence: float  # factor by which the correlation of neighbouring epochs changes the variance


def steady_median(x: ArrayLike, epoch: ArrayLike, level: float = 0.95) -> SteadyMedian:
    """Median without the warm-up, and its interval from the differences between epochs.

    Equal samples that look like multiples of a clock's tick are spread over one tick, so that the median is known to
    less than a tick.

    Parameters
    ----------
    x : (n,) float           samples
    epoch : (n,) int         epoch of each sample; negative: no epoch, left out whatever its value
    level : float in (0, 1)

    Returns
    -------
    SteadyMedian; no interval with one epoch, an interval that assumes a single regime with 2 to 5. A warm-up is
    searched in 8 epochs or more.

    Raises
    ------
    DataError   x holds NaN or infinity; lengths differ.
    UsageError  level is outside (0, 1).

    Source: native/core/stats/pooled.hpp and warm_up.hpp, which name theirs.
    """
    return SteadyMedian(*_core.steady_median(_samples(x), _epochs(epoch), _share("level", level)))


def autocorrelation(x: ArrayLike, lag: int) -> float:
    """Correlation of a series with itself `lag` samples later.

    Parameters
    ----------
    x : (n,) float           n = 0 gives NaN; a constant series 0
    lag : int >= 0           from n on: 0

    Returns
    -------
    float in [-1, 1]; sums are divided by n at every lag.

    Raises
    ------
    DataError   x holds NaN or infinity.
    UsageError  lag is negative.
    """
    return float(_core.autocorrelation(_samples(x), _count("lag", lag, 0)))


def effective_samples(x: ArrayLike, epoch: ArrayLike | None = None) -> float:
    """Number of independent samples that would give the mean as precisely as these.

    Parameters
    ----------
    x : (n,) float           a constant series counts n
    epoch : (n,) int         epoch of each sample; negative: no epoch, left out. With epochs, dependence that outlasts
    an epoch is detected

    Returns
    -------
    float from 1 to n; 0 for an empty series.

    Raises
    ------
    DataError  x holds NaN or infinity; lengths differ.

    Source: Geyer, Statistical Science 7, 1992, 473-483; with epochs, Cochran 1977, ch. 6.
    """
    if epoch is None:
        return float(_core.effective_samples(_samples(x)))
    return float(_core.effective_samples(_samples(x), _epochs(epoch)))


def fit_lognormal3(x: ArrayLike) -> Lognormal3:
    """Fit a three-parameter lognormal.

    Parameters
    ----------
    x : (n,) float           ties and rounding by a clock are allowed

    Returns
    -------
    Lognormal3. `converged` is False with fewer than 3 distinct values (parameters NaN), and without a tail to the right
    (parameters then describe a near-normal law).

    Raises
    ------
    DataError  x holds NaN or infinity.

    Source: grouped likelihood, Giesbrecht and Kempthorne, J. R. Statist. Soc. B 38, 1976, 257-264.
    """
    return Lognormal3(*_core.fit_lognormal3(_samples(x)))


def lognormal3_cdf(x: ArrayLike, fit: Lognormal3) -> Floats:
    """Distribution function of a fitted lognormal.

    Parameters
    ----------
    x : (n,) float           0 up to fit.shift
    fit : Lognormal3

    Returns
    -------
    (n,) float in [0, 1]; NaN where the fit has no parameters.

    Raises
    ------
    DataError  x holds NaN or infinity.
    """
    return np.asarray(_core.lognormal3_cdf(_samples(x), tuple(fit)))


def lognormal3_quantile(p: ArrayLike, fit: Lognormal3) -> Floats:
    """Quantiles of a fitted lognormal.

    Parameters
    ----------
    p : (n,) float           outside [0, 1]: NaN
    fit : Lognormal3

    Returns
    -------
    (n,) float, unit of the samples fitted.

    Raises
    ------
    DataError  p holds NaN or infinity.
    """
    return np.asarray(_core.lognormal3_quantile(_samples(p), tuple(fit)))


def ks_distance(x: ArrayLike, fit: Lognormal3) -> float:
    """Largest distance between the samples' distribution and a fitted lognormal.

    Parameters
    ----------
    x : (n,) float           n = 0 gives NaN
    fit : Lognormal3

    Returns
    -------
    float in [0, 1].

    Raises
    ------
    DataError  x holds NaN or infinity.

    Source: Kolmogorov-Smirnov.
    """
    return float(_core.ks_distance(_samples(x), tuple(fit)))


def ks_p(
    x: ArrayLike, fit: Lognormal3, replicates: int = 199, seed: int = 0, max_samples: int = 500
) -> float:
    """Probability of a distance as large as seen, if the law is lognormal.

    The parameters were estimated, so the fit is repeated on simulated samples (parametric bootstrap).

    Parameters
    ----------
    x : (n,) float
    fit : Lognormal3         of x
    replicates : int >= 1    p is a multiple of 1 / (replicates + 1)
    seed : int               the same seed gives the same p
    max_samples : int >= 3   x is thinned evenly to at most this number

    Returns
    -------
    float in (0, 1]; NaN where the fit has no parameters.

    Raises
    ------
    DataError   x holds NaN or infinity.
    UsageError  replicates < 1 or max_samples < 3.

    Source: Stute, Gonzalez Manteiga and Presedo Quindimil, Metrika 40, 1993, 243-256.
    """
    counts = (
        _count("replicates", replicates, 1),
        _count("seed", seed, 0),
        _count("max_samples", max_samples, 3),
    )
    return float(_core.ks_p(_samples(x), tuple(fit), *counts))


def periodogram(x: ArrayLike) -> Floats:
    """One-sided power spectrum of a whole series, mean removed.

    Parameters
    ----------
    x : (n,) float           empty: empty

    Returns
    -------
    (n // 2 + 1,) float, unit of x squared; the sum is the variance (divisor n).

    Raises
    ------
    DataError  x holds NaN or infinity.

    Source: as scipy.signal.periodogram with scaling="spectrum".
    """
    return np.asarray(_core.periodogram(_samples(x)))


def welch(x: ArrayLike, window: int, overlap: int = 0, epoch: ArrayLike | None = None) -> Floats:
    """Power spectrum averaged over segments: mean removed from each, Hann taper.

    Parameters
    ----------
    x : (n,) float
    window : int >= 1        samples in a segment
    overlap : int < window   samples that neighbouring segments share
    epoch : (n,) int         no segment crosses from one epoch to the next; negative: left out

    Returns
    -------
    (window // 2 + 1,) float, unit of x squared; the sum estimates the variance. Empty where no whole
    segment fits.

    Raises
    ------
    DataError   x holds NaN or infinity; lengths differ.
    UsageError  window < 1 or overlap outside [0, window).

    Source: Welch, IEEE Trans. Audio Electroacoust. 15, 1967, 70-73; scipy.signal.welch over `window`.
    """
    window, overlap = _count("window", window, 1), _count("overlap", overlap, 0)
    if overlap >= window:
        raise UsageError(
            "core.bad_overlap", f"overlap is {overlap} samples; it must be below the window of {window}"
        )
    if epoch is None:
        return np.asarray(_core.welch(_samples(x), window, overlap))
    return np.asarray(_core.welch(_samples(x), _epochs(epoch), window, overlap))


def sliding_amplitude(x: ArrayLike, window: int) -> Floats:
    """Amplitude spectrum of every window of consecutive samples, sliding by one.

    Parameters
    ----------
    x : (n,) float
    window : int >= 1        any length

    Returns
    -------
    (n - window + 1, window // 2 + 1) float, unit of x: |numpy.fft.rfft| of x[i : i + window] in row i; no rows if n <
    window. Its power is the square.

    Raises
    ------
    DataError   x holds NaN or infinity.
    UsageError  window < 1.

    Source: sliding DFT, Jacobsen and Lyons, IEEE Signal Processing Magazine 20, 2003, 74-80.
    """
    return np.asarray(_core.sliding_amplitude(_samples(x), _count("window", window, 1)))


def cumulative_spectrum(power: ArrayLike) -> Floats:
    """Running sum of a power spectrum over its total.

    Parameters
    ----------
    power : (m,) float >= 0  leave out the mean with power[1:]

    Returns
    -------
    (m,) float rising to 1; no power at all gives the straight line of a flat spectrum.

    Raises
    ------
    DataError  power holds NaN or infinity.

    Source: Bartlett, An Introduction to Stochastic Processes, 1955.
    """
    return np.asarray(_core.cumulative_spectrum(_samples(power)))


def pettitt(x: ArrayLike) -> ChangePoint:
    """Test for one change of level, for independent values.

    Parameters
    ----------
    x : (n,) float           n < 2 or constant: (0, 0.0, 1.0)

    Returns
    -------
    ChangePoint (index of the first sample of the new level, K, p).

    Raises
    ------
    DataError  x holds NaN or infinity.

    Source: Pettitt, Applied Statistics 28, 1979, 126-135.
    """
    return ChangePoint(*_core.pettitt(_samples(x)))


def change_points(
    x: ArrayLike, alpha: float = 0.01, min_segment: int = 5, epoch: ArrayLike | None = None
) -> list[ChangePoint]:
    """All changes of level, by splitting at the largest one and repeating the test in both parts.

    Parameters
    ----------
    x : (n,) float
    alpha : float in (0, 1)  a split needs p <= alpha
    min_segment : int >= 1   least length of a part, in samples; in epochs where `epoch` is given
    epoch : (n,) int         test the medians of epochs. p holds for independent values only, and
                             consecutive delays are not

    Returns
    -------
    list of ChangePoint in order of index (of samples, also with epochs).

    Raises
    ------
    DataError   x holds NaN or infinity; lengths differ.
    UsageError  alpha is outside (0, 1) or min_segment < 1.

    Source: Pettitt 1979; binary segmentation, Scott and Knott, Biometrics 30, 1974, 507-512.
    """
    settings: tuple[Any, ...] = (_share("alpha", alpha), _count("min_segment", min_segment, 1))
    if epoch is None:
        return [ChangePoint(*c) for c in _core.change_points(_samples(x), *settings)]
    return [ChangePoint(*c) for c in _core.change_points(_samples(x), _epochs(epoch), *settings)]


def false_discovery(p: ArrayLike, of: int = 0) -> Floats:
    """Smallest level of false discoveries at which each test would be significant.

    Parameters
    ----------
    p : (n,) float           NaN: not tested, and not counted
    of : int                 tests beyond n, up to this number, count with p = 1

    Returns
    -------
    (n,) float in [0, 1]; NaN where p is.

    Source: Benjamini and Hochberg, J. Roy. Statist. Soc. B 57, 1995, 289-300; scipy.stats.false_discovery_control.
    """
    from scipy import stats as sps

    p = np.asarray(p, np.float64)
    tested = np.isfinite(p)
    q = np.full(len(p), np.nan)
    if tested.any():
        others = np.ones(max(of - int(tested.sum()), 0))
        q[tested] = sps.false_discovery_control(np.concatenate([p[tested], others]))[: tested.sum()]
    return q
