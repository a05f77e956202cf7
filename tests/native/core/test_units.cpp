#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "core/random.hpp"
#include "core/units.hpp"

using namespace sonde;

TEST_CASE("a duration is told with three digits and an engineering unit") {
  CHECK(format_duration(1.234e-6) == "1.23 \u00b5s");
  CHECK(format_duration(45.67e-9) == "45.7 ns");
  CHECK(format_duration(123e-12) == "123 ps");
  CHECK(format_duration(0.45) == "450 ms");
  CHECK(format_duration(12) == "12.0 s");
  CHECK(format_duration(-2.5e-6) == "-2.50 \u00b5s");
}

TEST_CASE("a duration that rounds up to a thousand goes to the next unit") {
  CHECK(format_duration(999.4e-9) == "999 ns");
  CHECK(format_duration(999.6e-9) == "1.00 \u00b5s");
  CHECK(format_duration(9.996e-3) == "10.0 ms");
  CHECK(format_duration(0.9996) == "1.00 s");
  CHECK(format_duration(59.96) == "1 min");
  CHECK(format_duration(3599.6) == "1 h");
  CHECK(format_duration(86399) == "1 d");
}

TEST_CASE("from a minute on a duration is two whole units") {
  CHECK(format_duration(125) == "2 min 5 s");
  CHECK(format_duration(5400) == "1 h 30 min");
  CHECK(format_duration(90000) == "1 d 1 h");
}

