// What every stopping rule keeps to, live and replayed, and what the rules of level and the two ports decide.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "core/replay.hpp"
#include "core/rule.hpp"

using sonde::Decision;
using sonde::Random;
using sonde::RuleContext;
using Vector = std::vector<double>;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

double normal(Random& random) {
  return std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
}

std::unique_ptr<sonde::Rule> made(const std::string& spec, const RuleContext& context = {}) {
  auto rule = sonde::make_rule(spec, context);
  REQUIRE_MESSAGE(rule, spec);
  return std::move(*rule);
}

/// Every rule, at its defaults.
std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto& info : sonde::rule_list()) out.push_back(info.name);
  return out;
}

struct Ending {
  Decision decision = Decision::proceed;
  std::uint64_t used = 0, added = 0;
  int epochs = 0;
  std::string why;
};

/// Feeds epochs of `length` until the rule decides or `most` were given; each sample is of epoch e.
Ending feed(const std::string& spec, const std::function<double(int e, Random&)>& sample,
            const RuleContext& context = {}, int most = 2000, std::size_t length = 50, std::uint64_t seed = 5) {
  const auto rule = made(spec, context);
  Random random(seed);
  Vector epoch(length);
  Ending end;
  while (end.epochs < most && end.decision == Decision::proceed) {
    for (double& x : epoch) x = sample(end.epochs, random);
    end.decision = rule->add(epoch);
    end.added += length;
    ++end.epochs;
  }
  end.used = rule->used();
  end.why = rule->why();
  return end;
}

double lognormal(int, Random& random) { return 2e-6 * std::exp(0.2 * normal(random)); }

std::string message(const std::string& spec, const RuleContext& context = {}) {
  const auto rule = sonde::make_rule(spec, context);
  REQUIRE_FALSE_MESSAGE(rule, spec);
  CHECK(rule.error().code == "core.bad_rule");
  CHECK_FALSE(rule.error().hint.empty());
  return rule.error().what;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

// ---- every rule

TEST_CASE("every rule: live and replayed decide the same") {
  for (const std::string& spec : names()) {
    CAPTURE(spec);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Random random(seed);
      Vector series;
      std::vector<std::int32_t> of;
      for (int e = 0; e < 300; ++e) {
        const double level = e % 7 < 3 ? 1.05 : 1.0;
        const auto length = 1 + random.below(60);
        for (std::size_t k = 0; k < length; ++k) {
          series.push_back(random.below(40) ? level * lognormal(e, random) : not_a_number);
          of.push_back(3 * e + 1);
        }
      }
      const RuleContext context{6000, 100, seed};
      const auto live = made(spec, context);
      Decision decision = Decision::proceed;
      for (std::size_t i = 0, end = 0; i < series.size() && decision == Decision::proceed; i = end) {
        while (end < series.size() && of[end] == of[i]) ++end;
        decision = live->add({&series[i], end - i});
      }
      auto again = sonde::replay(series, of, spec, context);
      REQUIRE(again);
      CHECK(again->decision == decision);
      CHECK(again->n == live->used());
      CHECK(again->why == live->why());
    }
  }
}

TEST_CASE("every rule: a decision is repeated, and nothing changes any more") {
  for (const std::string& spec : names()) {
    CAPTURE(spec);
    const auto rule = made(spec, {2000, 0, 1});
    Random random(3);
    Vector epoch(50);
    Decision decision = Decision::proceed;
    for (int e = 0; e < 40 && decision == Decision::proceed; ++e) {
      for (double& x : epoch) x = lognormal(e, random);
      decision = rule->add(epoch);
    }
    REQUIRE(decision != Decision::proceed);
    const auto used = rule->used();
    const std::string why = rule->why();
    for (int k = 0; k < 100; ++k) CHECK(rule->add(Vector(50, 1.0 + k)) == decision);
    CHECK(rule->add({}) == decision);
    CHECK(rule->used() == used);
    CHECK(rule->why() == why);
  }
}

