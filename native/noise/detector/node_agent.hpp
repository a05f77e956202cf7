#pragma once
/// The agents of one node, for the blocks: in some blocks one agent is on, in the others all are paused. Only the
/// lowest rank of a node has supervisors; on other ranks every call does nothing and succeeds. Owner-thread.
///
/// Each different command has its own supervisor and is started once, before the first block. Otherwise each change
/// from one agent to another would start a process just before a block with an agent, but not before a block without
/// one.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "noise/detector/options.hpp"
#include "noise/keeper.hpp"

namespace sonde::noise {

/// The resources that the agent of this node has used in one block.
struct AgentUse {
  double cpu_s = 0, keeper_cpu_s = 0, drive_s = 0;
  double wakeups = 0, processes = 0, threads = 0, rss_bytes = 0, drives = 0, drives_failed = 0;

  std::vector<double> values() const {
    return {cpu_s, keeper_cpu_s, drive_s, wakeups, processes, threads, rss_bytes, drives, drives_failed};
  }
};

/// The supervisor of each variant: the index of its command among the different commands; nullopt without a command.
std::vector<std::optional<std::size_t>> keepers_of(const std::vector<Variant>& variants);
/// The number of supervisors that the variants need, at least one.
std::size_t keepers_needed(const std::vector<Variant>& variants);

class NodeAgent {
 public:
  /// keepers: keepers_needed(variants) supervisors, or an empty list on a rank that does not lead its node.
  NodeAgent(std::vector<Keeper> keepers, const std::vector<Variant>& variants);

  bool leads() const { return !kept_.empty(); }

  /// Starts every agent and pauses it, so that no block includes its start.
  Result<void> prepare();
  /// Resumes the variant's agent; for a variant without an agent all stay paused. Errors: those of Keeper.
  Result<void> on(std::uint32_t variant);
  /// Pauses the running agent.
  Result<void> off();
  /// The use of the agent that ran last, since the call before. It reads /proc, so not while something is timed.
  Result<AgentUse> use();
  /// Ends everything.
  Result<void> end();

 private:
  struct Kept {
    Keeper keeper;
    bool started = false;
    std::vector<int> cpus;
    Usage before;
  };

  std::vector<Kept> kept_;
  const std::vector<Variant>& variants_;
  std::vector<std::optional<std::size_t>> keeper_of_;  ///< by variant
  std::optional<std::size_t> last_;                    ///< index in kept_ of the agent that ran last
  bool runs_ = false;
};

}  // namespace sonde::noise
