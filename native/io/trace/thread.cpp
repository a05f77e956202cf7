#include "io/trace/thread.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include <atomic>
#include <cstddef>

#include "core/ticks.hpp"
#include "io/trace/process.hpp"
#include "io/trace/system.hpp"
#include "io/trace/values.hpp"

namespace sonde::io {

constinit thread_local Thread* current __attribute__((tls_model("initial-exec")));
constinit thread_local ThreadFile* open_file __attribute__((tls_model("initial-exec")));

/// Whether calls must not make this thread's files: they are being made, or this is a child between vfork and exec.
extern constinit thread_local bool beginning __asm__("sonde_io_beginning")
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
constinit thread_local bool beginning;
/// Where vfork returns to, twice: see the thunks.
extern constinit thread_local std::uint64_t vfork_back __asm__("sonde_io_vfork_back")
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
constinit thread_local std::uint64_t vfork_back;

namespace {

/// Above what programs use by number.
constexpr int lowest_fd = 700;
pthread_key_t ends;

bool granted(std::uint64_t bytes) {
  if (process.most_bytes == 0 || process.shared == nullptr) return true;
  std::atomic_ref<std::uint64_t> used(process.shared->bytes);
  if (used.fetch_add(bytes, std::memory_order_relaxed) + bytes <= process.most_bytes) return true;
  used.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

bool still_ours(const Thread& thread) {
  struct stat found;
  if (sys::call(__NR_fstat, thread.fd, sys::of(&found)) != 0) return false;
  return found.st_dev == thread.device && found.st_ino == thread.inode;
}

int open_again(Thread& thread) {
  char path[4096];
  Words(path, sizeof path) << process.prefix << "-" << std::uint64_t{thread.number} << ".blk";
  const int fd = sys::open(path, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
  if (fd < 0) return -1;
  const long high = sys::duplicate(fd, lowest_fd);
  if (high < 0) return fd;
  sys::close(fd);
  return static_cast<int>(high);
}

/// Empties a block that goes nowhere, but for whose calls follow: that goes to the other block. Returns how many calls
/// of the program it held.
std::uint64_t drop(ThreadFile& file, std::uint32_t block) {
  const auto* records = reinterpret_cast<const Record*>(file.blocks[block] + sizeof(BlockHeader));
  std::uint64_t calls = 0;
  Record thread{};
  for (std::uint32_t k = 0; k < file.used[block]; ++k) {
    if (records[k].function == note_function) {
      k += static_cast<std::uint32_t>((reinterpret_cast<const Note&>(records[k]).bytes + sizeof(Record) - 1) /
                                      sizeof(Record));
    } else if (records[k].function < own_function) {
      ++calls;
    } else if (records[k].function == thread_function && records[k].size != 0) {
      thread = records[k];
    }
  }
  std::atomic_ref(file.dropped).fetch_add(calls, std::memory_order_relaxed);
  file.used[block] = 0;
  if (thread.size != 0)
    if (Record* kept = reserve_quickly(file)) *kept = thread;
  return calls;
}

void note_clocks(ThreadFile& file) {
  const auto [ns, at] = both_clocks(ticks, 3);
  file.last_ns = static_cast<std::uint64_t>(ns);
  file.last_ticks = static_cast<std::uint64_t>(at);
}

/// The full block goes to the file; records of signal handlers meanwhile to the other. `block` has been left already.
void append(Thread& thread, std::uint32_t block) {
  ThreadFile& file = *thread.file;
  std::byte* bytes = file.blocks[block];
  if (!granted(block_bytes)) {
    std::atomic_ref<std::uint64_t>(process.shared->dropped_cap).fetch_add(drop(file, block), std::memory_order_relaxed);
    return;
  }
  if (thread.fd < 0 || !still_ours(thread)) thread.fd = open_again(thread);
  auto& header = *reinterpret_cast<BlockHeader*>(bytes);
  header = {{'S', 'B', 'L', 'K'}, 0, file.sequence, file.used[block], file.dropped};
  const std::size_t length = sizeof header + file.used[block] * sizeof(Record);
  if (thread.fd < 0 || sys::write(thread.fd, bytes, length) != static_cast<long>(length)) {
    // A part of a block on a full disk: the next one would not be found behind it.
    if (thread.fd >= 0) sys::call(__NR_ftruncate, thread.fd, static_cast<long>(file.appended));
    drop(file, block);
    return;
  }
  file.appended += length;
  ++file.sequence;
  file.used[block] = 0;
  note_clocks(file);
}

/// Where the stack lies that `sp` points into, from /proc/self/maps. The main thread's grows downwards.
void find_stack(std::uint64_t sp, std::uint64_t& low, std::uint64_t& high) {
  low = sp - (1u << 20);
  high = sp + (1u << 16);
  const int fd = sys::open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return;
  char text[4096];
  std::uint64_t from = 0, to = 0;
  int field = 0;  // 0: from, 1: to, 2: the rest of the line
  bool grows = false;
  long got;
  while ((got = sys::read(fd, text, sizeof text)) > 0) {
    for (long k = 0; k < got; ++k) {
      const char c = text[k];
      if (c == '\n') {
        if (sp > from && sp <= to) {
          low = grows ? from - (std::uint64_t{64} << 20) : from;
          high = to;
          sys::close(fd);
          return;
        }
        from = to = 0;
        field = 0;
        grows = false;
      } else if (field == 2) {
        grows |= c == '[' && k + 5 < got && text[k + 1] == 's' && text[k + 2] == 't';
      } else if (c == '-' || c == ' ') {
        ++field;
      } else {
        std::uint64_t& number = field == 0 ? from : to;
        number = number << 4 | static_cast<std::uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
      }
    }
  }
  sys::close(fd);
}

/// As core/block.cpp's, byte by byte: once a file.
std::uint32_t checksum(const char* bytes, std::size_t count, std::uint32_t seed) {
  std::uint32_t c = ~seed;
  for (std::size_t k = 0; k < count; ++k) {
    c ^= static_cast<unsigned char>(bytes[k]);
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) ? 0xedb88320u ^ (c >> 1) : c >> 1;
  }
  return ~c;
}

/// Returns the bytes written, 0 on an error.
std::uint64_t write_header(int fd, std::uint32_t number) {
  struct {
    char magic[8];
    std::uint32_t version, bytes, crc32, zero;
    char text[sizeof process.header + 256];
  } head;
  for (int k = 0; k < 8; ++k) head.magic[k] = "SONDEBLK"[k];
  Words words(head.text, sizeof head.text);
  words << process.header << ",\"number\":" << std::uint64_t{number} << "}";
  std::size_t length = static_cast<std::size_t>(words.end() - head.text);
  while (length % 8 != 0) head.text[length++] = ' ';
  head.version = 1;
  head.bytes = static_cast<std::uint32_t>(length);
  head.zero = 0;
  head.crc32 = checksum(reinterpret_cast<const char*>(&head.version), 8, 0);
  head.crc32 = checksum(head.text, length, head.crc32);
  length += 24;
  return sys::write(fd, &head, length) == static_cast<long>(length) ? length : 0;
}

/// Threads that ended, whose files are free. Held for a few instructions, with signals let through: a handler that
/// finds it held makes new files instead of waiting.
std::atomic<bool> pool_held;
Thread* pool;

Thread* from_pool() {
  if (pool_held.exchange(true, std::memory_order_acquire)) return nullptr;
  Thread* const found = pool;
  if (found != nullptr) pool = found->next;
  pool_held.store(false, std::memory_order_release);
  return found;
}

void to_pool(Thread* thread) {
  while (pool_held.exchange(true, std::memory_order_acquire)) sys::call(__NR_sched_yield);
  thread->next = pool;
  pool = thread;
  pool_held.store(false, std::memory_order_release);
}

}  // namespace

void free_frames(ThreadFile& file) {
  file.depth = 0;
  for (Frame& frame : file.frames) {
    frame.file = &file;
    frame.path = frame.via = 0;
    frame.sp = unfilled;
  }
}

namespace {

Thread* new_thread() {
  if (!granted(sizeof(ThreadFile) + sizeof process.header)) return nullptr;
  const std::uint32_t number = std::atomic_ref(process.threads).fetch_add(1, std::memory_order_relaxed);
  char path[4096];
  Words(path, sizeof path) << process.prefix << "-" << std::uint64_t{number} << ".tail";
  const int tail = sys::open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (tail < 0) return nullptr;
  // Reserved beforehand: a page that the disk has no room for would be a SIGBUS in the program.
  static const char zeros[4096] = {};
  bool reserved = sys::fallocate(tail, sizeof(ThreadFile)) == 0;
  if (!reserved) {
    reserved = true;
    for (std::size_t done = 0; reserved && done < sizeof(ThreadFile); done += sizeof zeros)
      reserved = sys::write(tail, zeros, sizeof zeros) == static_cast<long>(sizeof zeros);
  }
  auto* file = reserved ? static_cast<ThreadFile*>(sys::map(sizeof(ThreadFile), tail, true)) : nullptr;
  sys::close(tail);
  if (file == nullptr) {
    sys::unlink(path);
    return nullptr;
  }
  Words(path, sizeof path) << process.prefix << "-" << std::uint64_t{number} << ".blk";
  int fd = sys::open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  const std::uint64_t begun = fd < 0 ? 0 : write_header(fd, number);
  struct stat made;
  auto* thread = begun == 0 || sys::call(__NR_fstat, fd, sys::of(&made)) != 0
                     ? nullptr
                     : static_cast<Thread*>(sys::map(sizeof(Thread), -1, false));
  if (thread == nullptr) {
    if (fd >= 0) sys::close(fd);
    sys::unmap(file, sizeof *file);
    sys::unlink(path);
    Words(path, sizeof path) << process.prefix << "-" << std::uint64_t{number} << ".tail";
    sys::unlink(path);
    return nullptr;
  }
  const long high = sys::duplicate(fd, lowest_fd);
  if (high >= 0) {
    sys::close(fd);
    fd = static_cast<int>(high);
  }
  *thread = {file, fd, made.st_dev, made.st_ino, number, false, false, nullptr};
  for (int k = 0; k < 8; ++k) file->magic[k] = "SONDETHR"[k];
  file->version = 1;
  file->pid = process.pid;
  file->appended = begun;
  return thread;
}

}  // namespace

Record* reserve_slowly(Thread& thread, std::uint32_t count) {
  ThreadFile& file = *thread.file;
  for (int tries = 0; tries < 2; ++tries) {
    const std::uint32_t block = file.current;
    if (Record* found = reserve_quickly(file, count)) return found;
    if (thread.appending) break;
    const auto begin = static_cast<std::uint64_t>(ticks());
    thread.appending = true;
    file.current = block ^ 1;
    append(thread, block);
    thread.appending = false;
    note_own(thread, begin);
  }
  return nullptr;
}

void note_own(Thread& thread, std::uint64_t begin) {
  const std::uint32_t depth = thread.file->depth;
  if (Record* record = reserve(thread))
    *record = {begin,
               static_cast<std::uint64_t>(ticks()),
               unknown,
               unknown,
               0,
               own_function,
               static_cast<std::uint8_t>(depth < 255 ? depth : 255),
               0};
}

int begin_ends() {
  return ::pthread_key_create(&ends, [](void*) { end_thread(); });
}

Thread* begin_thread(std::uint64_t sp) {
  if (beginning) return nullptr;  // a signal's handler, while the thread's files are being made
  const auto begin = static_cast<std::uint64_t>(ticks());
  beginning = true;
  Thread* thread = from_pool();
  const bool again = thread != nullptr;
  if (!again) thread = new_thread();
  if (thread == nullptr) {
    if (process.shared) std::atomic_ref(process.shared->refused).fetch_add(1, std::memory_order_relaxed);
    beginning = false;
    return nullptr;
  }
  ThreadFile& file = *thread->file;
  file.tid = sys::thread_id();
  free_frames(file);
  find_stack(sp, file.stack_low, file.stack_high);
  note_clocks(file);
  if (Record* record = reserve(*thread))
    *record = {file.last_ticks, file.last_ns, file.tid, 0, 0, thread_function, 0, 0};
  // May allocate, and use any register: the thread's files must be found when it ends.
  current = thread;
  {
    const Busy busy(*thread);
    sonde_io_with_vectors([](void* what) { ::pthread_setspecific(ends, what); }, thread);
  }
  beginning = false;
  note_own(*thread, begin);
  return thread;
}

void end_thread() {
  Thread* thread = current;
  set_current(nullptr);
  if (thread == nullptr) return;
  free_frames(*thread->file);
  to_pool(thread);
}

void note_clocks() {
  if (current == nullptr) return;
  const auto [ns, at] = both_clocks(ticks, 3);
  if (Record* record = reserve(*current))
    *record = {static_cast<std::uint64_t>(at), static_cast<std::uint64_t>(ns), 0, 0, 0, thread_function, 0, 0};
}

void forget_threads() {
  set_current(nullptr);
  beginning = false;
  pool = nullptr;
  pool_held.store(false, std::memory_order_relaxed);
}

/// After vfork, in the child and in the parent that goes on then.
extern "C" __attribute__((visibility("hidden"))) void sonde_io_vforked(int result) {
  beginning = result == 0;
  if (current == nullptr) return;
  current->busy = beginning;
  set_current(current);
}

}  // namespace sonde::io
