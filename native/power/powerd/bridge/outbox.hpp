#pragma once
/// Samples on their way from the bus to MQTT. They are written one after another into one piece of memory, so that no
/// sample needs an allocation. One thread puts, one takes.

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
  std::uint32_t bytes = 0;  ///< size of the payload
  std::int64_t source_ns = 0;
  std::uint32_t tie = 0;  ///< distinguishes samples of one writer with the same source_ns
  bool gone = false;      ///< its instance has no writer any more; only the key is valid
  bus::Guid writer;
};

class Outbox {
 public:
  /// `drops_oldest`: a sample without room replaces older ones; otherwise it is refused.
  Outbox(std::size_t most_bytes, bool drops_oldest) : most_bytes_(most_bytes), drops_oldest_(drops_oldest) {}

  /// False: refused. `was_empty`: the thread that takes may be asleep.
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
    if (head_ >
        most_bytes_) {  // removed samples are overwritten by moving the rest, once for each filling of the memory
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    const auto* header = reinterpret_cast<const std::byte*>(&entry);
    bytes_.insert(bytes_.end(), header, header + sizeof entry);
    bytes_.insert(bytes_.end(), payload.begin(), payload.end());
    return true;
  }

  /// Moves all samples into `into`, whose memory is used here from then on. False: there were no samples.
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
