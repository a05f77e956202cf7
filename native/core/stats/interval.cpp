#include "core/stats/interval.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/stats/epochs.hpp"
#include "core/stats/moments.hpp"
#include "core/stats/pooled.hpp"
#include "core/stats/special.hpp"
#include "core/stats/summary.hpp"

namespace sonde::stats {

namespace {

constexpr Interval none{nan, nan};

bool is_level(double level) { return level > 0 && level < 1; }

std::vector<double> sorted_copy(std::span<const double> x) {
  std::vector<double> sorted(x.begin(), x.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

Interval student_of_medians(std::span<const double> medians, double level) {
  if (*std::min_element(medians.begin(), medians.end()) <= 0) return mean_ci(medians, level);
  // Delays are skewed to the right, their logarithms hardly
  std::vector<double> logs(medians.size());
  std::transform(medians.begin(), medians.end(), logs.begin(), [](double v) { return std::log(v); });
  const Interval i = mean_ci(logs, level);
  return {std::exp(i.low), std::exp(i.high)};
}

/// The distance of the share of samples up to m from p, in standard errors from the differences between epochs.
///
/// Shares near 0 or 1 are skewed, and the observed error is small exactly if the share is off. The error is therefore
/// that of an independent share of p, times the larger of the variance inflations at m and at the sample quantile. At
/// the median the observed error is good enough: pooled_median.
class Shares {
 public:
  Shares(const Epochs& epochs, double p, double sample_quantile)
      : p_(p), total_(static_cast<double>(epochs.samples().size())), below_(epochs.size()) {
    for (std::size_t k = 0; k < epochs.size(); ++k) sorted_.push_back(sorted_copy(epochs[k]));
    inflation_ = inflation(count(sample_quantile));
  }

  /// Whether the quantile is certainly not beyond all samples. A few rare events say little about its inflation, which
  /// is then at least that of independent samples.
  bool bounds(double t) const {
    const double least = std::max(inflation_, 1 / total_);
    return std::min(p_, 1 - p_) > t * std::sqrt(p_ * (1 - p_) * least);
  }

  double t(double m) {
    const double share = count(m);
    if (share == p_) return 0;
    const double variance = p_ * (1 - p_) * std::max(inflation_, inflation(share));
    return (share - p_) / std::sqrt(variance);  // all epochs alike: infinite, which is correct
  }

 private:
  double count(double m) {
    double sum = 0;
    for (std::size_t k = 0; k < sorted_.size(); ++k) {
      const auto& e = sorted_[k];
      below_[k] = static_cast<double>(std::upper_bound(e.begin(), e.end(), m) - e.begin());
      sum += below_[k];
    }
    return sum / total_;
  }

  /// Variance of a ratio of sums over epochs, which may differ in length: Cochran, Sampling Techniques, 1977, ch. 6.
  double variance_of(double share) const {
    double squares = 0;
    for (std::size_t k = 0; k < sorted_.size(); ++k) {
      const double d = (below_[k] - share * static_cast<double>(sorted_[k].size())) / total_;
      squares += d * d;
    }
    const double epochs = static_cast<double>(sorted_.size());
    return squares * epochs / (epochs - 1);
  }

  double inflation(double share) const {
    return share > 0 && share < 1 ? variance_of(share) / (share * (1 - share)) : 0;
  }

  double p_, total_, inflation_ = 0;
  std::vector<std::vector<double>> sorted_;
  std::vector<double> below_;
};

}  // namespace

Ranks quantile_ranks(std::uint64_t n, double p, double level) {
  constexpr Ranks no_ranks{0, 0, nan};
  if (n < 2 || !(p > 0 && p < 1) || !is_level(level)) return no_ranks;
  // The p-quantile lies in [X_(j), X_(k)] when B of n samples are below it and j <= B <= k - 1, B binomial. Its
  // masses have one peak, so taking the larger neighbour first gives the fewest of them, the closest ranks.
  const double count = static_cast<double>(n);
  std::uint64_t low = std::clamp<std::uint64_t>(static_cast<std::uint64_t>((count + 1) * p), 1, n - 1), high = low;
  const double odds = p / (1 - p);
  const auto below = [&](std::uint64_t k, double mass) {  // P(B = k - 1) from P(B = k)
    return mass * static_cast<double>(k) / (static_cast<double>(n - k + 1) * odds);
  };
  const auto above = [&](std::uint64_t k, double mass) {  // P(B = k + 1) from P(B = k)
    return mass * static_cast<double>(n - k) * odds / static_cast<double>(k + 1);
  };
  double sum = binomial_pmf(low, n, p), left = below(low, sum), right = above(high, sum);
  // So that a level that is met exactly is not missed by rounding
  const double enough = level - 1e-13;
  while (sum < enough) {
    const bool can_left = low > 1, can_right = high + 1 < n;
    if (can_left && (!can_right || left >= right)) {
      sum += left;
      --low;
      left = below(low, left);
    } else if (can_right) {
      sum += right;
      ++high;
      right = above(high, right);
    } else {
      return no_ranks;
    }
  }
  return {low, high + 1, std::min(sum, 1.0)};
}

Interval quantile_ci(std::span<const double> x, double p, double level) {
  const Ranks ranks = quantile_ranks(x.size(), p, level);
  if (ranks.low == 0 || has_nan(x)) return none;
  std::vector<double> copy(x.begin(), x.end());
  const auto at = [&](std::uint64_t rank) { return copy.begin() + static_cast<std::ptrdiff_t>(rank - 1); };
  std::nth_element(copy.begin(), at(ranks.high), copy.end());
  const double high = *at(ranks.high);
  std::nth_element(copy.begin(), at(ranks.low), at(ranks.high));
  return {*at(ranks.low), high};
}

Interval median_ci(std::span<const double> x, double level) { return quantile_ci(x, 0.5, level); }

Interval mean_ci(std::span<const double> x, double level) {
  if (x.size() < 2 || !is_level(level)) return none;
  const Summary s = summarise(x);
  const double n = static_cast<double>(s.n);
  const double half = student_quantile(0.5 + 0.5 * level, n - 1) * s.sd / std::sqrt(n);
  return {s.mean - half, s.mean + half};
}

Interval epoch_median_ci(std::span<const double> medians, double level) {
  const std::size_t n = medians.size();
  if (n < 2 || !is_level(level) || has_nan(medians)) return none;
  const std::vector<double> sorted = sorted_copy(medians);

  // Coverage of [X_(d), X_(n+1-d)] is 1 - 2 P(B < d): the largest depth d that still reaches the level.
  double outside = std::ldexp(1.0, 1 - static_cast<int>(std::min<std::size_t>(n, 1100)));
  if (1 - outside >= level) {
    std::size_t depth = 1;
    double outer = 1 - outside, inner = 0, mass = binomial_pmf(1, n, 0.5);
    while (2 * (depth + 1) <= n) {
      inner = outer - 2 * mass;
      if (inner < level) break;
      ++depth;
      outer = inner;
      mass = binomial_pmf(depth, n, 0.5);
    }
    const auto lower = [&](std::size_t d) { return sorted[d - 1]; };
    const auto upper = [&](std::size_t d) { return sorted[n - d]; };
    if (2 * (depth + 1) > n) return {lower(depth), upper(depth)};
    const double d = static_cast<double>(depth), share = (outer - level) / (outer - inner);
    const double weight = (static_cast<double>(n) - d) * share / (d + (static_cast<double>(n) - 2 * d) * share);
    return {lower(depth) + weight * (lower(depth + 1) - lower(depth)),
            upper(depth) + weight * (upper(depth + 1) - upper(depth))};
  }
  return student_of_medians(sorted, level);
}

Interval epoch_quantile_ci(std::span<const double> x, std::span<const std::int32_t> epoch, double p, double level) {
  const Epochs epochs(x, epoch);
  if (epochs.size() < least_epochs || !(p > 0 && p < 1) || !is_level(level) || has_nan(epochs.samples())) return none;
  if (p == 0.5) {
    const PooledMedian found = pooled_median(batches_of(epochs), level);
    return {found.low, found.high};
  }
  const std::vector<double> sorted = sorted_copy(epochs.samples());
  const double n = static_cast<double>(sorted.size());
  const auto at = static_cast<std::size_t>(std::max(std::ceil(p * n) - 1, 0.0));
  Shares shares(epochs, p, sorted[std::min(at, sorted.size() - 1)]);

  const double t = student_quantile(0.5 + 0.5 * level, static_cast<double>(epochs.size() - 1));
  if (!shares.bounds(t)) return none;
  const auto low = std::partition_point(sorted.begin(), sorted.end(), [&](double m) { return shares.t(m) < -t; });
  const auto high = std::partition_point(low, sorted.end(), [&](double m) { return shares.t(m) <= t; });
  return {*low, high == sorted.end() ? sorted.back() : *high};
}

Interval epoch_median_ci(std::span<const double> x, std::span<const std::int32_t> epoch, double level) {
  const std::vector<double> medians = epoch_medians(x, epoch);
  if (medians.size() >= least_epochs) return epoch_quantile_ci(x, epoch, 0.5, level);
  if (medians.size() < 2 || !is_level(level) || has_nan(medians)) return none;
  return student_of_medians(medians, level);
}

}  // namespace sonde::stats
