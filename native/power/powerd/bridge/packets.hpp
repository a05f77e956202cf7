#pragma once
/// Follows MQTT's packets through a stream of bytes (MQTT 5, section 2.1) before libmosquitto reads them: it allocates
/// as much as a packet's head claims, up to 256 MiB, before the broker has accepted anything, and stores each message
/// of QoS 2 until the broker releases it. Owner-thread.

#include <cstdint>
#include <string_view>

#include "core/error.hpp"

namespace sonde::power::bridge {

/// A message that a broker may send. It is named when the bridge connects, and brokers leave out what is larger.
inline constexpr std::uint32_t packet_bytes_max = 16u << 20;
/// Any other packet: acknowledgements, with their reasons and properties.
inline constexpr std::uint32_t answer_bytes_max = 64u << 10;
/// Messages of QoS 1 that a broker may send before the first is acknowledged.
inline constexpr std::uint16_t receive_maximum = 512;

class Packets {
 public:
  enum class From { broker, bridge };
  /// Packets from the bridge are counted, and not checked.
  explicit Packets(From from) : checks_(from == From::broker) {}

  /// Goes on with the bytes that follow. Error: bridge.bad_packet (longer than allowed, a length of more than 4 bytes,
  /// QoS 2 or 3, which is never subscribed to); the stream then has to end.
  Result<void> follow(std::string_view bytes);
  std::uint64_t messages() const { return messages_; }                  ///< of QoS 1, whose head has passed
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
