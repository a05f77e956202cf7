"""The three-parameter lognormal law of delays: the Python interface of `native/core/stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sonde import _core
from sonde.core.samples import count, samples

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from sonde.core.samples import Floats

__all__ = [
    "Lognormal3",
    "fit_lognormal3",
    "ks_distance",
    "ks_p",
    "lognormal3_cdf",
    "lognormal3_quantile",
]


class Lognormal3(NamedTuple):
    """A fitted three-parameter lognormal: log(x - shift) is normal with mean mu and sd sigma."""

    shift: float
    mu: float
    sigma: float
    ks: float
    loglik: float
    n: int
    converged: bool


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
    return Lognormal3(*_core.fit_lognormal3(samples(x)))


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
    return np.asarray(_core.lognormal3_cdf(samples(x), tuple(fit)))


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
    return np.asarray(_core.lognormal3_quantile(samples(p), tuple(fit)))


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
    return float(_core.ks_distance(samples(x), tuple(fit)))


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
        count("replicates", replicates, 1),
        count("seed", seed, 0),
        count("max_samples", max_samples, 3),
    )
    return float(_core.ks_p(samples(x), tuple(fit), *counts))
