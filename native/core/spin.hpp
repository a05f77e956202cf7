#pragma once
/// How long to look again and again for what is awaited before sleeping: as long as sleeps turned out short, and never
/// on a core that somebody else wants. Owner-thread.
///
///     if (spin.begin()) do { if (look()) return; } while (spin.again());
///     sleep …; spin.slept(how_long_ns);
///
/// A sleep that ended soon would have been better spent looking: the time to look doubles, up to `most_ns`. A look that
/// found nothing shortens it by a quarter. Between looks the core is offered to others; when it comes back late, and
/// the kernel counts that somebody else had it, there is no looking for a rest, which is longer each time that it was
/// too short. Where only the hypervisor took it, a sleep would be no better: waking a halted virtual processor takes
/// longest just then.
///
/// Two who answer each other can both sleep for longer than they would look only because the other has to be woken
/// first, which takes 50 to 100 us where idle processors sleep deeply or are virtual. Neither sleep is short, so
/// neither would look ever again. So after some sleeps that were not much longer, a few waits in a row are looked
/// through up to `reach_ns`. If the last of them was short, the other looks too by then: it goes on, and from then on
/// `most_ns` is what the longest of them took and half of it, which bridges the other's waking up after a pause. If
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
  std::int64_t most_ns = 150'000;  ///< looking at most: what 64 KiB and back take by any transport, also a slow one
  std::int64_t late_ns =
      200'000;  ///< a core that comes back later than this is wanted: a peer's turn is shorter, a time slice longer
  std::int64_t rest_ns = 1'000'000, rest_most_ns = 256'000'000;  ///< no looking for so long after that
  std::int64_t reach_ns = 4 * most_ns;  ///< looking at most where it is tried: some such wake-ups in a row
  unsigned try_after = 16, try_most_after = 4096,
           tries = 8;  ///< sleeps that end within reach before a try; waits of one
  std::int64_t (*clock)() = now_ns;
};

class Spin {
 public:
  /// fixed_s: always so long, whoever wants the core; 0 never; below 0 as it pays.
  explicit Spin(double fixed_s = -1, SpinPolicy policy = {})
      : policy_(policy),
        fixed_ns_(fixed_s < 0 ? -1 : static_cast<std::int64_t>(fixed_s * 1e9)),
        may_(::sysconf(_SC_NPROCESSORS_ONLN) > 1) {
    spin_ns_ = may_ ? policy_.most_ns / 2 : 0;
  }

  /// Whether looking pays now; it is over at `end_ns` (of now_ns()) at the latest, 0: no limit.
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

  /// After a look that found nothing: offers the core to others. False: sleep.
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

  /// A sleep is over, which took so long.
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

  /// How often another thread took the core from this one.
  static long switches() {
    rusage use{};
    ::getrusage(RUSAGE_THREAD, &use);
    return use.ru_nivcsw;
  }

 private:
  /// A try is over.
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
