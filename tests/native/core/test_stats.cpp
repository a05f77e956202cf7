#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "core/random.hpp"
#include "core/stats/change.hpp"
#include "core/stats/dependence.hpp"
#include "core/stats/fft.hpp"
#include "core/stats/interval.hpp"
#include "core/stats/lognormal.hpp"
#include "core/stats/special.hpp"
#include "core/stats/spectrum.hpp"
#include "core/stats/summary.hpp"

using namespace sonde::stats;
using doctest::Approx;

namespace {

using Vector = std::vector<double>;
using Numbers = std::vector<std::int32_t>;

constexpr double none = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

bool is_none(Interval i) { return std::isnan(i.low) && std::isnan(i.high); }

Vector normals(std::size_t n, std::uint64_t seed) {
  sonde::Random random(seed);
  Vector x(n);
  for (double& v : x) v = normal_quantile(random.uniform() + 0x1.0p-54);
  return x;
}

Vector lognormals(std::size_t n, double shift, double mu, double sigma, std::uint64_t seed) {
  Vector x = normals(n, seed);
  for (double& v : x) v = shift + std::exp(mu + sigma * v);
  return x;
}

const Vector empty, one{4.0}, constant(50, 0.1), with_none{1, 2, none, 4, 5, 6, 7, 8};
const Numbers alternating{0, 1, 0, 1, 0, 1, 0, 1};

}  // namespace

TEST_CASE("summary: empty, one, constant, NaN") {
  CHECK(summarise(empty).n == 0);
  CHECK(std::isnan(summarise(empty).mean));
  CHECK(std::isnan(summarise(empty).q99));
  CHECK(summarise(one).mean == 4);
  CHECK(summarise(one).mad == 0);
  CHECK(std::isnan(summarise(one).sd));
  CHECK(summarise(constant).mean == 0.1);  // to the last bit, though 0.1 is not a binary number
  CHECK(summarise(constant).sd == 0);
  CHECK(summarise(constant).q05 == 0.1);
  CHECK(summarise(with_none).n == 8);
  CHECK(std::isnan(summarise(with_none).median));
  CHECK(std::isnan(median(with_none)));
  CHECK(std::isnan(median(empty)));
}

