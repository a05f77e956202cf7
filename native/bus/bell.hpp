#pragma once
/// A wake-up for a thread that waits for work. For authors of implementations.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "core/clock.hpp"
#include "core/deadline.hpp"
#include "core/spin.hpp"

namespace sonde::bus {

/// One thread waits: it calls silence(), looks for work, and sleeps in wait() if there is none. Any thread may ring;
/// that takes a lock and a system call only if the thread sleeps.
class Bell {
 public:
  /// spin_s: as of Spin.
  explicit Bell(double spin_s) : spin_(spin_s) {}

  /// Call before the look: later events ring again.
  void silence() { rung_.store(false); }

  void ring() {
    rung_.store(true);
    if (!asleep_.load()) return;  // a thread sets asleep_ before it checks rung_ and sleeps
    { const std::lock_guard lock(mutex_); }
    changed_.notify_one();
  }

  /// Ends the current wait, or the next one, without work.
  void wake() {
    woken_.store(true);
    ring();
  }
  /// Whether wake() was called since the last call of this function.
  bool woken() { return woken_.exchange(false); }

  /// Waits for a ring; false: the deadline came first.
  bool wait(Deadline deadline) {
    if (rung_.load()) return true;
    if (spin_.begin(deadline.at_ns)) do {
        if (rung_.load()) return true;
      } while (spin_.again());
    const std::int64_t began = now_ns();
    bool told = true;
    {
      std::unique_lock lock(mutex_);
      asleep_.store(true);
      const auto rung = [this] { return rung_.load(); };
      if (deadline.at_ns) {
        told = changed_.wait_until(
            lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline.at_ns)), rung);
      } else {
        changed_.wait(lock, rung);
      }
      asleep_.store(false);
    }
    spin_.slept(now_ns() - began);
    return told;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> rung_{false}, asleep_{false}, woken_{false};
  Spin spin_;  ///< of the waiting thread
};

}  // namespace sonde::bus
