"""Statistics: the Python interface of `native/core/stats`. Functions that scipy has are used from scipy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sonde import _core
from sonde.core.samples import count, epochs, samples, share

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from sonde.core.samples import Floats

__all__ = [
    "ChangePoint",
    "Interval",
    "Ranks",
    "Shift",
    "SteadyMedian",
    "Summary",
    "autocorrelation",
    "block_medians",
    "change_points",
    "effective_samples",
    "epoch_means",
    "epoch_median_ci",
    "epoch_medians",
    "epoch_quantile_ci",
    "false_discovery",
    "hodges_lehmann",
    "mean_ci",
    "median",
    "median_ci",
    "pettitt",
    "quantile",
    "quantile_ci",
    "quantile_ranks",
    "steady_median",
    "summarise",
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


class ChangePoint(NamedTuple):
    """A change of level: the first sample of the new level, Pettitt's K, and p."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on this class
    statistic: float
    p: float


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
    return Summary(*_core.summarise(samples(x)))


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
    return float(_core.quantile(samples(x), share("p", p, open_ends=False)))


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
    return float(_core.median(samples(x)))


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
    return np.asarray(_core.epoch_medians(samples(x), epochs(epoch)))


def epoch_means(x: ArrayLike, epoch: ArrayLike) -> Floats:
    """Mean of every epoch; as `epoch_medians`."""
    return np.asarray(_core.epoch_means(samples(x), epochs(epoch)))


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
    return np.asarray(_core.block_medians(samples(x), count("block", block, 1)))


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
    return Ranks(*_core.quantile_ranks(count("n", n, 0), share("p", p), share("level", level)))


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
    return Interval(*_core.quantile_ci(samples(x), share("p", p), share("level", level)))


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
    return Interval(*_core.median_ci(samples(x), share("level", level)))


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
    return Interval(*_core.mean_ci(samples(x), share("level", level)))


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
    x = samples(differences)
    share("level", level)
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
    return Interval(*_core.epoch_quantile_ci(samples(x), epochs(epoch), share("p", p), share("level", level)))


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
        return Interval(*_core.epoch_median_ci(samples(x), share("level", level)))
    return Interval(*_core.epoch_median_ci(samples(x), epochs(epoch), share("level", level)))


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
    return SteadyMedian(*_core.steady_median(samples(x), epochs(epoch), share("level", level)))


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
    return float(_core.autocorrelation(samples(x), count("lag", lag, 0)))


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
        return float(_core.effective_samples(samples(x)))
    return float(_core.effective_samples(samples(x), epochs(epoch)))


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
    return ChangePoint(*_core.pettitt(samples(x)))


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
    settings: tuple[Any, ...] = (share("alpha", alpha), count("min_segment", min_segment, 1))
    if epoch is None:
        return [ChangePoint(*c) for c in _core.change_points(samples(x), *settings)]
    return [ChangePoint(*c) for c in _core.change_points(samples(x), epochs(epoch), *settings)]


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
