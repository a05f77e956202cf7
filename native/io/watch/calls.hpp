#pragma once
/// Combines entries and exits that the kernel saw, in order of time, to calls. Owner-thread.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/record.hpp"
#include "io/watch/spec.hpp"

namespace sonde::io {

inline constexpr std::uint8_t flag_unfinished = 16;

/// One event of a thread.
struct Event {
  std::uint64_t time;
  std::int32_t thread;
  const Watched* what;
  bool exit;
  std::uint64_t stack;                       ///< stack pointer at the event; 0: unknown, as for system calls
  std::uint64_t size, factor, offset, file;  ///< or `unknown`; for an exit, `size` is the result
  std::string path;
};

/// Keep: void(std::int32_t thread, const Record&, std::uint64_t handle, const std::string& path), path "" except for an
/// opened file.
template <typename Keep> class Calls {
 public:
  explicit Calls(Keep keep) : keep_(std::move(keep)) {}

  /// Call it in order of time.
  void take(const Event& event) {
    std::vector<Event>& open = open_[event.thread];
    if (!event.exit) {
      leave_behind(open, event);
      if (event.what->entry_only) {
        keep(event, open.size(), event.time, flag_entry_only);
      } else {
        open.push_back(event);
      }
      return;
    }
    for (std::size_t k = open.size(); k-- > 0;) {
      if (!belongs(open[k], event)) continue;
      // Inner entries without an exit were left by a jump. Entries on another stack belong to another fiber, and stay
      // open.
      for (std::size_t inner = open.size(); inner-- > k + 1;)
        if (open[k].stack == 0 || open[inner].stack == 0 || below(open[inner], open[k])) forget(open, inner);
      Event entry = std::move(open[k]);
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(k));
      end(entry, event, k);
      return;
    }
    // An exit without an entry: the call was in progress when watching began.
  }

  /// The end of all events: calls in progress are recorded as unfinished.
  void end() {
    for (auto& [thread, open] : open_)
      for (; !open.empty(); open.pop_back()) keep(open.back(), open.size() - 1, 0, flag_unfinished);
  }

  /// Calls with a known beginning but without the expected end.
  std::uint64_t left() const { return left_; }

 private:
  /// stack_bytes: frames further apart are on two stacks. frame_bytes: frames further apart than a caller's frame are
  /// of two fibers.
  static constexpr std::uint64_t stack_bytes = 8u << 20, frame_bytes = 16u << 10;

  /// Whether an exit belongs to an entry, by the frame. On x86-64 the return address is off the stack when the end is
  /// seen. Uprobes remember at most 64 replaced return addresses of a thread, so in a deeper recursion the innermost
  /// calls have no end: the exit belongs to the entry of this frame, not to the last entry.
  static bool belongs(const Event& entry, const Event& exit) {
    return entry.what->function == exit.what->function && (exit.stack == 0 || entry.stack + 8 == exit.stack);
  }

  static bool below(const Event& inner, const Event& outer) {
    return inner.stack <= outer.stack && outer.stack - inner.stack < stack_bytes;
  }

  /// Ends frames that a new frame overwrites: they were left without an exit. If two frames are at the same place, the
  /// first function jumped to the second (a tail call), unless it is the same function, called again.
  void leave_behind(std::vector<Event>& open, const Event& event) {
    if (event.stack == 0) return;
    while (!open.empty()) {
      const Event& last = open.back();
      if (last.stack == 0 || event.stack < last.stack || event.stack - last.stack >= frame_bytes) return;
      if (event.stack == last.stack && event.what->function != last.what->function) {
        std::size_t same = open.size();
        while (same > 0 && open[same - 1].stack == event.stack && open[same - 1].what->function != event.what->function)
          --same;
        if (same == 0 || open[same - 1].stack != event.stack) return;
      }
      forget(open, open.size() - 1);
    }
  }

  void forget(std::vector<Event>& open, std::size_t k) {
    ++left_;
    keep(open[k], k, open[k].time, flag_entry_only);
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(k));
  }

  static bool failed(Fails fails, std::uint64_t result) {
    switch (fails) {
      case Fails::negative: return static_cast<std::int64_t>(result) < 0;
      case Fails::nonzero: return result != 0;
      case Fails::null: return result == 0;
      case Fails::never: break;
    }
    return false;
  }

  void end(Event& entry, const Event& exit, std::size_t depth) {
    const Watched& what = *entry.what;
    const std::uint64_t result = widened(exit.size, what.result.width);
    const bool bad = failed(what.fails, result);
    if (what.size.part.from == Part::result) entry.size = bad ? 0 : result;
    if (what.file.from == Part::result) entry.file = bad ? unknown : result;
    if (bad) entry.path.clear();
    keep(entry, depth, exit.time, bad ? flag_failed : std::uint8_t{0});
  }

  void keep(const Event& entry, std::size_t depth, std::uint64_t end, std::uint8_t flags) {
    const std::uint64_t size =
        entry.factor == unknown || entry.size == unknown ? entry.size : entry.size * entry.factor;
    const std::uint64_t handle = entry.file == unknown ? 0 : entry.file;
    const bool known = (flags & ~flag_failed) == 0;
    keep_(entry.thread,
          Record{entry.time, end, size, entry.offset, folded(handle), entry.what->function,
                 static_cast<std::uint8_t>(depth < 255 ? depth : 255), flags},
          handle, known ? entry.path : std::string());
  }

  Keep keep_;
  std::map<std::int32_t, std::vector<Event>> open_;
  std::uint64_t left_ = 0;
};

}  // namespace sonde::io
