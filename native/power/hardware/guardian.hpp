#pragma once
/// A small process beside one that sets caps, for when that one cannot: killed by -9, or stopped, swapped out, hung in
/// a call to a BMC while its lease runs out. It does one thing, by a way of its own to the hardware. Made before the
/// daemon has threads; it holds nothing of the daemon's but standard error.
///
/// What it cannot do: a cgroup that is frozen, a machine that stands still, hold both. Caps on a node like that are its
/// hardware's.

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
    armed,  ///< there is a time by now: what takes long can be opened
    late,   ///< the time has come, and the daemon has not said another
    gone,   ///< the daemon is gone without having said that all is well
  };
  enum class Did : std::uint8_t { nothing, set, failed };  ///< nothing: it was as it should be
  /// Runs in the guardian, with the memory as it was at start().
  using Act = std::function<Did(Why)>;

  /// `again_s`: from one time that it was late to the next, as long as the daemon says nothing. Errors:
  /// power.no_guardian.
  static Result<std::unique_ptr<Guardian>> start(Act act, double again_s = 1);
  /// As dismiss() was not called: the guardian acts.
  ~Guardian();
  /// All is well: it ends without having acted, and is waited for.
  void dismiss();
  /// From this time of CLOCK_BOOTTIME on it acts, again and again, unless another was said by then; 0: nothing is due.
  /// Any-thread, never waits.
  void until(std::int64_t boottime_ns);
  /// Makes it act for Why::armed, and waits for that. What it keeps then is what there was before: nothing of the
  /// daemon's is needed for it. False: it failed, is gone, or took longer.
  bool arm(double within_s);
  /// How often it had something to set because it was late. Any-thread.
  std::uint64_t acted() const { return shared_->acted.load(); }
  /// Becomes readable in poll(2) (POLLERR) when the guardian is gone.
  int descriptor() const { return pipe_; }
  pid_t pid() const { return pid_; }

 private:
  struct Shared {
    std::atomic<std::int64_t> due_ns{0};
    std::atomic<std::int64_t> wakes_ns{INT64_MAX};  ///< when it looks by itself
    std::atomic<std::uint64_t> acted{0};
    std::atomic<int> armed{0};  ///< 1: it was; -1: that failed
  };
  static_assert(std::atomic<std::int64_t>::is_always_lock_free);
  Guardian(pid_t pid, int pipe, Shared* shared) : pid_(pid), pipe_(pipe), shared_(shared) {}
  [[noreturn]] static void guard(int pipe, Shared& shared, const Act& act, std::int64_t again_ns);

  pid_t pid_;
  int pipe_;
  Shared* shared_;  ///< memory of both
};

}  // namespace sonde::power
