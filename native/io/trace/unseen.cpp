#include "io/trace/unseen.hpp"

#include <asm/unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "core/ticks.hpp"
#include "io/trace/confinement.hpp"
#include "io/trace/process.hpp"
#include "io/trace/system.hpp"
#include "io/trace/thread.hpp"

namespace sonde::io {

namespace {

bool noted[unseen_kinds];

void add(std::uint64_t& number, std::uint64_t count = 1) {
  std::atomic_ref(number).fetch_add(count, std::memory_order_relaxed);
}

/// Whether the file is in /proc or /sys; false if that cannot be determined.
bool made_up(long fd) {
  constexpr long proc_magic = 0x9fa0, sysfs_magic = 0x62656572;  // linux/magic.h
  long about[32] = {};                                           // struct statfs, whose first word is the type
  return sys::call(__NR_fstatfs, fd, sys::of(about)) == 0 && (about[0] == proc_magic || about[0] == sysfs_magic);
}

/// Without this, the next file under the number would be taken for the one that the program closed.
void note_closed(long fd) {
  if (current == nullptr || current->busy || fd < 3) return;
  const auto at = static_cast<std::uint64_t>(ticks());
  const auto depth = static_cast<std::uint8_t>(std::min(current->file->depth, 255u));
  if (Record* record = reserve(*current))
    *record = {at, at, unknown, unknown, static_cast<std::uint32_t>(fd), closed_function, depth, 0};
}

bool is_noted(Unseen what) {
  return std::atomic_ref(noted[static_cast<unsigned>(what)]).load(std::memory_order_relaxed);
}

}  // namespace

Why why(long error) {
  switch (-error) {
    case EPERM: return confined ? Why::filter : Why::other;
    case EFBIG: return Why::file_size;
    case EMFILE:
    case ENFILE: return Why::descriptors;
    case ENOSPC:
    case EDQUOT: return Why::disk;
    case EBADF: return Why::streams;
    default: return Why::other;
  }
}

void note_unseen(Unseen what) {
  const auto k = static_cast<unsigned>(what);
  if (process.shared != nullptr && !std::atomic_ref(noted[k]).exchange(true, std::memory_order_relaxed))
    add(process.shared->unseen[k]);
}

void note_system_call(long number, long fd) {
  switch (number) {
    case __NR_io_uring_setup:
    case __NR_io_uring_enter: return note_unseen(Unseen::io_uring);
    case __NR_close: return note_closed(fd);
    case __NR_io_submit: return note_unseen(Unseen::kernel_aio);
    case __NR_read:
    case __NR_write:
    case __NR_pread64:
    case __NR_pwrite64:
    case __NR_readv:
    case __NR_writev:
    case __NR_preadv:
    case __NR_pwritev:
    case __NR_preadv2:
    case __NR_pwritev2:
    case __NR_fsync:
    case __NR_fdatasync:
      if (!is_noted(Unseen::raw_calls) && !made_up(fd)) note_unseen(Unseen::raw_calls);
      return;
    case __NR_copy_file_range:
    case __NR_sendfile:
    case __NR_splice: return note_unseen(Unseen::raw_calls);
    default: return;
  }
}

void note_refused(Why reason) {
  if (process.shared != nullptr) add(process.shared->refused[static_cast<unsigned>(reason)]);
}

void note_lost(Why reason, std::uint64_t calls) {
  if (process.shared != nullptr) add(process.shared->lost[static_cast<unsigned>(reason)], calls);
}

}  // namespace sonde::io