TEST_CASE("every rule: the cap is met to the sample, and never told as convergence") {
  for (const std::string spec :
       {"fixed:100000", "ci:0.0001%", "spectral:level=0.0001%", "lognormal:0.0001%", "entropy:0.000001",
        "clustbench-fft:criterion=1,most=1e6,every=1000", "clustbench-modified:criterion=1,most=1e6,every=1000"}) {
    CAPTURE(spec);
    for (const std::uint64_t cap : {1, 49, 50, 51, 999, 1000, 4321}) {
      const Ending end = feed(spec, lognormal, {cap, 0, 1});
      CHECK(end.decision == Decision::cap);
      CHECK(end.used == cap);
      CHECK(has(end.why, "cap of " + std::to_string(cap) + " samples reached"));
    }
  }
}

TEST_CASE("every rule: none stops before min_samples") {
  for (const std::string& spec : names()) {
    CAPTURE(spec);
    for (const std::uint64_t least : {1, 777, 5000}) {
      const Ending end = feed(spec, [](int, Random&) { return 2e-6; }, {20000, least, 1});
      CHECK(end.decision != Decision::proceed);
      CHECK(end.used >= least);
    }
    // Where the cap is lower it comes first, and is told.
    CHECK(feed(spec, [](int, Random&) { return 2e-6; }, {300, 5000, 1}).decision == Decision::cap);
  }
}

TEST_CASE("every rule: NaN and infinity are counted and change nothing else") {
  for (const std::string& spec : names()) {
    CAPTURE(spec);
    const auto clean = made(spec), gaps = made(spec);
    Random random(8);
    Decision a = Decision::proceed, b = Decision::proceed;
    for (int e = 0; e < 3000 && a == Decision::proceed; ++e) {
      Vector epoch(40), with;
      for (double& x : epoch) {
        x = lognormal(e, random);
        with.push_back(x);
      }
      with.insert(with.begin() + 7, not_a_number);
      with.push_back(std::numeric_limits<double>::infinity());
      a = clean->add(epoch);
      b = gaps->add(with);
      REQUIRE(a == b);
    }
    CHECK(a == b);
    CHECK(gaps->used() > clean->used());
    if (!has(spec, "clustbench") && spec != "fixed") CHECK(gaps->used() == clean->used() / 40 * 42);
  }
  for (const std::string& spec : names()) {
    const Ending end = feed(spec, [](int, Random&) { return not_a_number; }, {5000, 0, 1});
    CHECK(end.decision == Decision::cap);
    CHECK(end.used == 5000);
  }
}

