#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "bus/probe/drawn.hpp"

using namespace sonde;
using namespace sonde::bus::probe;

TEST_CASE("bus probe drawn: one of each stretch is kept and no period of the samples meets one of the choice") {
  Random chance(7);
  const std::size_t n = 10'000, keep = 50, period = 100;  // a hundred clients with a hundred calls each
  std::set<std::size_t> places;
  for (int k = 0; k < 20; ++k) {
    const auto found = drawn(n, keep, chance);
    REQUIRE(found.size() == keep);
    for (std::size_t j = 0; j < keep; ++j) {
      CHECK(found[j] / (n / keep) == j);
      places.insert(found[j] % period);
    }
  }
  CHECK(places.size() > period / 2);
}

TEST_CASE("bus probe drawn: few are all kept and a stretch may be of one or two") {
  Random chance(1);
  CHECK(drawn(3, 50, chance) == std::vector<std::size_t>{0, 1, 2});
  CHECK(drawn(3, 3, chance) == std::vector<std::size_t>{0, 1, 2});
  CHECK(drawn(0, 5, chance).empty());
  for (std::size_t n = 4; n < 9; ++n) {
    const auto found = drawn(n, 3, chance);
    CHECK(found.size() == 3);
    CHECK(std::is_sorted(found.begin(), found.end()));
    CHECK(std::adjacent_find(found.begin(), found.end()) == found.end());
    CHECK(found.back() < n);
  }
  std::vector<double> values{10, 11, 12, 13, 14};
  keep_only(values, {0, 2, 4});
  CHECK(values == std::vector<double>{10, 12, 14});
}
