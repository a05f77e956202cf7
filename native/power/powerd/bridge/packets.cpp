#include "power/powerd/bridge/packets.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

namespace sonde::power::bridge {

namespace {

constexpr unsigned publish = 3, puback = 4;  // MQTT 5, table 2-1
constexpr std::uint32_t length_bits_max = 28;

Error bad(const std::string& what) {
  return {"bridge.bad_packet", "the broker sends " + what,
          "check that [mqtt-bridge] broker is the address of an MQTT 5 broker"};
}

}  // namespace

Result<void> Packets::begun() {
  const unsigned type = head_ >> 4, qos = head_ >> 1 & 3;
  messages_ += type == publish && qos == 1;
  acknowledgements_ += type == puback;
  if (!checks_) return {};
  const std::uint32_t allowed = type == publish ? packet_bytes_max : answer_bytes_max;
  if (left_ > allowed)
    return bad("a packet of type " + std::to_string(type) + " that claims " + std::to_string(left_) + " bytes; " +
               std::to_string(allowed) + " are allowed");
  if (type == publish && qos > 1)
    return bad("a message of QoS " + std::to_string(qos) + "; the bridge subscribes to QoS 0 and 1");
  return {};
}

Result<void> Packets::follow(std::string_view bytes) {
  while (!bytes.empty()) {
    if (at_ == At::body) {
      const std::size_t n = std::min<std::size_t>(left_, bytes.size());
      left_ -= static_cast<std::uint32_t>(n);
      bytes.remove_prefix(n);
      if (!left_) at_ = At::head;
      continue;
    }
    const auto byte = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    if (at_ == At::head) {
      head_ = byte;
      left_ = shift_ = 0;
      at_ = At::length;
      continue;
    }
    left_ |= (byte & 0x7fu) << shift_;
    shift_ += 7;
    if (byte & 0x80) {
      if (shift_ == length_bits_max) return bad("a packet whose length has more than 4 bytes");
      continue;
    }
    if (auto fine = begun(); !fine) return fine;
    at_ = left_ ? At::body : At::head;
  }
  return {};
}

}  // namespace sonde::power::bridge
