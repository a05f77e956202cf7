#include "io/trace/confinement.hpp"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "io/trace/engine.hpp"
#include "io/trace/system.hpp"
#include "io/trace/thread.hpp"
#include "io/trace/unseen.hpp"

namespace sonde::io {

bool confined;

namespace {

#if defined(__x86_64__)
constexpr std::uint32_t machine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t machine = AUDIT_ARCH_AARCH64;
#endif

/// The program's filters, one after another. If there is no room for all of them, nothing is allowed.
constexpr unsigned max_filters = 64, max_instructions = 16384;
struct Filter {
  unsigned first, length;
} filters[max_filters];
sock_filter instructions[max_instructions];
unsigned filter_count, instruction_count;
bool unknown_filter;

/// Executes the instructions that the kernel accepts in a filter (kernel/seccomp.c, seccomp_check_filter); it has
/// refused all others.
std::uint32_t verdict(const Filter& filter, const seccomp_data& data) {
  const sock_filter* program = instructions + filter.first;
  std::uint32_t a = 0, x = 0, memory[BPF_MEMWORDS] = {};
  for (unsigned at = 0; at < filter.length; ++at) {
    const sock_filter& one = program[at];
    const std::uint32_t k = one.k, operand = BPF_SRC(one.code) == BPF_X ? x : k;
    switch (BPF_CLASS(one.code)) {
      case BPF_LD:
        if (BPF_MODE(one.code) == BPF_ABS) {
          if (k > sizeof data - sizeof a) return SECCOMP_RET_KILL_PROCESS;
          std::memcpy(&a, reinterpret_cast<const char*>(&data) + k, sizeof a);
        } else {
          a = BPF_MODE(one.code) == BPF_IMM   ? k
              : BPF_MODE(one.code) == BPF_LEN ? static_cast<std::uint32_t>(sizeof data)
                                              : memory[k % BPF_MEMWORDS];
        }
        break;
      case BPF_LDX:
        x = BPF_MODE(one.code) == BPF_IMM   ? k
            : BPF_MODE(one.code) == BPF_LEN ? static_cast<std::uint32_t>(sizeof data)
                                            : memory[k % BPF_MEMWORDS];
        break;
      case BPF_ST: memory[k % BPF_MEMWORDS] = a; break;
      case BPF_STX: memory[k % BPF_MEMWORDS] = x; break;
      case BPF_ALU:
        switch (BPF_OP(one.code)) {
          case BPF_ADD: a += operand; break;
          case BPF_SUB: a -= operand; break;
          case BPF_MUL: a *= operand; break;
          case BPF_DIV:
            if (operand == 0) return SECCOMP_RET_KILL_PROCESS;
            a /= operand;
            break;
          case BPF_OR: a |= operand; break;
          case BPF_AND: a &= operand; break;
          case BPF_XOR: a ^= operand; break;
          case BPF_LSH: a <<= operand & 31; break;
          case BPF_RSH: a >>= operand & 31; break;
          case BPF_NEG: a = 0u - a; break;
          default: return SECCOMP_RET_KILL_PROCESS;
        }
        break;
      case BPF_JMP:
        switch (BPF_OP(one.code)) {
          case BPF_JA: at += k; break;
          case BPF_JEQ: at += a == operand ? one.jt : one.jf; break;
          case BPF_JGT: at += a > operand ? one.jt : one.jf; break;
          case BPF_JGE: at += a >= operand ? one.jt : one.jf; break;
          case BPF_JSET: at += (a & operand) != 0 ? one.jt : one.jf; break;
          default: return SECCOMP_RET_KILL_PROCESS;
        }
        break;
      case BPF_RET: return BPF_RVAL(one.code) == BPF_A ? a : k;
      case BPF_MISC: (BPF_MISCOP(one.code) == BPF_TAX ? x : a) = BPF_MISCOP(one.code) == BPF_TAX ? a : x; break;
      default: return SECCOMP_RET_KILL_PROCESS;
    }
  }
  return SECCOMP_RET_KILL_PROCESS;
}

void take_filter(std::uint64_t address) {
  confined = true;
  const auto* given = reinterpret_cast<const sock_fprog*>(address);
  if (filter_count == max_filters || given->len > max_instructions - instruction_count) {
    unknown_filter = true;
    return;
  }
  std::memcpy(instructions + instruction_count, given->filter, given->len * sizeof *given->filter);
  filters[filter_count] = {instruction_count, given->len};
  instruction_count += given->len;
  ++filter_count;
}

/// The number after a key of /proc/self/status; 0 if an older kernel does not have the key.
long field(const char* text, const char* key) {
  const char* at = std::strstr(text, key);
  return at != nullptr ? std::atol(at + std::strlen(key)) : 0;
}

}  // namespace

bool permitted(long number, long a, long b, long c, long d, long e, long f) {
  if (!confined) return true;
  if (unknown_filter) return false;
  seccomp_data data{};
  data.nr = static_cast<int>(number);
  data.arch = machine;
  data.instruction_pointer = reinterpret_cast<std::uint64_t>(&permitted);
  const long words[] = {a, b, c, d, e, f};
  for (unsigned k = 0; k < 6; ++k) data.args[k] = static_cast<std::uint64_t>(words[k]);
  for (unsigned k = 0; k < filter_count; ++k) {
    const std::uint32_t action = verdict(filters[k], data) & SECCOMP_RET_ACTION_FULL;
    if (action != SECCOMP_RET_ALLOW && action != SECCOMP_RET_LOG) return false;
  }
  return true;
}

namespace {

/// From then on, reading the processor's clock would kill the program, even before the call that forbids it has
/// returned. So this thread is no longer traced, and neither are new threads, because they inherit the setting.
void let_be() {
  note_unseen(Unseen::no_clock);
  tracing = false;
  leave_thread();
}

/// Whether a prctl, or a seccomp, whose first three arguments these are, may install a filter.
bool watch_installing(bool by_prctl, std::uint64_t what, std::uint64_t how) {
  if (by_prctl && static_cast<int>(what) == PR_SET_TSC && how == PR_TSC_SIGSEGV) {
    let_be();
    return false;
  }
  if (by_prctl && static_cast<int>(what) != PR_SET_SECCOMP) return false;
  if (by_prctl ? how == SECCOMP_MODE_STRICT : what == SECCOMP_SET_MODE_STRICT) {
    let_be();
    return false;
  }
  return true;
}

}  // namespace

bool watch_syscall(const Arguments& arguments) {
  const auto number = static_cast<long>(arguments[0]);
  if (number == __NR_seccomp || number == __NR_prctl)
    return watch_installing(number == __NR_prctl, arguments[1], arguments[2]);
  note_system_call(number, static_cast<long>(arguments[1]));
  return false;
}

bool watch_prctl(const Arguments& arguments) { return watch_installing(true, arguments[0], arguments[1]); }

namespace {

std::uint64_t installed(std::uint64_t mode, std::uint64_t program, std::uint64_t result) {
  // A filter with a listener returns the listener's descriptor.
  if (static_cast<std::int32_t>(result) < 0) return result;
  if (mode == SECCOMP_MODE_FILTER && program != 0) take_filter(program);
  return result;
}

}  // namespace

/// `size`, `offset` and `handle` hold the second argument and the following ones, see read_before().
std::uint64_t after_prctl(const Frame& frame, std::uint64_t result) {
  return installed(frame.size, frame.offset, result);
}

std::uint64_t after_syscall(const Frame& frame, std::uint64_t result) {
  // prctl's arguments: PR_SET_SECCOMP, the mode, the filter; seccomp's: the operation, flags, the filter.
  if (frame.size == PR_SET_SECCOMP) return installed(frame.offset, frame.handle, result);
  if (frame.size == SECCOMP_SET_MODE_FILTER) return installed(SECCOMP_MODE_FILTER, frame.handle, result);
  return result;
}

bool confined_from_the_start() {
  char text[4096];
  const int fd = sys::open("/proc/self/status", O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return false;
  const long got = sys::read(fd, text, sizeof text - 1);
  sys::close(fd);
  text[got > 0 ? got : 0] = 0;
  long mode = 0, count = 0;
  if (const char* own = std::getenv("SONDE_IO_SECCOMP")) {
    mode = std::atol(own);
    if (const char* colon = std::strchr(own, ':')) count = std::atol(colon + 1);
  }
  return field(text, "\nSeccomp:") > mode || field(text, "\nSeccomp_filters:") > count;
}

}  // namespace sonde::io
