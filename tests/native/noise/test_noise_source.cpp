#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "noise/source.hpp"

namespace {

using namespace sonde::noise;

constexpr std::int64_t ms = 1'000'000, s = 1'000 * ms;

// Time that passes only when somebody works or sleeps. A clock call costs 100 ns of CPU time.
struct FakeClock final : SourceClock {
  std::int64_t now = 1'000 * s + 123 * ms, cpu = 0;
  std::int64_t end = 0;                                        // real time at which it says stop; 0 never
  std::int64_t share = 1;                                      // real time that passes for each ns of CPU time
  std::int64_t wake_cost = 5'000;                              // CPU time of a wake-up
  std::vector<std::pair<std::int64_t, std::int64_t>> stopped;  // (from, for): as by SIGSTOP
  std::int64_t set_at = 0, set_by = 0;                         // somebody sets the clock
  std::int64_t ahead = 7 * s;                                  // real minus monotonic

  std::int64_t real_ns() override { return now; }
  std::int64_t monotonic_ns() override { return now - ahead; }
  std::int64_t cpu_ns() override {
    spend(100);
    return cpu;
  }
  void spend(std::int64_t ns) {
    cpu += ns;
    now += ns * share;
    resume();
  }
  void resume() {
    while (!stopped.empty() && now >= stopped.front().first) {
      now = std::max(now, stopped.front().first + stopped.front().second);
      stopped.erase(stopped.begin());
    }
  }
  Woke wait_until(std::int64_t at) override {
    if (set_by != 0 && at >= set_at) {
      now = set_at + set_by;
      ahead += set_by;
      set_by = 0;
      return Woke::clock_set;
    }
    now = std::max(now, at);
    spend(wake_cost);
    return stopping() ? Woke::stop : Woke::due;
  }
  bool stopping() override { return end != 0 && now >= end; }
};

struct Trace {
  std::vector<Burst> bursts;
  SourceTotals totals;
  /// Points of the grid in ns of real time.
  std::vector<std::int64_t> points(const FakeClock& clock) const {
    std::vector<std::int64_t> out;
    for (const Burst& b : bursts) out.push_back(std::llround(b.planned * 1e9) + clock.ahead);
    return out;
  }
};

Trace trace(SourceOptions options, FakeClock& clock, double phase_s = 0) {
  auto array = Footprint::make(1000);
  REQUIRE(array);
  Pieces pieces(100.0);  // ns a word: small ones, as summing takes real time and moves no clock here
  const Grid grid(std::llround(options.period_s * 1e9), std::llround(phase_s * 1e9));
  Trace out;
  out.totals = run_source(options, grid, clock, *array, pieces,
                          [&](const Burst& b, const SourceTotals&) { out.bursts.push_back(b); });
  return out;
}

SourceOptions asked(double level, double period_s) {
  SourceOptions o;
  o.level = level;
  o.period_s = period_s;
  return o;
}

}  // namespace

TEST_CASE("the grid is multiples of the period plus the phase, also before 1970") {
  const Grid whole(s, 0);
  CHECK(whole.at_or_after(5 * s) == 5 * s);
  CHECK(whole.at_or_after(5 * s + 1) == 6 * s);
  CHECK(whole.at_or_after(-1) == 0);
  CHECK(whole.at_or_after(-s - 1) == -s);
  const Grid shifted(s, 250 * ms);
  CHECK(shifted.at_or_after(5 * s) == 5 * s + 250 * ms);
  CHECK(shifted.at_or_after(5 * s + 251 * ms) == 6 * s + 250 * ms);
  CHECK(Grid(s, -250 * ms).at_or_after(0) == 750 * ms);
  CHECK(Grid(s, 3 * s + ms).at_or_after(0) == ms);
}

