#pragma once
/// What the kernel and the processor count while something is done.

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
  /// "counted", "counted in user mode", or why not.
  const std::string& state() const { return state_; }
  std::uint64_t read() const;
  /// What two reads, one right after the other, differ by: to be taken off.
  std::uint64_t own() const { return own_; }

 private:
  int fd_ = -1;
  std::uint64_t own_ = 0;
  std::string state_;
};

/// Of the network namespace that this program is in, since that was made.
struct Traffic {
  std::uint64_t datagrams = 0;   ///< UDP, v4 and v6, sent
  std::uint64_t bytes = 0;       ///< that the IP layers were given to send
  std::uint64_t overflowed = 0;  ///< datagrams without place in a socket
};
/// Error: bus.failed.
Result<Traffic> traffic();
/// Of the text of /proc/net/snmp, netstat, snmp6. Exported for tests. nullopt: a counter is not there.
std::optional<Traffic> read_traffic(const std::string& snmp, const std::string& netstat, const std::string& snmp6);

/// Of this process and all its threads.
struct Usage {
  double cpu_s = 0;
  std::uint64_t page_faults = 0, context_switches = 0;
};
Usage usage(int who = RUSAGE_SELF);

/// Makes a network namespace with nothing but a loopback interface that is up, and enters it. Before any thread is
/// started. Where that is not allowed, in a user namespace of its own, in which this user is himself. Error:
/// bus.no_namespace.
Result<void> enter_new_namespace();
/// Enters the one that the process is in. Error: bus.no_namespace.
Result<void> enter_namespace_of(int pid);

}  // namespace sonde::bus::probe
