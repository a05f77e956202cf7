#include "service/http.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "core/clock.hpp"

namespace sonde::service {

namespace {

constexpr std::size_t request_bytes_max = 8192;
constexpr double request_time_s = 2;  // one connection at a time: a slow one may not keep the scraper out for long

std::string page(const char* status, const char* type, const std::string& body) {
  return std::string("HTTP/1.1 ") + status + "\r\nContent-Type: " + type +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
}

/// Equal in time that does not depend on where they differ.
bool same(const std::string& a, const std::string& b) {
  unsigned char differ = a.size() != b.size();
  for (std::size_t k = 0; k < a.size(); ++k)
    differ |= static_cast<unsigned char>(a[k] ^ b[b.empty() ? 0 : k % b.size()]);
  return differ == 0;
}

/// The value of a request's field; empty when it has none. name: in small letters.
std::string field_of(const std::string& request, const std::string& name) {
  for (std::size_t at = request.find("\r\n"); at != std::string::npos; at = request.find("\r\n", at + 2)) {
    const std::string line = request.substr(at + 2, request.find("\r\n", at + 2) - at - 2);
    if (line.size() <= name.size() || line[name.size()] != ':' ||
        strncasecmp(line.c_str(), name.c_str(), name.size()) != 0)
      continue;
    const std::size_t begin = line.find_first_not_of(" \t", name.size() + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

/// OpenMetrics 1.0 in Prometheus' text format 0.0.4, where counters are named with their `_total`, and units and the
/// end mark are unknown.
std::string prometheus_text(const std::string& open_metrics) {
  std::string out, counter;
  for (std::size_t at = 0; at < open_metrics.size();) {
    const std::size_t end = std::min(open_metrics.find('\n', at), open_metrics.size());
    std::string line = open_metrics.substr(at, end - at);
    at = end + 1;
    if (line.rfind("# UNIT ", 0) == 0 || line == "# EOF") continue;
    if (line.rfind("# TYPE ", 0) == 0) {
      const std::size_t name_end = line.find(' ', 7);
      counter = line.compare(name_end + 1, std::string::npos, "counter") == 0 ? line.substr(7, name_end - 7) : "";
    }
    const bool about = line.rfind("# TYPE ", 0) == 0 || line.rfind("# HELP ", 0) == 0;
    if (about && !counter.empty() && line.compare(7, counter.size() + 1, counter + ' ') == 0)
      line.insert(7 + counter.size(), "_total");
    out += line + '\n';
  }
  return out;
}

}  // namespace

struct Http::Impl {
  HttpConfig config;
  std::function<std::string()> metrics;
  int listener = -1, wake = -1;
  std::uint16_t port = 0;
  std::thread thread;

  std::string answer(const std::string& request) const {
    const std::size_t end = request.find("\r\n");
    const std::string line = request.substr(0, end);
    if (!config.token.empty()) {
      const std::string given = field_of(request, "authorization");
      const bool bearer = strncasecmp(given.c_str(), "bearer ", 7) == 0;
      if (!bearer || !same(given.substr(7), config.token))
        return page("401 Unauthorized", "text/plain", "a token is needed\n");
    }
    if (line.rfind("GET /metrics", 0) == 0) {
      if (field_of(request, "accept").find("application/openmetrics-text") != std::string::npos)
        return page("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", metrics());
      return page("200 OK", "text/plain; version=0.0.4; charset=utf-8", prometheus_text(metrics()));
    }
    if (line.rfind("GET /healthz", 0) == 0) return page("200 OK", "text/plain", "ok\n");
    if (line.rfind("GET ", 0) == 0) return page("404 Not Found", "text/plain", "there are /metrics and /healthz\n");
    return page("405 Method Not Allowed", "text/plain", "only GET\n");
  }

  void serve(int fd) const {
    const double until = now_s() + request_time_s;
    std::string request;
    while (request.find("\r\n\r\n") == std::string::npos) {
      pollfd ready[2] = {{fd, POLLIN, 0}, {wake, POLLIN, 0}};
      const int left_ms = static_cast<int>((until - now_s()) * 1e3);
      if (left_ms <= 0 || ::poll(ready, 2, left_ms) <= 0 || ready[1].revents) return;
      char text[2048];
      const ssize_t n = ::recv(fd, text, sizeof text, MSG_DONTWAIT);
      if (n <= 0 || request.size() + static_cast<std::size_t>(n) > request_bytes_max) return;
      request.append(text, static_cast<std::size_t>(n));
    }
    const std::string out = answer(request);
    for (std::size_t sent = 0; sent < out.size();) {
      pollfd ready[2] = {{fd, POLLOUT, 0}, {wake, POLLIN, 0}};
      const int left_ms = static_cast<int>((until - now_s()) * 1e3);
      if (left_ms <= 0 || ::poll(ready, 2, left_ms) <= 0 || ready[1].revents) return;
      const ssize_t n = ::send(fd, out.data() + sent, out.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<std::size_t>(n);
    }
  }

  void run() const {
    for (;;) {
      pollfd ready[2] = {{listener, POLLIN, 0}, {wake, POLLIN, 0}};
      if (::poll(ready, 2, -1) < 0 && errno != EINTR) return;
      if (ready[1].revents) return;
      const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) ::poll(&ready[1], 1, 100);
        continue;
      }
      serve(fd);
      ::close(fd);
    }
  }
};

Http::Http(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Http>> Http::start(const HttpConfig& config, std::function<std::string()> metrics) {
  in6_addr six{};
  in_addr four{};
  const bool is_six = ::inet_pton(AF_INET6, config.host.c_str(), &six) == 1,
             is_four = ::inet_pton(AF_INET, config.host.c_str(), &four) == 1;
  if (!is_six && !is_four)
    return Error{"service.bad_address", "'" + config.host + "' is no address", "give an address, as 127.0.0.1 or ::1"};
  const bool loopback = is_six ? IN6_IS_ADDR_LOOPBACK(&six) : ntohl(four.s_addr) >> 24 == 127;
  if (!loopback && config.token.empty())
    return Error{"service.not_loopback", "metrics on " + config.host + " would be open to everyone who reaches it",
                 "listen on 127.0.0.1, or give a token that scrapers must send"};
  auto impl = std::make_unique<Impl>();
  impl->config = config;
  impl->metrics = std::move(metrics);
  impl->listener = ::socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  impl->wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int on = 1;
  ::setsockopt(impl->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage at{};
  socklen_t size;
  if (is_six) {
    auto& a = reinterpret_cast<sockaddr_in6&>(at);
    a.sin6_family = AF_INET6;
    a.sin6_port = htons(config.port);
    a.sin6_addr = six;
    size = sizeof a;
  } else {
    auto& a = reinterpret_cast<sockaddr_in&>(at);
    a.sin_family = AF_INET;
    a.sin_port = htons(config.port);
    a.sin_addr = four;
    size = sizeof a;
  }
  const bool ok = ::bind(impl->listener, reinterpret_cast<sockaddr*>(&at), size) == 0 &&
                  ::listen(impl->listener, 64) == 0 &&
                  ::getsockname(impl->listener, reinterpret_cast<sockaddr*>(&at), &size) == 0;
  if (!ok) {
    const std::string why = std::strerror(errno);
    ::close(impl->listener);
    ::close(impl->wake);
    return Error{"service.cannot_listen",
                 "cannot listen on " + config.host + " port " + std::to_string(config.port) + ": " + why,
                 "choose another port"};
  }
  impl->port =
      ntohs(is_six ? reinterpret_cast<sockaddr_in6&>(at).sin6_port : reinterpret_cast<sockaddr_in&>(at).sin_port);
  impl->thread = std::thread([i = impl.get()] { i->run(); });
  return std::unique_ptr<Http>(new Http(std::move(impl)));
}

Http::~Http() {
  const std::uint64_t one = 1;
  (void)!::write(impl_->wake, &one, sizeof one);
  impl_->thread.join();
  ::close(impl_->listener);
  ::close(impl_->wake);
}

std::uint16_t Http::port() const { return impl_->port; }

}  // namespace sonde::service
