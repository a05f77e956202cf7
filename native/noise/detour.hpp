#pragma once
/// Interruptions of a core, measured in user space: selfish detour and fixed work quantum.
///
/// Selfish detour: a loop only reads the tick counter. If two readings are further apart than a threshold, this is a
/// detour: something else had the core. Fixed work quantum: the same arithmetic is repeated and timed; a longer quantum
/// was interrupted or slowed down. The first method gives begin and length; the second also sees effects that slow down
/// a core without taking it (a sibling thread, frequency). Sottile & Minnich 2004; Beckman et al. 2006.
///
/// A measurement has windows. Between two windows the measuring thread itself reads the kernel's counters and writes
/// its records. So no second thread disturbs, and the length of the gap is known.
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

/// The result of one window of the detour loop, in ticks.
struct LoopSeen {
  std::uint64_t loops = 0, gaps = 0, lost = 0, end = 0;
};

/// Reads `ticks` until `end`; calls `sink(begin, length)` for each step longer than `threshold`. After a detour it
/// reads the counter again, so that the time of the sink does not count as the next detour.
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
    // The counter of a slow clock may not change between two readings. Such a reading is not used.
    if (now > before && now - before < least) least = now - before;
    before = now;
  }
  return least;
}

/// A fixed amount of arithmetic: `n` steps, each of which depends on the one before. It uses only registers.
std::uint64_t quantum(std::uint64_t n, std::uint64_t seed);

/// One column of /proc/interrupts or /proc/softirqs: rows by name. Device interrupts ("24:") are summed in the row
/// "DEV", and listed by their own name ("24 virtio0-input.0") in `devices`.
struct Counts {
  std::map<std::string, std::uint64_t> rows, devices;
};
/// cpu: the number of the CPU in the heading. A text without this CPU gives no rows.
Counts parse_counts(std::string_view text, int cpu);
/// The steal time of one CPU in /proc/stat, in its own units (USER_HZ); 0 where it is missing.
std::uint64_t parse_steal(std::string_view text, int cpu);
/// The second number of /proc/thread-self/schedstat: ns for which this thread waited for a CPU; -1 where it is missing.
std::int64_t parse_run_delay(std::string_view text);

/// The CPU numbers of "0-3,8"; an empty list for "". Error: noise.bad_cpus.
Result<std::vector<int>> parse_cpus(const std::string& text);

struct DetourOptions {
  std::vector<int> cpus;  ///< empty: all that this process may use
  double duration_s = 10, window_s = 0.1;
  double threshold_s = 0;  ///< 0: nine times the shortest step of the loop, at least 300 ns
  bool detour = true, fwq = false;
  double quantum_s = 1e-3;
  std::string dir, host;
  std::uint64_t cap_bytes = 64u << 20;  ///< limit for the file of each CPU
  bool check = false;
};
/// Options of sonde-detour. Error: noise.bad_option, noise.bad_cpus.
Result<DetourOptions> parse_detour_options(const std::vector<std::string>& args);

inline constexpr double least_threshold_s = 300e-9;

}  // namespace sonde::noise
