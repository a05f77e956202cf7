#pragma once
/// A thread's part of the trace: its shadow stack and its blocks. Created at its first traced call. Owner-thread and
/// signal-safe: a handler that interrupts an append writes into the other block.

#include <atomic>
#include <cstdint>

#include "io/record.hpp"

namespace sonde::io {

/// Where a read of MPI-IO counts what came, and of which datatype. own: for calls that want no MPI_Status. Larger than
/// any MPI's, and than Fortran's.
struct Status {
  std::uint64_t at, type;
  std::int32_t own[12];
};

struct Thread {
  ThreadFile* file;
  int fd;  ///< the block file, for a process's first thread; -1: it is opened for each append
  std::uint64_t device,
      inode;             ///< inode of the block file: a program that closes all descriptors may get this number again
  std::uint32_t number;  ///< in this process, for names
  bool busy;             ///< inside the tracer: calls made meanwhile are not recorded
  bool appending;
  struct ThreadPlace* place;  ///< its place, if it has no files of its own; null: it has files
  Thread* next;               ///< the next free one
  Status statuses[32];        ///< of the calls in progress, by their depth
};

/// The object of this thread; null before its first traced call, and if it could not be created.
extern constinit thread_local Thread* current __attribute__((tls_model("initial-exec")));

/// The thread's file while thunks may record by themselves; null if it has none, or while it is inside the tracer.
extern constinit thread_local ThreadFile* open_file __asm__("sonde_io_file") __attribute__((tls_model("initial-exec")));

/// Starts or continues with this thread's trace; null: no trace.
inline void set_current(Thread* thread) {
  current = thread;
  open_file = thread != nullptr && !thread->busy ? thread->file : nullptr;
}

/// While this object exists, the calling thread is inside the tracer, and its calls are not recorded.
class Busy {
 public:
  explicit Busy(Thread& thread) : thread_(thread) {
    thread_.busy = true;
    open_file = nullptr;
  }
  ~Busy() {
    thread_.busy = false;
    open_file = thread_.file;
  }
  Busy(const Busy&) = delete;

 private:
  Thread& thread_;
};

/// Creates the thread's object and files. Null if nothing can be written, which is counted.
Thread* begin_thread(std::uint64_t sp);

/// Whether the process may write a file of this size: beyond its limit the kernel would send SIGXFSZ.
bool fits(std::uint64_t bytes);

/// Opens a file for the tracer, but not as one of the three standard descriptors: another thread of the program may
/// write to these numbers, even if they are closed. -errno for an error; -EBADF if it would be one of them for a
/// moment.
long open_apart(const char* path, int flags, int mode);

/// Empties all frames, as required before the first call.
void free_frames(ThreadFile& file);

/// Room for `count` consecutive records in the current block; null: no room, and the call must be counted as dropped.
/// The records exist immediately, as `Record{}` with a begin of zero: the caller fills them.
inline Record* reserve(Thread& thread, std::uint32_t count = 1);
Record* reserve_slowly(Thread& thread, std::uint32_t count);

/// Adds to a counter of this thread, and returns the former value.
inline std::uint32_t take(std::uint32_t& used, std::uint32_t count) {
#if defined(__x86_64__)
  // One instruction, so that a signal handler runs before or after it. No lock, because no other thread writes here.
  asm volatile("xaddl %0, %1" : "+r"(count), "+m"(used)::"cc", "memory");
  return count;
#else
  return std::atomic_ref(used).fetch_add(count, std::memory_order_relaxed);
#endif
}

/// The same as reserve(), but null if the current block has no room.
inline Record* reserve_quickly(ThreadFile& file, std::uint32_t count = 1) {
  const std::uint32_t block = file.current, at = take(file.used[block], count);
  if (at + count <= block_records) [[likely]]
    return reinterpret_cast<Record*>(file.blocks[block] + sizeof(BlockHeader)) + at;
  take(file.used[block], 0u - count);
  return nullptr;
}

inline Record* reserve(Thread& thread, std::uint32_t count) {
  Record* const found = reserve_quickly(*thread.file, count);
  return found != nullptr ? found : reserve_slowly(thread, count);
}

/// Records the tracer's own work since `begin`, ticks.
void note_own(Thread& thread, std::uint64_t begin);

/// Called once, before the first thread begins: creates the key whose destructor ends threads. 0 or an error number.
int begin_ends();

/// The end of this thread: writes its records to the file, which the next new thread continues.
void end_thread();

/// Opens the calling thread's file permanently, because a filter may forbid to open it later.
void keep_descriptor();

/// Stops tracing this thread; its records stay unchanged.
void leave_thread();

/// Reads both clocks for the calling thread, which may end here: the length of a tick follows from the longest time
/// between two readings.
void note_clocks();

/// In a child after fork: forgets the parent's files, including those of its other threads.
void forget_threads();

}  // namespace sonde::io
