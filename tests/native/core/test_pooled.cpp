// The median over epochs: ties of a clock, the warm-up, and what every look at it must agree on.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/random.hpp"
#include "core/stats/interval.hpp"
#include "core/stats/pooled.hpp"
#include "core/stats/summary.hpp"
#include "core/stats/ties.hpp"
#include "core/stats/warm_up.hpp"

using namespace sonde::stats;
using Vector = std::vector<double>;
using Numbers = std::vector<std::int32_t>;

namespace {

Numbers in_epochs(std::size_t n, std::size_t length) {
  Numbers out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::int32_t>(i / length);
  return out;
}

std::vector<WeightedSample> one_batch(const Vector& x) {
  std::vector<WeightedSample> out;
  for (const double v : x) out.push_back({v, 0, 1});
  return out;
}

/// Delays of 2 us and a spread of a fifth, by a clock of `tick` s read before and after; 0 for a perfect one.
Vector delays(sonde::Random& random, std::size_t n, double tick) {
  Vector out(n);
  for (double& v : out) {
    v = 2e-6 * std::exp(0.2 * (std::sqrt(-2 * std::log(1 - random.uniform())) *
                               std::cos(6.283185307179586 * random.uniform())));
    if (tick > 0) v = tick * std::floor(v / tick + random.uniform());
  }
  return out;
}

}  // namespace

TEST_CASE("a tick is seen where samples are counted, and nowhere else") {
  Vector counted, few, free, off;
  for (int k = 0; k < 60; ++k) {
    counted.push_back((20 + k % 7) * 25e-9);
    few.push_back(1e-6 + k % 2 * 1e-7);
    free.push_back(1e-6 * std::exp(0.01 * k));
    off.push_back(1e-6 * (k % 4 == 0 ? 1 : k % 4 == 1 ? 1.1 : k % 4 == 2 ? 1.237 : 1.5511));
  }
  CHECK(tick_of(one_batch(counted)) == doctest::Approx(25e-9));
  CHECK(tick_of(one_batch(few)) == 0);   // two values may be two regimes
  CHECK(tick_of(one_batch(free)) == 0);  // no ties
  CHECK(tick_of(one_batch(off)) == 0);   // no grid
  CHECK(tick_of(one_batch(Vector(50, 3.0))) == 0);
  CHECK(tick_of({}) == 0);
  // as float, and with a delay a million ticks away
  for (double& v : counted) v = static_cast<double>(static_cast<float>(v));
  counted.push_back(0.025);
  CHECK(tick_of(one_batch(counted)) == doctest::Approx(25e-9).epsilon(1e-4));
}

TEST_CASE("equal samples are spread over one tick, evenly and in order") {
  Vector x;
  for (const int v : {4, 5, 5, 5, 5, 6, 6, 7}) x.push_back(v);
  std::vector<WeightedSample> samples = one_batch(x);
  spread_ties(samples);
  const Vector expected{4, 4.625, 4.875, 5.125, 5.375, 5.75, 6.25, 7};
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(samples[i].value == doctest::Approx(expected[i]));
}

TEST_CASE("a median is known to less than a clock's tick") {
  sonde::Random random(7);
  double fine = 0, coarse = 0;
  for (int k = 0; k < 40; ++k) {
    const Vector x = delays(random, 2000, 200e-9);
    const SteadyMedian found = steady_median(Epochs(x, in_epochs(x.size(), 50)), 0.95);
    CHECK(found.low < found.median);
    CHECK(found.median < found.high);
    CHECK(found.high - found.low < 100e-9);
    fine += std::fabs(found.median - 2e-6) / 40;
    coarse = std::max(coarse, std::fabs(found.median - 2e-6));
  }
  CHECK(fine < 15e-9);
  CHECK(coarse < 60e-9);
}

