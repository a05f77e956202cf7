#pragma once
/// Decides, from a trial of both ways, which frames the peer should read from this side's memory instead of from
/// messages. Pure; any-thread.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace sonde::store::ofi {

/// One size of the trial: the time of an operation of this size by remote reads, divided by its time by messages. Each
/// ratio is from two consecutive operations, so a temporary slowdown of the machine affects both.
struct Tried {
  std::size_t bytes = 0;
  std::vector<double> ratios;
};

/// The smallest size of a frame's data that is sent by remote read; -1: none. Chosen so that the largest loss against
/// the better way, over all sizes, is smallest. Larger operations are sent in frames of `frame_data`, and share their
/// choice. Messages are preferred where reads gain less than a few per cent: announced memory burdens the sender for
/// longer.
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
