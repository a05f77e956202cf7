#include "core/stats/summary.hpp"

#include <algorithm>
#include <cmath>

#include "core/stats/epochs.hpp"
#include "core/stats/moments.hpp"

namespace sonde::stats {

namespace {

double median_in_place(std::span<double> x) {
  if (x.empty() || has_nan(x)) return nan;
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::nth_element(x.begin(), middle, x.end());
  if (x.size() % 2 == 1) return *middle;
  const double below = *std::max_element(x.begin(), middle);
  return below + 0.5 * (*middle - below);
}

template <typename Statistic>
std::vector<double> over_epochs(std::span<const double> x, std::span<const std::int32_t> epoch, Statistic of) {
  const Epochs epochs(x, epoch);
  std::vector<double> out(epochs.size());
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = of(epochs[k]);
  return out;
}

}  // namespace

Summary summarise(std::span<const double> x) {
  Summary s{x.size(), nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan};
  if (x.empty() || has_nan(x)) return s;
  std::vector<double> sorted(x.begin(), x.end());
  std::sort(sorted.begin(), sorted.end());

  s.mean = std::clamp(mean(sorted), sorted.front(), sorted.back());
  if (x.size() > 1) {
    double squares = 0;
    for (const double v : sorted) squares += (v - s.mean) * (v - s.mean);
    s.sd = std::sqrt(squares / static_cast<double>(x.size() - 1));
  }
  s.min = sorted.front();
  s.max = sorted.back();
  s.median = quantile_sorted(sorted, 0.5);
  s.q05 = quantile_sorted(sorted, 0.05);
  s.q25 = quantile_sorted(sorted, 0.25);
  s.q75 = quantile_sorted(sorted, 0.75);
  s.q95 = quantile_sorted(sorted, 0.95);
  s.q99 = quantile_sorted(sorted, 0.99);
  for (double& v : sorted) v = std::abs(v - s.median);
  s.mad = median_in_place(sorted);
  return s;
}

double quantile_sorted(std::span<const double> sorted, double p) {
  if (sorted.empty() || !(p >= 0 && p <= 1)) return nan;
  const double at = p * static_cast<double>(sorted.size() - 1);
  const auto k = static_cast<std::size_t>(at);
  if (k + 1 >= sorted.size()) return sorted.back();
  const double share = at - static_cast<double>(k);
  // Equal neighbours first: inf - inf would be NaN, and a tie must come back exactly
  if (share == 0 || sorted[k] == sorted[k + 1]) return sorted[k];
  return sorted[k] + share * (sorted[k + 1] - sorted[k]);
}

double quantile(std::span<const double> x, double p) {
  if (has_nan(x)) return nan;
  std::vector<double> sorted(x.begin(), x.end());
  std::sort(sorted.begin(), sorted.end());
  return quantile_sorted(sorted, p);
}

double median(std::span<const double> x) {
  std::vector<double> copy(x.begin(), x.end());
  return median_in_place(copy);
}

std::vector<double> epoch_medians(std::span<const double> x, std::span<const std::int32_t> epoch) {
  return over_epochs(x, epoch, [](std::span<const double> e) { return median(e); });
}

std::vector<double> epoch_means(std::span<const double> x, std::span<const std::int32_t> epoch) {
  return over_epochs(x, epoch, [](std::span<const double> e) { return mean(e); });
}

std::vector<double> block_medians(std::span<const double> x, std::size_t block) {
  std::vector<double> out;
  if (block == 0) return out;
  out.reserve(x.size() / block);
  for (std::size_t k = 0; k + block <= x.size(); k += block) out.push_back(median(x.subspan(k, block)));
  return out;
}

}  // namespace sonde::stats
