// Orders by MQTT that the bridge remembers with their answers: how many, how many bytes, and which it may forget.
#include <doctest/doctest.h>

#include <cstddef>
#include <string>

#include "power/powerd/bridge/remembered.hpp"

using sonde::power::bridge::Remembered;

namespace {

constexpr std::size_t mib = 1u << 20;

/// An order of this many bytes, unlike those of other numbers.
std::string order(int number, std::size_t bytes = 16) {
  std::string out = std::to_string(number) + ':';
  out.resize(bytes, 'x');
  return out;
}

void carry_out(Remembered& orders, const std::string& which) {
  REQUIRE(orders.begin(which));
  orders.answered(which, "done");
}

}  // namespace

TEST_CASE("bridge remembered: an order is under way until it is answered, and then has its answer") {
  Remembered orders(4, mib);
  CHECK(orders.find(order(1)) == nullptr);
  REQUIRE(orders.begin(order(1)));
  REQUIRE(orders.find(order(1)) != nullptr);
  CHECK(orders.find(order(1))->empty());
  orders.answered(order(1), "done");
  CHECK(*orders.find(order(1)) == "done");
  orders.answered(order(1), "another");
  CHECK(*orders.find(order(1)) == "done");
  orders.answered(order(2), "of none");
  CHECK(orders.size() == 1);
}

TEST_CASE("bridge remembered: a thousand orders of a mebibyte each take no more than the bound") {
  Remembered orders(1024, 16 * mib);
  for (int k = 0; k < 1024; ++k) {
    carry_out(orders, order(k, mib));
    CHECK(orders.bytes() <= 16 * mib);
  }
  CHECK(orders.size() == 15);
  CHECK(orders.forgotten() == 1024 - 15);
  CHECK(orders.find(order(1023, mib)) != nullptr);
  CHECK(orders.find(order(0, mib)) == nullptr);
}

TEST_CASE("bridge remembered: of small orders the oldest makes place for one beyond the number") {
  Remembered orders(3, mib);
  for (int k = 0; k < 5; ++k) carry_out(orders, order(k));
  CHECK(orders.size() == 3);
  CHECK(orders.forgotten() == 2);
  CHECK(orders.find(order(1)) == nullptr);
  CHECK(orders.find(order(2)) != nullptr);
}

TEST_CASE("bridge remembered: what is under way is not forgotten, and what it leaves no place for is refused") {
  Remembered orders(1024, 4 * mib);
  for (int k = 0; k < 3; ++k) REQUIRE(orders.begin(order(k, mib)));
  CHECK(!orders.begin(order(3, mib)));
  for (int k = 0; k < 3; ++k) CHECK(orders.find(order(k, mib)) != nullptr);
  CHECK(orders.find(order(3, mib)) == nullptr);
  orders.answered(order(1, mib), "done");
  REQUIRE(orders.begin(order(3, mib)));
  CHECK(orders.find(order(0, mib)) != nullptr);
  CHECK(orders.find(order(1, mib)) == nullptr);
  CHECK(orders.forgotten() == 1);
}

TEST_CASE("bridge remembered: an answer that is longer than all there is place for is not stored") {
  Remembered orders(1024, mib);
  REQUIRE(orders.begin(order(1)));
  orders.answered(order(1), std::string(2 * mib, 'y'));
  CHECK(orders.find(order(1)) == nullptr);
  CHECK(orders.bytes() == 0);
  CHECK(orders.forgotten() == 1);
}
