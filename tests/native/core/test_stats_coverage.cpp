// Do the stated 95 % intervals hold the true median in 95 % of cases? Each generator has a median known in advance;
// the number of intervals that hold it must pass the exact binomial test. Seeds are fixed, so the answer is too.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "core/stats/interval.hpp"
#include "core/stats/special.hpp"
#include "core/stats/summary.hpp"

using namespace sonde::stats;

namespace {

constexpr std::size_t samples = 40;    // in an epoch
constexpr int few = 250, many = 1500;  // runs: of each check, and of the soak

struct Normal {
  sonde::Random random;
  double operator()() { return normal_quantile(random.uniform() + 0x1.0p-54); }
};

/// Adds one epoch to a series.
using Generator = std::function<void(Normal&, std::vector<double>&)>;

void iid(Normal& z, std::vector<double>& x) {
  for (std::size_t i = 0; i < samples; ++i) x.push_back(std::exp(0.5 * z()));
}

void ar9(Normal& z, std::vector<double>& x) {
  double state = z();
  for (std::size_t i = 0; i < samples; ++i) {
    x.push_back(std::exp(0.5 * state));
    state = 0.9 * state + std::sqrt(1 - 0.81) * z();
  }
}

/// The first samples of every epoch are slow; the median is of all, solved for numerically.
void warm_up(Normal& z, std::vector<double>& x) {
  for (std::size_t i = 0; i < samples; ++i) x.push_back(z() + (i < samples / 4 ? 2 : 0));
}

double warm_up_median() {
  double low = 0, high = 2;
  for (int k = 0; k < 60; ++k) {
    const double m = 0.5 * (low + high);
    (0.75 * normal_cdf(m) + 0.25 * normal_cdf(m - 2) < 0.5 ? low : high) = m;
  }
  return low;
}

/// The level shifts from epoch to epoch: up in three of ten.
void level_shift(Normal& z, std::vector<double>& x) {
  const double level = z.random.uniform() < 0.3 ? 5 : 0;
  for (std::size_t i = 0; i < samples; ++i) x.push_back(level + z());
}

void random_level(Normal& z, std::vector<double>& x) {
  const double level = z();
  for (std::size_t i = 0; i < samples; ++i) x.push_back(std::exp(level + 0.5 * z()));
}

/// A clock that counts in tenths; the median of what it shows is 1.
void ticks(Normal& z, std::vector<double>& x) {
  for (std::size_t i = 0; i < samples; ++i) x.push_back(std::round(std::exp(0.5 * z()) * 10) / 10);
}

int covered(const Generator& add, double truth, int epochs, double p, std::uint64_t seed, int runs) {
  Normal z{sonde::Random(seed)};
  int count = 0;
  for (int run = 0; run < runs; ++run) {
    std::vector<double> x;
    std::vector<std::int32_t> epoch;
    for (int e = 0; e < epochs; ++e) {
      add(z, x);
      epoch.resize(x.size(), e);
    }
    const Interval i = p == 0.5 ? epoch_median_ci(x, epoch, 0.95) : epoch_quantile_ci(x, epoch, p, 0.95);
    if (i.low <= truth && truth <= i.high) ++count;
  }
  return count;
}

/// Chances of so few, and of so many, were the coverage 0.95.
double chance_below(int count, int runs) {
  return binomial_cdf(static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(runs), 0.95);
}
double chance_above(int count, int runs) {
  return 1 - binomial_cdf(static_cast<std::uint64_t>(count - 1), static_cast<std::uint64_t>(runs), 0.95);
}

void median_is_covered(int runs) {
  const double high = normal_quantile(0.5 / 0.7);  // the median of the shifted series lies within the lower level
  struct Row {
    const char* name;
    Generator add;
    double truth;
    int epochs;
  };
  for (const Row& row : {Row{"iid", iid, 1, 6}, Row{"iid", iid, 1, 30}, Row{"AR .9", ar9, 1, 8},
                         Row{"AR .9", ar9, 1, 30}, Row{"warm-up", warm_up, warm_up_median(), 20},
                         Row{"level shift", level_shift, high, 30}, Row{"level shift", level_shift, high, 60},
                         Row{"random level", random_level, 1, 12}, Row{"random level", random_level, 1, 40},
                         Row{"two epochs", iid, 1, 2}, Row{"five epochs", random_level, 1, 5}}) {
    const int count = covered(row.add, row.truth, row.epochs, 0.5, 20261120, runs);
    CHECK_MESSAGE(chance_below(count, runs) > 0.005, row.name, ", ", row.epochs, " epochs: ", count, " of ", runs);
    CHECK_MESSAGE(chance_above(count, runs) > 0.005, row.name, ", ", row.epochs, " epochs: ", count, " of ", runs);
  }
}

void ties_are_covered(int runs) { CHECK(chance_below(covered(ticks, 1, 20, 0.5, 5, runs), runs) > 0.005); }

void other_quantiles_are_covered(int runs) {
  const double z95 = normal_quantile(0.95);
  CHECK(chance_below(covered(iid, std::exp(0.5 * z95), 20, 0.95, 1, runs), runs) > 0.005);
  CHECK(chance_below(covered(iid, std::exp(-0.5 * z95), 20, 0.05, 2, runs), runs) > 0.005);
  CHECK(chance_below(covered(ar9, std::exp(0.5 * normal_quantile(0.25)), 30, 0.25, 3, runs), runs) > 0.005);
}

}  // namespace

TEST_CASE("the 95 % interval of the median covers it in 95 % of runs") { median_is_covered(few); }
TEST_CASE("with ties the interval covers more than stated, never less") { ties_are_covered(few); }
TEST_CASE("intervals of other quantiles do not cover less than stated") { other_quantiles_are_covered(few); }

TEST_SUITE("soak") {
  TEST_CASE("the 95 % interval of the median covers it in 95 % of 1500 runs") { median_is_covered(many); }
  TEST_CASE("with ties the interval covers more than stated in 1500 runs") { ties_are_covered(many); }
  TEST_CASE("intervals of other quantiles do not cover less than stated in 1500 runs") {
    other_quantiles_are_covered(many);
  }
}

TEST_CASE("why not medians of epochs: their interval misses the median of a series whose level shifts") {
  Normal z{sonde::Random(7)};
  const double truth = normal_quantile(0.5 / 0.7);
  int count = 0;
  for (int run = 0; run < 200; ++run) {
    std::vector<double> x, medians;
    for (int e = 0; e < 60; ++e) {
      x.clear();
      level_shift(z, x);
      medians.push_back(median(x));
    }
    const Interval i = epoch_median_ci(medians, 0.95);
    if (i.low <= truth && truth <= i.high) ++count;
  }
  CHECK(count < 100);
}
