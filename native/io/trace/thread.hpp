#pragma once
/// A thread's part of the trace: its shadow stack and the blocks it writes. Made at its first traced call. Owner-thread
/// and signal-safe: a handler that interrupts an append writes into the other block.

#include <atomic>
#include <cstdint>

#include "io/record.hpp"

namespace sonde::io {

struct Thread {
  ThreadFile* file;
  int fd;  ///< of the block file, of a process's first thread; -1: it is opened for each append
  std::uint64_t device,
      inode;             ///< of the block file: a program that closes all its descriptors may get this number again
  std::uint32_t number;  ///< in this process, for names
  bool busy;             ///< inside the tracer: calls made meanwhile are nobody's
  bool appending;
  struct ThreadPlace* place;  ///< where it lies instead of in files of its own; null: nowhere
  Thread* next;               ///< among those that are free
};

/// This thread's; null before its first traced call, and where one could not be made.
extern constinit thread_local Thread* current __attribute__((tls_model("initial-exec")));

/// Its file while a thunk may record by itself; null while the thread has none, or is inside the tracer.
extern constinit thread_local ThreadFile* open_file __asm__("sonde_io_file") __attribute__((tls_model("initial-exec")));

/// What begins, or goes on, with another thread's trace; null: none.
inline void set_current(Thread* thread) {
  current = thread;
  open_file = thread != nullptr && !thread->busy ? thread->file : nullptr;
}

/// The calling thread is inside the tracer as long as this stands: what it calls meanwhile is nobody's.
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

/// Makes one, with its files. Null when nothing can be written, which is counted.
Thread* begin_thread(std::uint64_t sp);

/// Whether a file may be as long as that: past the limit of the process the kernel would send it SIGXFSZ.
bool fits(std::uint64_t bytes);

/// Opens a file for the tracer: not as one of the three that a program is given, for another of its threads may write
/// to these, also where they are closed. -errno for an error; -EBADF where it would be one of them for a moment.
long open_apart(const char* path, int flags, int mode);

/// Makes all frames empty, as they must be before the first call.
void free_frames(ThreadFile& file);

/// Room for `count` records in a row in the current block; null: there is none, and a call must be counted as dropped.
/// The records exist at once, as what `Record{}` and a zero begin are: the caller fills them.
inline Record* reserve(Thread& thread, std::uint32_t count = 1);
Record* reserve_slowly(Thread& thread, std::uint32_t count);

/// Adds to a number of this thread's, and returns what it was before.
inline std::uint32_t take(std::uint32_t& used, std::uint32_t count) {
#if defined(__x86_64__)
  // One instruction, so that a signal's handler comes before or after it; no lock, for nobody else writes here.
  asm volatile("xaddl %0, %1" : "+r"(count), "+m"(used)::"cc", "memory");
  return count;
#else
  return std::atomic_ref(used).fetch_add(count, std::memory_order_relaxed);
#endif
}

/// As reserve(); null where the current block has no room for them.
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

/// Once, before the first thread begins: makes the key whose destructor ends them. 0, or an error number.
int begin_ends();

/// This thread ends: what it has goes to the file, which the next thread that begins goes on with.
void end_thread();

/// Opens the calling thread's file to stay, for it may not be opened any more after this.
void keep_descriptor();

/// This thread is not traced any more; what it has stays as it is.
void leave_thread();

/// Reads both clocks for the calling thread, whose time may end here: how long ticks are shows by the longest time
/// between two readings.
void note_clocks();

/// In a child after fork: the parent's files are the parent's, also those of its other threads.
void forget_threads();

}  // namespace sonde::io
