#pragma once
/// A TCP port of this machine for one domain object. Cyclone shares the ports that it listens at (SO_REUSEPORT): two processes at one port would
/// get each other's connections, and neither would be told.

#include <cstdint>
#include <span>

#include "core/error.hpp"

namespace sonde::bus::cyclonedds {

/// Holds the claim for the processes of this network namespace that ask for it in this way; the kernel ends it with the process. Owner-thread.
class TcpPort {
 public:
  TcpPort() = default;
  TcpPort(TcpPort&& other) noexcept;
  TcpPort& operator=(TcpPort&& other) noexcept;
  ~TcpPort();
  /// The first of `ports` that nobody has, neither by a claim nor by listening. Error: bus.open.
  static Result<TcpPort> claim(std::span<const std::uint16_t> ports);
  std::uint16_t number() const { return number_; }

 private:
  int claim_ = -1;
  std::uint16_t number_ = 0;
};

}  // namespace sonde::bus::cyclonedds
