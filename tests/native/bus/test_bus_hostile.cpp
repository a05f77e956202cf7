#include <doctest/doctest.h>

#include <string>

#include "bus/cdr.hpp"
#include "bus/fuzz/hostile.hpp"
#include "bus/idl.hpp"

using namespace sonde::bus;

TEST_CASE("bus: a hundred thousand damaged samples and declarations are judged alike by all that reads them") {
  const auto seeds = fuzz::seeds(SONDE_TEST_DATA "/bus/golden.txt");
  REQUIRE(seeds.size() == 626);
  const auto tally = fuzz::attack(seeds, 100'000, 20261127);
  CHECK_MESSAGE(tally.wrong.empty(), tally.wrong, " of ",
                std::string(reinterpret_cast<const char*>(tally.input.data()), tally.input.size()));
  CHECK(tally.samples + tally.declarations == 100'000);
  // Neither all refused nor all let pass: the damage is of the kind that matters.
  CHECK(tally.verified > tally.samples / 20);
  CHECK(tally.verified < tally.samples / 2);
  CHECK(tally.declared > tally.declarations / 100);
  CHECK(tally.declared < tally.declarations / 2);
}

TEST_CASE("bus: every seed of the fuzzer is sound and judged so") {
  for (const auto& seed : fuzz::seeds(SONDE_TEST_DATA "/bus/golden.txt")) {
    REQUIRE(fuzz::judge(fuzz::input_of(seed)) == "");
    const auto types = parse_idl(seed.idl);
    REQUIRE(bool(types));
    CHECK((*types).rbegin()->first == seed.type);
    CHECK(verify(*(*types).at(seed.type), seed.payload));
  }
}
