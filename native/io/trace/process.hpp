#pragma once
/// Data that all threads of this process share: the folder of the trace, and the beginning of its files. Set before the
/// first traced call.

#include <cstddef>
#include <cstdint>

#include "io/record.hpp"
#include "io/table.hpp"
#include "io/trace/cost.hpp"
#include "io/trace/unseen.hpp"

namespace sonde::io {

/// Shared by all processes of a node, mapped from `<folder>/<host>.shared`: the account, then places for threads.
struct Shared {
  char magic[8];                       ///< "SONDESH2"
  std::uint64_t bytes;                 ///< in files and blocks of all threads
  std::uint64_t places;                ///< taken
  std::uint64_t refused[whys];         ///< calls of threads without files and without a place
  std::uint64_t lost[whys];            ///< records dropped
  std::uint64_t unseen[unseen_kinds];  ///< processes
};
inline constexpr std::size_t shared_bytes = 4096;
static_assert(sizeof(Shared) == 24 + 8 * (2 * whys + unseen_kinds) && sizeof(Shared) <= shared_bytes);

/// The place of a thread that cannot have files of its own, because its program may not create more or larger files, or
/// has no descriptor left. It is created and mapped in advance. `run_close.py` makes files from it.
struct ThreadPlace {
  std::uint32_t taken;   ///< 1: it is completely filled in
  std::uint32_t number;  ///< the thread's number in its process
  std::uint32_t header_bytes;
  std::uint32_t zero;
  char name[1008];                ///< "<host>-<pid>-<begin>"
  std::byte thread[3072];         ///< the Thread object, because its memory may be refused too
  std::byte header[8192 + 4096];  ///< the beginning of the block file
  ThreadFile file;
};
static_assert(sizeof(ThreadPlace) == 65536 && offsetof(ThreadPlace, file) % 4096 == 0);
inline constexpr unsigned max_places = 16;

struct Process {
  char prefix[3072];  ///< "<folder>/<host>-<pid>"
  char header[8192];  ///< JSON header of a block file, up to the thread's own keys
  std::uint32_t header_bytes;
  std::uint32_t pid;
  std::uint32_t threads;  ///< begun
  std::uint64_t most_bytes;
  std::uint64_t began_ticks, began_ns;  ///< one moment by both clocks
  Shared* shared;
  ThreadPlace* places;  ///< null: there was no room for places
  Cost cost;            ///< the cost of tracing, also in children
};

extern Process process;

/// Builds text without the C library. Text that does not fit is cut off; always terminated.
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
  /// As in src/sonde/core/lines.py: characters that could end a field or a line, and those outside ASCII, become %0A
  /// etc.
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
