#pragma once
/// Filters of system calls (seccomp): calls that the traced program has forbidden itself, and thereby the tracer. A
/// forbidden system call would kill the program, so the tracer checks each of its own calls here first. Freestanding,
/// any-thread, signal-safe.

#include <cstdint>

namespace sonde::io {

struct Arguments;
struct Frame;

/// Whether the program has a filter. Set by the functions below and never cleared, because filters cannot be removed.
extern bool confined;

/// Whether every filter allows this system call unchanged.
bool permitted(long number, long a, long b, long c, long d, long e, long f);

/// Whether a call of syscall(2) may install a filter, so that its result must be checked. Also notes calls that the
/// tracer cannot see otherwise: see unseen.hpp.
bool watch_syscall(const Arguments& arguments);
/// Whether a call of prctl(2) may install a filter.
bool watch_prctl(const Arguments& arguments);
std::uint64_t after_syscall(const Frame& frame, std::uint64_t result);
std::uint64_t after_prctl(const Frame& frame, std::uint64_t result);

/// Whether a new program already has a filter that Sonde itself does not have. Reads /proc/self/status, which needs
/// only system calls that the loader has just used.
bool confined_from_the_start();

}  // namespace sonde::io
