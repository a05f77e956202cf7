/// The start of the tracer: the constructor of a preloaded library. If anything is wrong, the program runs untraced.
/// Nothing is printed, because the program's output may be data; the reason is in `<folder>/<host>-<pid>.refused`.

#include <cpuid.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/printable.hpp"
#include "core/ticks.hpp"
#include "io/trace/confinement.hpp"
#include "io/trace/engine.hpp"
#include "io/trace/objects.hpp"
#include "io/trace/process.hpp"
#include "io/trace/system.hpp"
#include "io/trace/thread.hpp"
#include "io/trace/unseen.hpp"
#include "io/trace/values.hpp"

namespace sonde::io {

Process process;

namespace {

char folder[2048], host[256];

void refuse(const char* why) {
  char path[4096];
  if (!fits(2 * std::strlen(why))) return;
  std::snprintf(path, sizeof path, "%s/%s-%u.refused", folder, host, sys::process_id());
  const int fd = sys::open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return;
  sys::write(fd, why, std::strlen(why));
  sys::write(fd, "\n", 1);
  sys::close(fd);
}

/// The text of json_name() in core/json.hpp, without its quotes and without allocating. A name that is too long is cut.
void quote(char* to, std::size_t room, std::string_view text) {
  char* end = to + room - 7;
  while (!text.empty() && to < end) {
    std::uint32_t code = 0;
    const std::size_t n = utf8_front(text, code);
    if (n == 1 && code >= 0x80) {
      to += std::snprintf(to, 7, "\\\\x%02x", code);
    } else if (code < 0x20) {
      to += std::snprintf(to, 7, "\\u%04x", code);
    } else if (like_a_number(text)) {
      to += std::snprintf(to, 7, "\\\\x5c");
    } else {
      if (code == '"' || code == '\\') *to++ = '\\';
      std::memcpy(to, text.data(), n);
      to += n;
    }
    text.remove_prefix(n);
  }
  *to = 0;
}

/// Whether this executable only starts others: SONDE_IO_SKIP lists these, as names and whole paths with `:` between.
bool skipped(const char* program) {
  const char* name = std::strrchr(program, '/');
  name = name ? name + 1 : program;
  const char* list = std::getenv("SONDE_IO_SKIP");
  const std::size_t length = std::strlen(name);
  for (const char* at = list; at && *at;) {
    const char* end = std::strchr(at, ':');
    const std::size_t size = end ? static_cast<std::size_t>(end - at) : std::strlen(at);
    const char* whole = *at == '/' ? program : name;
    if (size == (whole == name ? length : std::strlen(program)) && std::memcmp(at, whole, size) == 0) return true;
    at = end ? end + 1 : nullptr;
  }
  return false;
}

const char* rank_of_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "PALS_RANKID"})
    if (const char* value = std::getenv(name)) return value;
  return "-1";
}

/// The MPI program of which this process is a rank: a name that all its ranks share, and no other program's ranks.
/// `everywhere`: the ranks of all hosts share it; otherwise only those of one host.
char world[512];
bool everywhere;

/// The parent of `pid`, and the name of `pid`; 0: not known.
int parent_of(int pid, char* name, std::size_t room) {
  char path[64], text[512];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t got = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  text[got > 0 ? got : 0] = 0;
  const char *begin = std::strchr(text, '('), *end = std::strrchr(text, ')');
  if (begin == nullptr || end == nullptr || end[1] == 0) return 0;
  std::snprintf(name, room, "%.*s", static_cast<int>(end - begin - 1), begin + 1);
  return std::atoi(end + 3);  // ") S PARENT"
}

void name_world() {
  world[0] = 0;
  everywhere = true;
  if (std::strcmp(rank_of_environment(), "-1") == 0) return;
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PALS_APID", "SLURM_STEP_ID"}) {
    if (const char* value = std::getenv(name)) {
      std::snprintf(world, sizeof world, "%s=%s", name, value);
      return;
    }
  }
  // Hydra gives its ranks no such name: the process that started them, one on each host, identifies the program.
  everywhere = false;
  char name[64];
  int pid = static_cast<int>(sys::process_id());
  for (int k = 0; k < 16 && pid > 1; ++k) {
    const int parent = parent_of(pid, name, sizeof name);
    if (std::strncmp(name, "hydra_pmi_proxy", 15) == 0) {
      std::snprintf(world, sizeof world, "hydra=%d", pid);
      return;
    }
    pid = parent;
  }
}

