#pragma once
/// The agent of one node, as the blocks want it: on in some, paused in the others. Only the lowest rank of a node
/// has a keeper; on the others every call does nothing and succeeds. Owner-thread.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "noise/detector/options.hpp"
#include "noise/keeper.hpp"

namespace sonde::noise {

/// What the agent of this node has used in one block.
struct AgentUse {
  double cpu_s = 0, keeper_cpu_s = 0, drive_s = 0;
  double wakeups = 0, processes = 0, threads = 0, rss_bytes = 0, drives = 0, drives_failed = 0;

  std::vector<double> values() const {
    return {cpu_s, keeper_cpu_s, drive_s, wakeups, processes, threads, rss_bytes, drives, drives_failed};
  }
};

class NodeAgent {
 public:
  /// keeper: this rank's, or none on a rank that does not lead its node.
  NodeAgent(std::optional<Keeper> keeper, const std::vector<Variant>& variants)
      : keeper_(std::move(keeper)), variants_(variants) {}

  bool leads() const { return keeper_.has_value(); }

  /// Starts the first agent of the variants and pauses it, so that no block pays for its start.
  Result<void> prepare();
  /// Lets the variant's agent run; variant 0: leaves it paused. Errors: those of Keeper.
  Result<void> on(std::uint32_t variant);
  /// Pauses what runs.
  Result<void> off();
  /// What has been used since the last call. Looks through /proc: not while something is timed.
  Result<AgentUse> use();
  /// Ends everything.
  Result<void> end();

 private:
  std::optional<Keeper> keeper_;
  const std::vector<Variant>& variants_;
  std::optional<std::uint32_t> started_;  ///< variant whose command was started last
  bool runs_ = false;
  std::vector<int> cpus_;
  Usage before_;
};

}  // namespace sonde::noise
