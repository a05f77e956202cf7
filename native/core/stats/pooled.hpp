#pragma once
/// The median of all measured samples, and its precision when samples come in epochs.
///
/// The median of the pooled samples is not the median of the epochs' medians: if delays alternate between regimes, the
/// latter is in the more common regime and stays there. The interval here is for the former. For every candidate v it
/// tests whether the shares of the epochs at or below v can average one half, given the differences between epochs:
/// Student over epochs, widened by the correlation of neighbours. Nothing is assumed about the samples within an epoch,
/// which may depend on each other in any way, or about their law: gaps and several peaks are allowed, and so are the
/// ties of a clock's tick (core/stats/ties.hpp). Any-thread.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/stats/epochs.hpp"

namespace sonde::stats {

/// One sample, or one that represents `weight` of them, of batch number `batch`.
struct WeightedSample {
  double value;
  std::uint32_t batch;
  double weight;
};

/// Batches of consecutive epochs, in order of time, with their samples.
struct Batches {
  struct Batch {
    std::uint64_t samples = 0;
    std::uint32_t epochs = 0;
    double median = 0;
    std::size_t begin = 0, end = 0;  ///< into values
  };
  std::vector<Batch> batches;
  std::vector<WeightedSample> values;  ///< batch by batch, ascending within one once tidy() was called

  std::size_t size() const { return batches.size(); }
  /// Sorts each batch, spreads a clock's ties, and finds the medians.
  void tidy();
  /// Drops the first `count` batches.
  void drop_front(std::size_t count);
  /// Share of each batch's samples below `level`, ties counted half.
  std::vector<double> shares_below(double level) const;
};

/// Batches of all samples. From 64 epochs on, consecutive ones are combined, so that between 32 and 63 batches remain:
/// dependence that outlasts an epoch must not outlast a batch.
Batches batches_of(const Epochs& epochs);

struct PooledMedian {
  double median;
  double low, high;  ///< {NaN, NaN} with fewer than 2 batches
  double
      dependence;  ///< factor by which the correlation of neighbouring batches changes the variance of the mean share
  std::size_t batches;  ///< number of groups of consecutive epochs behind the interval
};

/// Median and interval. No samples or a NaN: all NaN.
///
/// Sources: inverting a test of the mean share over clusters: Woodruff, JASA 47, 1952, 635-646; Francisco and
/// Fuller, Annals of Statistics 19, 1991, 454-469. Widening by (1 + r) / (1 - r) with the correlation r of
/// neighbouring batches: Tafazzoli and Wilson, IIE Transactions 43, 2011, 110-128 (Skart). r is estimated with
/// its leading bias 1/batches added back. It may be a little below 0, or its noise would widen on average (a
/// stated 0.95 covered 0.965 of independent samples), but not far, or luck would narrow.
PooledMedian pooled_median(const Batches& batches, double level);

struct SteadyMedian : PooledMedian {
  std::uint64_t skipped;  ///< samples at the beginning that were left out as warm-up
  bool steady;            ///< false: the end of the warm-up is not certain, and nothing was left out
};

/// With fewer, the differences between epochs are too uncertain for Student's t on their shares.
constexpr std::size_t least_epochs = 6;

/// pooled_median of the samples without a warm-up (core/stats/warm_up.hpp). With 2 to 5 epochs the interval is
/// epoch_median_ci of their medians, which assumes one regime, extended to contain the median; with 1 epoch there is no
/// interval.
SteadyMedian steady_median(const Epochs& epochs, double level);

}  // namespace sonde::stats
