#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/random.hpp"
#include "noise/judge.hpp"
#include "noise/schedule.hpp"

using namespace sonde::noise;

namespace {

constexpr double block_s = 0.25, pitch_s = 0.3, shortest_s = 50e-6;

/// Blocks of a run: stalls of 50 us and more at random times, labels as a run draws them.
std::vector<Evidence> run_of(std::uint64_t seed, std::vector<std::uint32_t> rounds = {10, 10}, double stalls = 5) {
  sonde::Random random(seed);
  const std::uint32_t shares[] = {1, 1};
  std::vector<Evidence> out;
  for (const auto& planned : plan_blocks(shares, rounds, seed)) {
    Evidence block;
    block.segment = planned.segment;
    block.on = planned.variant == 1;
    block.begin_s = pitch_s * static_cast<double>(out.size());
    block.length_s = block_s;
    block.resumed_s = 0.05;
    for (double t = 0; (t -= std::log(1 - random.uniform()) * block_s / stalls) < block_s;) {
      block.stalls.t_s.push_back(t);
      block.stalls.length_s.push_back(shortest_s / std::sqrt(1 - random.uniform()));
    }
    block.levels = {-10 + 0.01 * random.uniform(), -9 + 0.01 * random.uniform()};
    out.push_back(std::move(block));
  }
  return out;
}

TestOptions options_of(std::uint32_t permutations = 999) {
  TestOptions options;
  options.periods_s = {1.0};
  options.permutations = permutations;
  return options;
}

/// Whether so many of n is more than a share allows, with a chance below 1e-3 where it is exactly the share.
bool too_many(std::uint32_t found, std::uint32_t n, double share) {
  double below = 0, term = std::pow(1 - share, n);
  for (std::uint32_t k = 0; k < found; ++k) {
    below += term;
    term *= share / (1 - share) * (n - k) / (k + 1.0);
  }
  return 1 - below < 1e-3;
}

}  // namespace

TEST_CASE("without blocks, of one kind, or of two kinds in different segments, p is 1") {
  CHECK(test({}, options_of()).p == 1);
  auto blocks = run_of(1);
  for (auto& block : blocks) block.on = true;
  CHECK(test(blocks, options_of()).p == 1);
  for (auto& block : blocks) block.on = block.segment == 1;
  CHECK(test(blocks, options_of()).p == 1);
}

TEST_CASE("blocks without stalls and levels prove nothing") {
  std::vector<Evidence> blocks = run_of(2);
  for (auto& block : blocks) {
    block.stalls = {};
    block.levels.clear();
  }
  const auto found = test(blocks, options_of());
  CHECK(found.p == 1);
  CHECK(found.z_fold == 0);
  CHECK(found.period_s == 0);
}

TEST_CASE("blocks that are all alike prove nothing: ties count as equal") {
  auto blocks = run_of(3);
  for (auto& block : blocks) {
    block.stalls = {{0.1}, {1e-3}};
    block.levels = {1, 1};
  }
  auto options = options_of();
  options.periods_s.clear();
  CHECK(test(blocks, options).p == 1);
}

TEST_CASE("two values only: the best labels are as rare as they are, not rarer") {
  // 3 of 6 on, the slow ones: 1 of 20 draws is as good. p must not go below that.
  std::vector<Evidence> blocks(6);
  for (std::size_t b = 0; b < 6; ++b) {
    blocks[b].on = b < 3;
    blocks[b].length_s = block_s;
    blocks[b].levels = {b < 3 ? 2.0 : 1.0};
  }
  auto options = options_of(9999);
  options.periods_s.clear();
  CHECK(test(blocks, options).p == doctest::Approx(0.05).epsilon(0.2));
}

TEST_CASE("one segment of one pair can never be significant") {
  auto blocks = run_of(4, {1});
  for (auto& block : blocks)
    if (block.on) inject(block, 0.05, 0.01, 5e-3, shortest_s);
  CHECK(test(blocks, options_of()).p >= 0.4);
}

TEST_CASE("a burst a period is found, at its phase") {
  auto blocks = run_of(5, {40});
  for (auto& block : blocks)
    if (block.on) inject(block, 1.0, 0.4, 5e-3, shortest_s);
  const auto found = test(blocks, options_of());
  CHECK(found.p <= 0.01);
  CHECK(found.p_fold == doctest::Approx(2.0 / 1000));
  CHECK(found.period_s == 1.0);
  CHECK(std::abs(found.phase_s - 0.4) <= 1.0 / 80);
}

TEST_CASE("less noise with the agent on is no finding") {
  auto blocks = run_of(6, {40});
  for (auto& block : blocks) {
    if (!block.on) inject(block, 1.0, 0.4, 5e-3, shortest_s);
    block.levels[0] += block.on ? 0 : 1;
  }
  CHECK(test(blocks, options_of()).p > 0.2);
}

