#include "core/stats/ties.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace sonde::stats {
namespace {

/// Values closer than this, relative to their size, differ by rounding only.
constexpr double rounding = 1e-9;
/// A step may miss a multiple of the tick by this share of a tick. Values may come as float (6e-8 relative).
constexpr double off_grid = 0.02;
/// Share of the steps between values that must be multiples: two delays of milliseconds may be off the grid.
constexpr double enough = 0.9;

}  // namespace

double tick_of(std::span<const WeightedSample> samples) {
  std::vector<double> values(samples.size());
  std::transform(samples.begin(), samples.end(), values.begin(), [](const WeightedSample& s) { return s.value; });
  std::sort(values.begin(), values.end());
  const auto alike = [](double a, double b) { return b - a <= rounding * std::max(std::fabs(a), std::fabs(b)); };
  values.erase(std::unique(values.begin(), values.end(), alike), values.end());
  if (values.size() < 3 || samples.size() < 2 * values.size()) return 0;

  double tick = values[1] - values[0];
  for (std::size_t k = 2; k < values.size(); ++k) tick = std::min(tick, values[k] - values[k - 1]);
  std::size_t on_grid = 0;
  for (std::size_t k = 1; k < values.size(); ++k) {
    const double steps = (values[k] - values[k - 1]) / tick;
    on_grid += std::fabs(steps - std::round(steps)) <= off_grid;
  }
  return static_cast<double>(on_grid) >= enough * static_cast<double>(values.size() - 1) ? tick : 0;
}

void spread_ties(std::span<WeightedSample> by_batch) {
  const double tick = tick_of(by_batch);
  if (!(tick > 0)) return;
  const auto [least, most] = std::minmax_element(by_batch.begin(), by_batch.end(),
                                                 [](const auto& a, const auto& b) { return a.value < b.value; });
  const double low = least->value, high = most->value;
  for (std::size_t begin = 0, end = 0; begin < by_batch.size(); begin = end) {
    const double value = by_batch[begin].value;
    double weight = 0, reached = 0;
    for (end = begin; end < by_batch.size() && by_batch[end].batch == by_batch[begin].batch &&
                      by_batch[end].value - value < tick / 2;
         ++end)
      weight += by_batch[end].weight;
    for (std::size_t k = begin; k < end; ++k) {
      by_batch[k].value = std::clamp(value + tick * ((reached + by_batch[k].weight / 2) / weight - 0.5), low, high);
      reached += by_batch[k].weight;
    }
  }
}

}  // namespace sonde::stats
