#include "noise/scrape.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace sonde::noise {

Result<Target> parse_target(std::string_view url) {
  const Error bad{"noise.agent_bad_option",
                  "the drive '" + std::string(url) +
                      "' is not valid; allowed: http://127.0.0.1:PORT/PATH, also with "
                      "localhost or [::1], or sh:COMMAND",
                  "use a command for a server on another machine: sh:curl -s URL"};
  constexpr std::string_view scheme = "http://";
  if (url.substr(0, scheme.size()) != scheme) return bad;
  url.remove_prefix(scheme.size());
  Target out;
  const std::size_t slash = url.find('/');
  std::string_view place = url.substr(0, slash);
  if (slash != std::string_view::npos) out.path = url.substr(slash);
  for (const char ch : out.path)
    if (static_cast<unsigned char>(ch) <= ' ') return bad;
  out.host = place;
  constexpr std::string_view six = "[::1]";
  out.six = place.substr(0, six.size()) == six;
  const std::size_t colon =
      out.six ? (place.size() > six.size() ? six.size() : std::string_view::npos) : place.find(':');
  const std::string_view name = place.substr(0, colon);
  if (!out.six && name != "localhost" && name != "127.0.0.1") return bad;
  if (colon != std::string_view::npos) {
    const std::string_view digits = place.substr(colon + 1);
    const auto [end, err] = std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
    if (place[colon] != ':' || err != std::errc{} || end != digits.data() + digits.size()) return bad;
  }
  if (out.port < 1 || out.port > 65535) return bad;
  return out;
}

int connect_loopback(int port, bool six, bool& done) {
  done = false;
  const int fd = ::socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_in four{};
  sockaddr_in6 long_one{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<std::uint16_t>(port));
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  long_one.sin6_family = AF_INET6;
  long_one.sin6_port = four.sin_port;
  long_one.sin6_addr = in6addr_loopback;
  const int status = six ? ::connect(fd, reinterpret_cast<sockaddr*>(&long_one), sizeof long_one)
                         : ::connect(fd, reinterpret_cast<sockaddr*>(&four), sizeof four);
  done = status == 0;
  if (status != 0 && errno != EINPROGRESS) {
    const int why = errno;
    ::close(fd);
    errno = why;
    return -1;
  }
  return fd;
}

void Scrape::begin(const Target& target) {
  close();
  // The header lines of Prometheus: in production an exporter pays for gzipping its answer.
  request_ = "GET " + target.path + " HTTP/1.1\r\nHost: " + target.host +
             "\r\nUser-Agent: sonde/" SONDE_VERSION
             "\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
             "\r\nAccept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 5\r\nConnection: close\r\n\r\n";
  head_.clear();
  failure_.clear();
  sent_ = 0;
  bytes_ = 0;
  fd_ = connect_loopback(target.port, target.six, connected_);
  if (fd_ < 0) failure_ = std::string("not connected: ") + std::strerror(errno);
}

short Scrape::events() const { return sent_ < request_.size() ? POLLOUT : POLLIN; }

bool Scrape::advance() {
  if (fd_ < 0) return true;
  if (!connected_) {
    pollfd ready{fd_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) return false;
    int why = 0;
    socklen_t size = sizeof why;
    ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &why, &size);
    if (why != 0) return fail(std::string("not connected: ") + std::strerror(why));
    connected_ = true;
  }
  while (sent_ < request_.size()) {
    const ssize_t n = ::send(fd_, request_.data() + sent_, request_.size() - sent_, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return false;
    if (n < 0) return fail(std::string("not sent: ") + std::strerror(errno));
    sent_ += static_cast<std::size_t>(n);
  }
  char piece[65536];
  while (true) {
    const ssize_t n = ::recv(fd_, piece, sizeof piece, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return false;
    if (n < 0) return fail(std::string("connection lost: ") + std::strerror(errno));
    if (n == 0) break;
    bytes_ += static_cast<std::uint64_t>(n);
    if (head_.size() < 64) head_.append(piece, std::min<std::size_t>(static_cast<std::size_t>(n), 64));
  }
  close();
  // "HTTP/1.1 200 OK"
  if (head_.size() < 12 || head_.compare(0, 5, "HTTP/") != 0) return fail("the answer is not HTTP");
  if (head_[9] != '2') return fail("answered with status " + head_.substr(9, 3));
  return true;
}

void Scrape::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool Scrape::fail(std::string why) {
  close();
  failure_ = std::move(why);
  return true;
}

}  // namespace sonde::noise
