// Which node managers of one name run at the same time, and which only came after another.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>

#include "power/namesakes.hpp"

using namespace sonde::power;

namespace {

constexpr std::int64_t second = 1'000'000'000;
const Member member{"n1", 50, 400, 100};

Report report(std::uint64_t instance, double ticket_s, double cap_w = 100, double lease_w = 0) {
  Report out;
  out.ticket = {instance, static_cast<std::int64_t>(ticket_s * 1e9)};
  out.leased = lease_w > 0, out.lease_w = lease_w, out.cap_w = cap_w;
  return out;
}

/// asked_s 0: telemetry.
void hear(Namesakes& all, std::uint64_t instance, double asked_s, double now_s, double power_w = 80) {
  all.heard(report(instance, 1000.0 * static_cast<double>(instance) + now_s), power_w, member,
            static_cast<std::int64_t>(asked_s * 1e9), static_cast<std::int64_t>(now_s * 1e9), 15.0);
}

}  // namespace

TEST_CASE("one node manager, and one that takes its place, are not several") {
  Namesakes all;
  CHECK(all.running(second, 15.0).empty());
  hear(all, 1, 1, 1.1);
  hear(all, 1, 2, 2.1);
  CHECK(all.running(3 * second, 15.0).empty());
  hear(all, 2, 3, 3.1);
  hear(all, 2, 4, 4.1);
  // The last words of the first, which were long on their way.
  hear(all, 1, 2.5, 5.1);
  hear(all, 1, 0, 6.1);
  hear(all, 2, 7, 7.1);
  CHECK(all.running(8 * second, 15.0).empty());
}

TEST_CASE("two that answer by turns are two, as soon as each has answered after both were heard") {
  Namesakes all;
  hear(all, 1, 1, 1.1);
  hear(all, 2, 2, 2.1);
  hear(all, 1, 3, 3.1);
  CHECK(all.running(4 * second, 15.0).empty());
  hear(all, 2, 4, 4.1);
  const auto both = all.running(5 * second, 15.0);
  REQUIRE(both.size() == 2);
  CHECK(both[0].power_w == 80);
  // And for as long as both are heard.
  for (double t = 5; t < 30; t += 1) hear(all, 2, t, t + 0.1);
  CHECK(all.running(30 * second, 15.0).empty());
}

TEST_CASE("one that never answers is known by reports that come for longer than any message travels") {
  Namesakes all;
  for (double t = 1; t < 17; t += 1) {
    hear(all, 1, t, t + 0.1);
    hear(all, 2, 0, t + 0.2);
    if (t < 16) CHECK(all.running(static_cast<std::int64_t>(t * 1e9), 15.0).empty());
  }
  CHECK(all.running(17 * second, 15.0).size() == 2);
}

TEST_CASE("what each may be at: the highest of its safe cap, its hardware's and its lease") {
  Namesakes all;
  const double unlike[][3] = {{100, 0, 100}, {60, 0, 100}, {250, 200, 250}, {150, 200, 200}, {std::nan(""), 0, 400}};
  double t = 1;
  for (const auto& [cap_w, lease_w, at_w] : unlike) {
    for (int turn = 0; turn < 2; ++turn)
      for (std::uint64_t instance : {1u, 2u}) {
        t += 1;
        const auto now = static_cast<std::int64_t>(t * 1e9);
        all.heard(report(instance, t, cap_w, lease_w), std::nan(""), member, now - 1, now, 15.0);
      }
    const auto both = all.running(static_cast<std::int64_t>(t * 1e9), 15.0);
    REQUIRE(both.size() == 2);
    for (const auto& one : both) CHECK(one.at_w == at_w);
  }
}

TEST_CASE("one that begins anew without end takes no memory, and hides nobody") {
  Namesakes all;
  double t = 1;
  for (std::uint64_t instance = 10; instance < 1000; ++instance, t += 0.01) hear(all, instance, t, t);
  CHECK(all.running(static_cast<std::int64_t>(t * 1e9), 15.0).empty());
  hear(all, 1, t + 1, t + 1.1), hear(all, 2, t + 2, t + 2.1), hear(all, 1, t + 3, t + 3.1),
      hear(all, 2, t + 4, t + 4.1);
  CHECK(all.running(static_cast<std::int64_t>((t + 5) * 1e9), 15.0).size() == 2);
}
