#pragma once
/// What the judge knows of one block: when it was, whether the agent was on, its stalls, and numbers that grow when
/// the loop gets slower. Ranks are merged: a stall that several ranks saw at the same time is one. Owner-thread.

#include <cstdint>
#include <span>
#include <vector>

namespace sonde::noise {

struct Stalls {
  std::vector<double> t_s;  ///< since the block's begin, ascending
  std::vector<double> length_s;
};

struct Evidence {
  std::uint32_t segment = 0;
  bool on = false;
  double begin_s = 0;  ///< since the run began
  double length_s = 0;
  double resumed_s =
      0;  ///< before the block's begin: when its agent was let go; of blocks without one, when it would have been
  Stalls stalls;
  std::vector<double> levels;  ///< the same number in every block, larger is slower
};

/// One list of several ranks' stalls: those that overlap become one, as long as the longest of them.
Stalls merge(std::span<const Stalls> ranks);

}  // namespace sonde::noise
