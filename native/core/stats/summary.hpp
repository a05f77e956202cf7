#pragma once
/// Twelve numbers about a set of samples, and their quantiles.
///
/// Nothing here uses the order of the samples or their dependence: an interval that does is in interval.hpp. NaN
/// anywhere in the input makes every result NaN (n is still counted); the Python interface refuses it instead. Empty
/// input gives NaN and n = 0. Any-thread.

#include <cstdint>
#include <span>
#include <vector>

namespace sonde::stats {

struct Summary {
  std::uint64_t n;
  double mean;
  double sd;  ///< sample standard deviation (divisor n - 1); NaN for n = 1
  double min, max, median;
  double mad;  ///< median of |x - median|, not scaled to a normal sd
  double q05, q25, q75, q95, q99;
};

/// All of the above in one sort. x: any unit, unsorted. The mean is summed in two passes, so that a large
/// common offset does not swallow the sd.
Summary summarise(std::span<const double> x);

/// The p-quantile of samples already in ascending order, linear between order statistics (type 7 of Hyndman and
/// Fan 1996, numpy's default). p outside [0, 1] or no samples: NaN.
double quantile_sorted(std::span<const double> sorted, double p);

/// The p-quantile of unsorted samples; copies them.
double quantile(std::span<const double> x, double p);

/// The middle sample, or the mean of the middle two; copies.
double median(std::span<const double> x);

/// The median of every epoch, in ascending order of epoch number. epoch[i] is the burst of x[i]; samples with a
/// negative epoch are left out. The two spans have the same length, otherwise the result is empty.
std::vector<double> epoch_medians(std::span<const double> x, std::span<const std::int32_t> epoch);

/// The same for means.
std::vector<double> epoch_means(std::span<const double> x, std::span<const std::int32_t> epoch);

/// Medians of consecutive blocks of `block` samples; an incomplete last block is left out. block = 0: empty.
std::vector<double> block_medians(std::span<const double> x, std::size_t block);

}  // namespace sonde::stats
