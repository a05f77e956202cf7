#include "store/transport/tcp.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "core/clock.hpp"
#include "store/transport/tcp_parts.hpp"

namespace sonde::store {

namespace {

struct Resolved {
  addrinfo* list = nullptr;
  ~Resolved() {
    if (list) ::freeaddrinfo(list);
  }
};

Result<void> resolve(const Address& address, bool passive, Resolved& resolved) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  const int why = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &resolved.list);
  if (why == 0) return {};
  return Error{"store.unreachable", "cannot find the host '" + address.host + "': " + ::gai_strerror(why),
               "give a host name or address that this machine knows"};
}

}  // namespace

std::string Address::text() const {
  return (host.find(':') == std::string::npos ? host : '[' + host + ']') + ':' + std::to_string(port);
}

Result<Address> parse_address(std::string_view text) {
  const auto bad = [&](const char* why) {
    return Error{"store.bad_address", "'" + std::string(text) + "' is not a server address: " + why,
                 "write host:port, as 127.0.0.1:5440, [::1]:5440 or :5440"};
  };
  Address address{"127.0.0.1", default_port};
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return bad("the bracket is not closed");
    address.host = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && rest[0] != ':') return bad("a colon and a port must follow the bracket");
    port = rest.empty() ? rest : rest.substr(1);
    if (!rest.empty() && port.empty()) return bad("the port is missing");
  } else {
    const std::size_t colon = text.find(':');
    if (colon != text.rfind(':')) return bad("an IPv6 address needs brackets");
    if (colon != 0 && !text.empty()) address.host = text.substr(0, colon);
    if (colon != std::string_view::npos) {
      port = text.substr(colon + 1);
      if (port.empty()) return bad("the port is missing");
    }
  }
  if (text.empty()) return bad("it is empty");
  if (address.host.empty()) return bad("the host is missing");
  if (address.host.find_first_of("[]") != std::string::npos) return bad("a host has no brackets");
  if (!port.empty()) {
    unsigned number = 0;
    const auto [end, why] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (why != std::errc{} || end != port.data() + port.size() || number > 65535)
      return bad("a port is a number up to 65535");
    address.port = static_cast<std::uint16_t>(number);
  }
  return address;
}

bool is_loopback(const Address& address) {
  Resolved resolved;
  if (!resolve(address, false, resolved)) return false;
  for (const addrinfo* a = resolved.list; a; a = a->ai_next) {
    if (a->ai_family == AF_INET) {
      if ((ntohl(reinterpret_cast<const sockaddr_in*>(a->ai_addr)->sin_addr.s_addr) >> 24) != 127) return false;
    } else if (a->ai_family == AF_INET6) {
      if (!IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(a->ai_addr)->sin6_addr)) return false;
    } else {
      return false;
    }
  }
  return resolved.list != nullptr;
}

Deadline slice(Deadline whole) {
  const Deadline soon = Deadline::in_s(0.1);
  return whole.at_ns && whole.at_ns < soon.at_ns ? whole : soon;
}

Error interrupted(const Address& address) {
  return {"store.interrupted", "interrupted while connecting to " + address.text(), "nothing was sent to it"};
}

Result<int> tcp_connect(const Address& address, Deadline deadline, const std::function<bool()>& stop) {
  Resolved resolved;
  if (auto ok = resolve(address, false, resolved); !ok) return ok.error();
  int why = 0;
  for (const addrinfo* a = resolved.list; a; a = a->ai_next) {
    const int fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
      why = errno;
      continue;
    }
    int result = ::connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (result == EINPROGRESS) {
      pollfd wait{fd, POLLOUT, 0};
      int ready;
      bool stopped = false;
      do {
        ready = ::poll(&wait, 1, stop ? slice(deadline).left_ms() : deadline.left_ms());
        stopped = ready <= 0 && stop && stop();
      } while (!stopped && !deadline.passed() && (ready == 0 || (ready < 0 && errno == EINTR)));
      if (stopped) {
        ::close(fd);
        return interrupted(address);
      }
      socklen_t size = sizeof result;
      if (ready <= 0) result = ETIMEDOUT;
      else ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &size);
    }
    if (result == 0) return fd;
    why = result;
    ::close(fd);
  }
  if (why == ETIMEDOUT)
    return Error{"store.timed_out", "no answer from " + address.text(),
                 "is the host up, and the port open in its firewall?"};
  return Error{"store.unreachable", "cannot connect to " + address.text() + ": " + std::strerror(why),
               "is the server running there? start one with 'sonde store serve'"};
}

Result<int> tcp_listen(const Address& address, std::uint16_t& port) {
  Resolved resolved;
  if (auto ok = resolve(address, true, resolved); !ok) return ok.error();
  int why = EADDRNOTAVAIL;
  for (const addrinfo* a = resolved.list; a; a = a->ai_next) {
    const int fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (a->ai_family == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    sockaddr_storage got{};
    socklen_t size = sizeof got;
    if (::bind(fd, a->ai_addr, a->ai_addrlen) == 0 && ::listen(fd, 1024) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&got), &size) == 0) {
      port = ntohs(got.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&got)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&got)->sin_port);
      return fd;
    }
    why = errno;
    ::close(fd);
  }
  return Error{"store.cannot_listen", "cannot listen on " + address.text() + ": " + std::strerror(why),
               why == EADDRINUSE ? "another server has this port; choose one with --listen HOST:PORT"
                                 : "choose an address of this machine with --listen HOST:PORT"};
}

}  // namespace sonde::store
