#include "core/stats/lognormal.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "core/random.hpp"
#include "core/stats/moments.hpp"
#include "core/stats/special.hpp"
#include "core/stats/summary.hpp"

namespace sonde::stats {

namespace {

const double root_two_pi = std::sqrt(2 * std::numbers::pi);

/// Upper tail over density of a standard normal, z >= 0; neither underflows.
double mills_ratio(double z) {
  if (z < 25) return 0.5 * std::erfc(z / std::numbers::sqrt2) * std::exp(0.5 * z * z) * root_two_pi;
  const double s = 1 / (z * z);
  return (1 - s * (1 - 3 * s * (1 - 5 * s * (1 - 7 * s)))) / z;
}

/// A standard score with the tail beyond it, away from 0, and the density.
struct Score {
  double z, tail, density;

  explicit Score(double z)
      : z(z),
        tail(0.5 * std::erfc(std::abs(z) / std::numbers::sqrt2)),
        density(std::isinf(z) ? 0 : std::exp(-0.5 * z * z) / root_two_pi) {}
};

/// log of the probability between two scores, and the densities at both over that probability. The lower may be
/// -infinity, the upper infinity.
struct Cell {
  double log_p, low_density, high_density;
};

/// Where both scores are so far out on one side that their tails vanish.
Cell far_cell(double low, double high) {
  if (high <= 0) {
    const Cell mirror = far_cell(-high, -low);
    return {mirror.log_p, mirror.high_density, mirror.low_density};
  }
  // everything relative to the density at `low`
  const double fall = std::isinf(high) ? 0 : std::exp(-0.5 * (high - low) * (high + low));
  const double p = mills_ratio(low) - (fall > 0 ? fall * mills_ratio(high) : 0);
  return {std::log(p) - 0.5 * low * low - std::log(root_two_pi), 1 / p, fall / p};
}

Cell cell(const Score& low, const Score& high) {
  double p;
  if (low.z >= 0) {
    if (low.z > 8) return far_cell(low.z, high.z);
    p = low.tail - high.tail;
  } else if (high.z <= 0) {
    if (high.z < -8) return far_cell(low.z, high.z);
    p = high.tail - low.tail;
  } else {
    p = 1 - low.tail - high.tail;
  }
  return {std::log(p), low.density / p, high.density / p};
}

/// Samples as counts in cells of a partition of the line. Distances are from the smallest sample, in units of
/// `scale`; bound[i] is the upper end of cell i, and the last cell has none.
struct Grouped {
  std::vector<double> bound, count;
  double least = 0, scale = 1;
  double tick = 0;  ///< smallest step between samples in unit of x where values repeat, else 0

  std::size_t cells() const { return count.size(); }
};

/// The number of cells that the likelihood needs: at the ends one value per cell, because they decide the shift;
/// between them enough that the loss is a fraction of a percent of the information.
constexpr std::size_t end_cells = 48, middle_cells = 160;

Grouped group(std::span<const double> sorted) {
  Grouped g;
  if (sorted.empty()) return g;
  g.least = sorted.front();
  const double range = sorted.back() - g.least;
  if (!(range > 0) || !std::isfinite(range)) return g;
  const double to_median = quantile_sorted(sorted, 0.5) - g.least;
  g.scale = to_median > 0 ? to_median : range;

  // Values that rounding cannot distinguish are one value.
  std::vector<double> value, count;
  const double apart = 1e-7 * g.scale;
  double step = range;
  for (const double x : sorted) {
    const double v = x - g.least;
    if (value.empty() || v - value.back() > apart) {
      if (!value.empty()) step = std::min(step, v - value.back());
      value.push_back(v);
      count.push_back(0);
    }
    ++count.back();
  }
  if (value.size() < sorted.size()) g.tick = step;

  const auto between = [&](std::size_t i) { return 0.5 * (value[i] + value[i + 1]) / g.scale; };
  const double share = static_cast<double>(sorted.size()) / static_cast<double>(middle_cells);
  double held = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    held += count[i];
    const bool end = i < end_cells || i + end_cells >= value.size();
    const bool next_is_end = i + 1 + end_cells >= value.size();
    if (!end && !next_is_end && held < share) continue;
    g.count.push_back(held);
    held = 0;
    if (i + 1 < value.size()) g.bound.push_back(between(i));
  }
  return g;
}

/// Location and scale of log(x - shift) for a given shift, by Newton. In b = 1/sigma and a = (mu - centre)/sigma
/// the log-likelihood of grouped normal data is concave (Burridge, J. R. Statist. Soc. B 43, 1981, 41-45), so there is
/// one maximum and any ascent finds it.
class Profile {
 public:
  explicit Profile(const Grouped& g) : g_(g), log_(g.bound.size()) {}

