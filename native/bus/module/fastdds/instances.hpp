#pragma once
/// The writers of a reader's instances. Fast DDS 2 notes when an instance has lost its writers, but delivers no sample
/// for it. The taken samples and the writers that have left give the same information.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <functional>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bus/cdr.hpp"
#include "bus/implementation.hpp"

namespace sonde::bus::fastdds {

/// Writers leave by Fast DDS's threads, samples are noted by the thread that takes, and any thread asks has_ends().
class Instances {
 public:
  using Handle = eprosima::fastrtps::rtps::InstanceHandle_t;
  using Known = std::function<bool(const Guid&)>;
  struct End {
    std::vector<std::byte> payload;  ///< only the key fields are valid
    Guid writer;                     ///< the last that wrote it
  };

  /// `exclusive`: Fast DDS drops samples of weaker writers, so while any writer is matched, an instance may have a
  /// writer without received samples, and no end is reported.
  Instances(TypePtr type, bool exclusive) : type_(std::move(type)), checker_(type_), exclusive_(exclusive) {}

  /// A writer is not matched any more, or its liveliness is lost.
  void left(const Guid& writer);
  void returned(const Guid& writer);
  /// Whether ends() would find something although nothing more was taken. `matched`: the number of matched writers.
  bool has_ends(std::int64_t matched);

  /// Call it before taking: writers that have left by now send nothing more.
  void begin();
  /// `alive`: the instance's state in Fast DDS when the sample was taken.
  void wrote(const Handle& instance, const Guid& writer, Bytes payload, bool alive);
  void gave_up(const Handle& instance, const Guid& writer);
  void ended(const Handle& instance) {
    const std::lock_guard lock(mutex_);
    entries_.erase(instance);
  }
  /// Call it after taking: the instances without writers, each once. `known`: whether a writer is known.
  std::vector<End> ends(std::int64_t matched, const Known& known);

 private:
  struct Entry {
    std::vector<std::byte> key;
    std::vector<Guid> writers;  ///< empty: written only by writers without received samples
    Guid last;
    std::uint64_t take = 0;
    bool alive = true;  ///< the state in Fast DDS at that take
  };
  struct Hash {
    std::size_t operator()(const Handle& handle) const;
  };
  bool ends_without(const Entry& entry, const std::set<Guid>& gone, std::int64_t matched) const;

  const TypePtr type_;
  const Checker checker_;
  const bool exclusive_;
  std::mutex mutex_;  ///< of all that follows
  std::unordered_map<Handle, Entry, Hash> entries_;
  std::set<Guid> gone_, leaving_;
  bool overflown_ = false;  ///< more writers have left than gone_ can hold
  std::uint64_t take_ = 0;
  std::atomic<bool> looks_{false};  ///< gone_ has changed since the last has_ends()
  bool has_ends_ = false;
};

}  // namespace sonde::bus::fastdds
