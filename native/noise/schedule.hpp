#pragma once
/// The order of the blocks of a noise run. Blocks come in segments. Within a segment every variant has its share of the
/// blocks, in random order from the seed. Labels with a pattern can match the machine's own rhythms: they gave false
/// alarms in 6 to 22 % of clean runs. Random labels do not. Owner-thread.

#include <cstdint>
#include <span>
#include <vector>

namespace sonde::noise {

struct PlannedBlock {
  std::uint32_t segment;
  std::uint32_t variant;  ///< 0: the agent is off
};

/// shares: blocks of each variant in one round, variant 0 first. rounds: rounds of each segment.
std::vector<PlannedBlock> plan_blocks(std::span<const std::uint32_t> shares, std::span<const std::uint32_t> rounds,
                                      std::uint64_t seed);

}  // namespace sonde::noise
