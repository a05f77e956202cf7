#pragma once
/// System calls without the C library: its functions may be the traced ones, may use vector registers that hold a
/// caller's arguments, and set errno. Results are the kernel's: -errno for an error. A call that the program's own
/// filter forbids is not made and returns -EPERM. Signal-safe, any-thread.

#include <asm/unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "io/trace/confinement.hpp"

namespace sonde::io::sys {

inline long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  if (confined && !permitted(number, a, b, c, d, e, f)) [[unlikely]]
    return -EPERM;
#if defined(__x86_64__)
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
#else
#error "the tracer knows x86-64 and aarch64"
#endif
}

inline long of(const void* pointer) { return reinterpret_cast<long>(pointer); }

inline int open(const char* path, int flags, int mode) {
  return static_cast<int>(call(__NR_openat, -100, of(path), flags, mode));
}
inline int close(int fd) { return static_cast<int>(call(__NR_close, fd)); }
inline long read(int fd, void* to, std::size_t bytes) { return call(__NR_read, fd, of(to), static_cast<long>(bytes)); }
inline long write(int fd, const void* from, std::size_t bytes) {
  return call(__NR_write, fd, of(from), static_cast<long>(bytes));
}
inline long duplicate(int fd, long from) { return call(__NR_fcntl, fd, 1030, from); }  // F_DUPFD_CLOEXEC

/// A limit of the process, such as RLIMIT_FSIZE, with soft and hard value. new_: the new limit; null: unchanged.
struct Limit {
  std::uint64_t soft, hard;
};
inline long limit(int which, const Limit* new_, Limit* old) {
  return call(__NR_prlimit64, 0, which, of(new_), of(old));
}
inline long fallocate(int fd, std::uint64_t bytes) { return call(__NR_fallocate, fd, 0, 0, static_cast<long>(bytes)); }
inline void* map(std::size_t bytes, int fd, bool shared) {
  const long at = call(__NR_mmap, 0, static_cast<long>(bytes), 3, shared ? 1 : 0x22, fd, 0);
  return at < 0 && at > -4096 ? nullptr : reinterpret_cast<void*>(at);
}
inline void unmap(void* at, std::size_t bytes) { call(__NR_munmap, of(at), static_cast<long>(bytes)); }
inline int unlink(const char* path) { return static_cast<int>(call(__NR_unlinkat, -100, of(path), 0)); }
inline std::uint32_t thread_id() { return static_cast<std::uint32_t>(call(__NR_gettid)); }
inline std::uint32_t process_id() { return static_cast<std::uint32_t>(call(__NR_getpid)); }

}  // namespace sonde::io::sys
