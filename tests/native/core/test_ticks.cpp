#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>

#include "core/clock.hpp"
#include "core/ticks.hpp"

using namespace sonde;

TEST_CASE("the counter never goes back, and agrees with the clock about a stretch of time") {
  const double tick = tick_s();
  CHECK(tick > 0);
  std::int64_t last = ticks();
  for (int k = 0; k < 100'000; ++k) {
    const std::int64_t now = ticks();
    REQUIRE(now >= last);
    last = now;
  }
  // Read on both sides of each end: an interruption between two readings then widens the bound, not the error.
  const std::int64_t ns0 = now_ns(), a = ticks(), ns1 = now_ns();
  while (now_ns() - ns1 < 50'000'000) {}
  const std::int64_t ns2 = now_ns(), b = ticks(), ns3 = now_ns();
  const double seen = static_cast<double>(b - a) * tick * 1e9;
  CHECK(seen > static_cast<double>(ns2 - ns1) * 0.999);
  CHECK(seen < static_cast<double>(ns3 - ns0) * 1.001);
}

TEST_CASE("a counter that cores do not agree on is never compared between them") {
  if (best_ticks(false) == TickKind::clock) CHECK(best_ticks(true) == TickKind::clock);
  if (best_ticks(true) != TickKind::clock) CHECK(best_ticks(false) == best_ticks(true));
  CHECK(tick_kind == best_ticks(true));
}

TEST_CASE("a tick of the clock is a nanosecond") {
  CHECK(std::abs(seconds_of_tick(read_ticks<TickKind::clock>, 0.01) - 1e-9) < 1e-11);
}