TEST_CASE("what warms up is left out, and said") {
  sonde::Random random(3);
  Vector x = delays(random, 60 * 50, 0);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= 1 + 2 * std::exp(-static_cast<double>(i) / 75);
  const SteadyMedian found = steady_median(Epochs(x, in_epochs(x.size(), 50)), 0.95);
  CHECK(found.steady);
  CHECK(found.skipped > 0);
  CHECK(found.skipped <= 1000);
  const Vector rest(x.begin() + static_cast<std::ptrdiff_t>(found.skipped), x.end());
  CHECK(found.median == median(rest));
  CHECK(found.low < 2e-6);
  CHECK(found.high > 2e-6);
}

TEST_CASE("a warm-up that does not end within the series is not left out but told") {
  sonde::Random random(3);
  Vector x = delays(random, 40 * 50, 0);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= 1 + 3 * std::exp(-static_cast<double>(i) / 600);
  const SteadyMedian found = steady_median(Epochs(x, in_epochs(x.size(), 50)), 0.95);
  CHECK_FALSE(found.steady);
  CHECK(found.skipped == 0);
  CHECK(found.median == median(x));
}

TEST_CASE("regimes that come again are no warm-up") {
  sonde::Random random(5);
  Vector x = delays(random, 60 * 50, 0);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= i / 50 % 6 < 2 ? 3 : 1;
  const SteadyMedian found = steady_median(Epochs(x, in_epochs(x.size(), 50)), 0.95);
  CHECK(found.skipped == 0);
}

TEST_CASE("without a warm-up and without ties the steady median is the plain one, and its interval the epochs'") {
  sonde::Random random(11);
  const Vector x = delays(random, 30 * 40, 0);
  const Numbers epoch = in_epochs(x.size(), 40);
  const SteadyMedian found = steady_median(Epochs(x, epoch), 0.95);
  const Interval interval = epoch_median_ci(x, epoch, 0.95);
  CHECK(found.skipped == 0);
  CHECK(found.median == median(x));
  CHECK(found.low == interval.low);
  CHECK(found.high == interval.high);
}

TEST_CASE("few epochs: Student, and none of one; no samples or NaN: nothing") {
  sonde::Random random(11);
  const Vector x = delays(random, 120, 0);
  const SteadyMedian three = steady_median(Epochs(x, in_epochs(120, 40)), 0.95);
  CHECK(three.low < three.median);
  CHECK(three.high > three.median);
  const SteadyMedian one = steady_median(Epochs(x, in_epochs(120, 120)), 0.95);
  CHECK(one.median == median(x));
  CHECK(std::isnan(one.low));
  CHECK(std::isnan(one.high));
  CHECK(std::isnan(steady_median(Epochs(Vector{}, Numbers{}), 0.95).median));
  Vector hurt = x;
  hurt[7] = std::nan("");
  CHECK(std::isnan(steady_median(Epochs(hurt, in_epochs(120, 10)), 0.95).median));
  CHECK(std::isnan(steady_median(Epochs(x, in_epochs(120, 10)), 1.5).median));
  const Vector same(400, 3e-6);
  const SteadyMedian constant = steady_median(Epochs(same, in_epochs(400, 20)), 0.95);
  CHECK(constant.low == 3e-6);
  CHECK(constant.high == 3e-6);
}

TEST_CASE("the stated share of intervals holds the median, a perfect clock or a coarse one") {
  // 1500 samples as 30 epochs: 600 times. The bounds are 0.95 -+ 4 standard errors of a share: a check of the
  // method, not of luck; the benchmarks print the coverage itself.
  for (const double tick : {0.0, 100e-9}) {
    sonde::Random random(19);
    int held = 0;
    for (int k = 0; k < 600; ++k) {
      const Vector x = delays(random, 1500, tick);
      const SteadyMedian found = steady_median(Epochs(x, in_epochs(1500, 50)), 0.95);
      held += found.low <= 2e-6 && 2e-6 <= found.high;
    }
    CHECK(held > 600 * 0.914);
    CHECK(held < 600 * 0.986);
  }
}
