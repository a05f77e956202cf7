#pragma once
/// How a budget is shared over nodes: pure functions of what is known of them, the same live and in `sonde power
/// whatif`. All power in W. A policy proposes; share() holds it to the limits, and the ledger (ledger.hpp) decides what
/// may be granted when.

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace sonde::power {

inline constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// A node as a policy sees it. What is unknown is NaN; a policy then takes the node for one that wants all it can get.
struct NodeView {
  double min_w = 0, max_w = 0;   ///< caps that it can be given
  double guaranteed_w = 0;       ///< never less than this, where the budget allows it for all
  double weight = 1;             ///< above 0: of the job that runs there
  double power_w = unknown;      ///< what it drew of late
  double demand_w = unknown;     ///< what it would draw without a cap, where somebody estimates that
  double cap_w = unknown;        ///< what it has now
  double iteration_s = unknown;  ///< how long its part of the job's loop takes
  std::uint32_t job = 0;         ///< nodes of one number wait for each other; 0: idle
  double power_cap_w = unknown;  ///< the lowest cap that it had while it drew power_w; unknown: cap_w
};

/// What nodes would draw without their caps, as far as it ever showed. A node that comes against its cap shows no more
/// than that it wants at least so much: it is taken for what it wanted when it was last seen below its cap, and for one
/// that wants all it can get once it uses that up, too. So that caps do not follow noise, what is known stays until it
/// is wrong by a good part of `margin`. Nodes in the same order each time.
class Demands {
 public:
  /// `margin`: room above what a node draws, as a share of its power.
  explicit Demands(double margin = 0.05) : margin_(margin) {}
  void see(std::span<const NodeView> nodes);
  /// Of one that see() saw: the cap that it could use, within its range; its highest where nothing is known.
  double wants_w(std::size_t node) const { return wants_[node]; }
  /// It came against its cap when it was last seen.
  bool held_back(std::size_t node) const { return held_[node]; }

 private:
  double margin_;
  std::vector<double> known_, wants_;
  std::vector<bool> held_;
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  /// Fills `caps`, one for each node. Called once a period, with the nodes in the same order; it may remember.
  virtual void propose(double budget_w, std::span<const NodeView> nodes, std::span<double> caps) = 0;
};

/// What share() made of a proposal.
struct Shares {
  std::vector<double> caps_w;
  double sum_w = 0;
  bool corrected = false;  ///< the proposal broke a limit: it was not finite, out of range, or above the budget
};

/// Caps within each node's range whose sum is at most the budget, whatever the policy proposes. Errors:
/// power.budget_too_small (below the sum of the least caps; both are named), power.bad_node (a range that is none, a
/// weight that is not above 0).
Result<Shares> share(Policy& policy, double budget_w, std::span<const NodeView> nodes);

/// Amounts within [low, high] of each, together at most `total`, as equal by weight as that allows: (amount - low) /
/// weight is the same for all that are not at their high. Exact; `total` below the sum of lows gives the lows. Weighted
/// max-min fairness.
std::vector<double> level(double total, std::span<const double> low, std::span<const double> high,
                          std::span<const double> weight);

struct PolicySettings {
  double margin = 0.05;     ///< greedy: room above what a node draws; share of its power
  double step = 0.25;       ///< slack: how much of a difference one period mends
  double soft_w = unknown;  ///< soft: the cluster's power from which on it shares; unknown: by `near` alone
  double near = 0.95;       ///< soft: and this share of the budget, where that is less
};

/// Errors: power.unknown_policy (and the nearest).
Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const PolicySettings& settings = {});

struct PolicyWord {
  const char* name;
  const char* what;
};
/// All there are, for --help and docs.
std::span<const PolicyWord> policies();

}  // namespace sonde::power
