#pragma once
/// Follows MQTT's packets through a stream of bytes (MQTT 5, section 2.1) before libmosquitto reads them: it allocates
/// as much as a packet's head claims, up to 256 MiB, before the broker has accepted anything, and stores each message
/// of QoS 2 until the broker releases it. Owner-thread.

#include <cstdint>
#include <string_view>

#include "core/error.hpp"

namespace sonde::power::bridge {

/// The largest message that a broker may send. The bridge states it when it connects, and brokers drop larger ones.
inline constexpr std::uint32_t packet_bytes_max = 16u << 20;
/// The largest size of any other packet: acknowledgements, with their reasons and properties.
inline constexpr std::uint32_t answer_bytes_max = 64u << 10;
/// The most messages of QoS 1 that a broker may send before the first is acknowledged.
inline constexpr std::uint16_t receive_maximum = 512;

class Packets {
 public:
  enum class From { broker, bridge };
  /// Packets from the bridge are counted, but not checked.
  explicit Packets(From from) : checks_(from == From::broker) {}

  /// Continues with the bytes that follow. Error: bridge.bad_packet (longer than allowed, a length of more than 4
  /// bytes, or QoS 2 or 3, to which the bridge never subscribes); the stream must then end.
  Result<void> follow(std::string_view bytes);
  std::uint64_t messages() const { return messages_; }                  ///< of QoS 1, counted when the head has passed
  std::uint64_t acknowledgements() const { return acknowledgements_; }  ///< of QoS 1

 private:
  Result<void> begun();

  bool checks_;
  enum class At { head, length, body } at_ = At::head;
  std::uint8_t head_ = 0;
  std::uint32_t left_ = 0, shift_ = 0;
  std::uint64_t messages_ = 0, acknowledgements_ = 0;
};

}  // namespace sonde::power::bridge
