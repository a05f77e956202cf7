#pragma once
/// How long to poll for an event before sleeping: as long as sleeps turned out to be short, and never on a core that
/// another program needs. Owner-thread.
///
///     if (spin.begin()) do { if (look()) return; } while (spin.again());
///     sleep …; spin.slept(how_long_ns);
///
/// After a short sleep, polling would have been better: the polling time doubles, up to `most_ns`. Polling without
/// success shortens it by a quarter. Between polls the core is offered to others. If it comes back late, and the kernel
/// counts that another thread had it, polling stops for a rest, which becomes longer each time that it was too short.
/// If only the hypervisor took the core, a sleep would be no better: waking a halted virtual processor takes longest at
/// that moment.
///
/// Two sides that answer each other can both sleep longer than they would poll, only because the other side has to be
/// woken first. This takes 50 to 100 us if idle processors sleep deeply or are virtual. Neither sleep is short, so
/// neither side would ever poll again. Therefore, after some sleeps that were not much longer, a few waits in a row are
/// polled for up to `reach_ns`. If the last of them was short, the other side also polls by then: polling goes on, and
/// from then on `most_ns` is 1.5 times the longest of these waits, which bridges the other side's waking up after a
/// pause. If not, the next attempt comes after twice as many such sleeps.
/// not, the next try comes after twice as many such sleeps.

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/clock.hpp"

namespace sonde {

struct SpinPolicy {
  std::int64_t most_ns =
      150'000;  ///< longest polling: 64 KiB and back take this time by any transport, even a slow one
  std::int64_t late_ns =
      200'000;  ///< a core that comes back later is needed by others: a peer's turn is shorter, a time slice longer
  std::int64_t rest_ns = 1'000'000, rest_most_ns = 256'000'000;  ///< no polling for this time after that
  std::int64_t reach_ns = 4 * most_ns;  ///< longest polling in an attempt: some such wake-ups in a row
  unsigned try_after = 16, try_most_after = 4096,
           tries = 8;  ///< sleeps that end within reach before an attempt; waits in one attempt
  std::int64_t (*clock)() = now_ns;
};

class Spin {
 public:
  /// fixed_s: always poll for this time, even if others need the core; 0 never; below 0 as long as it pays.
  explicit Spin(double fixed_s = -1, SpinPolicy policy = {})
      : policy_(policy),
        fixed_ns_(fixed_s < 0 ? -1 : static_cast<std::int64_t>(fixed_s * 1e9)),
        may_(::sysconf(_SC_NPROCESSORS_ONLN) > 1) {
    spin_ns_ = may_ ? policy_.most_ns / 2 : 0;
  }

  /// Whether polling pays now; it ends at `end_ns` (of now_ns()) at the latest, 0: no limit.
  bool begin(std::int64_t end_ns = 0) {
    if (std::exchange(trying_, false)) {
      longest_ = std::max(longest_, last_ - began_);
      if (left_ == 0) judge(last_ - began_ < policy_.most_ns);
    }
    trying_ = left_ > 0;
    if (trying_) --left_;
    const std::int64_t spin = fixed_ns_ >= 0 ? fixed_ns_ : trying_ ? policy_.reach_ns : spin_ns_;
    if (spin <= 0) return false;
    last_ = began_ = policy_.clock();
    first_ = true;
    until_ = end_ns ? std::min(last_ + spin, end_ns) : last_ + spin;
    return true;
  }

  /// After a poll without success: offers the core to others. False: sleep.
  bool again() {
    if (std::exchange(first_, false)) switches_ = switches();
    ::sched_yield();
    const std::int64_t now = policy_.clock(), away = now - last_;
    last_ = now;
    if (fixed_ns_ < 0 && away > policy_.late_ns && switches() != switches_) {
      spin_ns_ = 0;
      trying_ = false;
      left_ = 0;
      rest_ns_ = now - not_before_ < 4 * rest_ns_ ? std::min(2 * rest_ns_, policy_.rest_most_ns) : policy_.rest_ns;
      not_before_ = now + rest_ns_;
      return false;
    }
    if (now < until_) return true;
    if (std::exchange(trying_, false)) {
      judge(false);
      return false;
    }
    spin_ns_ -= spin_ns_ / 4;
    if (spin_ns_ < 1000) spin_ns_ = 0;
    return false;
  }

  /// A sleep of this duration is over.
  void slept(std::int64_t ns) {
    if (!may_ || fixed_ns_ >= 0 || ns >= policy_.reach_ns || (not_before_ && policy_.clock() < not_before_)) return;
    if (ns < most_ns_) {
      spin_ns_ = std::min(most_ns_, 2 * spin_ns_ + 4000);
    } else if (++near_ >= try_after_) {
      near_ = 0;
      longest_ = 0;
      left_ = policy_.tries;
    }
  }

  /// The number of times that another thread took the core from this one.
  static long switches() {
    rusage use{};
    ::getrusage(RUSAGE_THREAD, &use);
    return use.ru_nivcsw;
  }

 private:
  /// An attempt is over.
  void judge(bool pays) {
    left_ = near_ = 0;
    most_ns_ = pays ? std::clamp(longest_ + longest_ / 2, policy_.most_ns, policy_.reach_ns) : policy_.most_ns;
    if (pays) spin_ns_ = most_ns_;
    try_after_ = pays ? policy_.try_after : std::min(2 * try_after_, policy_.try_most_after);
  }

  SpinPolicy policy_;
  long switches_ = 0;
  std::int64_t fixed_ns_, spin_ns_ = 0, most_ns_ = policy_.most_ns, longest_ = 0, began_ = 0, last_ = 0, until_ = 0,
                          not_before_ = 0, rest_ns_ = 0;
  unsigned near_ = 0, left_ = 0, try_after_ = policy_.try_after;
  bool may_, first_ = false, trying_ = false;
};

}  // namespace sonde
