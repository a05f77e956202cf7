#pragma once
/// The writers of a reader's instances. Fast DDS 2 notes when an instance has lost its writers, but hands over no
/// sample of it: what was taken, and which writers have left, give the same.

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
    std::vector<std::byte> payload;  ///< the key fields alone mean something
    Guid writer;                     ///< the last that wrote it
  };

  /// `exclusive`: Fast DDS drops what weaker writers write, so while anybody is matched an instance may have a writer
  /// of which no sample came, and no end of it is reported.
  Instances(TypePtr type, bool exclusive) : type_(std::move(type)), checker_(type_), exclusive_(exclusive) {}

  /// A writer is not matched any more, or its liveliness is lost.
  void left(const Guid& writer);
  void returned(const Guid& writer);
  /// Whether ends() would find something although nothing more was taken. `matched`: writers.
  bool has_ends(std::int64_t matched);

  /// Before everything that came is taken: those that have left by now have nothing that comes later.
  void begin();
  /// `alive`: the instance's state in Fast DDS as the sample was taken.
  void wrote(const Handle& instance, const Guid& writer, Bytes payload, bool alive);
  void gave_up(const Handle& instance, const Guid& writer);
  void ended(const Handle& instance) {
    const std::lock_guard lock(mutex_);
    entries_.erase(instance);
  }
  /// After everything was taken: instances that nobody writes any more, each once. `known`: whether a writer is.
  std::vector<End> ends(std::int64_t matched, const Known& known);

 private:
  struct Entry {
    std::vector<std::byte> key;
    std::vector<Guid> writers;  ///< none: others write it, of which no sample came
    Guid last;
    std::uint64_t take = 0;
    bool alive = true;  ///< in Fast DDS, at that take
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
  bool overflown_ = false;  ///< more have left than gone_ holds
  std::uint64_t take_ = 0;
  std::atomic<bool> looks_{false};  ///< gone_ has changed since has_ends() looked
  bool has_ends_ = false;
};

}  // namespace sonde::bus::fastdds