  double a = 0, b = 1, centre = 0;

  /// log-likelihood at distance exp(t) from the smallest sample down to the shift, in units of scale.
  double operator()(double t) {
    const double gap = std::exp(t);
    double sum = 0, squares = 0, n = 0;
    for (std::size_t i = 0; i < log_.size(); ++i) {
      log_[i] = std::log(g_.bound[i] + gap);
      const double weight = g_.count[i] + g_.count[i + 1];
      sum += weight * log_[i];
      squares += weight * log_[i] * log_[i];
      n += weight;
    }
    centre = sum / n;
    const double variance = std::max(squares / n - centre * centre, 0.0);
    for (double& l : log_) l -= centre;
    a = 0;
    b = variance > 0 ? 1 / std::sqrt(variance) : 1 / (std::abs(centre) * 1e-8 + 1e-8);

    Slope at = slope(a, b);
    for (int k = 0; k < 100; ++k) {
      const double det = at.aa * at.bb - at.ab * at.ab;
      if (!(det > 0)) break;
      const double da = -(at.bb * at.a - at.ab * at.b) / det, db = -(at.aa * at.b - at.ab * at.a) / det;
      double step = 1;
      Slope next{};
      for (; step > 1e-10; step *= 0.5) {
        if (b + step * db <= 0) continue;
        next = slope(a + step * da, b + step * db);
        if (next.value >= at.value) break;
      }
      if (step <= 1e-10) break;
      a += step * da;
      b += step * db;
      const double gain = next.value - at.value;
      at = next;
      if (gain <= 1e-12 * std::abs(at.value)) break;
    }
    return at.value;
  }

 private:
  struct Slope {
    double value, a, b, aa, ab, bb;
  };

  Slope slope(double at, double bt) const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    Slope s{};
    Score low(-infinity);
    double low_log = 0;
    for (std::size_t i = 0; i < g_.cells(); ++i) {
      const bool last = i + 1 == g_.cells();
      const double high_log = last ? 0 : log_[i];
      const Score high(last ? infinity : bt * high_log - at);
      const Cell c = cell(low, high);
      const double w = g_.count[i], gh = c.high_density, gl = -c.low_density;
      const double hh = (last ? 0 : -high.z * gh) - gh * gh, ll = (i == 0 ? 0 : -low.z * gl) - gl * gl, hl = -gh * gl;
      // z = b log - a
      s.value += w * c.log_p;
      s.a -= w * (gh + gl);
      s.b += w * (gh * high_log + gl * low_log);
      s.aa += w * (hh + 2 * hl + ll);
      s.ab -= w * (hh * high_log + hl * (high_log + low_log) + ll * low_log);
      s.bb += w * (hh * high_log * high_log + 2 * hl * high_log * low_log + ll * low_log * low_log);
      low = high;
      low_log = high_log;
    }
    return s;
  }

  const Grouped& g_;
  std::vector<double> log_;
};

/// Bounds of log((min - shift)/scale). At the upper one the law is a normal except for one part in a thousand.
constexpr double t_least = -14, t_most = 9;

/// Golden-section search of a maximum between two points around it.
double climb(Profile& profile, double low, double high, double tolerance) {
  constexpr double ratio = 0.6180339887498949;
  double a = high - ratio * (high - low), b = low + ratio * (high - low), fa = profile(a), fb = profile(b);
  while (high - low > tolerance) {
    if (fa >= fb) {
      high = b;
      b = a;
      fb = fa;
      a = high - ratio * (high - low);
      fa = profile(a);
    } else {
      low = a;
      a = b;
      fa = fb;
      b = low + ratio * (high - low);
      fb = profile(b);
    }
  }
  return 0.5 * (low + high);
}

