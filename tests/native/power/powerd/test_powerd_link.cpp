// The connection to a broker that accepts it and then misbehaves: how often it is attempted, under a clock of its own.
#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/deadline.hpp"
#include "power/powerd/bridge/link.hpp"

using namespace sonde;
using namespace sonde::power::bridge;

namespace {

constexpr std::int64_t s = 1'000'000'000;
const std::string connack("\x20\x03\x00\x00\x00", 5);

enum class Does { closes, sends_garbage, refuses_subscriptions };

/// Answers one connection after the other, and ends each when it has done what it does.
class Broker {
 public:
  explicit Broker(Does does)
      : does_(does), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::listen(listener_, 8) == 0);
    socklen_t n = sizeof at;
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &n) == 0);
    port = ntohs(at.sin_port);
  }
  ~Broker() {
    end();
    ::close(listener_);
  }
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  void turn() {
    if (peer_ < 0) {
      peer_ = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      accepted += peer_ >= 0, packets_ = 0;
    }
    char bytes[4096];
    const ssize_t n = peer_ < 0 ? -1 : ::recv(peer_, bytes, sizeof bytes, 0);
    if (n == 0) return end();
    if (n < 0) return;
    if (packets_++ == 0) sends(connack);
    else if (does_ == Does::sends_garbage) sends(std::string(64, '\xff'));
    if (does_ == Does::closes) return end();
    // SUBSCRIBE: its number is in bytes 2 and 3. SUBACK: "not authorised".
    if (does_ == Does::refuses_subscriptions && bytes[0] == '\x82') {
      sends(std::string("\x90\x04", 2) + bytes[2] + bytes[3] + std::string("\x00\x87", 2));
      end();
    }
  }

  std::uint16_t port = 0;
  int accepted = 0;

 private:
  void sends(const std::string& what) const { CHECK(::send(peer_, what.data(), what.size(), MSG_NOSIGNAL) > 0); }
  void end() {
    if (peer_ >= 0) ::close(peer_);
    peer_ = -1;
  }

  Does does_;
  int listener_, peer_ = -1, packets_ = 0;
};

}  // namespace

TEST_CASE("link: a broker that accepts each connection and then misbehaves is asked a few times a minute") {
  for (const Does does : {Does::closes, Does::sends_garbage, Does::refuses_subscriptions}) {
    CAPTURE(static_cast<int>(does));
    Broker broker(does);
    std::int64_t now = 0;
    int lost = 0, connected = 0;
    std::unique_ptr<Link> link;
    LinkOptions options;
    options.port = broker.port;
    options.id = "sonde-test";
    options.clock = [&] { return now; };
    Link::Handlers handlers;
    handlers.connected = [&](bool) {
      ++connected;
      CHECK(link->subscribe("a/#", 0));
    };
    handlers.lost = [&](const Error&) { ++lost; };
    auto made = Link::make(options, std::move(handlers));
    REQUIRE(made);
    link = std::move(*made);
    const Deadline until = Deadline::in_s(120);
    while (now < 60 * s) {
      REQUIRE_MESSAGE(!until.passed(), "no end after ", broker.accepted, " connections");
      const int before = lost;
      link->turn(1, -1);
      broker.turn();
      // The bridge has nothing else to do until the next attempt.
      if (lost != before) now = std::max(now, link->next_attempt_ns());
    }
    CHECK(broker.accepted >= 5);
    CHECK(broker.accepted <= 16);
    CHECK(connected >= 5);
  }
}

TEST_CASE("link: of a connection that is attempted again it says when") {
  LinkOptions options;
  options.port = 1;  // nobody's, on a machine that runs tests
  options.id = "sonde-test";
  std::int64_t now = 100 * s;
  options.clock = [&] { return now; };
  std::string code;
  Link::Handlers handlers;
  handlers.lost = [&](const Error& error) { code = error.code; };
  auto link = Link::make(options, std::move(handlers));
  REQUIRE(link);
  CHECK((*link)->next_attempt_ns() <= now);
  (*link)->turn(0, -1);
  CHECK(code == "bridge.unreachable");
  CHECK((*link)->next_attempt_ns() > now);
  CHECK((*link)->next_attempt_ns() <= now + s / 10);
}