/// After fork, a child knows the functions that its parent had found until then, with the parent's numbers.
void name_process() {
  char program[2048], quoted[4096], name[512], of_world[1024];
  const ssize_t got = ::readlink("/proc/self/exe", program, sizeof program - 1);
  program[got > 0 ? got : 0] = 0;
  quote(quoted, sizeof quoted, program);
  quote(name, sizeof name, host);
  quote(of_world, sizeof of_world, world);
  char parent[sizeof process.prefix];
  std::strcpy(parent, process.prefix);
  const char* inherits = std::strrchr(parent, '/');
  process.pid = sys::process_id();
  process.threads = 0;
  const auto [began_ns, began_at] = both_clocks(ticks);
  const auto began = static_cast<unsigned long long>(began_ns);
  const auto began_ticks = static_cast<unsigned long long>(began_at);
  process.began_ns = began;
  process.began_ticks = began_ticks;
  timespec wall;
  ::clock_gettime(CLOCK_REALTIME, &wall);
  // exec keeps the process number, so the files of one program image need another name than those of the next.
  std::snprintf(process.prefix, sizeof process.prefix, "%s/%s-%u-%llx", folder, host, process.pid,
                began & 0xffffffffffull);
  std::snprintf(process.header, sizeof process.header,
                "{\"fields\":[[\"begin\",\"<u8\",[]],[\"end\",\"<u8\",[]],[\"size\",\"<u8\",[]],[\"offset\",\"<u8\",[]]"
                ",[\"file\",\"<u4\",[]],[\"function\",\"<u2\",[]],"
                "[\"depth\",\"|u1\",[]],[\"flags\",\"|u1\",[]]],\"schema\":\"io/"
                "1\",\"host\":\"%s\",\"pid\":%u,\"parent\":%d,\"rank\":%d,\"program\":\"%s\","
                "\"ticks\":\"%s\",\"began_ticks\":%llu,\"began_ns\":%llu,\"began_utc_ns\":%lld,\"inherits\":\"%s\","
                "\"inherited\":%u,\"world\":\"%s\",\"world_everywhere\":%d",
                name, process.pid, static_cast<int>(::getppid()), std::atoi(rank_of_environment()), quoted,
                to_string(tick_kind), began_ticks, began,
                static_cast<long long>(wall.tv_sec) * 1'000'000'000 + wall.tv_nsec, inherits ? inherits + 1 : "",
                inherits ? counts().functions : 0u, of_world, everywhere ? 1 : 0);
}

/// Everything is ready: the kernel's events from now on belong to the program, not to the loader or the tracer.
void note_ready() {
  const std::size_t length = std::strlen(process.header);
  std::snprintf(process.header + length, sizeof process.header - length,
                ",\"cost_calls\":%u,\"cost_ticks\":%llu,\"cost_inside_ticks\":%llu,\"ready_ticks\":%llu", cost_calls,
                static_cast<unsigned long long>(process.cost.all), static_cast<unsigned long long>(process.cost.inside),
                static_cast<unsigned long long>(ticks()));
}

const void* mapped(const char* path, bool shared, std::size_t least, std::size_t* bytes) {
  const int fd = ::open(path, (shared ? O_RDWR : O_RDONLY) | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat found;
  void* at = MAP_FAILED;
  if (::fstat(fd, &found) == 0 && static_cast<std::size_t>(found.st_size) >= least) {
    *bytes = static_cast<std::size_t>(found.st_size);
    at = ::mmap(nullptr, *bytes, shared ? PROT_READ | PROT_WRITE : PROT_READ, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
  }
  ::close(fd);
  return at == MAP_FAILED ? nullptr : at;
}

bool is_table(const TableHeader& table, std::size_t bytes) {
  if (std::memcmp(table.magic, table_magic, sizeof table_magic) != 0 || table.version != table_version) return false;
  const std::size_t rules = std::size_t{table.rules} * sizeof(Rule);
  if (bytes != sizeof table + rules + table.text_bytes || table.text_bytes == 0) return false;
  const auto* first = reinterpret_cast<const Rule*>(&table + 1);
  const char* text = reinterpret_cast<const char*>(first + table.rules);
  if (text[table.text_bytes - 1] != 0) return false;
  for (std::uint32_t k = 0; k < table.rules; ++k)
    if (first[k].library >= table.text_bytes || first[k].name >= table.text_bytes) return false;
  return true;
}

void measure_vectors() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (1u << 27)) == 0) return;  // OSXSAVE
  if (__get_cpuid_count(13, 0, &a, &b, &c, &d)) sonde_io_vector_bytes = b;
#endif
}

/// Opens the node's account of written bytes, and the places for threads. `sonde io run` creates it on its own node; on
/// other nodes the first process does.
bool open_account() {
  constexpr std::size_t all = shared_bytes + max_places * sizeof(ThreadPlace);
  char path[4096];
  std::snprintf(path, sizeof path, "%s/%s.shared", folder, host);
  const int fd = ::open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  struct stat found;
  std::size_t bytes = ::fstat(fd, &found) == 0 ? static_cast<std::size_t>(found.st_size) : 0;
  for (const std::size_t wanted : {shared_bytes, all})
    if (bytes < wanted && fits(wanted) && sys::fallocate(fd, wanted) == 0) bytes = wanted;
  // If the space cannot be reserved, writing to a place would raise SIGBUS on a full disk.
  if (bytes < shared_bytes && fits(shared_bytes) && ::ftruncate(fd, shared_bytes) == 0) bytes = shared_bytes;
  bytes = bytes < all ? shared_bytes : all;
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (at == MAP_FAILED) return false;
  process.shared = static_cast<Shared*>(at);
  std::memcpy(process.shared->magic, "SONDESH2", 8);
  if (bytes == all) process.places = reinterpret_cast<ThreadPlace*>(static_cast<std::byte*>(at) + shared_bytes);
  return true;
}

