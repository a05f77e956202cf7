// Packets that a broker may send before libmosquitto reads them, and what is counted on the way.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "power/powerd/bridge/packets.hpp"

using namespace sonde::power::bridge;

namespace {

/// A packet's head (MQTT 5, section 2.1), and as many bytes behind it as it claims, where that is asked for.
std::string head(unsigned first, std::uint32_t length) {
  std::string out(1, static_cast<char>(first));
  do {
    out += static_cast<char>((length & 0x7f) | (length > 0x7f ? 0x80 : 0));
    length >>= 7;
  } while (length);
  return out;
}
std::string packet(unsigned first, std::uint32_t length) { return head(first, length) + std::string(length, '\x3f'); }

/// In pieces of `size` bytes.
sonde::Result<void> fed(Packets& packets, const std::string& bytes, std::size_t size) {
  for (std::size_t at = 0; at < bytes.size(); at += size)
    if (auto fine = packets.follow(std::string_view(bytes).substr(at, size)); !fine) return fine;
  return {};
}

constexpr unsigned connack = 0x20, qos_0 = 0x30, qos_1 = 0x32, qos_2 = 0x34, qos_3 = 0x36, puback = 0x40, suback = 0x90,
                   pingresp = 0xd0;

}  // namespace

TEST_CASE("packets: what a broker may send passes, however it is cut, and what is to be acknowledged is counted") {
  const std::string all = packet(connack, 3) + packet(suback, 6) + packet(pingresp, 0) + packet(qos_0, 0x3fff) +
                          packet(qos_1, 200) + packet(pingresp, 0) + packet(qos_1, 0x4000) + packet(puback, 2);
  for (const std::size_t size : {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{4096}, all.size()}) {
    Packets packets(Packets::From::broker);
    CHECK(fed(packets, all, size));
    CHECK(packets.messages() == 2);
    CHECK(packets.acknowledgements() == 1);
  }
}

TEST_CASE("packets: a packet that claims too much is refused by its head, before the first byte of its body") {
  struct Row {
    unsigned first;
    std::uint32_t length;
    bool passes;
  };
  for (const Row& row : std::vector<Row>{{qos_0, packet_bytes_max, true},
                                         {qos_0, packet_bytes_max + 1, false},
                                         {qos_1, 250u << 20, false},
                                         {connack, answer_bytes_max, true},
                                         {connack, answer_bytes_max + 1, false},
                                         {connack, 200u << 20, false},
                                         {suback, 200u << 20, false},
                                         {qos_2, 10, false},
                                         {qos_3, 10, false}}) {
    CAPTURE(row.first);
    CAPTURE(row.length);
    Packets packets(Packets::From::broker);
    const auto fine = fed(packets, head(row.first, row.length), 1);
    CHECK(bool(fine) == row.passes);
    if (!row.passes) CHECK(fine.error().code == "bridge.bad_packet");
    // The bridge's own are counted alone.
    Packets own(Packets::From::bridge);
    CHECK(own.follow(head(row.first, row.length)));
  }
}

TEST_CASE("packets: a length of more than 4 bytes is refused at its fourth") {
  Packets packets(Packets::From::broker);
  CHECK(packets.follow("\x30\xff\xff\xff"));
  const auto fine = packets.follow("\xff");
  REQUIRE(!fine);
  CHECK(fine.error().code == "bridge.bad_packet");
}
