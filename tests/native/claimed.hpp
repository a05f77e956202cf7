#pragma once
// What test programs of one machine must not share: DDS domains and ports. A claim is a name in the abstract namespace
// of Unix sockets, which ends with its process however that ends, and reaches as far as a network namespace does.

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>

#include "core/clock.hpp"

namespace sonde::claimed {

/// The descriptor that holds the claim; -1: another has it.
inline int try_claim(const std::string& what) {
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd >= 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = "sonde-test-" + what;
  REQUIRE(text.size() + 1 < sizeof name.sun_path);
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&name),
             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size())) == 0)
    return fd;
  ::close(fd);
  return -1;
}

/// One of `count` numbers from `first` on that no other process has; -1: others have them all.
inline std::int64_t try_number(const std::string& what, std::uint32_t first, std::uint32_t count,
                               bool (*usable)(std::uint32_t)) {
  static std::uint32_t next = static_cast<std::uint32_t>(::getpid()) * 7;  // far from those of the process before
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::uint32_t one = first + next++ % count;
    const int fd = try_claim(what + std::to_string(one));
    if (fd < 0) continue;
    if (usable(one)) return one;
    ::close(fd);
  }
  return -1;
}

/// The same, and a claim ends with its process: so one is waited for.
inline std::uint32_t number(const std::string& what, std::uint32_t first, std::uint32_t count,
                            bool (*usable)(std::uint32_t)) {
  const double until = now_s() + 120;
  std::int64_t one = -1;
  while ((one = try_number(what, first, count, usable)) < 0 && now_s() < until) sleep_until(now_s() + 50e-3);
  REQUIRE_MESSAGE(one >= 0, "other processes hold every ", what);
  return static_cast<std::uint32_t>(one);
}

// tests/claimed.py is the same for Python.
// Domain N uses 250 ports from 7400 + 250 N on. Domains 1 to 89 end below port(), and those from 215 on lie above the
// kernel's ephemeral ports (32768 to 60999): a foreign socket on a domain's multicast port prevents discovery there.
// DDS Security knows no domain above 230.

/// A DDS domain for this process alone, until it ends. Each call gives another.
inline std::uint32_t domain() {
  return number("domain-", 49, 182, [](std::uint32_t one) { return one < 90 || one >= 215; });
}

/// The first of four domains in a row, likewise, for a program that chooses among domains by itself.
inline std::uint32_t four_domains() {
  return number("domain-", 1, 48, [](std::uint32_t one) {
    if (one % 4 != 1) return false;
    int held[3] = {-1, -1, -1};
    for (std::uint32_t k = 0; k < 3; ++k) held[k] = try_claim("domain-" + std::to_string(one + k + 1));
    const bool all = std::all_of(std::begin(held), std::end(held), [](int fd) { return fd >= 0; });
    if (!all)
      for (const int fd : held)
        if (fd >= 0) ::close(fd);
    return all;
  });
}

/// A UDP port below those that the kernel gives away, likewise.
inline std::uint16_t port() {
  return static_cast<std::uint16_t>(number("port-", 30'000, 2'700, [](std::uint32_t one) {
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET, address.sin_port = htons(static_cast<std::uint16_t>(one));
    const bool free = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    return free;
  }));
}

/// Holds what there is one of on a machine; waits for others that have it.
class Alone {
 public:
  explicit Alone(const std::string& what) {
    const double until = now_s() + 120;
    while ((fd_ = try_claim(what)) < 0 && now_s() < until) sleep_until(now_s() + 10e-3);
    REQUIRE_MESSAGE(fd_ >= 0, "others kept ", what);
  }
  ~Alone() { ::close(fd_); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace sonde::claimed
