#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "bus/cdr.hpp"
#include "bus/idl.hpp"
#include "bus/value.hpp"

using namespace sonde::bus;

namespace {

std::string hex(Bytes bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const std::byte b : bytes) {
    out += digits[static_cast<unsigned>(b) >> 4];
    out += digits[static_cast<unsigned>(b) & 15];
  }
  return out;
}

std::vector<std::byte> from_hex(std::string_view text) {
  std::vector<std::byte> out;
  const auto digit = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
  for (std::size_t k = 0; k + 1 < text.size(); k += 2)
    out.push_back(static_cast<std::byte>(digit(text[k]) << 4 | digit(text[k + 1])));
  return out;
}

/// The next line, without the word that it begins with.
std::string line(std::istream& in, std::string_view word) {
  std::string out;
  if (!std::getline(in, out)) return "";
  REQUIRE(out.starts_with(word));
  return out.size() > word.size() ? out.substr(word.size() + 1) : "";
}

}  // namespace

TEST_CASE("bus: samples lie as Cyclone DDS lays them") {
  // How golden.txt was made: make_golden.py beside it.
  std::ifstream in(SONDE_TEST_DATA "/bus/golden.txt");
  REQUIRE(in);
  int cases = 0, keyed = 0;
  for (std::string first; !(first = line(in, "idl")).empty(); ++cases) {
    CAPTURE(first);
    const std::size_t blank = first.find(' ');
    const auto types = parse_idl(first.substr(blank + 1));
    REQUIRE_MESSAGE(bool(types), types.error().what);
    const TypePtr type = (*types).at(first.substr(0, blank));
    const std::string json = line(in, "json");
    const auto little = from_hex(line(in, "le")), big = from_hex(line(in, "be")), key = from_hex(line(in, "key"));
    std::string why;
    const Checker checker(type);
    for (const auto& payload : {little, big}) {
      CHECK_MESSAGE(verify(*type, payload, &why), why);
      CHECK(checker.verify(payload));
      const auto value = decode(*type, payload);
      REQUIRE(bool(value));
      CHECK(to_json(*value) == json);
      std::vector<std::byte> again;
      REQUIRE(bool(encode(*type, *value, again)));
      CHECK(hex(again) == hex(little));
      CHECK(hex(serialised_key(*type, payload)) == hex(key));
      KeyMaker(type).make(payload, again);
      CHECK(hex(again) == hex(key));
    }
    CHECK(key.size() <= most_key_bytes(*type));
    keyed += !key.empty();
    if (!key.empty()) {
      const auto of_key = payload_of_key(*type, key);
      CHECK(checker.verify(of_key));
      CHECK(hex(serialised_key(*type, of_key)) == hex(key));
    }
    const auto again = parse_idl(to_idl(*type));
    REQUIRE(bool(again));
    CHECK(equal(*(*again).at(type->name), *type));
    CHECK(fingerprint(*(*again).at(type->name)) == fingerprint(*type));
    // What is cut off anywhere, but in what pads it, is seen.
    for (std::size_t n = 0; n < little.size(); ++n) {
      const Bytes cut = Bytes(little).first(n);
      CHECK_FALSE(checker.verify(cut));
      CHECK_FALSE(verify(*type, cut));
    }
  }
  CHECK(cases == 313);
  CHECK(keyed == 179);
}
