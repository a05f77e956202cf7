#pragma once
/// What the measured messages are, on the bus and on the bare ways of the machine. Owner-thread.

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
  std::int64_t sent_ns;      ///< CLOCK_MONOTONIC of the writer's host, before the call that writes
  std::int64_t received_ns;  ///< of an answer: when the question was in the other program's hands
  std::uint32_t burst;       ///< what was left over from an earlier one is not counted
  std::uint32_t length;      ///< of the data
};
static_assert(sizeof(MessageHead) == least_sample_bytes);

/// One that is written over and over: only its head changes.
class Message {
 public:
  /// size: of head and data, B.
  explicit Message(std::size_t size) : bytes_(encapsulation + std::max(size, least_sample_bytes)) {
    bytes_[1] = std::byte{1};
    for (std::size_t k = encapsulation + least_sample_bytes; k < bytes_.size(); ++k)
      bytes_[k] = static_cast<std::byte>(k * 2654435761u >> 13);
    head_.length = static_cast<std::uint32_t>(bytes_.size() - encapsulation - least_sample_bytes);
  }
  MessageHead& head() { return head_; }
  /// As the bus takes it, and without the encapsulation.
  Bytes payload() {
    std::memcpy(bytes_.data() + encapsulation, &head_, sizeof head_);
    return bytes_;
  }
  Bytes body() { return payload().subspan(encapsulation); }

  /// The head of a body; false: it is too short for one.
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

/// sonde::bus::probe::Message: the head's fields and a sequence of octets.
TypePtr message_type();

}  // namespace sonde::bus::probe
