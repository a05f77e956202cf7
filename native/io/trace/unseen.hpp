#pragma once
/// Counts of calls that the tracer knowingly does not see or could not store, for a whole node, in a place where
/// `sonde io run` reads them; docs/explain/io-engines.md has the table of all. Any-thread, signal-safe.

#include <cstdint>

namespace sonde::io {

/// I/O that bypasses the traced functions; counted once a process. The same as in src/sonde/io/trace/run_close.py.
enum class Unseen : unsigned {
  own_namespace,    ///< dlmopen: libraries with a C library of their own
  io_uring,         ///< requests that the kernel takes from memory
  raw_calls,        ///< syscall(SYS_write, …)
  kernel_aio,       ///< io_submit
  later_libraries,  ///< libraries whose functions could not be recorded
  no_clock,         ///< calls after a thread gave up the processor's clock
};
inline constexpr unsigned unseen_kinds = 8;

/// Why a thread got no files, or a block could not be appended. The same as in src/sonde/io/trace/run_close.py.
enum class Why : unsigned { full, filter, file_size, descriptors, disk, other, streams };
inline constexpr unsigned whys = 8;

/// The reason for an error of the kernel, -errno.
Why why(long error);

void note_unseen(Unseen what);
/// Notes I/O that a program does through syscall(2). fd: the call's first argument. Files of /proc and /sys are left
/// out, because memory allocators (jemalloc and mimalloc, also that of Python 3.13) read one of /proc this way at their
/// start.
void note_system_call(long number, long fd);
void note_refused(Why reason);
void note_lost(Why reason, std::uint64_t calls);

}  // namespace sonde::io
