#pragma once
/// Samples on their way from the bus to MQTT: written one after the other into one piece of memory, so that none of
/// them is an allocation. One thread puts, one takes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "bus/implementation.hpp"

namespace sonde::power::bridge {

/// One stored sample.
struct Entry {
  std::uint32_t topic = 0;  ///< index of the bridge's topics
  std::uint32_t bytes = 0;  ///< of the payload
  std::int64_t source_ns = 0;
  std::uint32_t tie = 0;  ///< among samples of one writer with one source_ns
  bool gone = false;      ///< its instance has no writer any more; only the key means something
  bus::Guid writer;
};

class Outbox {
 public:
  /// `drops_oldest`: what has no place pushes out what is older; else it is refused.
  Outbox(std::size_t most_bytes, bool drops_oldest) : most_bytes_(most_bytes), drops_oldest_(drops_oldest) {}

  /// False: refused. `was_empty`: whoever takes may sleep.
  bool put(Entry entry, bus::Bytes payload, bool& was_empty) {
    entry.bytes = static_cast<std::uint32_t>(payload.size());
    const std::size_t need = sizeof entry + payload.size();
    const std::lock_guard lock(mutex_);
    was_empty = bytes_.size() == head_;
    if (need > most_bytes_ || (!drops_oldest_ && bytes_.size() - head_ + need > most_bytes_)) {
      ++dropped_;
      return false;
    }
    while (bytes_.size() - head_ + need > most_bytes_) {
      Entry oldest;
      std::memcpy(&oldest, bytes_.data() + head_, sizeof oldest);
      head_ += sizeof oldest + oldest.bytes;
      ++dropped_;
    }
    if (head_ > most_bytes_) {  // what was pushed out is moved over once in as many bytes as there is place for
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    const auto* header = reinterpret_cast<const std::byte*>(&entry);
    bytes_.insert(bytes_.end(), header, header + sizeof entry);
    bytes_.insert(bytes_.end(), payload.begin(), payload.end());
    return true;
  }

  /// All that is there into `into`, whose memory comes back here. False: nothing.
  bool swap(std::vector<std::byte>& into, std::size_t& head) {
    into.clear();
    const std::lock_guard lock(mutex_);
    if (bytes_.size() == head_) return false;
    std::swap(bytes_, into);
    head = std::exchange(head_, 0);
    return true;
  }
  std::uint64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }
  bool empty() const {
    const std::lock_guard lock(mutex_);
    return bytes_.size() == head_;
  }

 private:
  const std::size_t most_bytes_;
  const bool drops_oldest_;
  mutable std::mutex mutex_;
  std::vector<std::byte> bytes_;
  std::size_t head_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace sonde::power::bridge
