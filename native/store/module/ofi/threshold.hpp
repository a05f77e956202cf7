#pragma once
/// Which frames the peer should read from this side's memory instead of taking them from messages, from what a trial of
/// both ways took. Pure; any-thread.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace sonde::store::ofi {

/// One size that was tried: what an operation of so many bytes took, by remote reads over by messages. Each ratio is of
/// two tries that followed each other, so that whatever slows the machine for a while slows both.
struct Tried {
  std::size_t bytes = 0;
  std::vector<double> ratios;
};

/// Where the worst loss against the better way, over all sizes, is least: the least size of a frame's data that goes by
/// remote read; -1: none does. Larger operations go in frames of `frame_data`, and share the choice of these. Messages
/// are kept where reads gain less than a few per cent: announced memory is the sender's burden for longer.
inline std::int64_t least_regret(std::span<const Tried> tried, std::size_t frame_data) {
  constexpr double worth = 0.03;
  struct Gain {
    std::size_t frame;
    double by_reads;  ///< logarithm; below 0: messages are faster
  };
  std::vector<Gain> gains;
  for (const Tried& t : tried) {
    if (t.ratios.empty()) continue;
    std::vector<double> sorted = t.ratios;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t middle = sorted.size() / 2;
    const double typical = sorted.size() % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
    gains.push_back({std::min(t.bytes, frame_data), -std::log(typical)});
  }
  const auto worst = [&](std::int64_t from) {
    double loss = 0;
    for (const Gain& g : gains) {
      const bool reads = from >= 0 && g.frame >= static_cast<std::size_t>(from);
      loss = std::max(loss, reads ? -g.by_reads : g.by_reads);
    }
    return loss;
  };
  std::int64_t best = -1;
  double least = worst(best);
  std::sort(gains.begin(), gains.end(), [](const Gain& a, const Gain& b) { return a.frame > b.frame; });
  for (const Gain& g : gains) {
    const auto from = static_cast<std::int64_t>(g.frame);
    if (const double loss = worst(from); loss < least - worth) {
      least = loss;
      best = from;
    }
  }
  return best;
}

}  // namespace sonde::store::ofi
