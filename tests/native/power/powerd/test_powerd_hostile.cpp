#include <doctest/doctest.h>

#include "power/fuzz/hostile.hpp"

using namespace sonde::power;

TEST_CASE("power: configurations, MQTT's messages and samples that are damaged keep no promise from being kept") {
  const auto tally = fuzz::attack(10'000, 20261123);
  CHECK_MESSAGE(tally.wrong.empty(), tally.wrong, " of ", tally.input);
  CHECK(tally.inputs == 10'000);
  // Neither all refused nor all let pass: the damage is of the kind that matters.
  CHECK(tally.sound > tally.inputs / 20);
  CHECK(tally.sound < tally.inputs / 2);
}

TEST_CASE("power: every seed of the fuzzer is sound") {
  const auto seeds = fuzz::seeds();
  REQUIRE(fuzz::types().size() == 10);
  CHECK(seeds.size() == 2 + 2 * fuzz::types().size() + 3);
  for (const auto& seed : seeds) CHECK_MESSAGE(fuzz::judge(fuzz::input_of(seed)) == "", seed.text);
}
