// The rules that judge shape: spectral, lognormal, entropy.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "core/rule.hpp"

using sonde::Decision;
using sonde::Random;

namespace {

double normal(Random& random) {
  return std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
}

struct Ending {
  Decision decision;
  std::uint64_t used;
  std::string why;
};

// Feeds epochs of 50 until the rule decides or `most` epochs were given.
Ending feed(const std::string& spec, const std::function<double(int epoch, Random&)>& sample, int most = 2000,
            std::uint64_t cap = 1'000'000) {
  auto rule = sonde::make_rule(spec, {cap, 0, 3});
  REQUIRE(rule);
  Random random(11);
  std::vector<double> epoch(50);
  Decision decision = Decision::proceed;
  for (int e = 0; e < most && decision == Decision::proceed; ++e) {
    for (double& x : epoch) x = sample(e, random);
    decision = (*rule)->add(epoch);
  }
  return {decision, (*rule)->used(), (*rule)->why()};
}

double lognormal(Random& random, double sigma = 0.1) { return 1e-6 + 2e-6 * std::exp(sigma * normal(random)); }

}  // namespace

TEST_CASE("delays of one law: each rule converges, and says why") {
  for (const char* spec : {"spectral", "lognormal", "entropy"}) {
    CAPTURE(spec);
    const Ending end = feed(spec, [](int, Random& r) { return lognormal(r); });
    CHECK(end.decision == Decision::converged);
    CHECK(end.used >= 600);  // no rule may decide before its first peek, at 12 epochs
    CHECK(end.why.find("epochs") != std::string::npos);
  }
}

TEST_CASE("a wider law needs more samples") {
  for (const char* spec : {"spectral:level=0.01", "lognormal"}) {
    CAPTURE(spec);
    const auto narrow = feed(spec, [](int, Random& r) { return lognormal(r, 0.05); });
    const auto wide = feed(spec, [](int, Random& r) { return lognormal(r, 0.8); });
    CHECK(narrow.used < wide.used);
  }
}

TEST_CASE("spectral: one change of level is a drift") {
  const Ending end = feed("spectral", [](int e, Random& r) { return lognormal(r) * (e < 40 ? 1.0 : 1.5); }, 120);
  // It may converge before the change; made impossible by asking for more than 40 epochs can give.
  const Ending strict =
      feed("spectral:level=0.0005", [](int e, Random& r) { return lognormal(r) * (e < 40 ? 1.0 : 1.5); }, 400);
  CHECK(end.decision != Decision::proceed);
  CHECK(strict.decision == Decision::drift);
  CHECK(strict.why.find("level differs") != std::string::npos);
}

TEST_CASE("spectral: a rhythm that appears half way is a drift although the level stays") {
  int k = 0;
  const Ending end = feed(
      "spectral:level=0.0005,distance=0.001",
      [&k](int e, Random& r) { return 2e-6 * std::exp(0.1 * normal(r) + (e < 60 ? 0.0 : 0.3 * std::sin(1.57 * k++))); },
      400);
  CHECK(end.decision == Decision::drift);
}

TEST_CASE("spectral: false alarms of drift are rare on delays of one law") {
  int drifts = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    auto rule = sonde::make_rule("spectral:level=0.0001", {20000, 0, seed});
    REQUIRE(rule);
    Random random(seed * 77 + 5);
    std::vector<double> epoch(50);
    Decision decision = Decision::proceed;
    while (decision == Decision::proceed) {
      for (double& x : epoch) x = lognormal(random);
      decision = (*rule)->add(epoch);
    }
    drifts += decision == Decision::drift;
  }
  CHECK(drifts <= 3);
}

TEST_CASE("epochs too short for a segment are compared by level alone") {
  auto rule = sonde::make_rule("spectral", {1'000'000, 0, 1});
  REQUIRE(rule);
  Random random(2);
  Decision decision = Decision::proceed;
  for (int e = 0; e < 3000 && decision == Decision::proceed; ++e) {
    const std::vector<double> epoch{lognormal(random), lognormal(random)};
    decision = (*rule)->add(epoch);
  }
  CHECK(decision == Decision::converged);
}

TEST_CASE("a constant series converges, and a clock that ticks does too") {
  for (const char* spec : {"spectral", "lognormal", "entropy"}) {
    CAPTURE(spec);
    CHECK(feed(spec, [](int, Random&) { return 3e-6; }).decision == Decision::converged);
  }
  const auto tick = [](int, Random& r) { return r.uniform() < 0.5 ? 1e-6 : 2e-6; };
  CHECK(feed("spectral", tick).decision == Decision::converged);
  CHECK(feed("entropy", tick).decision == Decision::converged);
  // Two points are no lognormal: that rule says so and goes on to the cap.
  const Ending end = feed("lognormal", tick, 2000, 20000);
  CHECK(end.decision == Decision::cap);
  CHECK(end.why.find("fit") != std::string::npos);
}

