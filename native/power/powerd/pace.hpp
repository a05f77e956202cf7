#pragma once
/// When a node manager looks at its hardware, and which of its reports are the regular ones. Pure: both clocks are
/// arguments. One thread.

#include <cstdint>

namespace sonde::power {

/// In step: looks are at multiples of their interval by the time of day, reports at the first look of each report
/// interval. So all nodes with synchronised clocks are disturbed at the same time, and a job on many of them waits once
/// instead of once for each. Otherwise the intervals start with the node manager. Nothing else depends on the time of
/// day: it may jump.
class Pace {
 public:
  struct Now {
    std::int64_t boottime_ns, realtime_ns;
  };
  /// Intervals of looks and of reports, ns, the second at least as long as the first; the first look is due at once.
  Pace(std::int64_t look_ns, std::int64_t report_ns, bool in_step, std::int64_t boottime_ns)
      : look_ns_(look_ns), report_ns_(report_ns), in_step_(in_step), next_ns_(boottime_ns) {}

  /// Time of the next look, by the clock since boot, ns.
  std::int64_t next_ns() const { return next_ns_; }
  /// A look begins.
  void looks(Now now) {
    if (in_step_) {
      const std::int64_t left = look_ns_ - mod(now.realtime_ns, look_ns_);
      next_ns_ =
          now.boottime_ns +
          (2 * left < look_ns_ ? left + look_ns_ : left);  // a look that starts a little early still counts as this one
    } else {
      next_ns_ += look_ns_;
      if (next_ns_ <= now.boottime_ns) next_ns_ = now.boottime_ns + look_ns_;
    }
  }
  /// Whether a report would be a regular one. `looked`: directly after a look; otherwise the hardware is being waited
  /// for, and gets one more look interval.
  bool due(Now now, bool looked) const {
    if (!reported_ns_) return true;
    const std::int64_t since = now.boottime_ns - reported_ns_;
    if (!looked) return since >= report_ns_ + look_ns_;
    return in_step_ ? turn_of(now) != turn_ : since >= report_ns_ - look_ns_ / 2;
  }
  /// A regular report was sent. Returns the time since the one before, s; 0: it is the first.
  double reported(Now now) {
    const double since_s = reported_ns_ ? static_cast<double>(now.boottime_ns - reported_ns_) * 1e-9 : 0;
    reported_ns_ = now.boottime_ns, turn_ = turn_of(now);
    return since_s;
  }

 private:
  static std::int64_t mod(std::int64_t a, std::int64_t b) { return (a % b + b) % b; }
  /// Up to half a look interval early counts.
  std::int64_t turn_of(Now now) const {
    const std::int64_t at = now.realtime_ns + look_ns_ / 2;
    return (at - mod(at, report_ns_)) / report_ns_;
  }

  const std::int64_t look_ns_, report_ns_;
  const bool in_step_;
  std::int64_t next_ns_, reported_ns_ = 0, turn_ = 0;
};

}  // namespace sonde::power
