#pragma once
/// What all threads of this process share: where the trace goes, what its files begin with. Set before the first traced
/// call.

#include <cstddef>
#include <cstdint>

#include "io/table.hpp"
#include "io/trace/cost.hpp"

namespace sonde::io {

/// Shared by all processes of a node, mapped from `<folder>/<host>.shared`.
struct Shared {
  char magic[8];              ///< "SONDESHR"
  std::uint64_t bytes;        ///< of files and blocks that threads were given
  std::uint64_t refused;      ///< threads that could not be given files
  std::uint64_t dropped_cap;  ///< records dropped because `most_bytes` was reached
};

struct Process {
  char prefix[3072];  ///< "<folder>/<host>-<pid>"
  char header[8192];  ///< JSON of a block file up to the thread's own keys
  std::uint32_t header_bytes;
  std::uint32_t pid;
  std::uint32_t threads;  ///< begun
  std::uint64_t most_bytes;
  Shared* shared;
  Cost cost;  ///< of tracing, also in children
};

extern Process process;

/// Text put together without the C library. Cuts off what does not fit; always terminated.
class Words {
 public:
  Words(char* to, std::size_t room) : to_(to), end_(to + room - 1) { *to_ = 0; }
  Words& operator<<(const char* text) {
    while (*text != 0 && to_ != end_) *to_++ = *text++;
    *to_ = 0;
    return *this;
  }
  Words& operator<<(std::uint64_t number) {
    char digits[21];
    char* at = digits + 20;
    *at = 0;
    do *--at = static_cast<char>('0' + number % 10);
    while ((number /= 10) != 0);
    return *this << at;
  }
  /// As src/sonde/core/lines.py: what could end a field or a line, or is no ASCII, as %0A.
  Words& encoded(const char* text) {
    constexpr char digits[] = "0123456789ABCDEF";
    for (; *text != 0; ++text) {
      const auto byte = static_cast<unsigned char>(*text);
      const char plain[] = {*text, 0};
      const char coded[] = {'%', digits[byte >> 4], digits[byte & 15], 0};
      *this << (byte > 0x20 && byte < 0x7f && byte != '%' ? plain : coded);
    }
    return *this;
  }
  const char* end() const { return to_; }

 private:
  char *to_, *end_;
};

}  // namespace sonde::io
