// The connection between libmosquitto and the broker: whose socket is at its near end, and what may wait in it.
#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "power/powerd/bridge/packets.hpp"
#include "power/powerd/bridge/wire.hpp"

using namespace sonde::power::bridge;

namespace {

int connected(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  return fd;
}

bool readable(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, 20'000) == 1;
}

/// A wire without TLS, the broker's end of it, and libmosquitto's.
struct Ends {
  std::unique_ptr<Wire> wire;
  int broker = -1, client = -1, stranger = -1;

  Ends() {
    int pair[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    broker = pair[1];
    auto made = Wire::make(pair[0], nullptr, "");
    REQUIRE(made);
    wire = std::move(*made);
    const auto port = wire->listen();
    REQUIRE(port);
    stranger = connected(*port);
    client = connected(*port);
    REQUIRE(wire->accept(client));
  }
  ~Ends() {
    for (const int fd : {broker, client, stranger}) ::close(fd);
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  void broker_sends(const std::string& bytes) const {
    REQUIRE(::send(broker, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }
  std::string client_hears(std::size_t bytes) const {
    std::string out(bytes, '\0');
    REQUIRE(::recv(client, out.data(), bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes));
    return out;
  }
};

const std::string message_qos_1("\x32\x06\x00\x01t\x00\x07\x00", 8), puback("\x40\x02\x00\x07", 4);

}  // namespace

TEST_CASE("wire: whoever else connects to its port is not taken for libmosquitto, and hears nothing") {
  Ends ends;
  ends.broker_sends(message_qos_1);
  const auto moved = ends.wire->in(true);
  REQUIRE(moved);
  CHECK(*moved);
  CHECK(ends.client_hears(message_qos_1.size()) == message_qos_1);
  char byte = 0;
  REQUIRE(readable(ends.stranger));
  CHECK(::recv(ends.stranger, &byte, 1, 0) <= 0);
  CHECK(!ends.wire->proven());
}

TEST_CASE("wire: a broker is read no further while its messages of QoS 1 wait for acknowledgements") {
  Ends ends;
  for (int k = 0; k < receive_maximum; ++k) {
    CHECK((ends.wire->wants_of_broker(true) & POLLIN) != 0);
    ends.broker_sends(message_qos_1);
    const auto moved = ends.wire->in(true);
    REQUIRE(moved);
    REQUIRE(*moved);
  }
  CHECK((ends.wire->wants_of_broker(true) & POLLIN) == 0);
  ends.broker_sends(message_qos_1);
  const auto none = ends.wire->in(true);
  REQUIRE(none);
  CHECK(!*none);
  (void)ends.client_hears(receive_maximum * message_qos_1.size());
  REQUIRE(::send(ends.client, puback.data(), puback.size(), 0) == 4);
  REQUIRE(readable(ends.wire->near()));
  ends.wire->out();
  CHECK((ends.wire->wants_of_broker(true) & POLLIN) != 0);
  const auto next = ends.wire->in(true);
  REQUIRE(next);
  CHECK(*next);
}

TEST_CASE("wire: a packet that is refused never reaches libmosquitto, and the broker's end does") {
  Ends ends;
  ends.broker_sends(std::string("\x34\x06\x00\x01t\x00\x07\x00", 8));  // QoS 2
  const auto refused = ends.wire->in(true);
  REQUIRE(!refused);
  CHECK(refused.error().code == "bridge.bad_packet");
  char byte = 0;
  CHECK(::recv(ends.client, &byte, 1, MSG_DONTWAIT) < 0);

  Ends others;
  others.broker_sends(puback);
  ::shutdown(others.broker, SHUT_WR);
  for (bool more = true; more;) {
    const auto moved = others.wire->in(true);
    REQUIRE(moved);
    more = *moved;
  }
  CHECK(others.client_hears(puback.size()) == puback);
  CHECK(::recv(others.client, &byte, 1, 0) == 0);
  CHECK(others.wire->why().code.empty());
}
