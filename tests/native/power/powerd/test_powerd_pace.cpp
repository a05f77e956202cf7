// When node managers look and report: in step by the time of day, through late wake-ups, slow hardware and clocks that
// step.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "power/powerd/pace.hpp"

using namespace sonde::power;

namespace {

constexpr std::int64_t ms = 1'000'000, s = 1000 * ms;

/// A node whose clock since boot began at `boot_ns` of the time of day.
struct Node {
  std::int64_t boot_ns, now_ns;  // of the time of day
  Pace pace;
  std::vector<std::int64_t> looks, reports;
  Node(std::int64_t boot, std::int64_t begin, std::int64_t look, std::int64_t report, bool in_step)
      : boot_ns(boot), now_ns(begin), pace(look, report, in_step, begin - boot) {}
  Pace::Now now() const { return {now_ns - boot_ns, now_ns}; }
  /// Up to the next look, which begins `late` after it should and takes `takes`.
  void look(std::int64_t late, std::int64_t takes) {
    now_ns = std::max(now_ns, pace.next_ns() + boot_ns) + late;
    looks.push_back(now_ns);
    pace.looks(now());
    now_ns += takes;
    if (pace.due(now(), true)) {
      reports.push_back(now_ns);
      pace.reported(now());
    }
  }
  /// Somebody sets the clock.
  void step(std::int64_t by) { boot_ns += by, now_ns += by; }
};

}  // namespace

TEST_CASE("power pace: nodes in step look and report at the same times of day, whenever they began") {
  std::mt19937_64 random(7);
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most + 1));
  };
  for (const std::int64_t report : {1 * s, 2 * s, 30 * s, 2500 * ms}) {
    std::vector<std::vector<std::int64_t>> turns;
    for (int k = 0; k < 20; ++k) {
      Node node(1'700'000'000 * s + up_to(100 * s), 1'700'000'200 * s + up_to(s), 1 * s, report, true);
      while (node.now_ns < 1'700'000'400 * s) node.look(up_to(200 * ms), up_to(200 * ms));
      for (std::size_t i = 1; i < node.looks.size(); ++i) CHECK(node.looks[i] % s <= 200 * ms);
      turns.emplace_back();
      for (std::size_t i = 1; i < node.reports.size(); ++i) {
        if (node.reports[i] > 1'700'000'390 * s) break;
        if (node.reports[i] > 1'700'000'240 * s) turns.back().push_back(node.reports[i] / s);
      }
      CHECK(turns.back() == turns.front());
    }
    CHECK(turns.front().size() == doctest::Approx(150.0 * s / report).epsilon(0.04));
  }
}

TEST_CASE("power pace: out of step each goes on from its own begin") {
  Node node(500 * s, 1000 * s + 370 * ms, 1 * s, 3 * s, false);
  for (int k = 0; k < 10; ++k) node.look(10 * ms, 20 * ms);
  for (const auto at : node.looks) CHECK(at % s == 380 * ms);
  CHECK(node.reports.size() == 4);
  for (std::size_t i = 1; i < node.reports.size(); ++i) CHECK(node.reports[i] - node.reports[i - 1] == 3 * s);
  // A look that took two and a half is not caught up with.
  node.look(2500 * ms, 0);
  CHECK(node.pace.next_ns() + node.boot_ns == node.looks.back() + s);
}

TEST_CASE("power pace: a look that is woken early is that look, one that takes long costs no report") {
  Node node(500 * s, 1000 * s, 1 * s, 1 * s, true);
  node.look(0, 5 * ms);
  node.look(-2 * ms, 1 * ms);
  CHECK(node.pace.next_ns() + node.boot_ns == 1002 * s);
  CHECK(node.reports.size() == 2);
  for (int k = 0; k < 100; ++k) node.look(0, 900 * ms);
  CHECK(node.reports.size() == 102);
  for (std::size_t i = 1; i < node.looks.size(); ++i) CHECK(node.looks[i] - node.looks[i - 1] <= 1002 * ms);
}

TEST_CASE("power pace: hardware that is waited for is told of after a look's time more than the interval") {
  for (const bool in_step : {true, false}) {
    Node node(500 * s, 1000 * s, 1 * s, 30 * s, in_step);
    CHECK(node.pace.due(node.now(), false));  // nothing was ever reported
    CHECK(node.pace.reported(node.now()) == 0);
    node.now_ns += 30 * s;
    CHECK_FALSE(node.pace.due(node.now(), false));
    CHECK(node.pace.due(node.now(), true));
    node.now_ns += 1 * s;
    CHECK(node.pace.due(node.now(), false));
    CHECK(node.pace.reported(node.now()) == doctest::Approx(31));
  }
}

TEST_CASE("power pace: a clock that is set neither stops looks and reports nor doubles looks") {
  for (const std::int64_t by : {-3600 * s, -700 * ms, -1 * ms, 1 * ms, 400 * ms, 86400 * s}) {
    Node node(500 * s, 1'700'000'000 * s, 1 * s, 10 * s, true);
    std::vector<std::int64_t> looks, reports;  // by the clock since boot
    for (int k = 0; k < 200; ++k) {
      const std::size_t told = node.reports.size();
      node.look(3 * ms, 3 * ms);
      looks.push_back(node.looks.back() - node.boot_ns);
      if (node.reports.size() > told) reports.push_back(node.reports.back() - node.boot_ns);
      if (k % 50 == 25) node.step(by);
    }
    for (std::size_t i = 2; i < looks.size(); ++i) {
      CHECK(looks[i] - looks[i - 1] >= 490 * ms);
      CHECK(looks[i] - looks[i - 1] <= 1510 * ms);
    }
    for (std::size_t i = 1; i < reports.size(); ++i) CHECK(reports[i] - reports[i - 1] <= 11'510 * ms);
    CHECK(node.now_ns / s >= 1'700'000'000 + 4 * by / s + 190);
  }
}
