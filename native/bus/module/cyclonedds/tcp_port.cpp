#include "bus/module/cyclonedds/tcp_port.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace sonde::bus::cyclonedds {

namespace {

/// An abstract socket's name: of the network namespace, as ports are, and gone with who has it.
int claim_name(std::uint16_t port) {
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = "sonde-bus-tcp-" + std::to_string(port);
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&name), static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size())) == 0) return fd;
  ::close(fd);
  return -1;
}

/// Connections of a former owner that the kernel still remembers do not count: SO_REUSEADDR passes over them, but not over one who listens.
bool nobody_listens(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const int one = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  const bool free = ::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
  ::close(fd);
  return free;
}

}  // namespace

TcpPort::TcpPort(TcpPort&& other) noexcept : claim_(std::exchange(other.claim_, -1)), number_(std::exchange(other.number_, 0)) {}

TcpPort& TcpPort::operator=(TcpPort&& other) noexcept {
  std::swap(claim_, other.claim_);
  std::swap(number_, other.number_);
  return *this;
}

TcpPort::~TcpPort() {
  if (claim_ >= 0) ::close(claim_);
}

Result<TcpPort> TcpPort::claim(std::span<const std::uint16_t> ports) {
  for (const std::uint16_t port : ports) {
    TcpPort claimed;
    claimed.claim_ = claim_name(port);
    if (claimed.claim_ < 0 || !nobody_listens(port)) continue;
    claimed.number_ = port;
    return claimed;
  }
  if (ports.size() == 1)
    return Error{"bus.open", "the TCP port " + std::to_string(ports[0]) + " is taken", "choose another; 'ss -tlnp' says who has it"};
  return Error{"bus.open",
               "none of the TCP ports " + std::to_string(ports.front()) + " to " + std::to_string(ports.back()) + " is free for a participant",
               "end some of the processes in this domain, or set <transport port=\"…\">"};
}

}  // namespace sonde::bus::cyclonedds
