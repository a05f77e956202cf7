#pragma once
/// Where a rank runs. Owner-thread.

#include <string>

namespace sonde {

/// Logical indices as hwloc counts them within the host; -1 where not known: without hwloc, or because the rank
/// is not bound and may wander between the objects of that kind.
struct Place {
  std::string host;
  int cpu = -1, core = -1, l3 = -1, numa = -1, package = -1;
};

Place find_place();

}  // namespace sonde
