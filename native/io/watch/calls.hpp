#pragma once
/// Entries and exits that the kernel saw, in order of time, become calls. Owner-thread.

#include <cstdint>
#include <map>
#include <vector>

#include "io/record.hpp"

namespace sonde::io {

inline constexpr std::uint8_t flag_unfinished = 16;

/// One event of a thread.
struct Event {
  std::uint64_t time;
  std::int32_t thread;
  std::uint16_t function;
  bool exit;
  std::uint64_t size, offset, file;  ///< `unknown`; of an exit `size` is what was returned
  bool size_is_result;               ///< of an entry: its size comes with the exit
};

/// Keep: void(std::int32_t thread, const Record&).
template <typename Keep>
class Calls {
 public:
  explicit Calls(Keep keep) : keep_(std::move(keep)) {}

  /// In order of time.
  void take(const Event& event) {
    std::vector<Event>& open = open_[event.thread];
    if (!event.exit) {
      open.push_back(event);
      return;
    }
    // An exit without its entry was under way when watching began; entries without an exit within it were left by a jump.
    for (std::size_t k = open.size(); k-- > 0;) {
      if (open[k].function != event.function) continue;
      while (open.size() > k + 1) {
        keep_(event.thread, record(open.back(), open.size() - 1, open.back().time, flag_entry_only));
        open.pop_back();
      }
      Event& entry = open.back();
      const auto result = static_cast<std::int64_t>(event.size);
      if (entry.size_is_result) entry.size = result < 0 ? 0 : event.size;
      keep_(event.thread, record(entry, k, event.time, result < 0 ? flag_failed : 0));
      open.pop_back();
      return;
    }
  }

  /// No more comes: what is under way is told as such.
  void end() {
    for (auto& [thread, open] : open_)
      for (; !open.empty(); open.pop_back()) keep_(thread, record(open.back(), open.size() - 1, 0, flag_unfinished));
  }

 private:
  static Record record(const Event& entry, std::size_t depth, std::uint64_t end, std::uint8_t flags) {
    return {entry.time, end, entry.size, entry.offset, entry.file == unknown ? 0 : static_cast<std::uint32_t>(entry.file), entry.function,
            static_cast<std::uint8_t>(depth < 255 ? depth : 255), flags};
  }

  Keep keep_;
  std::map<std::int32_t, std::vector<Event>> open_;
};

}  // namespace sonde::io