TEST_CASE("every rule: memory stays bounded over 100,000 epochs") {
  for (const std::string spec :
       {"fixed:1e9", "ci:0.0001%,patience=100", "spectral:level=0.0001%,patience=100", "lognormal:0.0001%",
        "entropy:0.000001", "clustbench-fft:criterion=1", "clustbench-modified:criterion=1"}) {
    CAPTURE(spec);
    const auto rule = made(spec, {std::uint64_t(1) << 60, 0, 1});
    Random random(2);
    Vector epoch(3);
    std::size_t most = 0;
    for (int e = 0; e < 100'000; ++e) {
      for (double& x : epoch) x = lognormal(e, random) * (1 + 0.3 * std::sin(0.01 * e));
      rule->add(epoch);
      if (e % 1000 == 0) most = std::max(most, rule->state_bytes());
    }
    CHECK(most < 100'000);
  }
}

TEST_CASE("every rule: constant, zero, negative, tiny and huge delays, in epochs of any length") {
  for (const std::string& spec : names()) {
    if (has(spec, "clustbench")) continue;  // theirs are below
    for (const double value : {3e-6, 0.0, -1e-7, 1e-310, 1e300, -1e300}) {
      for (const std::size_t length : {1, 2, 50}) {
        CAPTURE(spec);
        CAPTURE(value);
        CAPTURE(length);
        const Ending end = feed(spec, [&](int, Random&) { return value; }, {20000, 0, 1}, 20000, length);
        CHECK(end.decision == Decision::converged);
        CHECK(end.used <= 1050);
      }
    }
  }
}

TEST_CASE("every rule: series of both signs end, and use no more than was added") {
  for (const std::string& spec : names()) {
    CAPTURE(spec);
    for (const std::size_t length : {1, 2, 7, 50}) {
      const Ending end = feed(spec, [](int, Random& r) { return 1e-7 * normal(r); }, {5000, 0, 1}, 5000, length);
      CHECK(end.decision != Decision::proceed);
      CHECK(end.used <= end.added);
    }
  }
}

TEST_CASE("delays of two hosts' clocks: a few below zero do not keep a rule from stopping") {
  const auto delay = [](int e, Random& r) { return 5e-7 * std::exp(0.2 * normal(r)) - (e % 11 == 0 ? 5e-7 : 0); };
  for (const std::string spec : {"ci:5%", "entropy:0.1"}) {
    CAPTURE(spec);
    CHECK(feed(spec, delay, {60000, 0, 1}).decision == Decision::converged);
  }
  // All negative, as an offset of the clocks makes them: the law is the same.
  for (const std::string spec : {"ci:2%", "spectral", "entropy"}) {
    CAPTURE(spec);
    const Ending end = feed(spec, [](int, Random& r) { return -2e-6 * std::exp(0.2 * normal(r)); }, {60000, 0, 1});
    CHECK(end.decision == Decision::converged);
    CHECK(end.used > 600);
  }
}

TEST_CASE("a specification that is not understood: what, what is allowed, the nearest name") {
  CHECK(has(message("fixd:50"), "(nearest: fixed)"));
  CHECK(has(message("lognorml"), "(nearest: lognormal)"));
  CHECK(has(message(""), "there are fixed, ci, spectral, lognormal, entropy, clustbench-fft, clustbench-modified"));
  CHECK_FALSE(has(message("xyzzy"), "nearest"));
  CHECK(has(message("ci:levl=0.9"), "(nearest: level)"));
  CHECK(has(message("ci:1%,2%"), "not of the form option=value"));
  CHECK(has(message("ci:1%,precision=2%"), "given twice"));
  CHECK(has(message("ci:"), "not a share"));
  CHECK(has(message("ci:1%%"), "not a share"));
  CHECK(has(message("ci:nan"), "not a share"));
  CHECK(has(message("fixed:10%"), "not a whole number"));
  CHECK(has(message("fixed:10.5"), "not a whole number"));
  CHECK(has(message("fixed:0"), "n must be from 1 to 1000000000"));
  CHECK(has(message("ci:200%"), "precision must be from 0.0001% to 100%"));
  CHECK(has(message("ci:level=1"), "level must be from 50% to 99.99%"));
  CHECK(has(message("ci", {0, 0, 1}), "a cap of 0 samples"));
  for (const std::string fine : {" fixed : 50 ", "ci:precision = 2 %, level=0.9", "fixed:1e3", "ci:0.01"}) made(fine);
  // Each end of each option's range is allowed.
  for (const auto& info : sonde::rule_list()) {
    for (const auto& option : info.options) {
      CHECK(option.least <= option.fallback);
      CHECK(option.fallback <= option.most);
      for (const double value : {option.least, option.most}) {
        char text[40];
        std::snprintf(text, sizeof text, "%.17g", value);
        made(info.name + ":" + option.name + "=" + text);
      }
    }
  }
}

// ---- fixed

TEST_CASE("fixed: to the sample, and on to min_samples where that is more") {
  for (const std::uint64_t n : {1, 49, 50, 51, 1000}) {
    const Ending end = feed("fixed:" + std::to_string(n), lognormal);
    CHECK(end.decision == Decision::converged);
    CHECK(end.used == n);
  }
  CHECK(feed("fixed:10", lognormal, {1000, 30, 1}).used == 30);
  CHECK(feed("fixed:10", lognormal, {1000, 75, 1}).used == 75);
}

// ---- ci

TEST_CASE("ci: on independent delays the median errs as the precision allows") {
  int beyond = 0, missed = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(1000 + seed);
    Vector x(20000);
    for (double& v : x) v = lognormal(0, random);
    auto said = sonde::replay(x, {}, "ci:2%", {20000, 0, seed});
    REQUIRE(said);
    REQUIRE(said->decision == Decision::converged);
    CHECK((said->ci_high - said->ci_low) / 2 <= 0.021 * said->estimate);
    beyond += std::fabs(said->estimate / 2e-6 - 1) > 0.02;
    missed += !(said->ci_low <= 2e-6 && 2e-6 <= said->ci_high);
  }
  // 5 % of 200 are 10; more than 20 would have a probability of one in a thousand.
  CHECK(beyond <= 20);
  CHECK(missed <= 20);
}

