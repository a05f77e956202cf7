#pragma once
/// Racks have limits of their own, for their supply and for their cooling. The sum of the caps of a rack's nodes stays
/// within its limit at every instant, through the same ledger that enforces the cluster's budget. Pure.
///
/// Why this holds: the ledger never sends a node a higher cap than requested. For each rack, this code requests at most
/// the present commitments, and increases that together fit between their sum and the limit. So whatever due() grants,
/// the commitments of the rack stay within its limit, or do not grow. While unknown leases of an earlier manager may
/// run, nodes count at their highest power; if that does not fit, nothing above safe caps is renewed or lent in the
/// rack, because the predecessor may still count only its own leases.

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

/// The racks with a limit: the smaller of supply and cooling. Errors: power.safe_above_rack (the sum of its safe caps
/// is above the limit; both are named).
Result<std::vector<Rack>> limited_racks(const std::vector<NodeConfig>& nodes,
                                        const std::map<std::string, RackConfig>& racks);

/// Remove from a proposal what racks cannot supply, and give it to nodes of other racks by weight. NaN caps are of
/// nodes that get none; they count as `held` (one for each node). Caps stay within `low` and `high`.
void fit_racks(const std::vector<Rack>& racks, const std::vector<double>& held, const std::vector<double>& low,
               const std::vector<double>& high, const std::vector<double>& weight, std::vector<double>& caps);

/// The caps that may be requested from the ledger now; call it directly before each due().
std::vector<double> within_racks(const Ledger& ledger, const std::vector<Rack>& racks, std::vector<double> caps,
                                 std::int64_t now_ns);

}  // namespace sonde::power
