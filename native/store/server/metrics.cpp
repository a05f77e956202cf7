#include "store/server/metrics.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/clock.hpp"

namespace sonde::store {

void Durations::add(std::int64_t ns) {
  const auto us = static_cast<std::uint64_t>(ns < 0 ? 0 : ns) / 1000;
  counts_[std::min<std::size_t>(std::bit_width(us), classes - 1)].fetch_add(1, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(static_cast<std::uint64_t>(ns < 0 ? 0 : ns), std::memory_order_relaxed);
}

double Durations::quantile_s(double q) const {
  const std::uint64_t n = count();
  if (n == 0) return 0;
  const double wanted = q * static_cast<double>(n);
  std::uint64_t seen = 0;
  for (std::size_t k = 0; k < classes; ++k) {
    seen += in_class(k);
    if (static_cast<double>(seen) >= wanted) return edge_s(k);
  }
  return edge_s(classes - 1);
}

void Metrics::failed(std::string what) {
  const std::lock_guard lock(mutex_);
  last_error_ = std::move(what);
  last_error_at_s_ = now_s();
}

std::string Metrics::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

double Metrics::last_error_s_ago() const {
  const std::lock_guard lock(mutex_);
  return last_error_.empty() ? 0 : now_s() - last_error_at_s_;
}

}  // namespace sonde::store