TEST_CASE("delays of zero do not stop a rule for good or crash it") {
  for (const char* spec : {"spectral", "lognormal", "entropy"}) {
    CAPTURE(spec);
    const Ending end = feed(spec, [](int, Random&) { return 0.0; }, 100, 2000);
    CHECK((end.decision == Decision::converged || end.decision == Decision::cap));
  }
}

TEST_CASE("what never settles meets the cap") {
  for (const char* spec : {"spectral:level=0.000001", "lognormal:precision=0.000001", "entropy:change=0.000001"}) {
    CAPTURE(spec);
    const Ending end = feed(spec, [](int, Random& r) { return lognormal(r, 0.5); }, 2000, 5000);
    CHECK(end.decision == Decision::cap);
    CHECK(end.used == 5000);
  }
}

TEST_CASE("spectral: a warm-up is no drift") {
  int drifts = 0;
  for (int shift = 0; shift < 20; ++shift) {
    const Ending end = feed("spectral", [&](int e, Random& r) {
      for (int k = 0; k < shift; ++k) r.next();
      return lognormal(r) * (1 + 2 * std::exp(-e / 1.5));
    });
    drifts += end.decision == Decision::drift;
  }
  CHECK(drifts <= 1);
}

TEST_CASE("spectral: goes on while a tone grows, stops on white") {
  int k = 0;
  const auto tone = [&k](int e, Random& r) {
    return 2e-6 * std::exp(0.1 * normal(r) + 0.004 * e * std::sin(1.57 * k++));
  };
  const Ending grows = feed("spectral", tone, 100);
  CHECK(grows.decision != Decision::converged);
  CHECK(grows.why.find("spectrum differs") != std::string::npos);
  CHECK(feed(
            "spectral", [](int, Random& r) { return 2e-6 * std::exp(0.1 * normal(r)); }, 100)
            .decision == Decision::converged);
}

TEST_CASE("spectral: one outlier does not outweigh all other epochs") {
  const auto rare = [](int, Random& r) { return lognormal(r) * (r.uniform() < 0.001 ? 300 : 1); };
  const Ending end = feed("spectral", rare, 400);
  CHECK(end.decision == Decision::converged);
}

TEST_CASE("spectral and lognormal: at the cap the rest gets a last look") {
  for (const char* spec : {"spectral:distance=1,growth=10,hold=2", "lognormal:precision=1,fit=1,growth=10,hold=2"}) {
    CAPTURE(spec);  // looks at 12 epochs and, the last, at 30
    CHECK(feed(spec, [](int, Random& r) { return lognormal(r); }, 100, 1500).decision == Decision::converged);
    CHECK(feed(spec, [](int, Random& r) { return lognormal(r); }, 100, 600).decision == Decision::cap);
  }
}

TEST_CASE("lognormal: does not stop on two peaks, however many samples") {
  const auto peaks = [](int, Random& r) { return lognormal(r, 0.05) * (r.uniform() < 0.5 ? 1 : 2); };
  const Ending end = feed("lognormal", peaks, 2000, 40000);
  CHECK(end.decision == Decision::cap);
  CHECK(end.why.find("distance of the fit") != std::string::npos);
  // It is the fit that keeps it.
  CHECK(feed("lognormal:fit=1,precision=0.1", peaks, 2000, 40000).decision == Decision::converged);
}

TEST_CASE("lognormal: the warm-up is left out of the law") {
  const Ending with = feed("lognormal", [](int e, Random& r) { return lognormal(r) * (e < 2 ? 3 : 1); }, 400);
  CHECK(with.decision == Decision::converged);
}

TEST_CASE("entropy: goes on while new kinds of delay turn up") {
  const auto widening = [](int e, Random& r) { return 2e-6 * (1 + 0.02 * e * r.uniform()); };
  CHECK(feed("entropy", widening, 60).decision == Decision::proceed);
  CHECK(feed("entropy", [](int, Random& r) { return 2e-6 * (1 + r.uniform()); }, 60).decision == Decision::converged);
}

TEST_CASE("entropy: delays that spread over thousands of bins keep its memory bounded") {
  auto rule = sonde::make_rule("entropy:bin=0.0001", {1'000'000, 0, 1});
  REQUIRE(rule);
  Random random(4);
  std::vector<double> epoch(50);
  for (int e = 0; e < 400; ++e) {
    for (double& x : epoch) x = 1e-9 * std::exp(20 * random.uniform());
    (*rule)->add(epoch);
  }
  CHECK((*rule)->state_bytes() < 200'000);
}
