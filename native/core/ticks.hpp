#pragma once
/// The cheapest clock there is: the processor's own counter, read without a call. Signal-safe once the program runs.
///
/// x86-64: rdtsc, about 8 ns on metal and 20 ns on some virtual machines, where it runs at one rate and never stops.
/// aarch64: cntvct_el0, whose step may be as long as 40 ns. Elsewhere, and where the counter cannot be trusted,
/// CLOCK_MONOTONIC in ns. Not ordered with the instructions around it: an error of some tens of cycles.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/clock.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sonde {

/// The counter behind ticks: "tsc" (invariant), "cntvct" (aarch64) or "clock" (CLOCK_MONOTONIC, ns).
enum class TickKind : std::uint8_t { tsc, cntvct, clock };

inline const char* to_string(TickKind kind) {
  return kind == TickKind::tsc ? "tsc" : kind == TickKind::cntvct ? "cntvct" : "clock";
}

/// The finest counter that runs at one speed. across_cores: and agrees between cores, in the kernel's own opinion,
/// which is that its clock source is built on the same counter; else it must be read on one core only.
inline TickKind best_ticks(bool across_cores) {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  // Without the bit for an invariant counter its speed follows the core's, and a tick is no time.
  const bool invariant = __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
  char source[32] = {};
  if (std::FILE* file = std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re")) {
    if (std::fgets(source, sizeof source, file) == nullptr) source[0] = 0;
    std::fclose(file);
  }
  // kvm-clock and the Hyper-V page are scaled from the TSC, and are chosen only where it is stable.
  const bool agrees = std::strncmp(source, "tsc", 3) == 0 || std::strncmp(source, "kvm-clock", 9) == 0 ||
                      std::strncmp(source, "hyperv", 6) == 0;
  return agrees || (invariant && !across_cores) ? TickKind::tsc : TickKind::clock;
#elif defined(__aarch64__)
  (void)across_cores;
  return TickKind::cntvct;
#else
  (void)across_cores;
  return TickKind::clock;
#endif
}

template <TickKind kind> inline std::uint64_t read_ticks() {
#if defined(__x86_64__)
  if constexpr (kind == TickKind::tsc) return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  if constexpr (kind == TickKind::cntvct) {
    std::uint64_t t;
    asm volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
  }
#endif
  return static_cast<std::uint64_t>(now_ns());
}

/// The counter that ticks() reads, found at the start of the program.
inline const TickKind tick_kind = best_ticks(true);

/// The counter that this kind of processor has, whether or not it can be trusted here.
#if defined(__x86_64__)
inline constexpr TickKind register_ticks = TickKind::tsc;
#elif defined(__aarch64__)
inline constexpr TickKind register_ticks = TickKind::cntvct;
#else
inline constexpr TickKind register_ticks = TickKind::clock;
#endif

/// The counter that may be compared between cores.
inline std::int64_t ticks() {
#if defined(__x86_64__)
  if (tick_kind == TickKind::tsc) [[likely]]
    return static_cast<std::int64_t>(read_ticks<TickKind::tsc>());
#elif defined(__aarch64__)
  return static_cast<std::int64_t>(read_ticks<TickKind::cntvct>());
#endif
  return now_ns();
}

/// One moment by both clocks: CLOCK_MONOTONIC in ns, and read(). The closest of `tries`: an interruption between the
/// two readings would count as time.
template <typename Read> std::pair<std::int64_t, std::int64_t> both_clocks(Read&& read, int tries = 20) {
  std::int64_t ns = 0, at = 0, narrowest = INT64_MAX;
  for (int k = 0; k < tries; ++k) {
    const std::int64_t a = now_ns();
    const auto t = static_cast<std::int64_t>(read());
    const std::int64_t b = now_ns();
    if (b - a < narrowest) narrowest = b - a, ns = a + (b - a) / 2, at = t;
  }
  return {ns, at};
}

/// Seconds of one tick of read(), from two readings `apart_s` apart against CLOCK_MONOTONIC; right to about
/// 50 ns / apart_s.
template <typename Read> double seconds_of_tick(Read&& read, double apart_s) {
  const auto first = both_clocks(read);
  while (static_cast<double>(now_ns() - first.first) < apart_s * 1e9) {}
  const auto last = both_clocks(read);
  return static_cast<double>(last.first - first.first) * 1e-9 / static_cast<double>(last.second - first.second);
}

/// Seconds of one tick of ticks().
inline double tick_s(double apart_s = 0.02) {
  return tick_kind == TickKind::clock ? 1e-9 : seconds_of_tick(ticks, apart_s);
}

}  // namespace sonde
