#include <doctest/doctest.h>

#include <set>
#include <utility>

#include "core/pairing.hpp"

using sonde::pairing_partner;
using sonde::pairing_rounds;

TEST_CASE("every unordered pair meets exactly once, and partners agree") {
  for (int size : {2, 3, 4, 5, 8, 9, 31, 64, 101}) {
    CAPTURE(size);
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < pairing_rounds(size); ++round) {
      int paused = 0;
      for (int rank = 0; rank < size; ++rank) {
        const int partner = pairing_partner(rank, round, size);
        if (partner < 0) {
          ++paused;
          continue;
        }
        REQUIRE(partner < size);
        REQUIRE(partner != rank);
        REQUIRE(pairing_partner(partner, round, size) == rank);
        if (rank < partner) CHECK(met.emplace(rank, partner).second);
      }
      CHECK(paused == size % 2);
    }
    CHECK(met.size() == static_cast<std::size_t>(size) * (size - 1) / 2);
  }
}

TEST_CASE("64 ranks need 63 rounds, 5 ranks 5, one rank none") {
  CHECK(pairing_rounds(64) == 63);
  CHECK(pairing_rounds(5) == 5);
  CHECK(pairing_rounds(1) == 0);
  CHECK(pairing_rounds(0) == 0);
}
