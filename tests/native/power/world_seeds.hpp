#pragma once
// Which worlds a test of ten thousand steps goes through: its usual ones, or those of SONDE_POWER_SEEDS=FIRST-LAST,
// which then tells what happened in them as a line of JSON on standard output (`make bench-power`).
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "core/json.hpp"
#include "core/number.hpp"

namespace power_world {

struct Seeds {
  std::uint64_t first = 1, last = 1;
  bool asked = false;  ///< by SONDE_POWER_SEEDS: the test's own demands on their sum do not hold of others

  explicit Seeds(std::uint64_t usual) : last(usual) {
    const char* text = std::getenv("SONDE_POWER_SEEDS");
    if (!text) return;
    const std::string_view all = text;
    const auto dash = all.find('-');
    asked = dash != all.npos && sonde::number(all.substr(0, dash), first) &&
            sonde::number(all.substr(dash + 1), last) && first <= last;
    if (!asked) std::cerr << "SONDE_POWER_SEEDS is '" << all << "'; allowed: FIRST-LAST\n", std::exit(2);
  }
  void tell(const sonde::JsonLine& line) const {
    if (asked) std::cout << line.text() << '\n' << std::flush;
  }
};

}  // namespace power_world