TEST_CASE("pieces shrink with what is left, are never empty, and follow how long they took") {
  Pieces pieces(1.0);
  CHECK(pieces.next(10 * ms) == 50'000);  // 50 µs at most
  CHECK(pieces.next(10'000) == 7'000);
  CHECK(pieces.next(1) == 64);
  CHECK(pieces.next(-5) == 64);
  for (int k = 0; k < 20; ++k) pieces.took(50'000, 100'000);  // 2 ns a word
  CHECK(pieces.ns_per_word() == doctest::Approx(2).epsilon(0.001));
  CHECK(pieces.next(10 * ms) == doctest::Approx(25'000).epsilon(0.001));
  pieces.took(64, 1'000);  // mostly the clock's own cost
  CHECK(pieces.ns_per_word() == doctest::Approx(2).epsilon(0.001));
  pieces.took(0, 100'000);
  CHECK(pieces.ns_per_word() == doctest::Approx(2).epsilon(0.001));
}

TEST_CASE("the footprint is walked round and round, and its sum is that of the words passed") {
  auto array = Footprint::make(10);
  REQUIRE(array);
  CHECK(array->sum(4) == 0 + 1 + 2 + 3);
  CHECK(array->position() == 4);
  CHECK(array->sum(8) == 4 + 5 + 6 + 7 + 8 + 9 + 0 + 1);
  CHECK(array->position() == 2);
  CHECK(array->sum(30) == 3 * 45);
  CHECK(array->sum(0) == 0);
  auto one = Footprint::make(1);
  REQUIRE(one);
  CHECK(one->sum(1'000) == 0);
  CHECK(one->position() == 0);
}

TEST_CASE("each burst begins on the grid and uses the level of its period, its own overhead included") {
  FakeClock clock;
  clock.end = clock.now + 10 * s;
  const Trace t = trace(asked(0.01, 1), clock);
  REQUIRE(t.bursts.size() == 10);
  const auto points = t.points(clock);
  for (std::size_t k = 0; k < points.size(); ++k) {
    CHECK(points[k] % s == 0);
    if (k > 0) CHECK(points[k] == points[k - 1] + s);
    CHECK(t.bursts[k].cpu >= 0.01);
    CHECK(t.bursts[k].cpu < 0.0101);
    CHECK(t.bursts[k].overhead >= 5e-6);
    CHECK(t.bursts[k].truncated == 0);
    CHECK(t.bursts[k].skipped == 0);
    CHECK(t.bursts[k].begin - t.bursts[k].planned == doctest::Approx(5e-6).epsilon(0.1));
  }
  CHECK(t.totals.duty_cpu() == doctest::Approx(0.01).epsilon(0.01));
  CHECK(t.totals.skipped == 0);
}

TEST_CASE("a source that was stopped skips to the next point, counts what it left out, and never catches up") {
  FakeClock clock;
  const std::int64_t first = 1'001 * s;
  clock.stopped = {{first + 2 * s + 500 * ms, 3 * s}};  // asleep from 2.5 s to 5.5 s
  clock.end = first + 9 * s + 500 * ms;
  const Trace t = trace(asked(0.01, 1), clock);
  const auto points = t.points(clock);
  CHECK(std::set<std::int64_t>(points.begin(), points.end()).size() == points.size());
  CHECK(points == std::vector<std::int64_t>{first, first + s, first + 2 * s, first + 6 * s, first + 7 * s,
                                            first + 8 * s, first + 9 * s});
  CHECK(t.totals.skipped == 3);
  CHECK(t.bursts[3].skipped == 3);
}

TEST_CASE("a source a little late still works; more than a quarter of the period is too late") {
  const std::int64_t first = 1'001 * s;
  FakeClock little;
  little.stopped = {{first + s, 200 * ms}};
  little.end = first + 2 * s + 500 * ms;
  const Trace kept = trace(asked(0.01, 1), little);
  CHECK(kept.totals.skipped == 0);
  CHECK(kept.bursts.size() == 3);
  CHECK(kept.bursts[1].begin - kept.bursts[1].planned == doctest::Approx(0.2).epsilon(0.01));
  FakeClock much;
  much.stopped = {{first + s, 300 * ms}};
  much.end = first + 2 * s + 500 * ms;
  const Trace left = trace(asked(0.01, 1), much);
  CHECK(left.totals.skipped == 1);
  CHECK(left.bursts.size() == 2);
}

TEST_CASE("work that does not fit its period is cut off there, and the next point still has its burst") {
  FakeClock clock;
  clock.share = 4;  // a quarter of a core: half of each period needs two periods
  clock.end = clock.now + 6 * s;
  const Trace t = trace(asked(0.5, 1), clock);
  REQUIRE(t.bursts.size() >= 4);
  const auto points = t.points(clock);
  for (std::size_t k = 0; k + 1 < t.bursts.size(); ++k) {
    CHECK(t.bursts[k].truncated == 1);
    CHECK(t.bursts[k].cpu == doctest::Approx(0.25).epsilon(0.01));
    CHECK(points[k + 1] == points[k] + s);
  }
  CHECK(t.totals.truncated >= t.bursts.size() - 1);
  CHECK(t.totals.skipped == 0);
}

TEST_CASE("stopped in the middle of a burst, it does not work beyond its period") {
  FakeClock clock;
  const std::int64_t first = 1'001 * s;
  clock.stopped = {{first + s + 5 * ms, 2 * s}};
  clock.end = first + 6 * s;
  const Trace t = trace(asked(0.01, 1), clock);
  CHECK(t.bursts[1].truncated == 1);
  const auto points = t.points(clock);
  CHECK(std::set<std::int64_t>(points.begin(), points.end()).size() == points.size());
  CHECK(t.bursts[2].planned - t.bursts[1].planned >= 2.999);
}

TEST_CASE("a clock that is set back does not stop the source for that long") {
  FakeClock clock;
  const std::int64_t first = 1'001 * s;
  clock.set_at = first + 3 * s;
  clock.set_by = -100 * s;
  clock.end = 0;
  int left = 8;
  auto array = Footprint::make(100);
  Pieces pieces(100.0);
  std::vector<double> begins;
  run_source(asked(0.01, 1), Grid(s, 0), clock, *array, pieces, [&](const Burst& b, const SourceTotals&) {
    begins.push_back(b.begin);
    if (--left == 0) clock.end = 1;
  });
  REQUIRE(begins.size() == 8);
  for (std::size_t k = 1; k < begins.size(); ++k) CHECK(begins[k] - begins[k - 1] <= 1.001);
}

TEST_CASE("the phase of an unsynchronised source is of its seed, host and process alone") {
  const double a = random_phase(1, 1, "n1", 100);
  CHECK(a == random_phase(1, 1, "n1", 100));
  CHECK(a != random_phase(1, 2, "n1", 100));
  CHECK(a != random_phase(1, 1, "n2", 100));
  CHECK(a != random_phase(1, 1, "n1", 101));
  for (int pid = 0; pid < 1'000; ++pid) {
    const double phase = random_phase(0.5, 7, "n1", pid);
    CHECK(phase >= 0);
    CHECK(phase < 0.5);
  }
}

TEST_CASE("what a source cannot do is refused with what it can") {
  auto code = [](SourceOptions o) {
    const auto fine = check_source(o);
    return fine ? std::string("fine") : fine.error().code;
  };
  CHECK(code(asked(0.01, 1)) == "fine");
  CHECK(code(asked(0.0001, 1)) == "fine");
  CHECK(code(asked(0, 1)) == "noise.bad_level");
  CHECK(code(asked(1, 1)) == "noise.bad_level");
  CHECK(code(asked(-0.5, 1)) == "noise.bad_level");
  CHECK(code(asked(0.0 / 0.0, 1)) == "noise.bad_level");
  CHECK(code(asked(0.000001, 0.001)) == "noise.level_too_low");
  CHECK(code(asked(0.5, 0)) == "noise.bad_period");
  CHECK(code(asked(0.5, 1e9)) == "noise.bad_period");
  SourceOptions none = asked(0.01, 1), many = none;
  none.words = 0;
  many.words = std::uint64_t{1} << 60;
  CHECK(code(none) == "noise.bad_words");
  CHECK(code(many) == "noise.bad_words");
}

TEST_CASE("options are read, and nonsense names itself") {
  auto parsed = parse_source_options({"--level", "0.01", "--period-s", "0.5", "--words", "1000", "--core", "1",
                                      "--phase-s", "0.1", "--seed", "3", "--record", "a.blk", "--duration-s", "2",
                                      "--until-eof", "--host", "n1"});
  REQUIRE(parsed);
  CHECK(parsed->level == 0.01);
  CHECK(parsed->period_s == 0.5);
  CHECK(parsed->words == 1000);
  CHECK(parsed->core == 1);
  CHECK(parsed->phase_s == 0.1);
  CHECK(parsed->record == "a.blk");
  CHECK(parsed->until_eof);
  CHECK(parsed->host == "n1");
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"--level"},
                                             {"--level", "much"},
                                             {"--lvl", "0.1"},
                                             {"--level", "0.1", "--core", "-1"},
                                             {"--level", "0.1", "--phase-s", "0", "--unsync"},
                                             {"--level", "0.1", "--core", "0", "--free"},
                                             {"--level", "0.1", "--words", "1.5"},
                                             {"--level", "0.1", "extra"}}) {
    const auto refused = parse_source_options(args);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == "noise.bad_option");
  }
}