TEST_CASE("ci: a ramp is drift") {
  const auto ramp = [](int e, Random& r) { return lognormal(e, r) * (1 + 0.05 * e); };
  const Ending end = feed("ci:1%", ramp);
  CHECK(end.decision == Decision::drift);
  CHECK(end.epochs == 35);  // the fifth look, at 20, 23, 26, 30, 35 epochs
  CHECK((has(end.why, "level changed") || has(end.why, "warming up")));
}

TEST_CASE("ci: at the cap two looks in a row without a steady level are drift, one is not enough") {
  const auto ramp = [](int e, Random& r) { return lognormal(e, r) * (1 + 0.05 * e); };
  CHECK(feed("ci:1%,patience=100", ramp, {1500, 0, 1}).decision == Decision::drift);
  CHECK(feed("ci:1%", ramp, {1200, 0, 1}).decision == Decision::drift);  // looks at 20, 23 and, the last, at 24
  CHECK(feed("ci:1%", ramp, {1000, 0, 1}).decision == Decision::cap);    // one look
  CHECK(feed("ci:1%", ramp, {900, 0, 1}).decision == Decision::cap);     // none
}

TEST_CASE("ci: what came after the last peek gets a last look") {
  // Looks at 20 and 23 epochs; the next would be at 26, the cap is at 24. What ends there was narrow at the second
  // look and again at the last.
  int at_cap = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Ending end = feed("ci:1.6%", lognormal, {1200, 0, 1}, 2000, 50, seed);
    CHECK((end.epochs == 20 || end.epochs == 24));
    at_cap += end.epochs == 24 && end.decision == Decision::converged;
    CHECK(has(end.why, "cap of 1200") == (end.decision == Decision::cap));
  }
  CHECK(at_cap > 0);
}

TEST_CASE("ci: waits for regimes to come often enough") {
  const auto steady = [](int, Random& r) { return 2e-6 * std::exp(0.05 * normal(r)); };
  double level = 1;
  const auto regimes = [&level](int e, Random& r) {
    static int last = -1;
    if (e != last && (last = e, r.uniform() < 0.3)) level = level == 1 ? 1.2 : 1;
    return level * 2e-6 * std::exp(0.05 * normal(r));
  };
  const Ending quiet = feed("ci:2%", steady), busy = feed("ci:2%", regimes, {1'000'000, 0, 1}, 4000);
  CHECK(quiet.decision == Decision::converged);
  CHECK(quiet.used == 1000);
  CHECK(busy.used > 4 * quiet.used);
}

TEST_CASE("ci: the warm-up is left out, and said to be") {
  const auto delay = [](int e, Random& r) { return lognormal(e, r) * (e < 2 ? 3 : 1); };
  const Ending end = feed("ci:2%", delay);
  CHECK(end.decision == Decision::converged);
  CHECK(has(end.why, "left out as warm-up"));
}

