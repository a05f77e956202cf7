#include "io/trace/thread.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <new>

#include "core/ticks.hpp"
#include "io/trace/process.hpp"
#include "io/trace/system.hpp"
#include "io/trace/values.hpp"

namespace sonde::io {

constinit thread_local Thread* current __attribute__((tls_model("initial-exec")));
constinit thread_local ThreadFile* open_file __attribute__((tls_model("initial-exec")));

/// Whether calls must not create this thread's files: they are being created, or this is a child between vfork and
/// exec.
extern constinit thread_local bool beginning __asm__("sonde_io_beginning")
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
constinit thread_local bool beginning;
/// The address to which vfork returns twice: see the thunks.
extern constinit thread_local std::uint64_t vfork_back __asm__("sonde_io_vfork_back")
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
constinit thread_local std::uint64_t vfork_back;

namespace {

pthread_key_t ends;

bool granted(std::uint64_t bytes) {
  if (process.most_bytes == 0 || process.shared == nullptr) return true;
  std::atomic_ref<std::uint64_t> used(process.shared->bytes);
  if (used.fetch_add(bytes, std::memory_order_relaxed) + bytes <= process.most_bytes) return true;
  used.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

void not_used(std::uint64_t bytes) {
  if (process.most_bytes != 0 && process.shared != nullptr)
    std::atomic_ref(process.shared->bytes).fetch_sub(bytes, std::memory_order_relaxed);
}

/// Threads take descriptors one after another, so that a program near its limit lacks at most one, for a moment. A fork
/// may have left the lock held, or its holder may be very slow: no thread waits forever.
std::atomic<bool> descriptor_taken;
class OneDescriptor {
 public:
  OneDescriptor() {
    for (int turns = 0; turns < 4096 && !mine_; ++turns) {
      mine_ = !descriptor_taken.exchange(true, std::memory_order_acquire);
      if (!mine_) sys::call(__NR_sched_yield);
    }
  }
  ~OneDescriptor() {
    if (mine_) descriptor_taken.store(false, std::memory_order_release);
  }
  OneDescriptor(const OneDescriptor&) = delete;

 private:
  bool mine_ = false;
};

bool still_ours(const Thread& thread) {
  struct stat found;
  if (sys::call(__NR_fstat, thread.fd, sys::of(&found)) != 0) return false;
  return found.st_dev == thread.device && found.st_ino == thread.inode;
}

/// Moves a descriptor that stays open to a number that the program does not need: at or above its limit, which is
/// raised for a moment, or slightly below a limit that no program reaches. -1: not possible.
int out_of_reach(int fd) {
  sys::Limit before;
  if (sys::limit(RLIMIT_NOFILE, nullptr, &before) != 0) return -1;
  constexpr std::uint64_t room = 64, many = 65536;
  if (before.soft >= many) return static_cast<int>(std::max(sys::duplicate(fd, many - room), -1L));
  if (before.hard < before.soft + room) return -1;
  const sys::Limit raised{before.soft + room, before.hard};
  if (sys::limit(RLIMIT_NOFILE, &raised, nullptr) != 0) return -1;
  const long high = sys::duplicate(fd, static_cast<long>(before.soft));
  sys::limit(RLIMIT_NOFILE, &before, nullptr);
  return static_cast<int>(std::max(high, -1L));
}

void name_file(char* path, std::size_t room, const Thread& thread) {
  Words(path, room) << process.prefix << "-" << std::uint64_t{thread.number} << ".blk";
}

/// Writes everything or nothing. Returns 0 or -errno.
long write_all(long fd, const void* bytes, std::size_t length, std::uint64_t at) {
  if (!fits(at + length)) return -EFBIG;
  const long done = sys::write(static_cast<int>(fd), bytes, length);
  if (done == static_cast<long>(length)) return 0;
  // On a full disk, part of a block was written: the next block could not be found after it.
  sys::call(__NR_ftruncate, fd, static_cast<long>(at));
  return done < 0 ? done : -ENOSPC;
}

/// Empties a block that cannot be written; the record that names the following thread moves to the other block. Returns
/// the number of the program's calls in it.
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

/// Whether the clock may be read, which is a system call on some machines.
bool clock_permitted() { return !confined || permitted(__NR_clock_gettime, 1, 0, 0, 0, 0, 0); }

void note_clocks(ThreadFile& file) {
  if (!clock_permitted()) {
    if (file.last_ticks == 0) {
      file.last_ns = process.began_ns;
      file.last_ticks = process.began_ticks;
    }
    return;
  }
  const auto [ns, at] = both_clocks(ticks, 3);
  file.last_ns = static_cast<std::uint64_t>(ns);
  file.last_ticks = static_cast<std::uint64_t>(at);
}

void lose(Thread& thread, std::uint32_t block, Why reason) { note_lost(reason, drop(*thread.file, block)); }

/// Appends a block to the file. Returns 0 or -errno.
long write_block(Thread& thread, const std::byte* bytes, std::size_t length) {
  ThreadFile& file = *thread.file;
  const OneDescriptor one;
  const bool kept = thread.fd >= 0 && still_ours(thread);
  if (!kept) thread.fd = -1;
  long fd = thread.fd;
  if (!kept) {
    char path[4096];
    name_file(path, sizeof path, thread);
    fd = open_apart(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | (file.appended == 0 ? O_CREAT | O_TRUNC : 0),
                    0600);
    if (fd < 0) return fd;
  }
  long error = 0;
  if (file.appended == 0) {  // the thread had no file when it began
    error = write_all(fd, thread.place->header, thread.place->header_bytes, 0);
    if (error == 0) file.appended = thread.place->header_bytes;
  }
  if (error == 0) error = write_all(fd, bytes, length, file.appended);
  if (!kept) sys::close(static_cast<int>(fd));
  return error;
}

/// Appends the full block to the file; signal handlers meanwhile record in the other block. `block` is no longer
/// current.
void append(Thread& thread, std::uint32_t block) {
  ThreadFile& file = *thread.file;
  if (!granted(block_bytes)) return lose(thread, block, Why::full);
  std::byte* bytes = file.blocks[block];
  auto& header = *reinterpret_cast<BlockHeader*>(bytes);
  header = {{'S', 'B', 'L', 'K'}, 0, file.sequence, file.used[block], file.dropped};
  const std::size_t length = sizeof header + file.used[block] * sizeof(Record);
  if (const long error = write_block(thread, bytes, length); error != 0) {
    not_used(block_bytes);
    return lose(thread, block, why(error));
  }
  file.appended += length;
  ++file.sequence;
  file.used[block] = 0;
  note_clocks(file);
}

/// The range of the stack that contains `sp`, from /proc/self/maps. The main thread's stack grows downwards.
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

/// The same as in core/block.cpp, byte by byte, because it runs only once a file.
std::uint32_t checksum(const char* bytes, std::size_t count, std::uint32_t seed) {
  std::uint32_t c = ~seed;
  for (std::size_t k = 0; k < count; ++k) {
    c ^= static_cast<unsigned char>(bytes[k]);
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) ? 0xedb88320u ^ (c >> 1) : c >> 1;
  }
  return ~c;
}

/// The head of a block file.
struct FileHeader {
  char magic[8];
  std::uint32_t version, bytes, crc32, zero;
  char text[sizeof process.header + 256];
};
static_assert(sizeof(FileHeader) <= sizeof(ThreadPlace::header));

/// Returns its size in bytes.
std::uint32_t fill(FileHeader& head, std::uint32_t number) {
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
  return static_cast<std::uint32_t>(length + 24);
}

/// Lock of the ended threads, whose files are free. It is held for a few instructions, without blocking signals: a
/// handler that finds it held creates new files instead of waiting.
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

void begin_file(ThreadFile& file, std::uint64_t appended) {
  for (int k = 0; k < 8; ++k) file.magic[k] = "SONDETHR"[k];
  file.version = 1;
  file.pid = process.pid;
  file.appended = appended;
}

/// The mapped file of a thread; null on failure, with the cause in `error` as -errno.
ThreadFile* map_tail(const char* path, long& error) {
  error = -EFBIG;
  if (!fits(sizeof(ThreadFile))) return nullptr;
  const long tail = open_apart(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (tail < 0) {
    error = tail;
    return nullptr;
  }
  // The space is reserved, because a page without room on the disk would raise SIGBUS in the program.
  static const char zeros[4096] = {};
  error = sys::fallocate(static_cast<int>(tail), sizeof(ThreadFile));
  if (error != 0) {
    error = 0;
    for (std::size_t done = 0; error == 0 && done < sizeof(ThreadFile); done += sizeof zeros)
      error = write_all(tail, zeros, sizeof zeros, done);
  }
  auto* file =
      error == 0 ? static_cast<ThreadFile*>(sys::map(sizeof(ThreadFile), static_cast<int>(tail), true)) : nullptr;
  if (file == nullptr && error == 0) error = confined ? -EPERM : -ENOMEM;
  sys::close(static_cast<int>(tail));
  if (file == nullptr) sys::unlink(path);
  return file;
}

Thread* with_files(std::uint32_t number, long& error) {
  char tail[4096], path[4096];
  Words(tail, sizeof tail) << process.prefix << "-" << std::uint64_t{number} << ".tail";
  Words(path, sizeof path) << process.prefix << "-" << std::uint64_t{number} << ".blk";
  ThreadFile* const file = map_tail(tail, error);
  if (file == nullptr) return nullptr;
  FileHeader head;
  const std::uint32_t begun = fill(head, number);
  struct stat made;
  Thread* thread = nullptr;
  const long fd = open_apart(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  error = fd < 0 ? fd : write_all(fd, &head, begun, 0);
  if (error == 0) error = sys::call(__NR_fstat, fd, sys::of(&made));
  if (error == 0) {
    thread = static_cast<Thread*>(sys::map(sizeof(Thread), -1, false));
    if (thread == nullptr) error = confined ? -EPERM : -ENOMEM;
  }
  const int kept = thread != nullptr && number == 0 ? out_of_reach(static_cast<int>(fd)) : -1;
  if (fd >= 0) sys::close(static_cast<int>(fd));
  if (thread == nullptr) {
    sys::unmap(file, sizeof *file);
    if (fd >= 0) sys::unlink(path);
    sys::unlink(tail);
    return nullptr;
  }
  *thread = {file, kept, made.st_dev, made.st_ino, number, false, false, nullptr, nullptr, {}};
  begin_file(*file, begun);
  return thread;
}

/// Takes one of the places that were created in advance, without a system call.
Thread* in_place(std::uint32_t number) {
  if (process.places == nullptr) return nullptr;
  std::atomic_ref<std::uint64_t> taken(process.shared->places);
  const std::uint64_t k = taken.fetch_add(1, std::memory_order_relaxed);
  if (k >= max_places) {
    taken.fetch_sub(1, std::memory_order_relaxed);
    return nullptr;
  }
  ThreadPlace& place = process.places[k];
  static_assert(sizeof(Thread) <= sizeof place.thread);
  const char* name = process.prefix;
  for (const char* at = name; *at != 0; ++at)
    if (*at == '/') name = at + 1;
  Words(place.name, sizeof place.name) << name;
  place.number = number;
  place.header_bytes = fill(*reinterpret_cast<FileHeader*>(place.header), number);
  auto* thread = new (place.thread) Thread{&place.file, -1, 0, 0, number, false, false, &place, nullptr, {}};
  begin_file(place.file, 0);
  std::atomic_ref(place.taken).store(1, std::memory_order_release);
  return thread;
}

Thread* new_thread() {
  constexpr std::uint64_t bytes = sizeof(ThreadFile) + sizeof process.header;
  if (!granted(bytes)) {
    note_refused(Why::full);
    return nullptr;
  }
  const std::uint32_t number = std::atomic_ref(process.threads).fetch_add(1, std::memory_order_relaxed);
  long error = 0;
  {
    const OneDescriptor one;
    if (Thread* made = with_files(number, error)) return made;
  }
  not_used(bytes);
  Thread* const made = in_place(number);
  if (made == nullptr) note_refused(why(error));
  return made;
}

}  // namespace

bool fits(std::uint64_t bytes) {
  static std::uint64_t last = ~std::uint64_t{0};  // the value from before the program forbade this call
  sys::Limit now;
  if (sys::limit(RLIMIT_FSIZE, nullptr, &now) == 0) std::atomic_ref(last).store(now.soft, std::memory_order_relaxed);
  return bytes <= std::atomic_ref(last).load(std::memory_order_relaxed);
}

/// Whether one of the three standard descriptors is closed, so that another thread may use its number.
static bool streams_in_reach() {
#if __has_include(<sys/single_threaded.h>)
  if (__libc_single_threaded != 0) return false;
#endif
  for (int fd = 0; fd < 3; ++fd)
    if (sys::call(__NR_fcntl, fd, F_GETFD) == -EBADF) return true;
  return false;
}

long open_apart(const char* path, int flags, int mode) {
  if (streams_in_reach()) return -EBADF;
  const long fd = sys::open(path, flags, mode);
  if (fd < 0 || fd > 2) return fd;
  const long other = sys::duplicate(static_cast<int>(fd), 3);
  sys::close(static_cast<int>(fd));
  return other;
}

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
  if (beginning) return nullptr;  // a signal handler, while the thread's files are being created
  const auto begin = static_cast<std::uint64_t>(ticks());
  beginning = true;
  Thread* thread = from_pool();
  const bool again = thread != nullptr;
  if (!again) thread = new_thread();
  if (thread == nullptr) {
    beginning = false;
    return nullptr;
  }
  ThreadFile& file = *thread->file;
  const auto tid = static_cast<std::int32_t>(sys::thread_id());  // below 0: the call is forbidden
  file.tid = tid > 0 ? static_cast<std::uint32_t>(tid) : process.pid + thread->number;
  free_frames(file);
  find_stack(sp, file.stack_low, file.stack_high);
  note_clocks(file);
  if (Record* record = reserve(*thread))
    *record = {file.last_ticks, file.last_ns, file.tid, 0, 0, thread_function, 0, 0};
  // May allocate and use any register: needed to find the thread's files when it ends.
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

void keep_descriptor() {
  Thread* const thread = current;
  if (thread == nullptr || thread->file->appended == 0) return;
  const OneDescriptor one;
  if (thread->fd >= 0 && still_ours(*thread)) return;
  thread->fd = -1;
  char path[4096];
  name_file(path, sizeof path, *thread);
  const long fd = open_apart(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0);
  if (fd < 0) return;
  int kept = out_of_reach(static_cast<int>(fd));
  sys::Limit limit;
  constexpr std::uint64_t last = 16;  // numbers just below the limit, which few programs reach
  if (kept < 0 && sys::limit(RLIMIT_NOFILE, nullptr, &limit) == 0 && limit.soft > 4 * last)
    kept = static_cast<int>(std::max(sys::duplicate(static_cast<int>(fd), static_cast<long>(limit.soft - last)), -1L));
  struct stat made;
  if (kept >= 0 && sys::call(__NR_fstat, kept, sys::of(&made)) == 0) {
    thread->device = made.st_dev;
    thread->inode = made.st_ino;
    thread->fd = kept;
  }
  sys::close(static_cast<int>(fd));
}

void leave_thread() {
  beginning = true;
  set_current(nullptr);
}

void note_clocks() {
  if (current == nullptr || !clock_permitted()) return;
  const auto [ns, at] = both_clocks(ticks, 3);
  if (Record* record = reserve(*current))
    *record = {static_cast<std::uint64_t>(at), static_cast<std::uint64_t>(ns), 0, 0, 0, thread_function, 0, 0};
}

void forget_threads() {
  set_current(nullptr);
  beginning = false;
  pool = nullptr;
  pool_held.store(false, std::memory_order_relaxed);
  descriptor_taken.store(false, std::memory_order_relaxed);
}

/// Called after vfork, in the child and then in the parent, which continues.
extern "C" __attribute__((visibility("hidden"))) void sonde_io_vforked(int result) {
  beginning = result == 0;
  if (current == nullptr) return;
  current->busy = beginning;
  set_current(current);
}

}  // namespace sonde::io
