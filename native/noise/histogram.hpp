#pragma once
/// Counts of durations in classes of nearly equal relative width: every octave is cut into 32 classes of equal length,
/// so a class is 1.6 to 3.1 % wide. Finding the class of a duration takes a few instructions. Owner-thread.
/// Source: the layout of HdrHistogram (G. Tene), in ticks instead of ns.

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace sonde::noise {

struct Histogram {
  static constexpr int lowest_bit = 5, octaves = 27, cuts = 32;
  static constexpr std::size_t classes = static_cast<std::size_t>(octaves) * cuts;  // up to 2^32 ticks

  /// The class of a duration in ticks; below 32 ticks the first class, above the last class the last one.
  static std::size_t class_of(std::uint64_t t) {
    if (t < (1u << lowest_bit)) return 0;
    const int bit = std::bit_width(t) - 1;
    const std::size_t k = static_cast<std::size_t>(bit - lowest_bit) * cuts + ((t >> (bit - lowest_bit)) - cuts);
    return k < classes ? k : classes - 1;
  }
  /// The shortest duration of class k, in ticks; for k = classes the end of the last class.
  static std::uint64_t edge(std::size_t k) {
    const std::size_t octave = k / cuts;
    return (std::uint64_t{cuts} + k % cuts) << octave;
  }
};

/// The q-quantile of a histogram, interpolated linearly within its class; in the unit of `edges`. 0 when it is empty.
/// count: n classes; edges: n + 1. q in [0, 1].
double quantile(std::span<const std::uint32_t> count, std::span<const double> edges, double q);

}  // namespace sonde::noise
