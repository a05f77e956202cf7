#pragma once
/// Moves all of a buffer: after a partial transfer it continues with the rest, as IOR does. Any-thread.

#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "io/load/access.hpp"

namespace sonde::ioload {

/// `call`: (bytes done, place in the file) -> bytes moved, or -1 with errno.
template <typename Call>
Result<void> move_all(const char* verb, const std::string& path, std::size_t bytes, std::uint64_t at, Call&& call) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = call(done, static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return file_error(verb, path, std::strerror(errno) + std::string(" (at ") + std::to_string(at + done) + " B)",
                        errno);
    if (n == 0) return file_error(verb, path, "the file ends at " + std::to_string(at + done) + " B", 0);
    done += static_cast<std::size_t>(n);
  }
  return {};
}

}  // namespace sonde::ioload
