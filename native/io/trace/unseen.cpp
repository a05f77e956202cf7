#include "io/trace/unseen.hpp"

#include <asm/unistd.h>

#include <atomic>
#include <cerrno>

#include "io/trace/confinement.hpp"
#include "io/trace/process.hpp"

namespace sonde::io {

namespace {

bool noted[unseen_kinds];

void add(std::uint64_t& number, std::uint64_t count = 1) {
  std::atomic_ref(number).fetch_add(count, std::memory_order_relaxed);
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

void note_system_call(long number) {
  switch (number) {
    case __NR_io_uring_setup:
    case __NR_io_uring_enter: return note_unseen(Unseen::io_uring);
    case __NR_io_submit: return note_unseen(Unseen::kernel_aio);
#if defined(__x86_64__)
    case __NR_open:
    case __NR_creat:
#endif
    case __NR_openat:
    case __NR_openat2:
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
