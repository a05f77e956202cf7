"""Sliding spectra of a long series on one core: time, and error against numpy."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from sonde.core.spectra import sliding_amplitude

SAMPLES, WINDOW, REPETITIONS = 100_000, 256, 7
TIME_BAR_S, ERROR_BAR = 2.0, 1e-9


def rows() -> list[dict[str, Any]]:
    """The row "sliding spectra, 10^5 samples x window 256, one core": what, bar, value, ci, met, note."""
    # Numbers near 1: the bar on the error is absolute, and on delays in s it would ask for nothing.
    x = 2 + np.random.default_rng(20261120).lognormal(0, 0.5, SAMPLES)
    times_s = []
    for _ in range(REPETITIONS):
        start = perf_counter()
        amplitude = sliding_amplitude(x, WINDOW)
        times_s.append(perf_counter() - start)

    windows = np.lib.stride_tricks.sliding_window_view(x, WINDOW)
    error = numpy_s = 0.0
    for at in range(0, len(windows), 10_000):  # in parts: numpy's complex copy of all is 200 MB
        start = perf_counter()
        reference = np.abs(np.fft.rfft(windows[at : at + 10_000], axis=1))
        numpy_s += perf_counter() - start
        error = max(error, float(np.abs(amplitude[at : at + 10_000] - reference).max()))

    time_s = median(times_s)
    return [
        {
            "what": f"sliding spectra, {SAMPLES} samples × window {WINDOW}, one core",
            "bar": f"< {TIME_BAR_S:g} s, error ≤ {ERROR_BAR:g} against numpy",
            "value": time_s,
            "ci": [min(times_s), max(times_s)],
            "met": bool(time_s < TIME_BAR_S and error <= ERROR_BAR),
            "note": f"s, middle of {REPETITIONS}, least and most; error {error:.1e}; "
            f"numpy.fft.rfft of the same: {numpy_s:.2f} s, {numpy_s / time_s:.1f} times as long; "
            f"amplitudes reach {float(amplitude.max()):.0f}",
        }
    ]


if __name__ == "__main__":
    for row in rows():
        print(*(f"{key}: {value}" for key, value in row.items()), sep="\n")
