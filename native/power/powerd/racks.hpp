#pragma once
/// Racks have limits of their own: of their supply, and of what can be cooled. The sum of the caps of a rack's nodes
/// stays within its limit at every instant, by the same ledger that holds the cluster's budget. Pure.
///
/// That it holds: the ledger never sends a node a higher cap than it was asked for. What it is asked for here is, of
/// each rack, at most what its nodes are committed to already, and raises that together fit what the limit has beyond
/// that sum. So whatever due() grants of it, the commitments of the rack add up to no more than its limit, or than
/// before. While leases of an earlier manager may run that are not known, nodes are counted at their most; where that
/// does not fit, nothing above safe caps is renewed or lent in the rack, because the predecessor may still count its
/// own leases only.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "power/config.hpp"
#include "power/ledger.hpp"

namespace sonde::power {

struct Rack {
  std::string name;
  double limit_w = 0;
  std::vector<std::size_t> nodes;
};

/// Those that have a limit: the smaller of supply and cooling. Errors: power.safe_above_rack (the sum of its safe caps
/// is above it; both are named).
Result<std::vector<Rack>> limited_racks(const std::vector<NodeConfig>& nodes,
                                        const std::map<std::string, RackConfig>& racks);

/// Takes from a proposal what racks cannot have, and gives it to nodes of others by weight. Caps of nodes that get none
/// are NaN, and counted as `held` (one for each node). Caps stay within `low` and `high`.
void fit_racks(const std::vector<Rack>& racks, const std::vector<double>& held, const std::vector<double>& low,
               const std::vector<double>& high, const std::vector<double>& weight, std::vector<double>& caps);

/// What the ledger may be asked for now; to be called before each due(), with nothing between the two.
std::vector<double> within_racks(const Ledger& ledger, const std::vector<Rack>& racks, std::vector<double> caps,
                                 std::int64_t now_ns);

}  // namespace sonde::power