TEST_CASE("labels without meaning are found no more often than alpha says") {
  std::uint32_t alarms = 0;
  constexpr std::uint32_t runs = 200;
  for (std::uint32_t k = 0; k < runs; ++k) {
    auto options = options_of(199);
    options.seed = k;
    alarms += test(run_of(1000 + k), options).p <= 0.05;
  }
  CHECK_FALSE(too_many(alarms, runs, 0.05));
}

TEST_CASE("the same seed gives the same p") {
  const auto blocks = run_of(7);
  auto options = options_of();
  const auto once = test(blocks, options), again = test(blocks, options);
  CHECK(once.p_fold == again.p_fold);
  CHECK(once.p_ranked == again.p_ranked);
}

TEST_CASE("looks: p so far only falls, and a look without a share decides nothing") {
  auto blocks = run_of(8, {20, 20, 20});
  for (auto& block : blocks)
    if (block.on) inject(block, 0.25, 0.1, 5e-3, shortest_s);
  Sequential looks({0.5, 0.0, 0.5}, options_of());
  CHECK(looks.p() == 1);
  double last = 1;
  for (const std::size_t end : {40u, 80u, 120u}) {
    const auto found = looks.look(std::span(blocks).first(end));
    CHECK(looks.p() <= last);
    if (end == 80) CHECK(looks.p() == last);
    else CHECK(looks.p() <= found.p / 0.5);
    last = looks.p();
  }
  CHECK(looks.looks() == 3);
  CHECK(looks.detected(0.01));
  looks.look(blocks);  // beyond those planned
  CHECK(looks.p() == last);
}

TEST_CASE("inject: bursts below what a stall is are not seen, the others once a period") {
  Evidence block;
  block.begin_s = 10.3;
  block.length_s = 2;
  auto shorter = block;
  inject(shorter, 0.5, 0.1, shortest_s / 2, shortest_s);
  CHECK(shorter.stalls.t_s.empty());
  inject(block, 0.5, 0.1, shortest_s, shortest_s);
  REQUIRE(block.stalls.t_s.size() == 4);
  for (std::size_t k = 0; k < 4; ++k) {
    CHECK(block.stalls.t_s[k] == doctest::Approx(0.3 + 0.5 * static_cast<double>(k)));
    CHECK(block.stalls.length_s[k] == shortest_s);
  }
}

TEST_CASE("inject: a period longer than the block may miss it, and a burst may meet a stall") {
  Evidence block;
  block.begin_s = 1;
  block.length_s = 1;
  inject(block, 10, 5, 1e-3, shortest_s);
  CHECK(block.stalls.t_s.empty());
  block.stalls = {{0.4995}, {2e-3}};
  inject(block, 10, 1.5, 1e-3, shortest_s);
  REQUIRE(block.stalls.t_s.size() == 1);
  CHECK(block.stalls.t_s[0] == 0.4995);
  CHECK(block.stalls.length_s[0] == 2e-3);
}

TEST_CASE("merge: overlapping stalls are one, those that touch are two") {
  const Stalls ranks[] = {{{0.1, 0.5}, {0.01, 0.2}}, {{0.105, 0.6, 0.7}, {0.02, 0.01, 0.1}}, {}};
  const auto merged = merge(ranks);
  CHECK(merged.t_s == std::vector{0.1, 0.5, 0.7});
  CHECK(merged.length_s == std::vector{0.02, 0.2, 0.1});
  CHECK(merge({}).t_s.empty());
}

TEST_CASE("merge: one rank's stalls come out in order") {
  const Stalls ranks[] = {{{0.3, 0.1}, {0.01, 0.02}}};
  const auto merged = merge(ranks);
  CHECK(merged.t_s == std::vector{0.1, 0.3});
  CHECK(merged.length_s == std::vector{0.02, 0.01});
}

TEST_CASE("power of a null is at most alpha, and grows with the burst") {
  const auto clean = run_of(9);
  Design design{{10, 10}, {0.5, 0.5}, 0.05};
  auto options = options_of(199);
  options.periods_s = {0.25};
  constexpr std::uint32_t runs = 200;
  std::vector<std::uint32_t> needed;
  const double null = power(clean, design, 0.25, 0, shortest_s, options, runs, &needed);
  CHECK(needed.size() == runs);
  CHECK_FALSE(too_many(static_cast<std::uint32_t>(std::lround(null * runs)), runs, 0.05));
  // A burst too short to be a stall is a null too, drawn from the same seed.
  CHECK(power(clean, design, 0.25, shortest_s / 2, shortest_s, options, runs) == null);
  CHECK(power(clean, design, 0.25, 10e-3, shortest_s, options, 40) >= 0.9);
}