TEST_CASE("durations that are no ordinary number have a text") {
  CHECK(format_duration(0) == "0 s");
  CHECK(format_duration(-0.0) == "0 s");
  CHECK(format_duration(std::nan("")) == "nan");
  CHECK(format_duration(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(format_duration(-std::numeric_limits<double>::infinity()) == "-inf");
  CHECK(format_duration(1e-15) == "1e-15 s");
  CHECK(format_duration(std::numeric_limits<double>::max()) == "1.8e+308 s");
}

TEST_CASE("durations are read with or without blanks, and add up") {
  CHECK(*parse_duration("60s") == 60);
  CHECK(*parse_duration("60") == 60);
  CHECK(*parse_duration(" 2 min ") == 120);
  CHECK(*parse_duration("1h30min") == 5400);
  CHECK(*parse_duration("1 d 2h 3m 4.5s") == 86400 + 7200 + 180 + 4.5);
  CHECK(*parse_duration(".5ms") == 0.5e-3);
  CHECK(*parse_duration("1.23 \u00b5s") == 1.23e-6);
  CHECK(*parse_duration("1.23 \u03bcs") == 1.23e-6);
  CHECK(*parse_duration("1.23us") == 1.23e-6);
  CHECK(*parse_duration("0") == 0);
}

TEST_CASE("what is no duration is refused, and the error says why") {
  for (const char* text : {"",    " ",   "s",    "abc",   "-1s",    "+1s",    "1 parsec", "1s 2", "1 2", "1h-2min",
                           "inf", "nan", "0x10", "1e400", "1e300h", "36526d", "1..5s",    "1,5s", "MS",  "\xff"}) {
    CAPTURE(text);
    const auto got = parse_duration(text);
    REQUIRE_FALSE(got);
    CHECK(got.error().code == "core.bad_duration");
    CHECK_FALSE(got.error().what.empty());
    CHECK_FALSE(got.error().hint.empty());
  }
  CHECK(parse_duration("5 parsecs").error().what.find("allowed: ps ns us ms s min h d") != std::string::npos);
}

TEST_CASE("every duration that is told can be read, to the digits told") {
  Random random(1);
  for (int k = 0; k < 20000; ++k) {
    const double value = std::pow(10.0, -12 + 21.4 * random.uniform());
    const std::string text = format_duration(value);
    CAPTURE(text);
    const auto back = parse_duration(text);
    REQUIRE(back);
    const double step = value < 59.95 ? 0.0051 * value : value < 3600 ? 0.51 : value < 86400 ? 31 : 1801;
    CHECK(std::abs(*back - value) <= step);
    CHECK(format_duration(*back) == text);
  }
}

TEST_CASE("a size is told in binary units") {
  CHECK(format_size(0) == "0 B");
  CHECK(format_size(1023) == "1023 B");
  CHECK(format_size(1024) == "1 KiB");
  CHECK(format_size(1536) == "1.5 KiB");
  CHECK(format_size(65536) == "64 KiB");
  CHECK(format_size(123456789) == "118 MiB");
  CHECK(format_size(1023 * 1024) == "1023 KiB");
  CHECK(format_size(1024 * 1024 - 1) == "1 MiB");
  CHECK(format_size(~std::uint64_t{0}) == "16384 PiB");
}

TEST_CASE("an exact size is the shortest text that reads back to it") {
  CHECK(format_size(65536, true) == "64 KiB");
  CHECK(format_size(1000, true) == "1000 B");
  CHECK(format_size(10000, true) == "10 kB");
  CHECK(format_size(10010, true) == "10010 B");
  CHECK(format_size(1000000000, true) == "1 GB");
  Random random(2);
  for (int k = 0; k < 20000; ++k) {
    const std::uint64_t bytes = random.next() >> (2 + random.below(62));
    const std::string text = format_size(bytes, true);
    CAPTURE(text);
    const auto back = parse_size(text);
    REQUIRE(back);
    CHECK(*back == bytes);
  }
}

TEST_CASE("sizes are read in binary and decimal units, whatever the case") {
  CHECK(*parse_size("4096") == 4096);
  CHECK(*parse_size("64KiB") == 65536);
  CHECK(*parse_size("64 kib") == 65536);
  CHECK(*parse_size("64kB") == 64000);
  CHECK(*parse_size("1.5 MiB") == 1572864);
  CHECK(*parse_size("0.001kB") == 1);
  CHECK(*parse_size("8B") == 8);
  CHECK(*parse_size("4611686018427387904") == std::uint64_t{1} << 62);
}

TEST_CASE("what is no size is refused, and the error says why") {
  for (const char* text :
       {"", "-1", "KiB", "1.3B", "0.0001kB", "1e3", "0x10", "64KiBs", "1 MiB x", "1 2", ".", "4611686018427387905",
        "99999999999999999999999", "4097PiB", "0.00000000000000001B", "\xff\xfe"}) {
    CAPTURE(text);
    const auto got = parse_size(text);
    REQUIRE_FALSE(got);
    CHECK(got.error().code == "core.bad_size");
    CHECK_FALSE(got.error().hint.empty());
  }
}

TEST_CASE("a lone K is ambiguous, and the error names both readings") {
  const auto got = parse_size("64K");
  REQUIRE_FALSE(got);
  CHECK(got.error().what == "'64K' is ambiguous; allowed: KiB (1024) or kB (1000)");
  CHECK(got.error().hint == "did you mean 64KiB?");
}

TEST_CASE("an error about a hostile text stays short and printable") {
  const auto got = parse_size(std::string(100000, 'x') + "\x1b[31m");
  REQUIRE_FALSE(got);
  CHECK(got.error().what.size() < 120);
  CHECK(parse_duration("\x1b[31m").error().what.find('\x1b') == std::string::npos);
}

TEST_CASE("random bytes are read or refused, never more") {
  Random random(3);
  const std::string letters = "0123456789..eE-+ \tkKmMgiIbBnushd\xc2\xb5\xce\xbc";
  for (int k = 0; k < 100000; ++k) {
    std::string text(random.below(12), ' ');
    for (char& c : text)
      c = random.below(8) ? letters[random.below(letters.size())] : static_cast<char>(random.below(256));
    if (const auto s = parse_duration(text); s) CHECK((*s >= 0 && *s <= 36525 * 86400.0));
    if (auto b = parse_size(text); b) CHECK(*b <= std::uint64_t{1} << 62);
  }
}

TEST_CASE("power is told in engineering units") {
  const std::pair<double, const char*> told[] = {{0, "0 W"},           {0.35, "350 mW"},    {1, "1 W"},
                                                 {211.5, "211.5 W"},   {999.94, "999.9 W"}, {999.96, "1 kW"},
                                                 {1250, "1.25 kW"},    {99999, "100 kW"},   {2e7, "20 MW"},
                                                 {123456, "123.5 kW"}, {-250, "-250 W"},    {1e-4, "0.1 mW"}};
  for (const auto& [value, text] : told) CHECK(format_power(value) == text);
  CHECK(format_power(std::nan("")) == "nan");
  CHECK(format_power(-std::numeric_limits<double>::infinity()) == "-inf");
}

TEST_CASE("power is read in watts and their multiples, and case matters") {
  const std::pair<const char*, double> read[] = {{"1500", 1500},  {"1500 W", 1500}, {"1.5kW", 1500}, {" 20 MW ", 2e7},
                                                 {"350mW", 0.35}, {"0", 0},         {"1000MW", 1e9}};
  for (const auto& [text, value] : read) {
    const auto got = parse_power(text);
    REQUIRE_MESSAGE(bool(got), text);
    CHECK(*got == doctest::Approx(value));
  }
  for (const char* text : {"", "W", "-5W", "5w", "5KW", "5 kWh", "1001MW", "nan", "1e400", "5 W 6"}) {
    const auto got = parse_power(text);
    REQUIRE_MESSAGE(!got, text);
    CHECK(got.error().code == "core.bad_power");
  }
}