/// Fits sorted samples. start: where to look first (for refits of simulated samples), NaN to look everywhere.
Lognormal3 fit_sorted(std::span<const double> sorted, const Grouped& g, double start) {
  Lognormal3 fit{nan, nan, nan, nan, nan, sorted.size(), false};
  if (g.cells() < 3) return fit;
  Profile profile(g);
  double best = t_least, value = -std::numeric_limits<double>::infinity();
  const auto consider = [&](double t) {
    const double v = profile(t);
    if (v > value) {
      value = v;
      best = t;
      return true;
    }
    return false;
  };
  double step = 1;
  if (std::isnan(start)) {
    for (double t = t_least; t <= t_most; t += step) consider(t);
  } else {
    step = 0.5;
    consider(start);
    for (double t = start + step; t <= t_most && consider(t);) t += step;
    for (double t = best - step; t >= t_least && consider(t);) t -= step;
  }
  const double t =
      climb(profile, std::max(best - step, t_least), std::min(best + step, t_most), std::isnan(start) ? 1e-5 : 1e-3);
  profile(t);
  fit.shift = g.least - g.scale * std::exp(t);
  fit.sigma = 1 / profile.b;
  fit.mu = profile.centre + profile.a * fit.sigma + std::log(g.scale);
  fit.converged = t < t_most - 1e-3 && std::isfinite(fit.mu) && std::isfinite(fit.sigma) && fit.shift < g.least;
  return fit;
}

double ks_sorted(std::span<const double> sorted, const Lognormal3& fit) {
  const double n = static_cast<double>(sorted.size());
  double distance = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const double f = lognormal3_cdf(sorted[i], fit);
    if (std::isnan(f)) return nan;
    distance = std::max({distance, static_cast<double>(i + 1) / n - f, f - static_cast<double>(i) / n});
  }
  return distance;
}

std::vector<double> sorted_copy(std::span<const double> x) {
  std::vector<double> sorted(x.begin(), x.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

}  // namespace

Lognormal3 fit_lognormal3(std::span<const double> x) {
  if (has_nan(x)) return {nan, nan, nan, nan, nan, x.size(), false};
  const std::vector<double> sorted = sorted_copy(x);
  Lognormal3 fit = fit_sorted(sorted, group(sorted), nan);
  if (std::isnan(fit.shift)) return fit;
  fit.ks = ks_sorted(sorted, fit);
  double sum = 0;
  for (const double v : sorted) {
    const double log = std::log(v - fit.shift), z = (log - fit.mu) / fit.sigma;
    sum -= log + 0.5 * z * z;
  }
  fit.loglik = sum - static_cast<double>(x.size()) * std::log(fit.sigma * root_two_pi);
  return fit;
}

double lognormal3_cdf(double x, const Lognormal3& fit) {
  if (std::isnan(x) || !(fit.sigma > 0)) return nan;
  if (x <= fit.shift) return 0;
  return normal_cdf((std::log(x - fit.shift) - fit.mu) / fit.sigma);
}

double lognormal3_quantile(double p, const Lognormal3& fit) {
  if (!(p >= 0 && p <= 1) || !(fit.sigma > 0)) return nan;
  return fit.shift + std::exp(fit.mu + fit.sigma * normal_quantile(p));
}

double ks_distance(std::span<const double> x, const Lognormal3& fit) {
  if (x.empty() || has_nan(x)) return nan;
  return ks_sorted(sorted_copy(x), fit);
}

double ks_p(std::span<const double> x, const Lognormal3& fit, std::size_t replicates, std::uint64_t seed,
            std::size_t max_samples) {
  if (x.empty() || has_nan(x) || !(fit.sigma > 0) || replicates == 0 || max_samples == 0) return nan;
  const std::size_t stride = (x.size() + max_samples - 1) / max_samples;
  std::vector<double> sample;
  for (std::size_t i = 0; i < x.size(); i += stride) sample.push_back(x[i]);
  std::sort(sample.begin(), sample.end());
  const Grouped g = group(sample);
  const Lognormal3 null = stride == 1 ? fit : fit_sorted(sample, g, nan);
  if (!(null.sigma > 0) || g.cells() < 3) return nan;
  const double start = std::log((g.least - null.shift) / g.scale);
  const double seen = ks_sorted(sample, null);

  Random random(seed);
  std::size_t as_far = 0;
  for (std::size_t r = 0; r < replicates; ++r) {
    for (double& v : sample) {
      v = lognormal3_quantile(random.uniform() + 0x1.0p-54, null);
      if (g.tick > 0) v = g.least + g.tick * std::round((v - g.least) / g.tick);
    }
    std::sort(sample.begin(), sample.end());
    const Lognormal3 again = fit_sorted(sample, group(sample), start);
    // A simulated set that collapsed to fewer than three values is no evidence against the law
    if (std::isnan(again.shift) || ks_sorted(sample, again) >= seen) ++as_far;
  }
  return (static_cast<double>(as_far) + 1) / (static_cast<double>(replicates) + 1);
}

}  // namespace sonde::stats
