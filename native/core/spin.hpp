#pragma once
/// How long to look again and again for what is awaited before sleeping: as long as sleeps turned out short, and never on a core
/// that somebody else wants. Owner-thread.
///
///     if (spin.begin()) do { if (look()) return; } while (spin.again());
///     sleep …; spin.slept(how_long_ns);
///
/// A sleep that ended soon would have been better spent looking: the time to look doubles, up to `most_ns`. A look that found
/// nothing shortens it by a quarter. Between looks the core is offered to others; when it comes back late, and the kernel counts
/// that somebody else had it, there is no looking for a rest, which is longer each time that it was too short. Where only
/// the hypervisor took it, a sleep would be no better: waking a halted virtual processor takes longest just then.

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/clock.hpp"

namespace sonde {

struct SpinPolicy {
  std::int64_t most_ns = 50'000;   ///< looking at most
  std::int64_t late_ns = 200'000;  ///< a core that comes back later than this is wanted: a peer's turn is shorter, a time slice longer
  std::int64_t rest_ns = 1'000'000, rest_most_ns = 256'000'000;  ///< no looking for so long after that
};

class Spin {
 public:
  /// fixed_s: always so long, whoever wants the core; 0 never; below 0 as it pays.
  explicit Spin(double fixed_s = -1, SpinPolicy policy = {})
      : policy_(policy), fixed_ns_(fixed_s < 0 ? -1 : static_cast<std::int64_t>(fixed_s * 1e9)), may_(::sysconf(_SC_NPROCESSORS_ONLN) > 1) {
    spin_ns_ = may_ ? policy_.most_ns / 2 : 0;
  }

  /// Whether looking pays now; it is over at `end_ns` (of now_ns()) at the latest, 0: no limit.
  bool begin(std::int64_t end_ns = 0) {
    const std::int64_t spin = fixed_ns_ >= 0 ? fixed_ns_ : spin_ns_;
    if (spin <= 0) return false;
    last_ = now_ns();
    first_ = true;
    until_ = end_ns ? std::min(last_ + spin, end_ns) : last_ + spin;
    return true;
  }

  /// After a look that found nothing: offers the core to others. False: sleep.
  bool again() {
    if (std::exchange(first_, false)) switches_ = switches();
    ::sched_yield();
    const std::int64_t now = now_ns(), away = now - last_;
    last_ = now;
    if (fixed_ns_ < 0 && away > policy_.late_ns && switches() != switches_) {
      spin_ns_ = 0;
      rest_ns_ = now - not_before_ < 4 * rest_ns_ ? std::min(2 * rest_ns_, policy_.rest_most_ns) : policy_.rest_ns;
      not_before_ = now + rest_ns_;
      return false;
    }
    if (now < until_) return true;
    spin_ns_ -= spin_ns_ / 4;
    if (spin_ns_ < 1000) spin_ns_ = 0;
    return false;
  }

  /// A sleep is over, which took so long.
  void slept(std::int64_t ns) {
    if (!may_ || ns >= policy_.most_ns || (not_before_ && now_ns() < not_before_)) return;
    spin_ns_ = std::min(policy_.most_ns, 2 * spin_ns_ + 4000);
  }

  /// How often another thread took the core from this one.
  static long switches() {
    rusage use{};
    ::getrusage(RUSAGE_THREAD, &use);
    return use.ru_nivcsw;
  }

 private:
  SpinPolicy policy_;
  long switches_ = 0;
  std::int64_t fixed_ns_, spin_ns_ = 0, last_ = 0, until_ = 0, not_before_ = 0, rest_ns_ = 0;
  bool may_, first_ = false;
};

}  // namespace sonde
