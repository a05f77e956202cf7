// The page for scrapers, beside connections that ask for nothing.
#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocations.hpp"
#include "core/sanitizer.hpp"
#include "service/http.hpp"

using namespace sonde::service;

namespace {

constexpr int patience_ms = 60'000;

class Caller {
 public:
  explicit Caller(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(port);
    REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  }
  Caller(Caller&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Caller& operator=(Caller&&) = delete;
  ~Caller() {
    if (fd_ >= 0) ::close(fd_);
  }
  void say(std::string_view text) { (void)!::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  /// Until something comes.
  void wait() {
    pollfd ready{fd_, POLLIN, 0};
    REQUIRE_MESSAGE(::poll(&ready, 1, patience_ms) > 0, "the server neither answers nor ends the connection");
  }
  /// All that comes until the server ends the connection.
  std::string hear() {
    std::string all;
    for (char text[4096];;) {
      pollfd ready{fd_, POLLIN, 0};
      REQUIRE_MESSAGE(::poll(&ready, 1, patience_ms) > 0, "the server neither answers nor ends the connection");
      const ssize_t n = ::recv(fd_, text, sizeof text, 0);
      if (n <= 0) return all;
      all.append(text, static_cast<std::size_t>(n));
    }
  }

 private:
  int fd_;
};

std::unique_ptr<Http> start(
    const HttpConfig& config, std::function<std::string()> metrics = [] { return std::string("# EOF\n"); }) {
  auto http = Http::start(config, std::move(metrics));
  REQUIRE_MESSAGE(http, http.error().what);
  return std::move(*http);
}

constexpr std::string_view scrape = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";

}  // namespace

TEST_CASE("a scrape is answered beside connections that are silent, slow, or do not read") {
  HttpConfig config;
  config.request_timeout_s = 3600;
  std::string large(8u << 20, '#');
  const auto http = start(config, [&] { return large; });
  std::vector<Caller> silent;
  for (int k = 0; k < 10; ++k) silent.emplace_back(http->port());
  Caller slow(http->port()), deaf(http->port());
  slow.say("GET /met");
  deaf.say(scrape);
  for (int k = 0; k < 3; ++k) {
    Caller scraper(http->port());
    scraper.say(scrape);
    const std::string page = scraper.hear();
    CHECK(page.starts_with("HTTP/1.1 200 OK\r\n"));
    CHECK(page.size() > large.size());
  }
  slow.say("rics HTTP/1.1\r\n\r\n");
  CHECK(slow.hear().starts_with("HTTP/1.1 200 OK\r\n"));
  silent.front().say("GET /healthz HTTP/1.1\r\n\r\n");
  CHECK(silent.front().hear().ends_with("ok\n"));
}

TEST_CASE("of more connections than there may be, those that ask for something are served") {
  HttpConfig config;
  config.request_timeout_s = 3600;
  config.connections = 8;
  const auto http = start(config);
  std::vector<Caller> silent;
  for (int k = 0; k < 40; ++k) silent.emplace_back(http->port());
  Caller scraper(http->port());
  scraper.say(scrape);
  CHECK(scraper.hear().ends_with("# EOF\n"));
  CHECK(silent.front().hear().empty());
  silent.back().say(scrape);
  CHECK(silent.back().hear().ends_with("# EOF\n"));
}

TEST_CASE("connections that ask and do not read have no other dropped before it asks") {
  HttpConfig config;
  config.request_timeout_s = 3600;
  config.connections = 8;
  const auto http = start(config, [large = std::string(8u << 20, '#')] { return large; });
  std::vector<Caller> deaf;
  const auto ask = [&] {
    deaf.emplace_back(http->port());
    deaf.back().say(scrape);
    deaf.back().wait();
  };
  for (int k = 0; k < 7; ++k) ask();
  Caller scraper(http->port());
  for (int k = 0; k < 7; ++k) ask();
  scraper.say(scrape);
  CHECK(scraper.hear().starts_with("HTTP/1.1 200 OK\r\n"));
}

TEST_CASE("a connection has a deadline, whatever it sends meanwhile") {
  HttpConfig config;
  config.request_timeout_s = 0.2;
  const auto http = start(config);
  Caller silent(http->port()), slow(http->port());
  slow.say("G");
  CHECK(silent.hear().empty());
  slow.say("E");
  CHECK(slow.hear().empty());
  Caller large(http->port());
  large.say("GET /" + std::string(9000, 'x'));
  CHECK(large.hear().empty());
}

TEST_CASE("a page that cannot be made is an answer, and the next is served") {
  bool broken = true;
  const auto http = start({}, [&]() -> std::string {
    if (broken) throw std::bad_alloc();
    return "# EOF\n";
  });
  {
    Caller scraper(http->port());
    scraper.say(scrape);
    CHECK(scraper.hear().starts_with("HTTP/1.1 500 "));
  }
  broken = false;
  Caller scraper(http->port());
  scraper.say(scrape);
  CHECK(scraper.hear().ends_with("# EOF\n"));
}

TEST_CASE("without a thread for it the page is refused, with the reason" * doctest::skip(sonde::sanitized)) {
  const sonde::test::NoThreads none;
  const auto http = Http::start({}, [] { return std::string(); });
  REQUIRE_FALSE(http);
  CHECK(http.error().code == "service.no_thread");
}
