#pragma once
/// The positions where the level of a series changes.
///
/// The p-values hold for independent values. For delays, which are not independent, they are far too small: use medians
/// of epochs (the overload below) or of blocks longer than the dependence (block_medians in summary.hpp). Any-thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sonde::stats {

struct ChangePoint {
  std::size_t index;  ///< first sample of the new level
  double statistic;   ///< Pettitt's K = max |U|
  double p;
};

/// Pettitt's test for one change of level (Applied Statistics 28, 1979, 126-135), ties by mid-ranks, p from
/// 2 exp(-6 K^2 / (n^3 + n^2)). Fewer than 2 values or a constant series: index 0, K = 0, p = 1. NaN: p is NaN.
ChangePoint pettitt(std::span<const double> x);

/// All changes of level with p <= alpha, in order, by splitting at the largest one and repeating the test in both
/// parts. No part is shorter than min_segment (at least 1). statistic and p are those of the part that was split.
std::vector<ChangePoint> change_points(std::span<const double> x, double alpha, std::size_t min_segment);

/// The same from the medians of epochs in ascending order of epoch number; `index` is the first sample of the
/// first epoch at the new level and min_segment counts epochs. Samples with a negative epoch are left out.
std::vector<ChangePoint> change_points(std::span<const double> x, std::span<const std::int32_t> epoch, double alpha,
                                       std::size_t min_segment);

}  // namespace sonde::stats
