#pragma once
/// What a daemon says: a line for people on standard error, an event on standard output. Whoever reads them may be slow
/// or stuck, and the daemon has leases to look after: what finds no room is left out. Any-thread.

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "core/error_kind.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"

namespace sonde::power {

/// A line, whole or not at all. A pipe that is writable has room for 4096 bytes: longer ones are cut.
inline void say(int descriptor, std::string line) {
  if (line.size() > 4095) line.resize(4095);
  line += '\n';
  for (std::string_view rest = line; !rest.empty();) {
    pollfd ready{descriptor, POLLOUT, 0};
    if (::poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT)) return;
    const ssize_t n = ::write(descriptor, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

inline void log_line(const std::string& text) { say(STDERR_FILENO, "power: " + printable(text)); }

inline void log_error(const Error& error) {
  say(STDERR_FILENO, "error: power: " + printable(error.what));
  if (!error.hint.empty()) say(STDERR_FILENO, "  hint: " + printable(error.hint));
}

inline void event(const JsonLine& line) { say(STDOUT_FILENO, line.text()); }

/// Reports the error as a line and as an event. Returns the exit status that follows from its kind.
inline int fail(const Error& error) {
  log_error(error);
  event(JsonLine().add("event", "error").add("code", error.code).add("what", error.what).add("hint", error.hint));
  return exit_status(error);
}

}  // namespace sonde::power
