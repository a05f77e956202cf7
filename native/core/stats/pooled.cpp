#include "core/stats/pooled.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/stats/special.hpp"
#include "core/stats/ties.hpp"

namespace sonde::stats {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

bool by_value(const WeightedSample& a, const WeightedSample& b) { return a.value < b.value; }

/// Mean share at or below a value that moves upwards, and the variance of that mean, kept up to date in O(1) a
/// sample. Shares are weighted by the batches' sizes (a ratio estimate).
class Shares {
 public:
  Shares(std::vector<double> weight) : weight_(std::move(weight)), below_(weight_.size(), 0.0) {
    for (std::size_t b = 0; b < weight_.size(); ++b) {
      total_ += weight_[b];
      ww_ += weight_[b] * weight_[b];
      if (b) wnext_ += weight_[b] * weight_[b - 1];
    }
  }

  void take(std::size_t b, double weight) {
    const double beside = (b ? below_[b - 1] : 0) + (b + 1 < below_.size() ? below_[b + 1] : 0);
    const double beside_weight = (b ? weight_[b - 1] : 0) + (b + 1 < weight_.size() ? weight_[b + 1] : 0);
    cc_ += weight * (2 * below_[b] + weight);
    cw_ += weight * weight_[b];
    cnext_ += weight * beside;
    cross_ += weight * beside_weight;
    below_[b] += weight;
    sum_ += weight;
  }

  double mean() const { return sum_ / total_; }
  /// Sum of squares of the batches' deviations, and of products of neighbours'.
  double squares() const { return std::max(0.0, cc_ - 2 * mean() * cw_ + mean() * mean() * ww_); }
  double products() const { return cnext_ - mean() * cross_ + mean() * mean() * wnext_; }

  double dependence() const {
    const double squares = this->squares(), k = static_cast<double>(weight_.size());
    if (squares <= rounding()) return 1;
    const double r = std::clamp(products() / squares + 1 / k, -0.1, 0.9);
    return (1 + r) / (1 - r);
  }
  /// Standard error of mean().
  double error() const {
    const double squares = this->squares(), k = static_cast<double>(weight_.size());
    if (squares <= rounding()) return 0;
    return std::sqrt(dependence() * squares * k / (k - 1)) / total_;
  }

 private:
  /// What is left of cc - 2 m cw + m^2 ww when all shares are equal.
  double rounding() const { return 1e-12 * ww_; }

  std::vector<double> weight_, below_;
  double total_ = 0, ww_ = 0, wnext_ = 0, sum_ = 0, cc_ = 0, cw_ = 0, cnext_ = 0, cross_ = 0;
};

}  // namespace

PooledMedian pooled_median(std::vector<WeightedSample> samples, std::size_t batches, double level) {
  PooledMedian out{nan, nan, nan, nan, batches};
  if (samples.empty() || !(level > 0 && level < 1)) return out;
  double total = 0;
  std::vector<double> weight(batches, 0.0);
  for (const WeightedSample& s : samples) {
    if (std::isnan(s.value)) return out;
    weight[s.batch] += s.weight;
    total += s.weight;
  }
  std::sort(samples.begin(), samples.end(), by_value);

  const double limit = batches < 2 ? 0 : student_quantile(0.5 + level / 2, static_cast<double>(batches - 1));
  Shares shares(weight);
  double at_half = 0;  // error of the share, once half of the samples are below
  bool half = false, low_found = false, open = true;
  out.high = out.low = samples.front().value;
  for (std::size_t i = 0; i < samples.size();) {
    const double v = samples[i].value;
    // v is not too high as long as the share strictly below it is not clearly above one half.
    const double before = shares.mean();
    if (before > 0.5 && before - 0.5 > limit * shares.error()) open = false;
    if (open) out.high = v;
    for (; i < samples.size() && samples[i].value == v; ++i) shares.take(samples[i].batch, samples[i].weight);
    const double share = shares.mean();
    // v is not too low once the share at or below it is not clearly below one half.
    if (share < 0.5 && 0.5 - share > limit * shares.error()) {
      low_found = false;
    } else if (!low_found) {
      low_found = true;
      out.low = v;
    }
    if (!half && share >= 0.5 * (1 - 1e-12)) {
      half = true;
      at_half = shares.dependence();
      const bool between = std::fabs(share - 0.5) <= 0.5e-12 && i < samples.size();
      out.median = between ? v + (samples[i].value - v) / 2 : v;
    }
    if (half && !open) break;
  }
  out.dependence = at_half;
  if (batches < 2) out.low = out.high = nan;
  return out;
}

PooledMedian pooled_median(const Epochs& epochs, double level) {
  const std::size_t count = epochs.size();
  std::size_t group = 1;
  while (count / group >= 64) group *= 2;
  // A last group of less than half its size goes with the one before.
  std::size_t batches = count / group;
  if (count % group != 0 && (batches == 0 || count % group >= (group + 1) / 2)) ++batches;
  std::vector<WeightedSample> samples;
  samples.reserve(epochs.samples().size());
  std::size_t begin = 0;
  for (std::size_t b = 0; b < batches; ++b) {
    for (std::size_t k = b * group; k < (b + 1 == batches ? count : (b + 1) * group); ++k) {
      for (const double v : epochs[k]) {
        if (std::isnan(v)) return {nan, nan, nan, nan, batches};
        samples.push_back({v, static_cast<std::uint32_t>(b), 1.0});
      }
    }
    std::sort(samples.begin() + static_cast<std::ptrdiff_t>(begin), samples.end(), by_value);
    begin = samples.size();
  }
  spread_ties(samples);
  return pooled_median(std::move(samples), batches, level);
}

}  // namespace sonde::stats
