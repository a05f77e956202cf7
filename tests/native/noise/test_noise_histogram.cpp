#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/random.hpp"
#include "noise/histogram.hpp"

using namespace sonde::noise;

namespace {

std::vector<double> all_edges() {
  std::vector<double> out;
  for (std::size_t k = 0; k <= Histogram::classes; ++k) out.push_back(static_cast<double>(Histogram::edge(k)));
  return out;
}

}  // namespace

TEST_CASE("a class begins where it says and ends where the next begins") {
  for (std::size_t k = 0; k < Histogram::classes; ++k) {
    const auto begin = Histogram::edge(k), end = Histogram::edge(k + 1);
    REQUIRE(begin < end);
    CHECK(Histogram::class_of(begin) == k);
    CHECK(Histogram::class_of(end - 1) == k);
  }
  CHECK(Histogram::edge(0) == 32);
  CHECK(Histogram::edge(Histogram::classes) == std::uint64_t{1} << 32);
}

TEST_CASE("classes are at most 1/32 wide, and so is the error of any duration") {
  sonde::Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t t = 32 + (random.next() >> (32 + random.below(27)));
    const auto k = Histogram::class_of(t);
    const auto begin = Histogram::edge(k), end = Histogram::edge(k + 1);
    CHECK(begin <= t);
    if (k + 1 < Histogram::classes) CHECK(t < end);
    CHECK((end - begin) * 32 <= begin);
  }
}

TEST_CASE("durations below the first class and beyond the last are counted in these") {
  for (const std::uint64_t t : {0ull, 1ull, 31ull, 32ull}) CHECK(Histogram::class_of(t) == 0);
  CHECK(Histogram::class_of(33) == 1);
  for (const std::uint64_t t : {(1ull << 32) - 1, 1ull << 32, 1ull << 40, ~0ull})
    CHECK(Histogram::class_of(t) == Histogram::classes - 1);
}

TEST_CASE("quantiles lie on a straight line within their class") {
  const std::vector<double> edges{0, 1, 2, 4, 8};
  const std::vector<std::uint32_t> count{0, 10, 0, 30};
  CHECK(quantile(count, edges, 0) == 1);
  CHECK(quantile(count, edges, 0.125) == doctest::Approx(1.5));
  CHECK(quantile(count, edges, 0.25) == 2);
  CHECK(quantile(count, edges, 0.5) == doctest::Approx(4 + 4.0 / 3));
  CHECK(quantile(count, edges, 1) == 8);
}

TEST_CASE("an empty histogram has the quantile 0, and none wraps round") {
  const auto edges = all_edges();
  std::vector<std::uint32_t> count(Histogram::classes, 0);
  CHECK(quantile(count, edges, 0.5) == 0);
  CHECK(quantile({}, std::vector<double>{7}, 0.5) == 0);
  count[5] = count[6] = ~0u;
  CHECK(quantile(count, edges, 0.5) == edges[6]);
  CHECK(quantile(count, edges, 1) == edges[7]);
}

TEST_CASE("quantiles rise with their share") {
  sonde::Random random(3);
  const auto edges = all_edges();
  std::vector<std::uint32_t> count(Histogram::classes, 0);
  for (int i = 0; i < 1000; ++i) ++count[Histogram::class_of(random.next() >> (30 + random.below(30)))];
  double last = 0;
  for (int k = 0; k <= 100; ++k) {
    const double here = quantile(count, edges, k / 100.0);
    CHECK(here >= last);
    last = here;
  }
}
