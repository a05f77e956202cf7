#pragma once
/// How a budget is shared among nodes: pure functions, used live and in `sonde power whatif`. All power in W. A policy
/// proposes; share() enforces the limits, and the ledger (ledger.hpp) decides what may be granted when.

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

/// A node as a policy sees it. Unknown values are NaN; a policy then assumes that the node wants all it can get.
struct NodeView {
  double min_w = 0, max_w = 0;   ///< caps that it can be given
  double guaranteed_w = 0;       ///< never less than this, if the budget allows it for all nodes
  double weight = 1;             ///< above 0: of the job that runs there
  double power_w = unknown;      ///< its recent power
  double demand_w = unknown;     ///< its power without a cap, if it is estimated
  double cap_w = unknown;        ///< its present cap
  double iteration_s = unknown;  ///< the time of its part of the job's loop
  std::uint32_t job = 0;         ///< nodes of one number wait for each other; 0: idle
  double power_cap_w = unknown;  ///< its lowest cap while it drew power_w; unknown: cap_w
};

/// Estimates what nodes would draw without their caps. A node at its cap shows only that it wants at least that power:
/// its demand is assumed to be what it was when the node was last seen below its cap, and unlimited once it uses that
/// up, too. An estimate stays until it is wrong by a good part of `margin`, so that caps do not follow noise. The nodes
/// must be in the same order each time.
class Demands {
 public:
  /// `margin`: room above what a node draws, as a share of its power.
  explicit Demands(double margin = 0.05) : margin_(margin) {}
  void see(std::span<const NodeView> nodes);
  /// For a node seen by see(): the cap that it could use, within its range; its highest cap if nothing is known.
  double wants_w(std::size_t node) const { return wants_[node]; }
  /// Whether it was at its cap when it was last seen.
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
  /// Fills `caps`, one for each node. Called once a period, with the nodes in the same order; a policy may remember
  /// data.
  virtual void propose(double budget_w, std::span<const NodeView> nodes, std::span<double> caps) = 0;
};

/// The result of share().
struct Shares {
  std::vector<double> caps_w;
  double sum_w = 0;
  bool corrected = false;  ///< the proposal broke a limit: it was not finite, out of range, or above the budget
};

/// Caps within each node's range whose sum is at most the budget, whatever the policy proposes. Errors:
/// power.budget_too_small (below the sum of the least caps; both are named), power.bad_node (an empty range, a
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