TEST_CASE("summary: the sd survives a level a trillion times its size, and values at the ends of the range") {
  Vector x(1000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1e12 + (i % 2 == 0 ? 1.0 : -1.0);
  CHECK(summarise(x).sd == Approx(std::sqrt(1000.0 / 999.0)));
  CHECK(median(Vector{1e-300, 3e-300}) == Approx(2e-300));
  CHECK(quantile(Vector{1, infinity}, 0.0) == 1);
}

TEST_CASE("quantile: outside [0, 1] there is none") {
  CHECK(std::isnan(quantile(one, -0.1)));
  CHECK(std::isnan(quantile(one, 1.1)));
  CHECK(std::isnan(quantile(one, none)));
  CHECK(quantile(one, 1) == 4);
}

TEST_CASE("epochs come in order of number, samples without one are left out, unequal lengths give nothing") {
  const Vector x{10, 1, 11, 2, 12, 3, 99};
  const Numbers epoch{7, 3, 7, 3, 7, 3, -1};
  CHECK(epoch_medians(x, epoch) == Vector{2, 11});
  CHECK(epoch_means(x, epoch) == Vector{2, 11});
  CHECK(epoch_medians(x, Numbers{1}).empty());
  CHECK(block_medians(x, 3) == Vector{10, 3});
  CHECK(block_medians(x, 0).empty());
}

TEST_CASE("ranks of small sets are the closest that reach 95 %, as in Le Boudec's table A.1") {
  const auto are = [](std::uint64_t n, std::uint64_t low, std::uint64_t high) {
    const Ranks r = quantile_ranks(n, 0.5, 0.95);
    CHECK_MESSAGE((r.low == low && r.high == high), n, ": ", r.low, " ", r.high);
    CHECK(r.level >= 0.95);
  };
  are(6, 1, 6);
  are(7, 1, 7);
  are(8, 1, 7);
  are(9, 2, 8);
  are(10, 2, 9);
  are(12, 3, 10);
  are(20, 6, 15);
  CHECK(quantile_ranks(5, 0.5, 0.95).low == 0);
  CHECK(std::isnan(quantile_ranks(5, 0.5, 0.95).level));
  CHECK(quantile_ranks(0, 0.5, 0.95).low == 0);
  CHECK(quantile_ranks(10, 0, 0.95).low == 0);
  CHECK(quantile_ranks(10, 0.5, 1).low == 0);
}

TEST_CASE("ranks of a hundred million samples are those of the normal law") {
  const double n = 1e8;
  const Ranks r = quantile_ranks(100000000, 0.5, 0.95);
  const double half = 1.959963984540054 * 0.5 * std::sqrt(n);
  CHECK(std::abs(static_cast<double>(r.low) - (n / 2 - half)) < 2);
  CHECK(std::abs(static_cast<double>(r.high) - (n / 2 + half)) < 3);
  CHECK(r.level == Approx(0.95).epsilon(1e-4));
}

TEST_CASE("intervals: too few, constant, NaN, and a level that is none") {
  CHECK(is_none(median_ci(empty, 0.95)));
  CHECK(is_none(median_ci(one, 0.95)));
  CHECK(is_none(median_ci(Vector{1, 2, 3, 4, 5}, 0.95)));
  CHECK(median_ci(Vector{6, 2, 3, 4, 5, 1}, 0.95).low == 1);
  CHECK(median_ci(Vector{6, 2, 3, 4, 5, 1}, 0.95).high == 6);
  CHECK(median_ci(constant, 0.95).low == 0.1);
  CHECK(median_ci(constant, 0.95).high == 0.1);
  CHECK(is_none(median_ci(with_none, 0.95)));
  CHECK(is_none(median_ci(constant, 0)));
  CHECK(is_none(median_ci(constant, none)));
  CHECK(is_none(quantile_ci(constant, 0.999, 0.95)));
  CHECK(is_none(mean_ci(one, 0.95)));
  CHECK(is_none(mean_ci(with_none, 0.95)));
  CHECK(mean_ci(constant, 0.95).high == 0.1);
}

TEST_CASE("epoch intervals: one epoch gives none, two to five assume one regime, six and more do not") {
  const Vector x{1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(is_none(epoch_median_ci(x, Numbers(8, 0), 0.95)));
  CHECK(is_none(epoch_median_ci(empty, Numbers{}, 0.95)));
  CHECK(is_none(epoch_median_ci(with_none, alternating, 0.95)));
  CHECK(is_none(epoch_median_ci(x, alternating, 1.5)));
  CHECK(is_none(epoch_median_ci(x, Numbers{0, 1}, 0.95)));  // unequal lengths

  // two epochs with medians 1 and e: Student on their logarithms 0 and 1
  const Interval two = epoch_median_ci(Vector{1, std::exp(1.0)}, 0.95);
  const double half = student_quantile(0.975, 1) * std::sqrt(0.5) / std::sqrt(2.0);
  CHECK(two.low == Approx(std::exp(0.5 - half)));
  CHECK(two.high == Approx(std::exp(0.5 + half)));
  // a median that is not positive has no logarithm
  const Interval plain = epoch_median_ci(Vector{0, 1}, 0.95);
  CHECK(plain.low == Approx(0.5 - half));
  CHECK(plain.high == Approx(0.5 + half));

  const Interval same = epoch_median_ci(Vector(48, 3.0), Numbers([] {
                                          Numbers e(48);
                                          for (std::size_t i = 0; i < e.size(); ++i) e[i] = static_cast<int>(i / 8);
                                          return e;
                                        }()),
                                        0.95);
  CHECK(same.low == 3);
  CHECK(same.high == 3);
  CHECK(is_none(epoch_quantile_ci(x, alternating, 0.5, 0.95)));  // two epochs
}

TEST_CASE("an epoch interval of a quantile beyond the samples is none") {
  const Vector x = normals(120, 3);
  Numbers epoch(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) epoch[i] = static_cast<int>(i / 10);
  CHECK(is_none(epoch_quantile_ci(x, epoch, 0.999, 0.95)));
  CHECK(is_none(epoch_quantile_ci(x, epoch, 0.001, 0.95)));
  CHECK_FALSE(is_none(epoch_quantile_ci(x, epoch, 0.75, 0.95)));
}

TEST_CASE("the interval of a two-regime series spans both levels while that is all one can know") {
  // half the epochs near 1, half near 2: the median lies between, and the medians of epochs cannot say where
  Vector x;
  Numbers epoch;
  for (int e = 0; e < 20; ++e)
    for (int i = 0; i < 9; ++i) {
      x.push_back((e % 2 == 0 ? 1 : 2) + 0.01 * i);
      epoch.push_back(e);
    }
  const Interval i = epoch_median_ci(x, epoch, 0.95);
  CHECK(i.low < 1.1);
  CHECK(i.high > 1.99);
}

TEST_CASE("dependence: empty, short, constant, NaN") {
  CHECK(effective_samples(empty) == 0);
  CHECK(effective_samples(one) == 1);
  CHECK(effective_samples(Vector{1, 2, 3}) == 3);
  CHECK(effective_samples(constant) == 50);
  CHECK(std::isnan(effective_samples(with_none)));
  CHECK(effective_samples(constant, Numbers(50, 1)) == 50);
  CHECK_FALSE(std::isnan(effective_samples(with_none, Numbers{0, 0, -1, 1, 1, 2, 2, 2})));  // the NaN has no epoch
  CHECK(std::isnan(effective_samples(with_none, alternating)));
  CHECK(effective_samples(one, Numbers{-1}) == 0);
  CHECK(std::isnan(autocorrelation(empty, 0)));
  CHECK(autocorrelation(constant, 0) == 1);
  CHECK(autocorrelation(constant, 1) == 0);
  CHECK(autocorrelation(one, 5) == 0);
}

TEST_CASE("effective samples of AR(1) are n (1 - phi) / (1 + phi)") {
  const Vector noise = normals(200000, 11);
  Vector x(noise.size());
  for (const double phi : {0.0, 0.5, 0.9, 0.98}) {
    x[0] = noise[0];
    for (std::size_t i = 1; i < x.size(); ++i) x[i] = phi * x[i - 1] + std::sqrt(1 - phi * phi) * noise[i];
    const double n = static_cast<double>(x.size());
    CHECK(effective_samples(x) == Approx(n * (1 - phi) / (1 + phi)).epsilon(0.1));
  }
}

TEST_CASE("only the epochs see dependence that outlasts them") {
  const Vector noise = normals(4000, 5), level = normals(40, 6);
  Vector x;
  Numbers epoch;
  for (std::size_t i = 0; i < noise.size(); ++i) {
    x.push_back(noise[i] + 10 * level[i / 100]);
    epoch.push_back(static_cast<int>(i / 100));
  }
  CHECK(effective_samples(x, epoch) < 80);
  CHECK(effective_samples(noise, epoch) > 1000);
}

TEST_CASE("fft of any length is the sum it stands for") {
  for (const std::size_t n : {1u, 2u, 3u, 5u, 8u, 13u, 30u, 64u, 97u}) {
    const Vector re = normals(n, n), im = normals(n, n + 1000);
    std::vector<std::complex<double>> x(n);
    for (std::size_t j = 0; j < n; ++j) x[j] = {re[j], im[j]};
    auto got = x;
    Fft(n).forward(got);
    for (std::size_t k = 0; k < n; ++k) {
      std::complex<double> sum = 0;
      for (std::size_t j = 0; j < n; ++j) sum += x[j] * std::polar(1.0, -2 * M_PI * double(j * k % n) / double(n));
      CHECK(std::abs(got[k] - sum) < 1e-12);
    }
  }
}

TEST_CASE("spectra: empty, one, constant, no whole segment, NaN") {
  CHECK(periodogram(empty).empty());
  CHECK(periodogram(one) == Vector{0});
  for (const double p : periodogram(constant)) CHECK(p == 0);
  for (const double p : periodogram(with_none)) CHECK(std::isnan(p));
  CHECK(welch(one, 2, 0).empty());
  CHECK(welch(constant, 0, 0).empty());
  CHECK(welch(constant, 10, 10).empty());
  CHECK(welch(constant, 10, 5) == Vector(6, 0));
  CHECK(welch(constant, 1, 0) == Vector{0});
  CHECK(welch(constant, Numbers(50, -1), 10, 0).empty());
  CHECK(cumulative_spectrum(empty).empty());
  CHECK(cumulative_spectrum(Vector{0, 0}) == Vector{0.5, 1});
  CHECK(cumulative_spectrum(Vector{1, 0, 3}) == Vector{0.25, 0.25, 1});
}

TEST_CASE("no Welch segment crosses from one epoch to the next") {
  // a jump between epochs would be power in the lowest harmonics
  Vector x(64);
  Numbers epoch(64);
  for (std::size_t i = 0; i < 64; ++i) {
    epoch[i] = static_cast<int>(i / 12);
    x[i] = 100 * epoch[i];
  }
  const Vector apart = welch(x, epoch, 8, 4), across = welch(x, 8, 4);
  CHECK(*std::max_element(apart.begin(), apart.end()) == 0);
  CHECK(*std::max_element(across.begin(), across.end()) > 100);
}

TEST_CASE("sliding: window 0, too long, or an output of another size leave the output alone") {
  const Vector x{1, 2, 3, 4};
  for (const std::size_t window : {0u, 5u, 2u}) {
    Vector out(4, -1);
    sliding_amplitude(x, window, out);
    CHECK(out == Vector(4, -1));
  }
  Vector whole(3);
  sliding_amplitude(x, 4, whole);
  CHECK(whole[0] == Approx(10));
  CHECK(whole[2] == Approx(2));
}

TEST_CASE("sliding: rounding does not pile up, for any window, even on a level far above what varies") {
  Vector x = normals(20000, 8);
  for (double& v : x) v += 1e6;
  for (const std::size_t window : {1u, 2u, 7u, 120u, 256u}) {
    const std::size_t rows = x.size() - window + 1, columns = window / 2 + 1;
    Vector out(rows * columns);
    sliding_amplitude(x, window, out);
    double worst = 0;
    for (std::size_t row = rows - std::min<std::size_t>(rows, 300); row < rows; ++row) {
      for (std::size_t k = 1; k < columns; ++k) {
        std::complex<double> sum = 0;
        for (std::size_t j = 0; j < window; ++j)
          sum += (x[row + j] - 1e6) * std::polar(1.0, -2 * M_PI * double(j * k % window) / double(window));
        worst = std::max(worst, std::abs(out[row * columns + k] - std::abs(sum)));
      }
    }
    CHECK(worst < 1e-9);
  }
}

TEST_CASE("lognormal: nothing to fit, or nothing that tells the shift") {
  for (const Vector& x : {empty, one, Vector{1, 1, 2, 2}, constant, with_none}) {
    const Lognormal3 f = fit_lognormal3(x);
    CHECK(f.n == x.size());
    CHECK_FALSE(f.converged);
    CHECK(std::isnan(f.shift));
    CHECK(std::isnan(lognormal3_cdf(1, f)));
    CHECK(std::isnan(lognormal3_quantile(0.5, f)));
    CHECK(std::isnan(ks_p(x, f, 9, 1)));
  }
  Vector left = lognormals(2000, 0, 0, 0.7, 4);
  for (double& v : left) v = -v;
  const Lognormal3 f = fit_lognormal3(left);
  CHECK_FALSE(f.converged);
  CHECK(f.shift < *std::min_element(left.begin(), left.end()));
  CHECK(std::isfinite(f.mu));
}

TEST_CASE("lognormal: the fit finds what was put in, rounded by a clock or not, whatever the unit") {
  for (const double unit : {1e-6, 1.0, 1e12}) {
    for (const double tick : {0.0, 0.05, 0.2}) {
      Vector x = lognormals(20000, 2, 0.3, 0.5, 9);
      for (double& v : x) v = unit * (tick > 0 ? tick * std::round(v / tick) : v);
      const Lognormal3 f = fit_lognormal3(x);
      CHECK(f.converged);
      CHECK(f.shift / unit == Approx(2).epsilon(0.02));
      CHECK(f.mu - std::log(unit) == Approx(0.3).epsilon(0.08));
      CHECK(f.sigma == Approx(0.5).epsilon(0.04));
    }
  }
}

TEST_CASE("lognormal: one delay of a second among microseconds does not carry the fit away") {
  Vector x = lognormals(5000, 2e-6, std::log(1e-6), 0.5, 10);
  x.push_back(1);
  const Lognormal3 f = fit_lognormal3(x);
  CHECK(f.converged);
  CHECK(f.shift == Approx(2e-6).epsilon(0.1));
  CHECK(lognormal3_quantile(0.5, f) == Approx(3e-6).epsilon(0.02));
  CHECK(std::isfinite(f.loglik));
}

TEST_CASE("lognormal: cdf and quantile invert each other, up to the ends") {
  const Lognormal3 f{1, 0, 2, 0, 0, 1, true};
  CHECK(lognormal3_cdf(1, f) == 0);
  CHECK(lognormal3_cdf(-5, f) == 0);
  CHECK(lognormal3_cdf(infinity, f) == 1);
  CHECK(lognormal3_quantile(0, f) == 1);
  CHECK(lognormal3_quantile(1, f) == infinity);
  CHECK(std::isnan(lognormal3_quantile(2, f)));
  for (const double p : {1e-6, 0.3, 0.999}) CHECK(lognormal3_cdf(lognormal3_quantile(p, f), f) == Approx(p));
  CHECK(std::isnan(ks_distance(empty, f)));
  CHECK(std::isnan(ks_distance(with_none, f)));
  CHECK(std::isnan(ks_p(lognormals(100, 1, 0, 1, 1), f, 0, 1)));
}

namespace {

/// How often the test rejects, at 10 %, what is lognormal, or lognormal in ticks.
int ks_rejected(double tick, std::uint64_t series) {
  int count = 0;
  for (std::uint64_t k = 0; k < series; ++k) {
    Vector x = lognormals(200, 2, 0, 0.5, 100 + k);
    if (tick > 0)
      for (double& v : x) v = tick * std::round(v / tick);
    if (ks_p(x, fit_lognormal3(x), 39, k) <= 0.1) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("ks: the p-value keeps its promise on lognormals, also rounded" * doctest::test_suite("soak")) {
  // 6 of 60 expected; outside 1..13 has probability below 1 %
  for (const double tick : {0.0, 0.1}) {
    const int count = ks_rejected(tick, 60);
    CHECK(count >= 1);
    CHECK(count <= 13);
  }
}

TEST_CASE("ks: lognormals, also rounded, are rejected no more often than stated, and two regimes always") {
  for (const double tick : {0.0, 0.1}) CHECK(ks_rejected(tick, 15) <= 5);  // 1.5 expected; more than 5: below 1 %
  Vector two = lognormals(300, 2, 0, 0.3, 1), other = lognormals(200, 7, 0, 0.3, 2);
  two.insert(two.end(), other.begin(), other.end());
  CHECK(ks_p(two, fit_lognormal3(two), 99, 1) == 0.01);
  CHECK(ks_p(two, fit_lognormal3(two), 99, 1) == ks_p(two, fit_lognormal3(two), 99, 1));
}

TEST_CASE("change: empty, one, constant, NaN") {
  for (const Vector& x : {empty, one, constant}) {
    CHECK(pettitt(x).index == 0);
    CHECK(pettitt(x).statistic == 0);
    CHECK(pettitt(x).p == 1);
    CHECK(change_points(x, 0.05, 1).empty());
  }
  CHECK(std::isnan(pettitt(with_none).p));
  CHECK(change_points(with_none, 0.05, 1).empty());
}

TEST_CASE("change points: each level is found once, at its first sample, and none where there is none") {
  Vector x = normals(900, 21);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += i < 300 ? 0 : i < 700 ? 5 : 2;
  const auto found = change_points(x, 0.001, 5);
  REQUIRE(found.size() == 2);
  CHECK(found[0].index == 300);
  CHECK(std::abs(static_cast<int>(found[1].index) - 700) <= 3);
  CHECK(found[0].p < 1e-10);
  CHECK(change_points(normals(900, 22), 0.001, 5).empty());
  for (const auto& c : change_points(x, 0.9, 50)) {
    CHECK(c.index >= 50);
    CHECK(c.index <= 850);
  }
}

TEST_CASE("change points over epochs are where the samples change, whatever lies between") {
  Vector x;
  Numbers epoch;
  const Vector noise = normals(3000, 31), level = normals(60, 32);
  for (std::size_t i = 0; i < 3000; ++i) {
    const std::size_t e = i / 50;
    epoch.push_back(i % 7 == 0 ? -1 : static_cast<int>(e));
    x.push_back(i % 7 == 0 ? none : noise[i] + level[e] + (e >= 20 ? 8 : 0));
  }
  const auto found = change_points(x, epoch, 0.001, 3);
  REQUIRE(found.size() == 1);
  CHECK(found[0].index == 1000);
  // the same samples, taken for independent, change all the time
  Vector plain;
  for (std::size_t i = 0; i < 3000; ++i) plain.push_back(noise[i] + 3 * level[i / 50]);
  CHECK(change_points(plain, 0.001, 3).size() > 10);
  CHECK(change_points(plain, epoch, 0.001, 3).empty());
}

TEST_CASE("distribution functions outside their domain are none") {
  CHECK(std::isnan(normal_quantile(-0.1)));
  CHECK(normal_quantile(1) == infinity);
  CHECK(normal_quantile(0) == -infinity);
  CHECK(std::isnan(incomplete_beta(0, 1, 0.5)));
  CHECK(std::isnan(incomplete_beta(1, 1, 1.5)));
  CHECK(incomplete_beta(3, 2, 0) == 0);
  CHECK(incomplete_beta(3, 2, 1) == 1);
  CHECK(std::isnan(student_cdf(1, 0)));
  CHECK(student_cdf(-infinity, 3) == 0);
  CHECK(student_cdf(0, 3) == 0.5);
  CHECK(student_quantile(0.975, infinity) == Approx(1.959963984540054));
  CHECK(student_quantile(1, 4) == infinity);
  CHECK(std::isnan(student_quantile(0.5, -1)));
  CHECK(std::isnan(binomial_pmf(1, 2, 1.5)));
  CHECK(binomial_pmf(3, 2, 0.5) == 0);
  CHECK(binomial_pmf(0, 0, 0.5) == 1);
  CHECK(binomial_pmf(2, 2, 1) == 1);
  CHECK(binomial_cdf(2, 2, 0.5) == 1);
  CHECK(binomial_cdf(0, 5, 0) == 1);
}
