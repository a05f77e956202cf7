#pragma once
/// Checks that a transport fulfils the promises of store/transport.hpp: for transports of this tree and of modules.
///
/// Each check makes its own pair of Links over a socket pair. One end is in a thread of its own, or in a separate
/// process if an end is killed. The check runs frames over it and reports what it saw. A check that takes longer than
/// its deadline has failed. The checks use fork(): call them from a process without threads. Owner-thread.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/conformance/check.hpp"
#include "store/transport.hpp"

namespace sonde::store::conformance {

struct TransportPlan {
  LinkOptions options;
  double seconds = 20;                ///< for each check
  std::size_t small_frames = 10'000;  ///< pipelined; fewer for the `thesis` variant
  bool kill = true;                   ///< also checks with a killed process
  std::string only;                   ///< names of checks, separated by commas; empty: all
};

/// Makes the two ends: `connect` and `accept` as in Transport. A new Transport for each end.
using MakeTransport = std::function<std::shared_ptr<Transport>()>;

std::vector<Check> check_transport(const MakeTransport& make, const TransportPlan& plan);

}  // namespace sonde::store::conformance
