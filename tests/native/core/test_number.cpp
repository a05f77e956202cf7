#include <doctest/doctest.h>

#include <cstdint>

#include "core/number.hpp"

using sonde::number;

TEST_CASE("a number is the whole of its text") {
  int whole = 7;
  CHECK(number("-12", whole));
  CHECK(whole == -12);
  for (const char* text : {"", " 1", "1 ", "1x", "x", "+1", "1.5", "0x10", "2147483648", "-"})
    CHECK_FALSE(number(text, whole));
  std::uint16_t small = 0;
  CHECK(number("65535", small));
  CHECK_FALSE(number("65536", small));
  CHECK_FALSE(number("-1", small));
  double real = 0;
  CHECK(number("1.5e-3", real));
  CHECK(real == 1.5e-3);
  CHECK_FALSE(number("1,5", real));
}
