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

double Metrics::Last::s_ago() const { return what.empty() ? 0 : now_s() - at_s; }

void Metrics::failed(std::string what) {
  const std::lock_guard lock(mutex_);
  error_ = {std::move(what), now_s()};
}

std::string Metrics::last_error() const {
  const std::lock_guard lock(mutex_);
  return error_.what;
}

double Metrics::last_error_s_ago() const {
  const std::lock_guard lock(mutex_);
  return error_.s_ago();
}

void Metrics::turned_away(const std::string& host, const std::string& code) {
  const std::lock_guard lock(mutex_);
  refused_ = {host + ": " + code, now_s()};
}

std::string Metrics::last_refused() const {
  const std::lock_guard lock(mutex_);
  return refused_.what;
}

double Metrics::last_refused_s_ago() const {
  const std::lock_guard lock(mutex_);
  return refused_.s_ago();
}

}  // namespace sonde::store
