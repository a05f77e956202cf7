"""Made-up delay series whose true median is known, in epochs as a probe takes them. Values in s."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

EPOCH = 50
MEDIAN_S = 2e-6
TICK_S = 100e-9
Generator = Callable[[np.random.Generator, int], tuple[np.ndarray, float]]


def iid(rng: np.random.Generator, epochs: int) -> tuple[np.ndarray, float]:
    """Independent lognormal delays."""
    return MEDIAN_S * np.exp(rng.normal(0, 0.2, epochs * EPOCH)), MEDIAN_S


def ar9(rng: np.random.Generator, epochs: int) -> tuple[np.ndarray, float]:
    """Log delays of first order with correlation .9 within an epoch; epochs begin anew, as a gap lies between."""
    from scipy.signal import lfilter

    noise = rng.normal(0, 0.2 * np.sqrt(1 - 0.81), (epochs, EPOCH))
    noise[:, 0] = rng.normal(0, 0.2, epochs)
    return MEDIAN_S * np.exp(lfilter([1], [1, -0.9], noise, axis=1)).ravel(), MEDIAN_S


def warm_up(rng: np.random.Generator, epochs: int) -> tuple[np.ndarray, float]:
    """Delays that begin three times too long and settle within a few epochs."""
    k = np.arange(epochs * EPOCH)
    return MEDIAN_S * np.exp(rng.normal(0, 0.2, len(k))) * (1 + 2 * np.exp(-k / (1.5 * EPOCH))), MEDIAN_S


def tick(rng: np.random.Generator, epochs: int) -> tuple[np.ndarray, float]:
    """A clock that counts in 100 ns, read before and after: truth is the median of the time, not of the ticks."""
    values, _ = iid(rng, epochs)
    ticks = np.floor(rng.random(len(values)) + 1.017 * values / TICK_S)
    return ticks * TICK_S, 1.017 * MEDIAN_S


def level_shift(rng: np.random.Generator, epochs: int) -> tuple[np.ndarray, float]:
    """Two regimes that take turns, each for a random few epochs; truth is the median of the long run.

    Half the time at the median, half 30 % above it: the pooled median lies between.
    """
    slow = np.cumsum(rng.random(epochs) < 0.5) % 2  # a change at every second epoch or so
    noise = rng.normal(0, 0.2, epochs * EPOCH)
    values = MEDIAN_S * np.exp(noise + np.log(1.3) * np.repeat(slow, EPOCH))
    return values, MEDIAN_S * float(np.sqrt(1.3))  # by symmetry of the two laws in the logarithm


GENERATORS: dict[str, Generator] = {
    "iid": iid,
    "AR .9": ar9,
    "warm-up": warm_up,
    "tick": tick,
    "level shift": level_shift,
}
