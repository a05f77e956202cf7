#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "bus/bell.hpp"

using namespace sonde;
using bus::Bell;

TEST_CASE("bell: what was rung before a wait ends it, what was rung before the look does not") {
  for (const double spin_s : {0.0, 50e-6, -1.0}) {
    Bell bell(spin_s);
    CHECK_FALSE(bell.wait(Deadline::in_s(0.001)));
    bell.ring();
    CHECK(bell.wait({}));
    CHECK(bell.wait({}));  // until it is silenced
    bell.silence();
    CHECK_FALSE(bell.wait(Deadline::in_s(0.001)));
    bell.wake();
    CHECK(bell.wait({}));
    CHECK(bell.woken());
    CHECK_FALSE(bell.woken());
  }
}

namespace {

void two_answer_each_other(int rounds) {
  for (const double spin_s : {0.0, 20e-6, -1.0}) {
    CAPTURE(spin_s);
    Bell here(spin_s), there(spin_s);
    std::atomic<int> asked = 0, answered = 0;
    std::atomic<bool> lost = false;
    const auto until = [&lost](Bell& bell, const std::atomic<int>& count, int wanted) {
      while (!lost) {
        bell.silence();
        if (count.load() >= wanted) return;
        if (!bell.wait(Deadline::in_s(20))) lost = true;
      }
    };
    std::thread other([&] {
      for (int k = 1; k <= rounds && !lost; ++k) {
        until(there, asked, k);
        answered.store(k);
        here.ring();
      }
    });
    for (int k = 1; k <= rounds && !lost; ++k) {
      asked.store(k);
      there.ring();
      until(here, answered, k);
    }
    other.join();
    CHECK_FALSE(lost);
    CHECK(answered == rounds);
  }
}

}  // namespace

TEST_CASE("bell: two who answer each other never miss a ring") { two_answer_each_other(1000); }
TEST_CASE("bell: two who answer each other 20,000 times never miss a ring" * doctest::test_suite("soak")) {
  two_answer_each_other(20'000);
}
