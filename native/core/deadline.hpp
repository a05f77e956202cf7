#pragma once
/// A time limit as a point in time: layers that pass it on do not restart it. Any-thread.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/clock.hpp"

namespace sonde {

/// A point on now_ns()'s axis; 0: never.
struct Deadline {
  std::int64_t at_ns = 0;

  static Deadline in_s(double seconds) { return {now_ns() + static_cast<std::int64_t>(seconds * 1e9)}; }
  /// ms from now, at least 0; -1: never. Rounded up, so that a wait for it does not spin.
  int left_ms() const {
    if (!at_ns) return -1;
    return static_cast<int>(
        std::clamp<std::int64_t>((at_ns - now_ns() + 999'999) / 1'000'000, 0, std::numeric_limits<int>::max()));
  }
  bool passed() const { return at_ns && now_ns() >= at_ns; }
};

}  // namespace sonde
