#pragma once
/// What a daemon says of errors: a line for people on standard error, an event on standard output. Any-thread.

#include <iostream>

#include "core/json.hpp"
#include "power/config.hpp"

namespace sonde::power {

inline void log_error(const Error& error) {
  std::string text = "error: power: " + error.what + "\n";
  if (!error.hint.empty()) text += "  hint: " + error.hint + "\n";
  std::cerr << text << std::flush;
}

/// One line, whole, whoever else writes.
inline void event(const JsonLine& line) { std::cout << line.text() + "\n" << std::flush; }

/// Tells it both ways and returns `exit_code`: 2 what was asked is wrong, 3 the machine or the bus is.
inline int fail(const Error& error, int exit_code) {
  log_error(error);
  event(JsonLine().add("event", "error").add("code", error.code).add("what", error.what).add("hint", error.hint));
  return exit_code;
}

}  // namespace sonde::power
