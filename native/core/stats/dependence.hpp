#pragma once
/// How much the samples of a series repeat each other, and the equivalent number of independent ones. NaN in the input
/// makes the result NaN. Any-thread.

#include <cstddef>
#include <cstdint>
#include <span>

namespace sonde::stats {

/// Correlation of x[i] and x[i + lag], both about the mean of the whole and divided by n (so that the sequence
/// over lags is positive definite). lag >= n: 0. A constant series: 1 at lag 0, else 0. Empty: NaN.
double autocorrelation(std::span<const double> x, std::size_t lag);

/// Number of independent samples that would give the mean as precisely as these n do: n over the integrated
/// autocorrelation time, summed by Geyer's initial monotone positive sequence (Statistical Science 7, 1992, 473-483).
/// Between 1 and n; a constant series counts n; n < 4 counts n; empty counts 0.
double effective_samples(std::span<const double> x);

/// The same for samples in epochs: the variance of one sample over the variance of the mean, the latter from the
/// differences between epochs. It detects dependence that outlasts an epoch, which the other one cannot. Between 1 and
/// n, where n counts samples with epoch >= 0. With one epoch it equals the other one.
double effective_samples(std::span<const double> x, std::span<const std::int32_t> epoch);

}  // namespace sonde::stats
