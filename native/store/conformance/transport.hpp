#pragma once
/// Does a transport keep what store/transport.hpp promises? For transports of this tree and of modules.
///
/// Each check makes its own pair of Links over a socket pair, one end in a thread of its own, or in a process of its
/// own where an end is killed; runs frames over it; and says what it saw. A check that takes longer than its deadline
/// has failed. With fork() in it: call it from a process without threads. Owner-thread.

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
  bool kill = true;                   ///< also in a process of its own, killed
  std::string only;                   ///< names of checks, separated by commas; empty: all
};

/// Makes the two ends: `connect` and `accept` as Transport has them. A new Transport for each end.
using MakeTransport = std::function<std::shared_ptr<Transport>()>;

std::vector<Check> check_transport(const MakeTransport& make, const TransportPlan& plan);

}  // namespace sonde::store::conformance
