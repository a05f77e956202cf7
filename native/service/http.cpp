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
#include <iterator>
#include <list>
#include <system_error>
#include <thread>
#include <vector>

#include "core/clock.hpp"

namespace sonde::service {

namespace {

constexpr std::size_t request_bytes_max = 8192;

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

std::string answer(const std::string& request, const std::string& token, const std::function<std::string()>& metrics) {
  const std::size_t end = request.find("\r\n");
  const std::string line = request.substr(0, end);
  if (!token.empty()) {
    const std::string given = field_of(request, "authorization");
    const bool bearer = strncasecmp(given.c_str(), "bearer ", 7) == 0;
    if (!bearer || !same(given.substr(7), token)) return page("401 Unauthorized", "text/plain", "a token is needed\n");
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

/// The owner of an address, as far as addresses show it; empty for all of loopback. For IPv6 it is the first 64 bits:
/// one host can have any number of addresses with these.
std::string peer_of(const sockaddr_storage& address) {
  const auto of_four = [](const unsigned char* bytes) {
    return bytes[0] == 127 ? std::string() : std::string(reinterpret_cast<const char*>(bytes), 4);
  };
  if (address.ss_family != AF_INET6)
    return of_four(reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr));
  const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (IN6_IS_ADDR_LOOPBACK(&six)) return {};
  if (IN6_IS_ADDR_V4MAPPED(&six)) return of_four(six.s6_addr + 12);
  return {reinterpret_cast<const char*>(six.s6_addr), 8};
}

}  // namespace

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

std::string http_answer(const std::string& request, const std::string& token,
                        const std::function<std::string()>& metrics) {
  try {
    return answer(request, token, metrics);
  } catch (...) {
    return page("500 Internal Server Error", "text/plain", "this page could not be made\n");
  }
}

struct Http::Impl {
  HttpConfig config;
  std::function<std::string()> metrics;
  int listener = -1, wake = -1;
  std::uint16_t port = 0;
  std::thread thread;

  /// One that is being served. Each has the same time, so the first of them is the first whose time is over.
  struct Connection {
    int fd = -1;
    double until_s = 0;
    std::string peer, request, out;
    std::size_t sent = 0;
  };

  /// False: it is done with.
  bool receive(Connection& c) const {
    char text[2048];
    const ssize_t n = ::recv(c.fd, text, sizeof text, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0 || c.request.size() + static_cast<std::size_t>(n) > request_bytes_max) return false;
    c.request.append(text, static_cast<std::size_t>(n));
    if (c.request.find("\r\n\r\n") == std::string::npos) return true;
    c.out = http_answer(c.request, config.token, metrics);
    return send(c);
  }

  bool send(Connection& c) const {
    const ssize_t n = ::send(c.fd, c.out.data() + c.sent, c.out.size() - c.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    c.sent += static_cast<std::size_t>(n);
    return c.sent < c.out.size();
  }

  /// False: there is no descriptor for the connection that waits to be accepted.
  bool accept_one(std::list<Connection>& all) const {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const int fd = ::accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC);
    if (fd < 0) return errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS;
    try {
      Connection made{fd, now_s() + config.request_timeout_s, peer_of(from), {}, {}, 0};
      if (all.size() >= std::max(1u, config.connections)) drop_one(all);
      all.push_back(std::move(made));
    } catch (...) {
      ::close(fd);
    }
    return true;
  }

  /// The oldest connection of the peer that has the most. A connection without a request is not preferred: next to
  /// connections that send requests and do not read, each new one would be dropped before its request.
  static void drop_one(std::list<Connection>& all) {
    const auto places = [&all](const Connection& one) {
      return std::count_if(all.begin(), all.end(), [&one](const Connection& c) { return c.peer == one.peer; });
    };
    const auto dropped = std::max_element(
        all.begin(), all.end(), [&](const Connection& a, const Connection& b) { return places(a) < places(b); });
    ::close(dropped->fd);
    all.erase(dropped);
  }

  void run() const {
    std::list<Connection> all;
    for (bool ended = false; !ended;) {
      try {
        ended = !turn(all);
      } catch (...) {  // out of memory: those that hold most of it go
        if (!all.empty()) drop_one(all);
      }
    }
    for (const Connection& c : all) ::close(c.fd);
  }

  /// Serves whoever is ready. False: the service ends.
  bool turn(std::list<Connection>& all) const {
    std::vector<pollfd> ready{{wake, POLLIN, 0}, {listener, POLLIN, 0}};
    for (const Connection& c : all) ready.push_back({c.fd, static_cast<short>(c.out.empty() ? POLLIN : POLLOUT), 0});
    const double left_ms = all.empty() ? -1 : std::clamp((all.front().until_s - now_s()) * 1e3 + 1, 0.0, 1e6);
    if (::poll(ready.data(), ready.size(), static_cast<int>(left_ms)) < 0 && errno != EINTR) return false;
    if (ready[0].revents) return false;
    std::size_t k = 2;
    for (auto c = all.begin(); c != all.end();) {
      const short events = ready[k++].revents;
      const bool stays = now_s() < c->until_s && (!events || (c->out.empty() ? receive(*c) : send(*c)));
      if (!stays) ::close(c->fd);
      c = stays ? std::next(c) : all.erase(c);
    }
    if (!ready[1].revents || accept_one(all)) return true;
    // It stays in the queue, so that asking again at once would spin.
    if (!all.empty()) drop_one(all);
    else ::poll(ready.data(), 1, 100);
    return true;
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
  try {
    impl->thread = std::thread([i = impl.get()] { i->run(); });
  } catch (const std::system_error& e) {
    ::close(impl->listener);
    ::close(impl->wake);
    return Error{"service.no_thread", std::string("cannot start a thread for the page of metrics: ") + e.what(),
                 "let this user have more processes: ulimit -u, TasksMax= of a systemd unit"};
  }
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
