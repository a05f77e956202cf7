#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/schedule.hpp"

using sonde::Schedule;

TEST_CASE("every epoch visits each cell and variant once, in another order each time") {
  Schedule schedule(7, 2, 3, 50, 1);
  std::map<std::uint32_t, std::vector<std::pair<std::uint32_t, std::uint32_t>>> epochs;
  while (auto step = schedule.next()) {
    CHECK(step->n == 50);
    epochs[step->epoch].emplace_back(step->cell, step->variant);
  }
  REQUIRE(epochs.size() == 3);
  for (auto& [epoch, visits] : epochs) {
    CHECK(visits.size() == 14);
    CHECK(std::set(visits.begin(), visits.end()).size() == 14);
  }
  CHECK(epochs[0] != epochs[1]);
}

TEST_CASE("the same seed gives the same order, another seed another") {
  auto order = [](std::uint64_t seed) {
    Schedule s(20, 1, 2, 1, seed);
    std::vector<std::uint32_t> out;
    while (auto step = s.next()) out.push_back(step->cell);
    return out;
  };
  CHECK(order(5) == order(5));
  CHECK(order(5) != order(6));
}

TEST_CASE("a retired cell is not visited again; with none left the run ends") {
  Schedule s(3, 1, 100, 1, 9);
  s.retire(1);
  s.retire(1);
  CHECK(s.active() == 2);
  for (int k = 0; k < 10; ++k) CHECK(s.next()->cell != 1);
  s.retire(0);
  s.retire(2);
  CHECK_FALSE(s.next());
}
