#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "noise/detour.hpp"

using namespace sonde::noise;

namespace {

const char* const interrupts =
    "           CPU0       CPU2\n"
    "  8:          1         20  IO-APIC   8-edge      rtc0\n"
    " 24:          5          7  PCI-MSI 49152-edge      eth0-rx-0\n"
    "NMI:          0          3   Non-maskable interrupts\n"
    "LOC:   10302689    8736192   Local timer interrupts\n"
    "ERR:          9\n"
    "MIS:          4\n";

}  // namespace

TEST_CASE("steps above the threshold are detours, and keeping one is not taken for the next") {
  // Steps of 10; one of 500, then 90 are spent on keeping it; one of 100, which is the threshold itself.
  std::vector<std::uint64_t> times{0, 10, 20, 520, 610, 620, 720, 730, 1000};
  std::size_t at = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> kept;
  const LoopSeen seen =
      watch_ticks([&] { return times[at++]; }, 725, 100,
                  [&](std::uint64_t begin, std::uint64_t length) { kept.emplace_back(begin, length); });
  CHECK(kept == std::vector<std::pair<std::uint64_t, std::uint64_t>>{{20, 500}});
  CHECK(seen.gaps == 1);
  CHECK(seen.lost == 500);
  CHECK(seen.loops == 6);
  CHECK(seen.end == 730);
}

TEST_CASE("a window that is over before it began sees nothing") {
  const LoopSeen seen =
      watch_ticks([] { return std::uint64_t{50}; }, 10, 5, [](std::uint64_t, std::uint64_t) { FAIL("a detour"); });
  CHECK(seen.loops == 0);
  CHECK(seen.gaps == 0);
}

TEST_CASE("a counter that stands still is no step of no length") {
  std::vector<std::uint64_t> times{0, 0, 0, 40, 40, 65, 100};
  std::size_t at = 0;
  CHECK(least_step([&] { return times[at++]; }, 6) == 25);
}

TEST_CASE("one column of interrupts is read by the CPU's name; rows without it are left out") {
  const Counts two = parse_counts(interrupts, 2);
  CHECK(two.rows == std::map<std::string, std::uint64_t>{{"DEV", 27}, {"LOC", 8736192}, {"NMI", 3}});
  CHECK(two.devices == std::map<std::string, std::uint64_t>{{"8 rtc0", 20}, {"24 eth0-rx-0", 7}});
  CHECK(parse_counts(interrupts, 0).rows.at("DEV") == 6);
  CHECK(parse_counts(interrupts, 1).rows.empty());  // it is offline
  CHECK(parse_counts("", 0).rows.empty());
  CHECK(parse_counts("           CPU0\n", 0).rows.empty());
  CHECK(parse_counts("  CPU0\nnonsense\nLOC: many\n", 0).rows.empty());
  CHECK(parse_counts("          CPU0   CPU1\n      HI:  1  2\n   TIMER:  3  4\n", 1).rows ==
        std::map<std::string, std::uint64_t>{{"HI", 2}, {"TIMER", 4}});
}

TEST_CASE("steal and run delay are found, and their absence is told") {
  const char* stat = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 80 9 10\ncpu10 1 2 3 4 5 6 7 81 9 10\nintr 5\n";
  CHECK(parse_steal(stat, 0) == 80);
  CHECK(parse_steal(stat, 10) == 81);
  CHECK(parse_steal(stat, 1) == 0);
  CHECK(parse_steal("cpu0 1 2 3\n", 0) == 0);
  CHECK(parse_run_delay("123 456 7\n") == 456);
  CHECK(parse_run_delay("") == -1);
  CHECK(parse_run_delay("123") == -1);
  CHECK(parse_run_delay("123 -456 7\n") == -1);
}

TEST_CASE("lists of CPUs") {
  auto list = [](const char* text) {
    auto found = parse_cpus(text);
    return found ? *found : std::vector<int>{-1};
  };
  CHECK(list("") == std::vector<int>{});
  CHECK(list("3,0-1,1") == std::vector<int>{0, 1, 3});
  for (const char* bad : {"a", "-1", "3-1", "1,", "1,,2", "0-99999999", "1 2", "0-65536,0-65536,0"})
    CHECK(list(bad) == std::vector<int>{-1});
}

TEST_CASE("options of the detour are read, and nonsense names itself") {
  auto fine = parse_detour_options(
      {"--dir", "d", "--cpus", "0,2", "--method", "both", "--duration-s", "2", "--threshold-s", "1e-6"});
  REQUIRE(fine);
  CHECK(fine->cpus == std::vector<int>{0, 2});
  CHECK(fine->detour);
  CHECK(fine->fwq);
  CHECK(fine->threshold_s == 1e-6);
  CHECK_FALSE(parse_detour_options({}));
  CHECK(parse_detour_options({"--check"}));
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{{"--dir", "d", "--method", "magic"},
                                                                                    {"--dir", "d", "--duration-s", "0"},
                                                                                    {"--dir", "d", "--window-s", "-1"},
                                                                                    {"--dir", "d", "--what", "1"},
                                                                                    {"--dir"}}) {
    const auto refused = parse_detour_options(args);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == "noise.bad_option");
  }
  CHECK(parse_detour_options({"--dir", "d", "--cpus", "x"}).error().code == "noise.bad_cpus");
}

TEST_CASE("a quantum's work depends on its length and cannot be left out") {
  CHECK(quantum(0, 5) == 5);
  CHECK(quantum(1, 5) != quantum(2, 5));
  CHECK(quantum(1000, 5) == quantum(1000, 5));
}
