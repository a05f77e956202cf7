#include "core/stats/pooled.hpp"

#include <algorithm>
#include <cmath>

#include "core/stats/interval.hpp"
#include "core/stats/moments.hpp"
#include "core/stats/special.hpp"
#include "core/stats/ties.hpp"
#include "core/stats/warm_up.hpp"

namespace sonde::stats {
namespace {

bool by_value(const WeightedSample& a, const WeightedSample& b) { return a.value < b.value; }

/// Mean share at or below a value that moves upwards, and the variance of that mean, updated in O(1) per sample. Shares
/// are weighted by the batches' sizes (a ratio estimate).
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
    const double r = std::clamp(products() / squares + 1 / k, -0.05, 0.9);
    return (1 + r) / (1 - r);
  }
  /// Standard error of mean().
  double error() const {
    const double squares = this->squares(), k = static_cast<double>(weight_.size());
    if (squares <= rounding()) return 0;
    return std::sqrt(dependence() * squares * k / (k - 1)) / total_;
  }

 private:
  /// The rest of cc - 2 m cw + m^2 ww when all shares are equal.
  double rounding() const { return 1e-12 * ww_; }

  std::vector<double> weight_, below_;
  double total_ = 0, ww_ = 0, wnext_ = 0, sum_ = 0, cc_ = 0, cw_ = 0, cnext_ = 0, cross_ = 0;
};

}  // namespace

void Batches::tidy() {
  for (const Batch& batch : batches) {
    std::sort(values.begin() + static_cast<std::ptrdiff_t>(batch.begin),
              values.begin() + static_cast<std::ptrdiff_t>(batch.end), by_value);
  }
  spread_ties(values);
  for (Batch& batch : batches) {
    double below = 0, half = static_cast<double>(batch.samples) / 2;
    for (std::size_t k = batch.begin; k < batch.end; ++k) {
      below += values[k].weight;
      if (below < half * (1 - 1e-9)) continue;
      const bool between = below <= half * (1 + 1e-9) && k + 1 != batch.end;
      batch.median = between ? (values[k].value + values[k + 1].value) / 2 : values[k].value;
      break;
    }
  }
}

void Batches::drop_front(std::size_t count) {
  count = std::min(count, batches.size());
  const std::size_t values_gone = count ? batches[count - 1].end : 0;
  batches.erase(batches.begin(), batches.begin() + static_cast<std::ptrdiff_t>(count));
  values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values_gone));
  for (Batch& batch : batches) batch.begin -= values_gone, batch.end -= values_gone;
  for (auto& value : values) value.batch -= static_cast<std::uint32_t>(count);
}

std::vector<double> Batches::shares_below(double level) const {
  std::vector<double> shares(batches.size(), 0.0);
  for (const WeightedSample& v : values) {
    if (v.value <= level) shares[v.batch] += v.weight * (v.value < level ? 1 : 0.5);
  }
  for (std::size_t b = 0; b < shares.size(); ++b) shares[b] /= static_cast<double>(batches[b].samples);
  return shares;
}

Batches batches_of(const Epochs& epochs) {
  const std::size_t count = epochs.size();
  std::size_t group = 1;
  while (count / group >= 64) group *= 2;
  // A last group of less than half its size is merged with the one before.
  std::size_t batches = count / group;
  if (count % group != 0 && (batches == 0 || count % group >= (group + 1) / 2)) ++batches;
  Batches out;
  out.values.reserve(epochs.samples().size());
  for (std::size_t b = 0; b < batches; ++b) {
    const std::size_t end = b + 1 == batches ? count : (b + 1) * group;
    Batches::Batch batch{0, static_cast<std::uint32_t>(end - b * group), nan, out.values.size(), 0};
    for (std::size_t k = b * group; k < end; ++k)
      for (const double v : epochs[k]) out.values.push_back({v, static_cast<std::uint32_t>(b), 1.0});
    batch.end = out.values.size();
    batch.samples = batch.end - batch.begin;
    out.batches.push_back(batch);
  }
  if (!has_nan(epochs.samples())) out.tidy();
  return out;
}

PooledMedian pooled_median(const Batches& in, double level) {
  const std::size_t batches = in.size();
  PooledMedian out{nan, nan, nan, nan, batches};
  std::vector<WeightedSample> samples = in.values;
  if (samples.empty() || !(level > 0 && level < 1)) return out;
  std::vector<double> weight(batches, 0.0);
  for (const WeightedSample& s : samples) {
    if (std::isnan(s.value)) return out;
    weight[s.batch] += s.weight;
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

SteadyMedian steady_median(const Epochs& epochs, double level) {
  Batches batches = batches_of(epochs);
  SteadyMedian out{pooled_median(batches, level), 0, true};
  if (std::isnan(out.median)) return out;
  if (epochs.size() < least_epochs) {
    std::vector<double> medians;
    for (const auto& batch : batches.batches) medians.push_back(batch.median);
    const Interval student = epoch_median_ci(medians, level);
    out.low = std::min(student.low, out.median), out.high = std::max(student.high, out.median);
    if (epochs.size() < 2) out.low = out.high = nan;
    return out;
  }
  const WarmUp warm_up = find_warm_up(batches, false_alarm);
  out.steady = warm_up.over;
  if (!warm_up.over || warm_up.leave_out == 0) return out;
  out.skipped = batches.batches[warm_up.leave_out - 1].end;
  batches.drop_front(warm_up.leave_out);
  static_cast<PooledMedian&>(out) = pooled_median(batches, level);
  return out;
}

}  // namespace sonde::stats
