#pragma once
/// Counters of the kernel and of the processor.

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <string>

#include "core/error.hpp"

namespace sonde::bus::probe {

/// Instructions that the calling thread executes. Owner-thread.
class Instructions {
 public:
  Instructions();
  ~Instructions();
  Instructions(const Instructions&) = delete;
  Instructions& operator=(const Instructions&) = delete;
  bool counted() const { return fd_ >= 0; }
  /// "counted", "counted in user mode", or the reason why not.
  const std::string& state() const { return state_; }
  std::uint64_t read() const;
  /// The difference of two consecutive reads, which is subtracted from results.
  std::uint64_t own() const { return own_; }

 private:
  int fd_ = -1;
  std::uint64_t own_ = 0;
  std::string state_;
};

/// Traffic of the network namespace of this program, since its creation.
struct Traffic {
  std::uint64_t datagrams = 0;   ///< UDP, v4 and v6, sent
  std::uint64_t bytes = 0;       ///< sent by the IP layers
  std::uint64_t overflowed = 0;  ///< datagrams dropped because a socket buffer was full
};
/// Error: bus.failed.
Result<Traffic> traffic();
/// The traffic in the texts of /proc/net/snmp, netstat and snmp6. Exported for tests. nullopt: a counter is missing.
std::optional<Traffic> read_traffic(const std::string& snmp, const std::string& netstat, const std::string& snmp6);

/// Processor time of this process with all its threads.
struct Usage {
  double cpu_s = 0;
  std::uint64_t page_faults = 0, context_switches = 0;
};
Usage usage(int who = RUSAGE_SELF);

/// Creates and enters a network namespace with only a loopback interface, which is up. Must run before any thread
/// starts. Without permission it also creates a user namespace, in which the user keeps his id. Error:
/// bus.no_namespace.
Result<void> enter_new_namespace();
/// Enters the namespace of a process. Error: bus.no_namespace.
Result<void> enter_namespace_of(int pid);

}  // namespace sonde::bus::probe
