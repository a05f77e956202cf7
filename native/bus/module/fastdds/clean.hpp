#pragma once
/// What killed processes left of Fast DDS in /dev/shm. Any-thread.

#include <cstddef>
#include <string>

namespace sonde::bus::fastdds {

/// Removes segments and ports that nobody alive holds, and says how many files that were. Fast DDS keeps a lock file beside each
/// (fastrtps_…_el of one holder, _sl of several), locked by flock() for as long as its process lives. A port whose lock file is gone may be
/// one that somebody only sends to, or one of which a killed sender was never counted out: it goes where no process has it mapped, as far
/// as this one may know. What is younger than `age_s` is left, since a file is made before it is locked. Files of data sharing
/// (fast_datasharing_…) have no lock and are not made by this module: they are left.
std::size_t clean(double age_s = 0.2, const std::string& folder = "/dev/shm");

}  // namespace sonde::bus::fastdds
