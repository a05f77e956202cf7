#include "noise/histogram.hpp"

namespace sonde::noise {

double quantile(std::span<const std::uint32_t> count, std::span<const double> edges, double q) {
  std::uint64_t total = 0;
  for (const auto c : count) total += c;
  if (total == 0) return 0;
  const double wanted = q * static_cast<double>(total);
  double below = 0;
  for (std::size_t k = 0; k < count.size(); ++k) {
    const double here = count[k];
    if (here > 0 && below + here >= wanted) return edges[k] + (edges[k + 1] - edges[k]) * (wanted - below) / here;
    below += here;
  }
  return edges[count.size()];
}

}  // namespace sonde::noise
