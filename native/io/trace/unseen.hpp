#pragma once
/// Calls that the tracer knows that it does not see, or could not keep, counted for a whole node where `sonde io run`
/// reads it: docs/explain/io-engines.md has the table of all of it. Any-thread, signal-safe.

#include <cstdint>

namespace sonde::io {

/// I/O past the functions that are traced; counted once a process. As src/sonde/io/trace/run_close.py knows it.
enum class Unseen : unsigned {
  own_namespace,    ///< dlmopen: libraries with a C library of their own
  io_uring,         ///< requests that the kernel takes from memory
  raw_calls,        ///< syscall(SYS_write, …)
  kernel_aio,       ///< io_submit
  later_libraries,  ///< whose functions could not be written down
  no_clock,         ///< what came after a thread gave up the processor's clock
};
inline constexpr unsigned unseen_kinds = 8;

/// Why a thread got no files, or a block did not go to its own. As src/sonde/io/trace/run_close.py knows it.
enum class Why : unsigned { full, filter, file_size, descriptors, disk, other, streams };
inline constexpr unsigned whys = 8;

/// By what the kernel answered, -errno.
Why why(long error);

void note_unseen(Unseen what);
/// Notes I/O that a program does by syscall(2). fd: the call's first argument. Files that the kernel makes up are left
/// out: memory allocators (mimalloc, of Python 3.13 too, and jemalloc) read one of /proc so as they begin.
void note_system_call(long number, long fd);
void note_refused(Why reason);
void note_lost(Why reason, std::uint64_t calls);

}  // namespace sonde::io
