#pragma once
/// Random selection of samples. Any-thread.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "core/random.hpp"

namespace sonde::bus::probe {

/// The largest number of samples that a program reports for a quantity, because it sends them as text.
inline constexpr std::size_t told_at_most = 100'000;

/// Positions of `keep` of n samples, in order: one random position in each of `keep` equal stretches. A fixed distance
/// could coincide with a period of the samples, such as clients that are served in turn. keep >= n: all.
inline std::vector<std::size_t> drawn(std::size_t n, std::size_t keep, Random& chance) {
  std::vector<std::size_t> positions(std::min(n, keep));
  if (keep >= n) {
    std::iota(positions.begin(), positions.end(), std::size_t{0});
    return positions;
  }
  for (std::size_t k = 0; k < keep; ++k) {
    const std::size_t first = k * n / keep, next = (k + 1) * n / keep;
    positions[k] = first + chance.below(next - first);
  }
  return positions;
}

/// Positions ascend.
template <typename T> void keep_only(std::vector<T>& of, const std::vector<std::size_t>& positions) {
  for (std::size_t k = 0; k < positions.size(); ++k) of[k] = of[positions[k]];
  of.resize(positions.size());
}

}  // namespace sonde::bus::probe
