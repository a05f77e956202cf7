#pragma once
/// The functions that thunks call, and the data of a function that they need. Any-thread, signal-safe.

#include <cstddef>
#include <cstdint>

#include "io/record.hpp"
#include "io/table.hpp"

namespace sonde::io {

inline constexpr unsigned most_functions = SONDE_IO_THUNKS;

/// A value in a register, or no value: read without a branch, ((bits & keep) ^ sign) - less. With `sign` and
/// `less` the sign's bit of a narrow number its sign is extended; with `keep` 0 the value is -less whatever lies there.
struct Reading {
  std::uint64_t keep = 0, sign = 0, less = 0;
};

/// A function that is traced: where it is, and how it is read. The thunks know its layout: offsets.h.
struct Arguments;

struct alignas(128) Function {
  void* target;
  const Rule* rule;
  /// What to do to its result where that is a matter of the tracer's own (dlopen, dlsym); null for others.
  std::uint64_t (*after)(const Frame& frame, std::uint64_t result);
  Reading size, offset, file;
  std::uint64_t number;
  std::uint16_t size_at, offset_at, file_at;  ///< where the bits lie, B from the begin of Arguments
  bool quick;  ///< these, and the result, tell all that its rule asks for, and time is a register of the processor: a
               ///< thunk's work
  bool size_is_result, file_is_result;
  bool narrow;            ///< its result is an i32
  std::uint8_t failures;  ///< bits: 0 a negative result is a failure, 1 a positive one, 2 zero
  /// For a function without a rule that is looked at before it is called: whether `after` is to be called, too. It gets
  /// no frame otherwise, for syscall(2) may return in a child, too. Null for all others.
  bool (*watch)(const Arguments& arguments);
};
static_assert(sizeof(Function) == 128);

extern Function functions[most_functions] __asm__("sonde_io_functions");
/// Fills in how a function is read, by its rule.
void prepare(Function& function);
/// Whether calls are recorded. While it is false no thread has an open file: a thunk looks for that alone.
extern bool tracing;
/// Reads MPI_Type_size, MPI_Type_f2c of the library that the program uses; null: sizes of datatypes are unknown.
extern int (*mpi_type_size)(std::uint64_t type, int* bytes);
extern std::uint64_t (*mpi_type_f2c)(std::int32_t type);

/// What an HDF5 library tells of a request: the one that the traced function belongs to, for a process may hold
/// several.
struct Hdf5 {
  std::uint64_t low, high;    ///< where its code lies
  int (*kind)(std::int64_t);  ///< positive of what there is; H5Iis_valid of 1.10 denies the types that HDF5 made itself
  std::size_t (*type_bytes)(std::int64_t);
  std::int64_t (*points)(std::int64_t);
  std::int64_t (*dataset_space)(std::int64_t);
  std::int64_t (*attribute_space)(std::int64_t);
  int (*close_space)(std::int64_t);
};
inline constexpr unsigned most_hdf5 = 4;
extern Hdf5 hdf5[most_hdf5];

/// The registers as a thunk keeps them, then the caller's stack.
struct Arguments {
#if defined(__x86_64__)
  std::uint64_t r10, r9, r8, rcx, rdx, rsi, rdi, rax, back;
  std::uint64_t stack[1];  ///< the seventh argument and on

  std::uint64_t operator[](unsigned n) const {
    const std::uint64_t* registers = &r10;
    return n < 6 ? registers[6 - n] : stack[n - 6];
  }
  std::uint64_t sp() const { return reinterpret_cast<std::uint64_t>(stack); }
#endif
};

}  // namespace sonde::io

extern "C" char sonde_io_thunks[] __attribute__((visibility("hidden")));
/// vfork, and where it is.
extern "C" char sonde_io_vfork[] __attribute__((visibility("hidden")));
extern "C" void* sonde_io_vfork_target __attribute__((visibility("hidden")));
/// Where traced functions return to.
extern "C" char sonde_io_returned[] __attribute__((visibility("hidden")));

namespace sonde::io {

inline constexpr std::size_t thunk_bytes = 16;
inline constexpr unsigned vfork_function = most_functions;  ///< a number that no function has
inline void* thunk(unsigned number) {
  return number == vfork_function ? sonde_io_vfork : sonde_io_thunks + thunk_bytes * number;
}

}  // namespace sonde::io
