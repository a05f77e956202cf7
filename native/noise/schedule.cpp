#include "noise/schedule.hpp"

#include <utility>

#include "core/random.hpp"

namespace sonde::noise {

std::vector<PlannedBlock> plan_blocks(std::span<const std::uint32_t> shares, std::span<const std::uint32_t> rounds,
                                      std::uint64_t seed) {
  Random random(seed);
  std::vector<PlannedBlock> blocks;
  for (std::uint32_t segment = 0; segment < rounds.size(); ++segment) {
    const std::size_t begin = blocks.size();
    for (std::uint32_t round = 0; round < rounds[segment]; ++round)
      for (std::uint32_t variant = 0; variant < shares.size(); ++variant)
        for (std::uint32_t copy = 0; copy < shares[variant]; ++copy) blocks.push_back({segment, variant});
    for (std::size_t left = blocks.size() - begin; left > 1; --left)
      std::swap(blocks[begin + left - 1], blocks[begin + random.below(left)]);
  }
  return blocks;
}

}  // namespace sonde::noise
