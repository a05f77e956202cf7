// When the MQTT bridge attempts a connection again: the policy alone, under a clock of its own.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

#include "core/random.hpp"
#include "power/powerd/bridge/backoff.hpp"

using sonde::power::bridge::Backoff;

namespace {

constexpr std::int64_t s = 1'000'000'000;

/// A broker with which each connection ends `after_ns` after it was opened; `answers`: with its subscriptions granted.
/// Returns how many attempts it gets within a time.
int attempts(std::int64_t within_ns, std::int64_t after_ns, bool answers) {
  Backoff backoff;
  sonde::Random random{7};
  int count = 0;
  for (std::int64_t now = 0; now < within_ns; now = std::max(now, backoff.next_ns())) {
    ++count;
    if (answers) backoff.serves(now);
    now += after_ns;
    backoff.failed(now, random.uniform());
  }
  return count;
}

}  // namespace

TEST_CASE("bridge backoff: the first attempt is at once, and delays double up to the longest") {
  Backoff backoff;
  CHECK(backoff.next_ns() == 0);
  std::int64_t now = 0, before = 0;
  for (int k = 0; k < 12; ++k) {
    backoff.failed(now, 1);
    const std::int64_t delay = backoff.next_ns() - now;
    CHECK(delay == std::clamp<std::int64_t>(2 * before, s / 10, 30 * s));
    before = delay, now = backoff.next_ns();
  }
  CHECK(before == 30 * s);
}

TEST_CASE("bridge backoff: chance takes up to half of a delay away, and nothing more") {
  for (const double chance : {0.0, 0.25, 0.5, 0.999}) {
    Backoff backoff;
    backoff.failed(5 * s, chance);
    CHECK(backoff.next_ns() - 5 * s == static_cast<std::int64_t>(0.1 * (0.5 + 0.5 * chance) * 1e9));
  }
}

TEST_CASE(
    "bridge backoff: a broker that accepts each connection and then ends it is asked as seldom as one that is away") {
  const int away = attempts(3600 * s, 0, false);
  CHECK(away < 200);
  CHECK(attempts(3600 * s, 0, true) == away);         // after it answered the subscriptions
  CHECK(attempts(3600 * s, s / 100, false) <= away);  // after CONNACK, or with garbage
  CHECK(attempts(3600 * s, Backoff::useful_s * s - 1, true) <= away);
}

TEST_CASE("bridge backoff: a connection that was of use for a while makes the next delay the shortest one") {
  Backoff backoff;
  std::int64_t now = 0;
  for (int k = 0; k < 20; ++k) backoff.failed(now, 1), now = backoff.next_ns();
  backoff.serves(now);
  now += static_cast<std::int64_t>(Backoff::useful_s * s);
  backoff.failed(now, 1);
  CHECK(backoff.next_ns() - now == s / 10);
  // It counts once: what follows has to be of use itself.
  now = backoff.next_ns() + 100 * s;
  backoff.failed(now, 1);
  CHECK(backoff.next_ns() - now == 2 * s / 10);
}