TEST_CASE("power: without blocks or runs there is none") {
  const Design design{{5}, {1.0}, 0.05};
  CHECK(power({}, design, 1, 1e-3, shortest_s, options_of(99), 10) == 0);
  CHECK(power(run_of(1), design, 1, 1e-3, shortest_s, options_of(99), 0) == 0);
}

TEST_CASE("power says after how many blocks bursts were found") {
  std::vector<std::uint32_t> needed;
  const Design design{{15, 15}, {0.5, 0.5}, 0.05};
  auto options = options_of(199);
  options.periods_s = {0.25};
  const double share = power(run_of(10), design, 0.25, 10e-3, shortest_s, options, 20, &needed);
  REQUIRE(needed.size() == 20);
  for (const auto blocks : needed) CHECK((blocks == 0 || blocks == 30 || blocks == 60));
  CHECK(share == static_cast<double>(std::count_if(needed.begin(), needed.end(), [](auto n) { return n > 0; })) / 20);
}

TEST_CASE("the detectable burst: none of a design too small, else found with the power that was asked for") {
  const auto clean = run_of(11);
  auto options = options_of(199);
  options.periods_s = {0.25};
  CHECK_FALSE(detectable_burst(clean, {{1}, {1.0}, 0.01}, 0.25, shortest_s, options, 0.9, 10).burst_s);
  const Design design{{15, 15}, {0.5, 0.5}, 0.05};
  const auto least = detectable_burst(clean, design, 0.25, shortest_s, options, 0.9, 20).burst_s;
  REQUIRE(least);
  CHECK(*least >= shortest_s);
  CHECK(*least <= 0.125);
  CHECK(power(clean, design, 0.25, *least, shortest_s, options, 20) >= 0.9);
}

TEST_CASE("a period shorter than twice the shortest burst leaves nothing to detect") {
  CHECK_FALSE(
      detectable_burst(run_of(12), {{15}, {1.0}, 0.05}, 1.5 * shortest_s, shortest_s, options_of(99), 0.9, 5).burst_s);
}

TEST_CASE("a test that is ended early has fewer permutations, and a p that these allow") {
  const auto blocks = run_of(3);
  int asked = 0;
  const auto ended = test(blocks, options_of(), [&] { return ++asked < 3; });
  CHECK(asked == 3);
  CHECK(ended.permutations > 0);
  CHECK(ended.permutations < 999);
  CHECK(ended.p >= 1.0 / (ended.permutations + 1));
  CHECK(ended.p <= 1);
  const auto as_few = test(blocks, options_of(ended.permutations));
  CHECK(ended.p == as_few.p);
  CHECK(ended.p_fold == as_few.p_fold);
  CHECK(ended.z_fold == as_few.z_fold);
  CHECK(test(blocks, options_of()).permutations == 999);
}

TEST_CASE("a look that is ended early claims no more than its permutations allow") {
  auto blocks = run_of(4);
  for (auto& block : blocks)
    if (block.on) inject(block, 1.0, 0.4, 20e-3, shortest_s);
  Sequential whole({1.0}, options_of()), cut({1.0}, options_of());
  CHECK(whole.look(blocks).p < 0.05);
  const auto found = cut.look(blocks, [] { return false; });
  CHECK(cut.p() >= 1.0 / (found.permutations + 1));
}

TEST_CASE("a search that is ended early knows a burst that is found, never a shorter one than the whole search") {
  const auto clean = run_of(11);
  const Design design{{15}, {1.0}, 0.05};
  const auto whole = detectable_burst(clean, design, 0.25, shortest_s, options_of(99), 0.9, 5);
  REQUIRE(whole.burst_s);
  CHECK(whole.done == whole.steps);
  std::optional<double> before;
  std::uint32_t done = 0;
  for (int allowed = 0; done < whole.steps; ++allowed) {
    int asked = 0;
    const auto ended =
        detectable_burst(clean, design, 0.25, shortest_s, options_of(99), 0.9, 5, [&] { return asked++ < allowed; });
    CHECK(ended.steps == whole.steps);
    CHECK(ended.done >= done);
    if (ended.done == 0) CHECK_FALSE(ended.burst_s);
    else CHECK(*ended.burst_s >= *whole.burst_s);
    if (before) CHECK(*ended.burst_s <= *before);
    before = ended.burst_s;
    done = ended.done;
  }
  CHECK(*before == *whole.burst_s);
}

TEST_CASE("looks go on after those that are over, as if they had been seen") {
  auto blocks = run_of(5);
  for (auto& block : blocks)
    if (block.on) inject(block, 1.0, 0.4, 20e-3, shortest_s);
  Sequential all({0.5, 0.5}, options_of());
  all.look(std::span(blocks).first(20));
  Sequential rest({0.5, 0.5}, options_of(), all.looks(), all.p());
  CHECK(rest.p() == all.p());
  CHECK(rest.look(blocks).p == all.look(blocks).p);
  CHECK(rest.p() == all.p());
  CHECK(rest.looks() == 2);
}
