#pragma once
/// The measured messages, on the bus and on raw transports. Owner-thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bus/probe/limits.hpp"
#include "bus/types.hpp"

namespace sonde::bus::probe {

/// The fields before the data, as CDR lays them out; little-endian.
struct MessageHead {
  std::uint64_t index;       ///< counts from 0 in each burst
  std::int64_t sent_ns;      ///< CLOCK_MONOTONIC of the writer's host, before the call of write()
  std::int64_t received_ns;  ///< in an answer: when the other program received the question
  std::uint32_t burst;       ///< messages of an earlier burst are not counted
  std::uint32_t length;      ///< of the data
};
static_assert(sizeof(MessageHead) == least_sample_bytes);

/// A message that is written repeatedly: only its header changes.
class Message {
 public:
  /// size: of header and data, B.
  explicit Message(std::size_t size) : bytes_(encapsulation + std::max(size, least_sample_bytes)) {
    bytes_[1] = std::byte{1};
    for (std::size_t k = encapsulation + least_sample_bytes; k < bytes_.size(); ++k)
      bytes_[k] = static_cast<std::byte>(k * 2654435761u >> 13);
    head_.length = static_cast<std::uint32_t>(bytes_.size() - encapsulation - least_sample_bytes);
  }
  MessageHead& head() { return head_; }
  /// The message for the bus, and without the encapsulation.
  Bytes payload() {
    std::memcpy(bytes_.data() + encapsulation, &head_, sizeof head_);
    return bytes_;
  }
  Bytes body() { return payload().subspan(encapsulation); }

  /// Reads the header of a body; false: the body is too short.
  static bool read(Bytes body, MessageHead& head) {
    if (body.size() < sizeof head) return false;
    std::memcpy(&head, body.data(), sizeof head);
    return true;
  }
  static constexpr std::size_t encapsulation = 4;

 private:
  std::vector<std::byte> bytes_;
  MessageHead head_{};
};

/// sonde::bus::probe::Message: the header's fields and a sequence of octets.
TypePtr message_type();

}  // namespace sonde::bus::probe
