#pragma once
/// What a thread sleeps by until there is something to look at. For authors of implementations.

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "core/clock.hpp"
#include "core/deadline.hpp"

namespace sonde::bus {

/// One thread waits: silence(), looks, and sleeps in wait() if it saw nothing. Any thread rings; that takes a lock and a system call
/// only while somebody is asleep.
class Bell {
 public:
  /// Before the look: what comes later rings again.
  void silence() { rung_.store(false); }

  void ring() {
    rung_.store(true);
    if (!asleep_.load()) return;  // who falls asleep says so first, and looks at rung_ then
    { const std::lock_guard lock(mutex_); }
    changed_.notify_one();
  }

  /// Ends a wait, also one that has yet to begin, with nothing to look at.
  void wake() {
    woken_.store(true);
    ring();
  }
  /// Whether wake() was called since this was asked last.
  bool woken() { return woken_.exchange(false); }

  /// Until somebody rings; false: the deadline came first.
  bool wait(Deadline deadline) {
    const std::int64_t began = now_ns();
    if (short_waits_ >= 3 && spin(began, deadline)) return true;
    bool told = true;
    {
      std::unique_lock lock(mutex_);
      asleep_.store(true);
      const auto rung = [this] { return rung_.load(); };
      if (deadline.at_ns) {
        told = changed_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline.at_ns)), rung);
      } else {
        changed_.wait(lock, rung);
      }
      asleep_.store(false);
    }
    short_waits_ = told && now_ns() - began < limit() ? std::min(short_waits_ + 1, 8) : short_waits_ / 2;
    return told;
  }

 private:
  static std::int64_t limit() {
    static const std::int64_t ns = [] { const char* t = std::getenv("SONDE_BUS_SPIN_US"); return t ? std::atoll(t) * 1000 : 0; }();
    return ns;
  }
  static int mode() {
    static const int m = [] { const char* t = std::getenv("SONDE_BUS_SPIN_MODE"); return t ? std::atoi(t) : 0; }();
    return m;
  }

  bool spin(std::int64_t began, Deadline deadline) {
    const std::int64_t until = began + limit();
    int n = 0;
    do {
      if (rung_.load()) return true;
      if (mode() == 0) sched_yield();
      else if (mode() == 1) { for (int k = 0; k < 20; ++k) __builtin_ia32_pause(); }
      else { for (int k = 0; k < 20; ++k) __builtin_ia32_pause(); if (++n % 8 == 0) sched_yield(); }
    } while (now_ns() < until && !deadline.passed());
    return rung_.load();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> rung_{false}, asleep_{false}, woken_{false};
  int short_waits_ = 0;  ///< of the last ones
};

}  // namespace sonde::bus
