#include "core/stats/epochs.hpp"

#include <algorithm>

namespace sonde::stats {

Epochs::Epochs(std::span<const double> x, std::span<const std::int32_t> epoch) {
  if (x.size() != epoch.size()) return;
  std::vector<std::size_t> order;
  order.reserve(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    if (epoch[i] >= 0) order.push_back(i);
  const auto earlier = [&](std::size_t a, std::size_t b) { return epoch[a] < epoch[b]; };
  if (!std::is_sorted(order.begin(), order.end(), earlier)) std::stable_sort(order.begin(), order.end(), earlier);

  samples_.reserve(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (k == 0 || epoch[order[k]] != epoch[order[k - 1]]) {
      begin_.push_back(k);
      first_.push_back(order[k]);
    }
    samples_.push_back(x[order[k]]);
  }
}

std::span<const double> Epochs::operator[](std::size_t k) const {
  const std::size_t end = k + 1 < begin_.size() ? begin_[k + 1] : samples_.size();
  return std::span(samples_).subspan(begin_[k], end - begin_[k]);
}

}  // namespace sonde::stats
