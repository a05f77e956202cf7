#pragma once
// Which implementations of the bus this build has. Without one its tests are skipped; with SONDE_TEST_REQUIRE=all they
// fail.

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "bus/bus.hpp"

namespace sonde::bus {

inline bool there_is(const std::string& name) {
  if (find_implementation(name)) return true;
  const char* require = std::getenv("SONDE_TEST_REQUIRE");
  REQUIRE_MESSAGE((!require || std::string_view(require) != "all"), "this build has no ", name);
  MESSAGE("skipped: this build has no ", name);
  return false;
}

}  // namespace sonde::bus
