#pragma once
/// The names that an agent created in /dev/shm, to remove them afterwards. Linux only. Owner-thread.

#include <set>
#include <string>
#include <vector>

#include "noise/process_tree.hpp"

namespace sonde::noise {

/// The names below /dev/shm in the text of /proc/<pid>/maps, without deleted ones.
std::set<std::string> shared_names_in(const std::string& maps);

/// Call begin() before the agent starts, look() while it lives, remove() when all its processes have ended. A name that
/// existed before, or that another process maps, does not belong to the agent.
class SharedNames {
 public:
  void begin();
  void look(const std::vector<Process>& agent);
  /// Removes the names that look() found and no other process maps. Names that cannot be removed stay.
  void remove();

 private:
  std::set<std::string> before_, mapped_;
};

}  // namespace sonde::noise
