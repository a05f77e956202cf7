#pragma once
/// What killed processes left of Fast DDS in /dev/shm. Any-thread.

#include <cstddef>
#include <string>

namespace sonde::bus::fastdds {

/// Files removed. Only what nobody alive holds: its lock file can be locked.
std::size_t clean(const std::string& folder = "/dev/shm");

}  // namespace sonde::bus::fastdds
