#include "core/stats/special.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/stats/moments.hpp"

namespace sonde::stats {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// log(n!) minus Stirling's formula for it, real n >= 0. std::lgamma writes a global, so small n go through tgamma.
double stirling_error(double n) {
  if (n == 0) return infinity;
  if (n <= 16) return std::log(std::tgamma(n + 1)) - (n + 0.5) * std::log(n) + n - 0.5 * std::log(2 * std::numbers::pi);
  // Bernoulli numbers B_2k / (2k (2k - 1)), DLMF 5.11.1; six terms leave less than 1e-17 above 16.
  constexpr std::array<double, 7> term{1.0 / 12,   -1.0 / 360,      1.0 / 1260, -1.0 / 1680,
                                       1.0 / 1188, -691.0 / 360360, 1.0 / 156};
  const double inverse = 1 / n, square = inverse * inverse;
  double sum = 0;
  for (std::size_t k = term.size(); k-- > 0;) sum = sum * square + term[k];
  return sum * inverse;
}

/// x log(x / m) + m - x, x, m > 0, without the cancellation for x near m; d is x - m, which the caller knows more
/// exactly than the difference would give it.
double deviance(double x, double m, double d) {
  const double v = d / (x + m);
  if (std::abs(v) > 0.1) return x * std::log(x / m) - d;
  // log(x/m) = 2 atanh(v)
  double sum = d * v, power = 2 * x * v;
  for (int k = 3;; k += 2) {
    power *= v * v;
    const double next = sum + power / k;
    if (next == sum) return sum;
    sum = next;
  }
}

/// Gamma(x+y+1) / (Gamma(x+1) Gamma(y+1)) p^x q^y, real x, y >= 0; p + q = 1.
/// Loader, Fast and Accurate Computation of Binomial Probabilities, 2000.
double binomial_density(double x, double y, double p, double q) {
  const double n = x + y;
  if (p == 0) return x == 0 ? 1 : 0;
  if (q == 0) return y == 0 ? 1 : 0;
  if (x == 0) return std::exp(n * (p < 0.5 ? std::log1p(-p) : std::log(q)));
  if (y == 0) return std::exp(n * (q < 0.5 ? std::log1p(-q) : std::log(p)));
  const double d = x * q - y * p;  // x - n p
  const double log_ratio =
      stirling_error(n) - stirling_error(x) - stirling_error(y) - deviance(x, n * p, d) - deviance(y, n * q, -d);
  return std::exp(log_ratio) * std::sqrt(n / (2 * std::numbers::pi * x * y));
}

/// The continued fraction of DLMF 8.17.22 by the modified Lentz method; converges fast for x < (a+1)/(a+b+2).
double beta_fraction(double a, double b, double x) {
  constexpr double tiny = 1e-300;
  const auto guard = [](double v) { return std::abs(v) < tiny ? tiny : v; };
  double c = 1, d = 1 / guard(1 - (a + b) * x / (a + 1)), f = d;
  for (int m = 1; m < 1000000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / guard(1 + even * d);
    c = guard(1 + even / c);
    f *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / guard(1 + odd * d);
    c = guard(1 + odd / c);
    const double step = d * c;
    f *= step;
    if (std::abs(step - 1) < 1e-16) break;
  }
  return f;
}

/// x^a y^b / B(a, b), x + y = 1, through the binomial density at a of a + b.
double beta_front(double a, double b, double x, double y) { return binomial_density(a, b, x, y) * (a * (b / (a + b))); }

/// I_x(a, b) with 1 - x given too, so that neither end loses digits.
double incomplete_beta(double a, double b, double x, double y) {
  if (x == 0) return 0;
  if (y == 0) return 1;
  const double front = beta_front(a, b, x, y);
  if (x <= (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, y) / b;
}

}  // namespace

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

double normal_quantile(double p) {
  if (!(p >= 0 && p <= 1)) return nan;
  if (p == 0) return -infinity;
  if (p == 1) return infinity;
  if (p == 0.5) return 0;
  // A rational start (Abramowitz and Stegun 26.2.23, error below 4.5e-4), then Halley steps on the exact cdf; the
  // tail beyond the median is mirrored so that the cdf keeps its digits.
  const double tail = p < 0.5 ? p : 1 - p;
  const double t = std::sqrt(-2 * std::log(tail));
  double z = -(t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))));
  for (int k = 0; k < 3; ++k) {
    const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
    if (density == 0) break;  // below 1e-308 only the start is available
    const double e = (normal_cdf(z) - tail) / density;
    z -= e / (1 + 0.5 * z * e);
  }
  return p < 0.5 ? z : -z;
}

double incomplete_beta(double a, double b, double x) {
  if (!(a > 0 && b > 0 && x >= 0 && x <= 1) || std::isinf(a) || std::isinf(b)) return nan;
  return incomplete_beta(a, b, x, 1 - x);
}

double student_cdf(double t, double dof) {
  if (!(dof > 0) || std::isnan(t)) return nan;
  if (std::isinf(dof)) return normal_cdf(t);
  if (std::isinf(t)) return t < 0 ? 0 : 1;
  const double square = t * t, sum = dof + square;
  if (std::isinf(square)) return t < 0 ? 0 : 1;
  const double tail = 0.5 * incomplete_beta(dof / 2, 0.5, dof / sum, square / sum);
  return t < 0 ? tail : 1 - tail;
}

double student_quantile(double p, double dof) {
  if (!(p >= 0 && p <= 1) || !(dof > 0)) return nan;
  if (p == 0) return -infinity;
  if (p == 1) return infinity;
  if (p == 0.5) return 0;
  if (dof > 1e5) {  // Abramowitz and Stegun 26.7.5; the beta function loses digits here
    const double z = normal_quantile(p), s = z * z;
    return z * (1 + (s + 1) / (4 * dof) + ((5 * s + 16) * s + 3) / (96 * dof * dof) +
                (((3 * s + 19) * s + 17) * s - 15) / (384 * dof * dof * dof));
  }
  const double tail = p < 0.5 ? p : 1 - p;
  double low = -1, high = 0;
  while (student_cdf(low, dof) > tail) {
    high = low;
    low *= 2;
    if (std::isinf(low)) return p < 0.5 ? low : -low;
  }
  double t = 0.5 * (low + high);
  for (int k = 0; k < 200; ++k) {
    const double excess = student_cdf(t, dof) - tail;
    (excess > 0 ? high : low) = t;
    // Newton inside the bracket, halving where it would leave; the density is x^a y^b / B(a, b) / |t|.
    const double square = t * t, sum = dof + square;
    const double density = beta_front(dof / 2, 0.5, dof / sum, square / sum) / -t;
    double next = t - excess / density;
    if (!(next > low && next < high)) next = 0.5 * (low + high);
    const double step = std::abs(next - t);
    t = next;
    if (step <= 1e-15 * std::abs(t)) break;
  }
  return p < 0.5 ? t : -t;
}

double binomial_pmf(std::uint64_t k, std::uint64_t n, double p) {
  if (!(p >= 0 && p <= 1)) return nan;
  if (k > n) return 0;
  if (n == 0) return 1;
  return binomial_density(static_cast<double>(k), static_cast<double>(n - k), p, 1 - p);
}

double binomial_cdf(std::uint64_t k, std::uint64_t n, double p) {
  if (!(p >= 0 && p <= 1)) return nan;
  if (k >= n) return 1;
  // P(B <= k) = I_{1-p}(n - k, k + 1)
  return incomplete_beta(static_cast<double>(n - k), static_cast<double>(k) + 1, 1 - p, p);
}

}  // namespace sonde::stats
