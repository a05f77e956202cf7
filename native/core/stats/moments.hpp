#pragma once
/// Checks and moments of a span that several files of core/stats need. Any-thread.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

namespace sonde::stats {

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

inline bool has_nan(std::span<const double> x) {
  return std::any_of(x.begin(), x.end(), [](double v) { return std::isnan(v); });
}

/// Mean in two passes: the second adds the rounding errors of the first, so that a constant series gives its value to
/// the last bit. Empty: NaN.
inline double mean(std::span<const double> x) {
  if (x.empty()) return nan;
  double sum = 0;
  for (const double v : x) sum += v;
  const double n = static_cast<double>(x.size()), first = sum / n;
  if (!std::isfinite(first)) return first;
  double rest = 0;
  for (const double v : x) rest += v - first;
  return first + rest / n;
}

/// Mean squared distance from `centre`.
inline double variance_about(std::span<const double> x, double centre) {
  double squares = 0;
  for (const double v : x) squares += (v - centre) * (v - centre);
  return squares / static_cast<double>(x.size());
}

}  // namespace sonde::stats
