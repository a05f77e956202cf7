#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/nearest.hpp"
#include "core/text.hpp"

using namespace sonde;

TEST_CASE("text: what is shown of a text is short and whole characters") {
  CHECK(shown("eth0") == "'eth0'");
  CHECK(shown("a\nb\x7f") == "'a?b?'");
  CHECK(shown(std::string(41, 'x')) == "'" + std::string(40, 'x') + "...'");
  CHECK(shown("ab\u00e9", 3) == "'ab...'");
  CHECK(shown("abc", 3) == "'abc'");
}

TEST_CASE("text: words are joined with commas") {
  CHECK(joined({}) == "");
  CHECK(joined({"a"}) == "a");
  CHECK(joined({"a", "b", "c"}) == "a, b, c");
}

TEST_CASE("text: the nearest word is told where less than half would change, letters' case counting half") {
  const std::vector<std::string> words{"udp4", "udp6", "tcp4", "shared-memory"};
  CHECK(nearest("udp", words) == " (nearest: udp4)");
  CHECK(nearest("UDP6", words) == " (nearest: udp6)");
  CHECK(nearest("shared_memory", words) == " (nearest: shared-memory)");
  CHECK(nearest("infiniband", words) == "");
  CHECK(nearest("udp4", {}) == "");
  CHECK(nearest(std::string(1 << 20, 'u'), words) == "");
  CHECK(edits("abc", "abd") == 2);
  CHECK(edits("abc", "abC") == 1);
}
