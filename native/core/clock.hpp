#pragma once
/// Monotonic time. Freestanding: usable in a library that is loaded into foreign programs.
///
/// CLOCK_MONOTONIC through the vDSO, about 20 ns a call where the kernel's clock source is the TSC; on
/// others (hpet, acpi_pm, xen) a call enters the kernel and costs hundreds of ns, which `sonde doctor` says.
/// CLOCK_MONOTONIC_RAW is not slewed by NTP, but older kernels serve it by a system call. Any-thread, signal-safe.

#include <cerrno>
#include <cstdint>
#include <ctime>

namespace sonde {

/// Nanoseconds since an arbitrary point, the same for every process of this host.
inline std::int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// Seconds since the same point as now_ns.
inline double now_s() { return static_cast<double>(now_ns()) * 1e-9; }

/// Sleeps until now_s() shows `until_s`; returns at once when that is past.
inline void sleep_until(double until_s) {
  const double whole = static_cast<double>(static_cast<std::int64_t>(until_s));
  timespec t{static_cast<time_t>(whole), static_cast<long>((until_s - whole) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {}
}

/// Cost in s of one now_ns call: the least of `rounds` means over 1000 calls.
inline double clock_cost_s(int rounds = 20) {
  double best = 1;
  for (int r = 0; r < rounds; ++r) {
    const std::int64_t begin = now_ns();
    std::int64_t last = begin;
    for (int k = 0; k < 1000; ++k) last = now_ns();
    const double mean = static_cast<double>(last - begin) * 1e-12;
    if (mean < best) best = mean;
  }
  return best;
}

}  // namespace sonde
