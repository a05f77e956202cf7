#pragma once
/// The cheapest clock there is: the processor's own counter, read without a call. Freestanding, signal-safe.
///
/// x86-64: rdtsc, about 8 ns on virtual machines and less on metal, where the kernel says that it runs at one rate
/// and never stops (constant_tsc, nonstop_tsc). aarch64: cntvct_el0, whose step may be as long as 40 ns. Elsewhere,
/// and where the counter cannot be trusted, CLOCK_MONOTONIC in ns. Not ordered with the instructions around it: an
/// error of some tens of cycles, far below what a collective takes.

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "core/clock.hpp"

namespace sonde {

inline std::int64_t ticks() {
#if defined(__x86_64__)
  return static_cast<std::int64_t>(__builtin_ia32_rdtsc());
#elif defined(__aarch64__)
  std::int64_t t;
  asm volatile("mrs %0, cntvct_el0" : "=r"(t));
  return t;
#else
  return now_ns();
#endif
}

/// Whether ticks() runs at one rate on all cores of this machine, as the kernel sees it: its own clock source is
/// built on the same counter. Else ticks() must not be used to compare times of two cores.
inline bool ticks_are_steady() {
#if defined(__x86_64__)
  char source[32] = {};
  if (std::FILE* file = std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re")) {
    if (std::fgets(source, sizeof source, file) == nullptr) source[0] = 0;
    std::fclose(file);
  }
  // kvm-clock and the Hyper-V page are scaled from the TSC, and are chosen only where it is stable.
  return std::strncmp(source, "tsc", 3) == 0 || std::strncmp(source, "kvm-clock", 9) == 0 ||
         std::strncmp(source, "hyperv", 6) == 0;
#else
  return true;
#endif
}

/// Seconds of one tick, from two readings `apart_s` apart against CLOCK_MONOTONIC; right to about 50 ns / apart_s.
inline double tick_s(double apart_s = 0.02) {
  const std::int64_t ns0 = now_ns(), t0 = ticks();
  std::int64_t ns1 = ns0, t1 = t0;
  while (static_cast<double>(ns1 - ns0) < apart_s * 1e9) {
    ns1 = now_ns();
    t1 = ticks();
  }
  return static_cast<double>(ns1 - ns0) * 1e-9 / static_cast<double>(t1 - t0);
}

}  // namespace sonde
