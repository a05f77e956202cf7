#include "core/stats/change.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/stats/epochs.hpp"
#include "core/stats/moments.hpp"
#include "core/stats/summary.hpp"

namespace sonde::stats {

namespace {

/// Twice the mid-ranks, whole numbers.
std::vector<double> double_ranks(std::span<const double> x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
  std::vector<double> rank(x.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last + 1 < order.size() && x[order[last + 1]] == x[order[first]]) ++last;
    for (std::size_t k = first; k <= last; ++k) rank[order[k]] = static_cast<double>(first + last + 2);
    first = last + 1;
  }
  return rank;
}

/// The largest |U| among splits that leave `margin` values on both sides.
ChangePoint largest(std::span<const double> x, std::size_t margin) {
  ChangePoint found{0, 0, 1};
  if (x.size() < 2) return found;
  const std::vector<double> rank = double_ranks(x);
  const double n = static_cast<double>(x.size());
  double u = 0;
  for (std::size_t t = 1; t < x.size(); ++t) {
    u += rank[t - 1] - (n + 1);
    if (t < margin || x.size() - t < margin) continue;
    if (std::abs(u) > found.statistic) found = {t, std::abs(u), 1};
  }
  found.p = std::min(1.0, 2 * std::exp(-6 * found.statistic * found.statistic / (n * n * n + n * n)));
  return found;
}

}  // namespace

ChangePoint pettitt(std::span<const double> x) {
  if (has_nan(x)) return {0, nan, nan};
  return largest(x, 1);
}

std::vector<ChangePoint> change_points(std::span<const double> x, double alpha, std::size_t min_segment) {
  std::vector<ChangePoint> found;
  if (has_nan(x)) return found;
  const std::size_t margin = std::max<std::size_t>(min_segment, 1);
  std::vector<std::pair<std::size_t, std::size_t>> parts{{0, x.size()}};
  while (!parts.empty()) {
    const auto [begin, end] = parts.back();
    parts.pop_back();
    ChangePoint at = largest(x.subspan(begin, end - begin), margin);
    if (at.statistic == 0 || !(at.p <= alpha)) continue;
    at.index += begin;
    found.push_back(at);
    parts.emplace_back(begin, at.index);
    parts.emplace_back(at.index, end);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  return found;
}

std::vector<ChangePoint> change_points(std::span<const double> x, std::span<const std::int32_t> epoch, double alpha,
                                       std::size_t min_segment) {
  const Epochs epochs(x, epoch);
  std::vector<double> medians(epochs.size());
  for (std::size_t k = 0; k < medians.size(); ++k) medians[k] = median(epochs[k]);
  std::vector<ChangePoint> found = change_points(medians, alpha, min_segment);
  for (ChangePoint& at : found) at.index = epochs.first_index(at.index);
  return found;
}

}  // namespace sonde::stats
