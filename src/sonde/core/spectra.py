"""Spectra of series: the Python interface of `native/core/stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sonde import _core
from sonde.core.errors import UsageError
from sonde.core.samples import count, epochs, samples

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from sonde.core.samples import Floats

__all__ = ["cumulative_spectrum", "periodogram", "sliding_amplitude", "welch"]


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
    return np.asarray(_core.periodogram(samples(x)))


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
    window, overlap = count("window", window, 1), count("overlap", overlap, 0)
    if overlap >= window:
        raise UsageError(
            "core.bad_overlap", f"overlap is {overlap} samples; it must be below the window of {window}"
        )
    if epoch is None:
        return np.asarray(_core.welch(samples(x), window, overlap))
    return np.asarray(_core.welch(samples(x), epochs(epoch), window, overlap))


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
    return np.asarray(_core.sliding_amplitude(samples(x), count("window", window, 1)))


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
    return np.asarray(_core.cumulative_spectrum(samples(power)))
