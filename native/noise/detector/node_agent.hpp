#pragma once
/// The agents of one node, as the blocks want them: one on in some, all paused in the others. Only the lowest rank of
/// a node has keepers; on the others every call does nothing and succeeds. Owner-thread.
///
/// Every different command has a keeper of its own and is started once, before the first block. Else each change from
/// one agent to another would start a process right before a block that has one, and none before a block without.

#include <cstddef>
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

/// Of each variant, which keeper it needs: its command's place among the different ones; nullopt without a command.
std::vector<std::optional<std::size_t>> keepers_of(const std::vector<Variant>& variants);
/// How many keepers the variants need, one at least.
std::size_t keepers_needed(const std::vector<Variant>& variants);

class NodeAgent {
 public:
  /// keepers: as many as keepers_needed(variants), or none on a rank that does not lead its node.
  NodeAgent(std::vector<Keeper> keepers, const std::vector<Variant>& variants);

  bool leads() const { return !kept_.empty(); }

  /// Starts every agent and pauses it, so that no block pays for its start.
  Result<void> prepare();
  /// Lets the variant's agent run; a variant without one leaves all paused. Errors: those of Keeper.
  Result<void> on(std::uint32_t variant);
  /// Pauses what runs.
  Result<void> off();
  /// What the agent that ran last has used since it was asked last. Looks through /proc: not while something is timed.
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
  std::optional<std::size_t> last_;                    ///< of kept_, the one that ran last
  bool runs_ = false;
};

}  // namespace sonde::noise
