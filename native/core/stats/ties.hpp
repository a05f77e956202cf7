#pragma once
/// Delays that a clock counted in ticks, put back where they may have been.
///
/// A clock that counts in ticks gives few values many times. A median of such samples jumps from tick to tick, and an
/// interval from them is a point or a whole tick wide, whatever the level is. If samples look counted, each group of
/// equal ones is spread evenly over one tick around its value: the median of grouped data. The true median is then
/// found to a small part of a tick as long as delays vary by more than one tick. Any-thread.

#include <span>

#include "core/stats/pooled.hpp"

namespace sonde::stats {

/// Width of the tick in which the samples were counted; 0 if they do not look counted: fewer than 3 values, on average
/// fewer than 2 samples of each, or values that are not multiples of the smallest step between two.
double tick_of(std::span<const WeightedSample> samples);

/// Spreads equal samples of a batch over tick_of. by_batch: batch by batch, ascending within one, which is preserved.
/// No value leaves the range of the samples.
///
/// Source: the median of grouped data, as in any textbook; spread per batch so that the shares of batches below a
/// value rise evenly within a tick.
void spread_ties(std::span<WeightedSample> by_batch);

}  // namespace sonde::stats
