#pragma once
/// The median of everything that was measured, and how well it is known when samples come in epochs.
///
/// The median of the pooled samples is not the median of the epochs' medians: where delays alternate between
/// regimes the latter sits in the commoner regime and stays there. The interval here is for the former. It asks
/// of every candidate v whether the shares of the epochs at or below v can, as epochs differ among each other,
/// average one half: Student over epochs, widened by the correlation of neighbours. Nothing is assumed of the
/// samples within an epoch, which may depend on each other as they like, nor of their law: gaps and several peaks
/// are welcome, and so are the ties of a clock's tick (core/stats/ties.hpp). Any-thread.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/stats/epochs.hpp"

namespace sonde::stats {

struct PooledMedian {
  double median;
  double low, high;    ///< {NaN, NaN} with fewer than 2 epochs
  double dependence;   ///< by what factor neighbouring batches' likeness widens the variance of the mean share; >= 1
  std::size_t batches; ///< groups of consecutive epochs the interval rests on
};

/// One sample, or one that stands for `weight` of them, of batch number `batch`.
struct WeightedSample {
  double value;
  std::uint32_t batch;
  double weight;
};

/// Median and interval of samples in `batches` batches of consecutive epochs, numbered from 0 in order of time.
/// Ties stay as they are: spread_ties is the caller's. No samples or a NaN: all NaN.
///
/// Sources: inverting a test of the mean share over clusters: Woodruff, JASA 47, 1952, 635-646; Francisco and
/// Fuller, Annals of Statistics 19, 1991, 454-469. Widening by (1 + r) / (1 - r) with the correlation r of
/// neighbouring batches: Tafazzoli and Wilson, IIE Transactions 43, 2011, 110-128 (Skart). r is estimated with
/// its leading bias 1/batches added back, and not below 0.
PooledMedian pooled_median(std::vector<WeightedSample> samples, std::size_t batches, double level);

/// The same from epochs. With 64 or more, consecutive ones are put together, so that between 32 and 63 batches
/// remain: dependence that outlasts an epoch must not outlast a batch. Ties of a clock's tick are spread.
PooledMedian pooled_median(const Epochs& epochs, double level);

}  // namespace sonde::stats
