#include <fastrtps/config.h>

#include <cstddef>
#include <memory>

#include "bus/implementation.hpp"
#include "bus/module/fastdds/participant.hpp"
#include "bus/module/fastdds/shared_memory.hpp"
#include "core/thrown.hpp"

namespace sonde::bus::fastdds {

namespace {

const char* version() { return FASTRTPS_VERSION_STR; }

/// Without tcp4, although Fast DDS 2.9 has it. Each of two participants connects to the other after discovery. If both
/// do so at the same time, as after a common start, each connection may be refused as the second of a pair, and no
/// sample ever arrives: 10,000 samples of two writers to two readers on one machine were all lost. Also, its threads
/// crash when a participant is closed during traffic.
Caps caps() {
  Caps can;
  can.udp4 = can.udp6 = can.shared_memory = true;
  can.multicast_samples = true;
  can.peers = can.server = can.server_backup = true;
#if HAVE_SECURITY
  can.security = true;
#endif
  can.partitions = can.partition_wildcards = true;
  can.across_processes = true;
  can.durability = can.liveliness = can.deadline = can.lifespan = can.ownership = true;
  return can;
}

Result<std::unique_ptr<ParticipantPort>> open(const Profile& profile) {
  try {
    return open_participant(profile);
  } catch (...) {
    return Error{"bus.open", "the participant could not be opened: " + text_of_exception(), {}};
  }
}

std::size_t clean_all() {
  try {
    Cleaned all = clean();
    // A process may open the port of a killed process again for writing before it detects the end: such files are
    // young.
    for (int again = 0; again < 3 && all.young; ++again) {
      sleep_until(now_s() + 0.1);
      const Cleaned more = clean();
      all = {all.files + more.files, more.young};
    }
    return all.files;
  } catch (...) {
    return 0;
  }
}

constexpr ImplementationEntry entry{
    .name = "fastdds", .version = version, .caps = caps, .open = open, .clean = clean_all};
constexpr Module module{.implementations = {&entry, 1}};

}  // namespace

}  // namespace sonde::bus::fastdds

extern "C" __attribute__((visibility("default"))) const sonde::bus::Module* sonde_bus_module() {
  return &sonde::bus::fastdds::module;
}
