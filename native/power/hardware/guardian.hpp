#pragma once
/// The watchdog process: a small process next to a daemon that sets caps. It acts when the daemon cannot: the daemon
/// was killed by -9, or is stopped, swapped out, or hangs in a call to a BMC while its lease runs out. It does one
/// thing, over its own access to the hardware. It is created before the daemon has threads, and shares only standard
/// error with it.
///
/// Its limits: a frozen cgroup, or a machine that stands still, stops both processes. Then the caps depend on the
/// hardware alone.

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/error.hpp"

namespace sonde::power {

class Guardian {
 public:
  enum class Why : std::uint8_t {
    armed,  ///< a time is set by now: resources that are slow to open can be opened
    late,   ///< the time has come, and the daemon has not set another
    gone,   ///< the daemon has ended without dismiss()
  };
  enum class Did : std::uint8_t { nothing, set, failed };  ///< nothing: no change was needed
  /// Runs in the watchdog process, with the memory as it was at start().
  using Act = std::function<Did(Why)>;

  /// `again_s`: repeat interval while it is late and the daemon sets no new time. Errors: power.no_guardian.
  static Result<std::unique_ptr<Guardian>> start(const Act& act, double again_s = 1);
  /// Without dismiss(), the watchdog process acts.
  ~Guardian();
  /// The watchdog process ends without acting; waits for its end.
  void dismiss();
  /// From this time of CLOCK_BOOTTIME on it acts, repeatedly, unless another time was set by then; 0: nothing is due.
  /// Any-thread, never waits.
  void until(std::int64_t boottime_ns);
  /// Makes it act for Why::armed, and waits for that. It then stores the earlier settings itself: it needs nothing of
  /// the daemon's for it. False: it failed, is gone, or took longer.
  bool arm(double within_s);
  /// How often it had to set something because it was late. Any-thread.
  std::uint64_t acted() const { return shared_->acted.load(); }
  /// Becomes readable in poll(2) (POLLERR) when the watchdog process is gone.
  int descriptor() const { return pipe_; }
  pid_t pid() const { return pid_; }

 private:
  struct Shared {
    std::atomic<std::int64_t> due_ns{0};
    std::atomic<std::int64_t> wakes_ns{INT64_MAX};  ///< when it checks by itself
    std::atomic<std::uint64_t> acted{0};
    std::atomic<int> armed{0};  ///< 1: it was armed; -1: that failed
  };
  static_assert(std::atomic<std::int64_t>::is_always_lock_free);
  Guardian(pid_t pid, int pipe, Shared* shared) : pid_(pid), pipe_(pipe), shared_(shared) {}
  [[noreturn]] static void guard(int pipe, Shared& shared, const Act& act, std::int64_t again_ns);

  pid_t pid_;
  int pipe_;
  Shared* shared_;  ///< memory shared by both processes
};

}  // namespace sonde::power
