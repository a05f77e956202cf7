#pragma once
/// Interruptions of a core, seen from user space: selfish detour and fixed work quantum.
///
/// Selfish detour: a loop that does nothing but read the tick counter. Two readings further apart than a threshold are
/// a detour: something else had the core meanwhile. Fixed work quantum: the same arithmetic again and again, each
/// timed; what takes longer was interrupted or slowed down. The first tells when and how long; the second also sees
/// what slows a core without taking it (a sibling thread, frequency). Sottile & Minnich 2004; Beckman et al. 2006.
///
/// Measuring comes in windows. Between two windows the measuring thread itself reads the kernel's counters and writes
/// out what it has: no second thread disturbs, and the gap is known.
///
/// Pure functions any-thread; a DetourWatch owner-thread.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/ticks.hpp"

namespace sonde::noise {

/// What one window of the detour loop saw, in ticks.
struct LoopSeen {
  std::uint64_t loops = 0, gaps = 0, lost = 0, end = 0;
};

/// Reads `ticks` until `end`; each step longer than `threshold` goes to `sink(begin, length)`. After a detour the
/// counter is read anew, so that keeping it is not taken for the next.
template <typename Ticks, typename Sink>
LoopSeen watch_ticks(Ticks&& ticks, std::uint64_t end, std::uint64_t threshold, Sink&& sink) {
  LoopSeen seen;
  std::uint64_t before = ticks();
  while (before < end) {
    const std::uint64_t now = ticks();
    const std::uint64_t step = now - before;
    ++seen.loops;
    if (step > threshold) [[unlikely]] {
      ++seen.gaps;
      seen.lost += step;
      sink(before, step);
      before = ticks();
    } else {
      before = now;
    }
  }
  seen.end = before;
  return seen;
}

/// Shortest step of the loop, in ticks: the least of `rounds`.
template <typename Ticks> std::uint64_t least_step(Ticks&& ticks, int rounds) {
  std::uint64_t least = ~std::uint64_t{0};
  std::uint64_t before = ticks();
  for (int k = 0; k < rounds; ++k) {
    const std::uint64_t now = ticks();
    // A counter of a slow clock may stand still between two readings; that says nothing about the loop.
    if (now > before && now - before < least) least = now - before;
    before = now;
  }
  return least;
}

/// A fixed amount of arithmetic: `n` steps, each of which needs the one before. No memory but registers.
std::uint64_t quantum(std::uint64_t n, std::uint64_t seed);

/// One column of /proc/interrupts or /proc/softirqs: rows by name. Device interrupts ("24:") are one row, "DEV", and
/// by their own name ("24 virtio0-input.0") in `devices`.
struct Counts {
  std::map<std::string, std::uint64_t> rows, devices;
};
/// cpu: the CPU's number, as the heading names it. A text without this CPU gives no rows.
Counts parse_counts(std::string_view text, int cpu);
/// Steal of one CPU in /proc/stat, in its own units (USER_HZ); 0 where it is not told.
std::uint64_t parse_steal(std::string_view text, int cpu);
/// Second number of /proc/thread-self/schedstat: ns this thread waited for a CPU. -1 where it is not told.
std::int64_t parse_run_delay(std::string_view text);

/// CPU numbers of "0-3,8"; also the empty text. Error: noise.bad_cpus.
Result<std::vector<int>> parse_cpus(const std::string& text);

struct DetourOptions {
  std::vector<int> cpus;  ///< empty: all this process may use
  double duration_s = 10, window_s = 0.1;
  double threshold_s = 0;  ///< 0: nine times the shortest step of the loop, 300 ns at least
  bool detour = true, fwq = false;
  double quantum_s = 1e-3;
  std::string dir, host;
  std::uint64_t cap_bytes = 64u << 20;  ///< of each CPU's file
  bool check = false;
};
/// Options of sonde-detour. Error: noise.bad_option, noise.bad_cpus.
Result<DetourOptions> parse_detour_options(const std::vector<std::string>& args);

inline constexpr double least_threshold_s = 300e-9;

}  // namespace sonde::noise