/// Writes the descriptors that the program was given at its start: a line each, the number, and the name of what may
/// hold bytes; a socket, a pipe and the like have none. No traced call opened them.
void note_descriptors() {
  char path[4096];
  Words(path, sizeof path) << process.prefix << ".descriptors";
  const int folder_fd = sys::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (folder_fd < 0) return;
  const long file =
      fits(1 << 20) ? open_apart(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) : -EFBIG;
  alignas(8) static char entries[8192];
  static char lines[3 * 4096 + 64];
  bool whole = file >= 0;
  for (long got; whole && (got = sys::call(__NR_getdents64, folder_fd, sys::of(entries), sizeof entries)) > 0;) {
    for (long k = 0; k < got;) {
      std::uint16_t bytes;  // struct linux_dirent64: two numbers of 8 B, this one, a type of 1 B, the name
      std::memcpy(&bytes, entries + k + 16, sizeof bytes);
      const char* name = entries + k + 19;
      k += bytes;
      const int fd = name[0] == '.' ? -1 : std::atoi(name);
      if (fd < 3 || fd == folder_fd || fd == file) continue;
      char target[4096];
      const long length = sys::call(__NR_readlinkat, folder_fd, sys::of(name), sys::of(target), sizeof target - 1);
      target[length > 0 ? length : 0] = 0;
      Words words(lines, sizeof lines);
      words << name << "\t";
      if (target[0] == '/') words.encoded(target);
      words << "\n";
      const auto size = static_cast<std::size_t>(words.end() - lines);
      whole = whole && sys::write(static_cast<int>(file), lines, size) == static_cast<long>(size);
    }
  }
  if (file >= 0) sys::close(static_cast<int>(file));
  if (file >= 0 && !whole) sys::unlink(path);
  sys::close(folder_fd);
}

void in_child() {
  forget_threads();
  // A child whose filter forbids even getpid would write into its parent's files.
  if (confined && !(permitted(__NR_getpid, 0, 0, 0, 0, 0, 0) && permitted(__NR_getppid, 0, 0, 0, 0, 0, 0) &&
                    permitted(__NR_readlink, 0, 0, 0, 0, 0, 0) && permitted(__NR_clock_gettime, 0, 0, 0, 0, 0, 0))) {
    tracing = false;
    note_refused(Why::filter);
    return;
  }
  name_process();
  note_ready();
}

__attribute__((constructor)) void begin() {
  const char* where = std::getenv("SONDE_IO_FOLDER");
  const char* table_path = std::getenv("SONDE_IO_TABLE");
  char program[4096];
  const ssize_t got = ::readlink("/proc/self/exe", program, sizeof program - 1);
  program[got > 0 ? got : 0] = 0;
  if (where == nullptr || table_path == nullptr || std::strlen(where) >= sizeof folder || skipped(program)) return;
  int clock = PR_TSC_ENABLE;
  if (confined_from_the_start() || (::prctl(PR_GET_TSC, &clock) == 0 && clock == PR_TSC_SIGSEGV)) return;
  std::strcpy(folder, where);
  if (::gethostname(host, sizeof host - 1) != 0) std::strcpy(host, "unknown");
  for (char* at = host; *at; ++at)
    if (*at == '/') *at = '_';
  std::size_t bytes = 0;
  const auto* table = static_cast<const TableHeader*>(mapped(table_path, false, sizeof(TableHeader), &bytes));
  if (table == nullptr) return refuse("the layer table cannot be read");
  if (!is_table(*table, bytes)) return refuse("the layer table is damaged, or of another version of Sonde");
  process.most_bytes = table->most_bytes;
  if (!open_account()) return refuse("the trace's folder cannot be written");
  name_world();
  name_process();
  note_descriptors();
  measure_vectors();
  if (begin_ends() != 0) return refuse("no thread-specific key is left, which would show the end of a thread");
  ::pthread_atfork(nullptr, nullptr, in_child);
  if (!patch_objects(*table, reinterpret_cast<const void*>(&begin))) return;
  process.cost = measure_cost();
  note_ready();
  tracing = true;
}

__attribute__((destructor)) void end() {
  if (tracing) note_clocks();
}

}  // namespace
}  // namespace sonde::io
