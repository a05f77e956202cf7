#pragma once
/// Fast DDS' files in /dev/shm: what holds a domain together, and what killed processes left. Any-thread.

#include <cstddef>
#include <cstdint>
#include <string>

namespace sonde::bus::fastdds {

struct Cleaned {
  std::size_t files = 0;  ///< removed
  std::size_t young = 0;  ///< left because of their age
};
/// Removes segments and ports of the dead. Fast DDS keeps a lock file beside each, locked by flock() for
/// as long as its owner lives: fastrtps_…_el of one owner, _sl of a port with several. What has an _el that can be
/// locked goes; so does a port of one owner without a lock file: some sender, who has it mapped, outlived the owner. A
/// domain's common port, and a named mutex without a port, go where nobody locks them and no process has them mapped.
/// Files younger than `age_s` stay, because files are created before they are locked. Files of data sharing
/// (fast_datasharing_…) have no lock and are not made by this module: they are left.
Cleaned clean(double age_s = 0.1, const std::string& folder = "/dev/shm");

/// Holds the port that all participants of a domain listen at. Fast DDS 2 lets its first listener alone lock it; when
/// that one is gone, the next participant to come takes the port for a dead one's, makes another, and those that are
/// there and those that come never hear each other. So each participant locks it, for as long as it lives.
class GroupLock {
 public:
  /// After Fast DDS has opened the port.
  explicit GroupLock(std::uint32_t group_port, const std::string& folder = "/dev/shm");
  ~GroupLock();
  GroupLock(const GroupLock&) = delete;
  GroupLock& operator=(const GroupLock&) = delete;

 private:
  std::string path_;
  int fd_ = -1;
};

/// B that are free in /dev/shm: Fast DDS writes there at once, and is killed by SIGBUS where there is no room.
std::uint64_t room(const std::string& folder = "/dev/shm");

}  // namespace sonde::bus::fastdds
