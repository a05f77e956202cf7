#pragma once
/// Files of Fast DDS in /dev/shm: the common port of a domain, and files that killed processes left. Any-thread.

#include <cstddef>
#include <cstdint>
#include <string>

namespace sonde::bus::fastdds {

struct Cleaned {
  std::size_t files = 0;  ///< removed
  std::size_t young = 0;  ///< left because of their age
};
/// Removes segments and ports of dead processes. Next to each, Fast DDS has a lock file, which is locked with flock()
/// as long as the owner lives: fastrtps_…_el for one owner, _sl for a port with several. Files with a lockable _el are
/// removed. So is a port of one owner without a lock file: a sender that has it mapped outlived the owner. A domain's
/// common port, and a named mutex without a port, are removed if no process locks or maps them.
/// Files younger than `age_s` stay, because files are created before they are locked. Files of data sharing
/// (fast_datasharing_…) have no lock and are not created by this module, so they stay.
Cleaned clean(double age_s = 0.1, const std::string& folder = "/dev/shm");

/// Locks the common port of a domain, where all participants listen. In Fast DDS 2 only the first listener locks it.
/// When that one is gone, the next new participant treats the port as a dead one and creates another, and old and new
/// participants never hear each other. So each participant locks it as long as it lives.
class GroupLock {
 public:
  /// Create it after Fast DDS has opened the port.
  explicit GroupLock(std::uint32_t group_port, const std::string& folder = "/dev/shm");
  ~GroupLock();
  GroupLock(const GroupLock&) = delete;
  GroupLock& operator=(const GroupLock&) = delete;

 private:
  std::string path_;
  int fd_ = -1;
};

/// Free bytes in /dev/shm: Fast DDS writes there immediately, and SIGBUS kills the process if there is no room.
std::uint64_t room(const std::string& folder = "/dev/shm");

}  // namespace sonde::bus::fastdds
