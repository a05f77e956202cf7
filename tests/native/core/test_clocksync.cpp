#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/clocksync.hpp"
#include "core/random.hpp"

using namespace sonde;

namespace {

// A rank whose clock runs 50 ppm fast and stands 3 s ahead of the reference.
constexpr double ahead_s = 3.0, fast = 50e-6;
double local_of(double reference) { return reference * (1 + fast) + ahead_s; }
double reference_of(double local) { return (local - ahead_s) / (1 + fast); }

std::vector<ClockExchange> batch_at(double now, Random& random) {
  std::vector<ClockExchange> batch;
  for (int k = 0; k < 20; ++k) {
    const double there = 1e-6 * (1 + 20 * random.uniform() * random.uniform());
    const double back = 1e-6 * (1 + 20 * random.uniform() * random.uniform());
    batch.push_back({local_of(now), now + there, local_of(now + there + back)});
    now += there + back;
  }
  return batch;
}

}  // namespace

TEST_CASE("an offset of 3 s and a drift of 50 ppm are found, and the stated error holds") {
  Random random(7);
  ClockModel model;
  double worst = 0;
  for (int point = 0; point < 60; ++point) {
    const double now = 0.5 * point;
    model.add(best_clock_point(batch_at(now, random)));
    if (point < 10) continue;
    // Extrapolated to just before the next point.
    const double local = local_of(now + 0.45);
    const double missed = std::abs(model.to_reference(local) - reference_of(local));
    worst = std::max(worst, missed);
    CHECK(missed <= 3 * model.error());
  }
  CHECK(worst < 3e-6);
  CHECK(model.drift() == doctest::Approx(-fast).epsilon(0.02));
}

TEST_CASE("no drift is guessed from points that stand too close") {
  ClockModel model;
  model.add({1.0, 5.0, 1e-6});
  model.add({1.0 + 1e-6, 5.1, 1e-6});
  CHECK(model.drift() == 0);
}

TEST_CASE("without any point time passes through, and the error says so") {
  ClockModel model;
  CHECK(model.to_reference(12.5) == 12.5);
  CHECK(std::isinf(model.error()));
  model.add(best_clock_point({}));
  CHECK(std::isinf(model.error()));
}
