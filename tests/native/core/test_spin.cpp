#include <doctest/doctest.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "core/spin.hpp"

using sonde::now_ns;
using sonde::Spin;

TEST_CASE("spin: never, where it is told so") {
  Spin spin(0);
  CHECK_FALSE(spin.begin());
  spin.slept(10);
  CHECK_FALSE(spin.begin());
}

TEST_CASE("spin: a fixed time is looked for whatever comes, and no longer than is wanted") {
  Spin spin(5e-3);
  for (int k = 0; k < 3; ++k) {
    const std::int64_t begin = now_ns();
    REQUIRE(spin.begin());
    while (spin.again()) {}
    CHECK(now_ns() - begin >= 5'000'000);
  }
  REQUIRE(spin.begin(now_ns()));
  CHECK_FALSE(spin.again());
}

TEST_CASE("spin: looks in vain make it sleep, short sleeps make it look again") {
  if (::sysconf(_SC_NPROCESSORS_ONLN) < 2) {
    Spin spin;
    spin.slept(10);
    CHECK_FALSE(spin.begin());
    return;
  }
  Spin spin;
  int looked = 0;
  for (; spin.begin() && looked < 1000; ++looked)
    while (spin.again()) {}
  CHECK(looked > 0);
  CHECK(looked < 1000);
  spin.slept(1'000'000'000);
  CHECK_FALSE(spin.begin());
  // Somebody may have wanted the core just then: the rest that follows is over soon.
  const std::int64_t begin = now_ns();
  do spin.slept(1000);
  while (!spin.begin() && now_ns() - begin < 10'000'000'000);
  CHECK(spin.begin());
}

TEST_CASE("spin: where both sleep because both do it is tried now and then, and less often when that was in vain") {
  static std::int64_t now;  // each look takes a microsecond, whatever else this machine does
  now = 1;
  const auto clock = +[] { return now += 1000; };
  Spin spin(-1, {.most_ns = 50'000, .late_ns = 3'600'000'000'000, .reach_ns = 500'000, .clock = clock});
  while (spin.begin())
    while (spin.again()) {}
  const auto sleeps_before_a_try = [&] {
    int sleeps = 0;
    while (!spin.begin() && sleeps < 10'000) {
      spin.slept(100'000);
      ++sleeps;
    }
    return sleeps;
  };
  if (::sysconf(_SC_NPROCESSORS_ONLN) < 2) {
    CHECK(sleeps_before_a_try() == 10'000);
    return;
  }
  CHECK(sleeps_before_a_try() == 16);
  while (spin.again()) {}
  CHECK(sleeps_before_a_try() == 32);
  std::int64_t begin = clock();
  while (clock() - begin < 120'000 && spin.again()) {  // the other had to be woken
  }
  for (int found = 1; found < 8; ++found) CHECK(spin.begin());
  begin = clock();
  CHECK(spin.begin());  // not by a try any more: the last of it was short
  while (spin.again()) {}
  CHECK(clock() - begin >= 150'000);  // which bridges the next such pause
  int looked = 0;
  while (spin.begin() && looked++ < 1000)
    while (spin.again()) {}
  CHECK(looked > 1);
  for (int k = 0; k < 1000; ++k) spin.slept(1'000'000);  // much longer: nobody answers that soon
  CHECK_FALSE(spin.begin());
  CHECK(sleeps_before_a_try() == 1);  // such sleeps are short ones now
}

TEST_CASE("spin: not on a core that another thread works on") {
  cpu_set_t before, one;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  for (int k = 0; k < CPU_SETSIZE; ++k)
    if (CPU_ISSET(k, &before)) {
      CPU_SET(k, &one);
      break;
    }
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);  // a thread that is started inherits it
  std::atomic<bool> end = false;
  std::thread works([&] {
    while (!end.load(std::memory_order_relaxed)) {}
  });
  Spin spin(-1, {60'000'000'000, 200'000, 1'000'000'000, 1'000'000'000});
  const bool may = spin.begin();
  if (may)
    while (spin.again()) {}
  spin.slept(1000);
  const bool at_once = spin.begin();
  end = true;
  works.join();
  ::sched_setaffinity(0, sizeof before, &before);
  CHECK(may == (::sysconf(_SC_NPROCESSORS_ONLN) > 1));
  CHECK_FALSE(at_once);
}
