#pragma once
/// Calls that the traced program has forbidden itself, and so the tracer: filters of system calls (seccomp). A system
/// call that a filter does not allow would kill the program, so each of the tracer's own is asked for here first.
/// Freestanding, any-thread, signal-safe.

#include <cstdint>

namespace sonde::io {

struct Arguments;
struct Frame;

/// Whether the program has locked itself in. Set by the functions below, never cleared: nor can a filter be removed.
extern bool confined;

/// Whether every filter lets this system call pass as it is.
bool permitted(long number, long a, long b, long c, long d, long e, long f);

/// Whether a call of syscall(2) may install a filter, and must be looked at when it has returned. Notes the calls of
/// which the tracer sees nothing else: see unseen.hpp.
bool watch_syscall(const Arguments& arguments);
/// Whether a call of prctl(2) may install a filter.
bool watch_prctl(const Arguments& arguments);
std::uint64_t after_syscall(const Frame& frame, std::uint64_t result);
std::uint64_t after_prctl(const Frame& frame, std::uint64_t result);

/// Whether a program that has just begun runs behind a filter that Sonde itself does not, which nobody saw: by
/// /proc/self/status, which takes no other system calls than the loader has just made.
bool confined_from_the_start();

}  // namespace sonde::io
