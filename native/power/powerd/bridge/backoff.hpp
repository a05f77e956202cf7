#pragma once
/// When a connection that was lost, or never came about, is attempted again. Pure: the time and the chance are handed
/// in. Owner-thread.
///
/// Delays double, so that a broker that accepts every connection and then misbehaves costs neither side more than one
/// that is away. What an open connection proves is not that it is of use: only one that was for a while makes the next
/// delay a short one again.

#include <algorithm>
#include <cstdint>
#include <optional>

namespace sonde::power::bridge {

class Backoff {
 public:
  static constexpr double min_s = 0.1, max_s = 30;
  static constexpr double useful_s = 10;  ///< from when on a connection counts as one that was of use

  /// The broker has answered all that the new connection asked for.
  void serves(std::int64_t now_ns) { serves_since_ns_ = now_ns; }

  /// The connection is lost, or the attempt failed. `chance`: uniform in [0, 1); the delay is between half of what is
  /// due and all of it, since bridges that lost one broker must not come back all at once.
  void failed(std::int64_t now_ns, double chance) {
    const bool useful = serves_since_ns_ && now_ns - *serves_since_ns_ >= ns(useful_s);
    serves_since_ns_.reset();
    delay_s_ = std::clamp(useful ? 0 : 2 * delay_s_, min_s, max_s);
    next_ns_ = now_ns + ns(delay_s_ * (0.5 + 0.5 * chance));
  }

  /// When the next attempt is due. At once: before the first.
  std::int64_t next_ns() const { return next_ns_; }

 private:
  static constexpr std::int64_t ns(double s) { return static_cast<std::int64_t>(s * 1e9); }

  std::optional<std::int64_t> serves_since_ns_;
  double delay_s_ = 0;
  std::int64_t next_ns_ = 0;
};

}  // namespace sonde::power::bridge
