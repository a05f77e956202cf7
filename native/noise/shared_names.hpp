#pragma once
/// What an agent made in /dev/shm, so that nothing of it stays there. Linux only. Owner-thread.

#include <set>
#include <string>
#include <vector>

#include "noise/process_tree.hpp"

namespace sonde::noise {

/// Names below /dev/shm that processes map, as the text of /proc/<pid>/maps lists them; deleted ones are left out.
std::set<std::string> shared_names_in(const std::string& maps);

/// begin() before the agent starts, look() while it lives, remove() when all of it is gone. A name that was there
/// before is never the agent's, nor is one that another process maps.
class SharedNames {
 public:
  void begin();
  void look(const std::vector<Process>& agent);
  /// Removes what look() saw and nobody else maps; what cannot be removed stays.
  void remove();

 private:
  std::set<std::string> before_, mapped_;
};

}  // namespace sonde::noise
