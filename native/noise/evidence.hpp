#pragma once
/// The data of one block for the judge: its time, whether the agent was on, its stalls, and numbers that grow when the
/// loop gets slower. Ranks are merged: a stall that several ranks had at the same time is one stall. Owner-thread.

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
      0;  ///< time from resuming the agent to the block's begin; without an agent, the same as if there were one
  Stalls stalls;
  std::vector<double> levels;  ///< the same number of levels in every block; larger is slower
};

/// Merges the stalls of several ranks: overlapping stalls become one, with the length of the longest.
Stalls merge(std::span<const Stalls> ranks);

}  // namespace sonde::noise