TEST_CASE("ci: the first look may decide alone, later ones need two") {
  CHECK(feed("ci:5%", lognormal).epochs == 20);
  std::set<int> ends;
  for (std::uint64_t seed = 0; seed < 60; ++seed) ends.insert(feed("ci:1.6%", lognormal, {}, 2000, 50, seed).epochs);
  CHECK(ends.count(20) == 1);
  CHECK(ends.count(23) == 0);  // the second look: if it is narrow enough, the third must agree
  CHECK(ends.count(26) == 1);
}

TEST_CASE("ci: looks that min_samples held back still count as agreeing") {
  const auto narrow = [](int, Random& r) { return 2e-6 * std::exp(0.01 * normal(r)); };
  CHECK(feed("ci:2%", narrow, {1'000'000, 1100, 1}).epochs == 23);
  CHECK(feed("ci:2%", narrow, {1'000'000, 1200, 1}).epochs == 26);
}

// ---- clustbench's, by hand

namespace {

/// Likenesses that come up over seeds at the first peek, and how often the rule stopped there.
std::set<std::string> at_first_peek(const std::string& spec, const Vector& x, int& stopped) {
  std::set<std::string> out;
  stopped = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto rule = made(spec, {1000, 0, seed});
    stopped += rule->add(x) == Decision::converged;
    const std::string why = rule->why();
    out.insert(why.substr(0, why.find(" after")));
  }
  return out;
}

}  // namespace

TEST_CASE("clustbench: two windows of two samples") {
  // Windows (1, 2) and (2, 4): power (9, 1) and (36, 4). Drawn twice the same: 1. Else the distance is three times
  // the smaller norm and the mean norm two and a half times: 1 - 3 / 2.5.
  const Vector x{1, 2, 4, 7};
  int stopped = 0;
  for (const std::string name : {"clustbench-fft", "clustbench-modified"}) {
    const auto seen = at_first_peek(name + ":every=4,windows=2,ratio=50%,criterion=0.9", x, stopped);
    CHECK(seen == std::set<std::string>{"likeness of windows -0.2", "likeness of windows 1"});
    CHECK(stopped > 5);
    CHECK(stopped < 35);
  }
}

TEST_CASE("clustbench: the mean decides with it, and nothing but the rest without it") {
  // (10, 12) and (12, 11): power (484, 4) and (529, 1). With the mean 1 - 45.1 / 506.5 = 0.911, without it -0.2.
  const Vector x{10, 12, 11, 10};
  int stopped = 0;
  CHECK(at_first_peek("clustbench-fft:every=4,windows=2,ratio=50%", x, stopped) ==
        std::set<std::string>{"likeness of windows 0.911", "likeness of windows 1"});
  CHECK(stopped == 40);
  CHECK(at_first_peek("clustbench-modified:every=4,windows=2,ratio=50%", x, stopped) ==
        std::set<std::string>{"likeness of windows -0.2", "likeness of windows 1"});
  CHECK(stopped < 40);
}

TEST_CASE("clustbench: no power is no likeness; it goes on to its own limit") {
  const auto constant = [](int, Random&) { return 2e-6; };
  const auto zero = [](int, Random&) { return 0.0; };
  CHECK(feed("clustbench-fft", constant).decision == Decision::converged);
  CHECK(feed("clustbench-fft", constant).used == 20);
  for (const auto& [spec, sample] :
       {std::pair<std::string, std::function<double(int, Random&)>>{"clustbench-fft", zero},
        {"clustbench-modified", zero}}) {
    const Ending end = feed(spec, sample);
    CHECK(end.decision == Decision::cap);
    CHECK(end.used == 1000);
    CHECK(has(end.why, "gives up after 1000 samples"));
    CHECK(has(end.why, "cannot be compared"));
  }
}

TEST_CASE("clustbench: it stops in the middle of an epoch, and gives up where it says") {
  CHECK(feed("clustbench-fft:every=7", [](int, Random&) { return 1.0; }).used == 7);
  const Ending end = feed("clustbench-modified:criterion=1,every=30,most=100", lognormal);
  CHECK(end.decision == Decision::cap);
  CHECK(end.used == 100);
}
