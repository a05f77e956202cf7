#pragma once
/// Power over harmonics: of a whole series, averaged over its segments, and of every window in it.
///
/// Harmonic k of a window of m samples repeats every m/k samples; there are m/2 + 1 of them (integer division),
/// k = 0 is the mean. Input with NaN gives NaN. Any-thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sonde::stats {

/// One-sided power spectrum of the whole series, mean removed: n/2 + 1 values in unit^2 whose sum is the
/// variance (divisor n). Any n. Empty: empty. (scipy.signal.periodogram with scaling="spectrum".)
std::vector<double> periodogram(std::span<const double> x);

/// Welch's averaged spectrum (IEEE Trans. Audio Electroacoust. 15, 1967, 70-73): segments of `window` samples,
/// each overlapping the one before by `overlap` < window, mean removed, Hann taper, averaged. window/2 + 1 values
/// in unit^2, scaled so that their sum estimates the variance: scipy.signal.welch's density over `window`.
/// No whole segment, window = 0 or overlap >= window: empty.
std::vector<double> welch(std::span<const double> x, std::size_t window, std::size_t overlap);

/// The same over samples taken in epochs: no segment crosses from one epoch to the next. Samples with a negative
/// epoch are left out.
std::vector<double> welch(std::span<const double> x, std::span<const std::int32_t> epoch, std::size_t window,
                          std::size_t overlap);

/// Amplitude |rfft| of every window of `window` consecutive samples, sliding by one: row i of `out` (row-major, (n -
/// window + 1) x (window/2 + 1)) is that of x[i .. i + window), not scaled and with the mean, as numpy.fft.rfft. It
/// costs O(window) per row: the sliding recurrence (Jacobsen and Lyons, IEEE Signal Processing Magazine 20, 2003,
/// 74-80), restarted every `window` rows so that rounding does not accumulate. Any window. Does nothing if window is 0
/// or above n, or if out has another size.
void sliding_amplitude(std::span<const double> x, std::size_t window, std::span<double> out);

/// Running sum of the power over its total, ending at 1. Leave out k = 0 by handing over power.subspan(1).
/// No power at all: the straight line of a flat spectrum.
std::vector<double> cumulative_spectrum(std::span<const double> power);

}  // namespace sonde::stats
