#pragma once
/// When to attempt a connection again that was lost or never established. Pure: the time and the random number are
/// arguments. Owner-thread.
///
/// Delays double, so that a broker that accepts every connection and then fails costs neither side more than one that
/// is down. An open connection alone proves nothing: the delay becomes short again only after a connection that worked
/// for a while.

#include <algorithm>
#include <cstdint>
#include <optional>

namespace sonde::power::bridge {

class Backoff {
 public:
  static constexpr double min_s = 0.1, max_s = 30;
  static constexpr double useful_s = 10;  ///< a connection that lasted this long was useful

  /// The broker has answered everything that the new connection requested.
  void serves(std::int64_t now_ns) { serves_since_ns_ = now_ns; }

  /// The connection is lost, or the attempt failed. `chance`: uniform in [0, 1); the delay is between half and all of
  /// the nominal one, so that bridges that lost one broker do not return all at once.
  void failed(std::int64_t now_ns, double chance) {
    const bool useful = serves_since_ns_ && now_ns - *serves_since_ns_ >= ns(useful_s);
    serves_since_ns_.reset();
    delay_s_ = std::clamp(useful ? 0 : 2 * delay_s_, min_s, max_s);
    next_ns_ = now_ns + ns(delay_s_ * (0.5 + 0.5 * chance));
  }

  /// When the next attempt is due. Before the first attempt: at once.
  std::int64_t next_ns() const { return next_ns_; }

 private:
  static constexpr std::int64_t ns(double s) { return static_cast<std::int64_t>(s * 1e9); }

  std::optional<std::int64_t> serves_since_ns_;
  double delay_s_ = 0;
  std::int64_t next_ns_ = 0;
};

}  // namespace sonde::power::bridge
