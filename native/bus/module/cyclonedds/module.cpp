#include <dds/version.h>

#include <cstddef>
#include <memory>

#include "bus/implementation.hpp"
#include "bus/module/cyclonedds/participant.hpp"
#include "core/thrown.hpp"

namespace sonde::bus::cyclonedds {

namespace {

const char* version() { return DDS_VERSION; }

Caps caps() {
  Caps can;
  // No tcp4: Cyclone 0.10.2 supports TCP, but a connection that ends during a send can lock up the process forever: the
  // sender holds its set of addresses and waits for the connections, the receiver holds the connections and waits for
  // the addresses.
  can.udp4 = can.udp6 = true;
  can.multicast_samples = true;
  can.peers = true;
  can.security = true;
  can.partitions = can.partition_wildcards = true;
  can.across_processes = true;
  can.durability = can.liveliness = can.deadline = can.lifespan = can.latency_budget = true;
  can.ownership = can.ownership_best_effort = can.order_by_source = true;
  return can;
}

Result<std::unique_ptr<ParticipantPort>> open(const Profile& profile) {
  try {
    return open_participant(profile);
  } catch (...) {
    return Error{"bus.open", "the participant could not be opened: " + text_of_exception(), {}};
  }
}

/// A killed process leaves no files: the kernel closes its sockets, and shared memory is not used.
std::size_t clean() { return 0; }

constexpr ImplementationEntry entry{
    .name = "cyclonedds", .version = version, .caps = caps, .open = open, .clean = clean};
constexpr Module module{.implementations = {&entry, 1}};

}  // namespace

}  // namespace sonde::bus::cyclonedds

extern "C" __attribute__((visibility("default"))) const sonde::bus::Module* sonde_bus_module() {
  return &sonde::bus::cyclonedds::module;
}
