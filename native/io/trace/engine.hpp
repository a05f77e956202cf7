#pragma once
/// The functions that thunks call, and the data of a traced function that thunks need. Any-thread, signal-safe.

#include <cstddef>
#include <cstdint>

#include "io/record.hpp"
#include "io/table.hpp"

namespace sonde::io {

inline constexpr unsigned most_functions = SONDE_IO_THUNKS;

/// A value in a register, or no value, read without a branch: ((bits & keep) ^ sign) - less. If `sign` and `less` are
/// the sign bit of a narrow number, its sign is extended. If `keep` is 0, the value is -less for any register content.
struct Reading {
  std::uint64_t keep = 0, sign = 0, less = 0;
};

/// A traced function: its address, and where its values are. Thunks rely on this layout: offsets.h.
struct Arguments;

struct alignas(128) Function {
  void* target;
  const Rule* rule;
  /// Changes the result of functions that the tracer itself handles (dlopen, dlsym); null for others.
  std::uint64_t (*after)(const Frame& frame, std::uint64_t result);
  Reading size, offset, file;
  std::uint64_t number;
  std::uint16_t size_at, offset_at, file_at;  ///< the positions of the values, B from the beginning of Arguments
  bool quick;  ///< these positions and the result contain all that the rule needs, and time is a register of the
               ///< processor: the thunk does all the work
  bool size_is_result, file_is_result;
  bool narrow;            ///< its result is an i32
  std::uint8_t failures;  ///< bits: 0 a negative result is a failure, 1 a positive one, 2 zero
  /// For a function without a rule that is checked before the call: whether `after` must also be called. Otherwise the
  /// call gets no frame, because syscall(2) may also return in a child. Null for all others.
  bool (*watch)(const Arguments& arguments);
};
static_assert(sizeof(Function) == 128);

extern Function functions[most_functions] __asm__("sonde_io_functions");
/// Fills in the positions of a function's values, from its rule.
void prepare(Function& function);
/// Whether calls are recorded. While it is false, no thread has an open file; thunks check only that.
extern bool tracing;
/// Functions of the program's MPI library, null if it has none.
struct Mpi {
  int (*type_size_x)(std::uint64_t type, std::int64_t* bytes);
  int (*type_size)(std::uint64_t type, int* bytes);  ///< MPI_UNDEFINED, which is negative, from 2 GiB on
  std::uint64_t (*type_f2c)(std::int32_t type);
  int (*status_f2c)(const std::int32_t* theirs, void* status);
  int (*get_count)(const void* status, std::uint64_t type, int* elements);
  int (*get_elements_x)(const void* status, std::uint64_t type, std::int64_t* elements);
  std::uint64_t byte;              ///< the datatype MPI_BYTE; 0: not known
  std::int32_t* const* no_status;  ///< Fortran's MPI_STATUS_IGNORE
};
extern Mpi mpi;

/// The functions of an HDF5 library that describe a request. A process may have several such libraries: the one of the
/// traced function is used.
struct Hdf5 {
  std::uint64_t low, high;  ///< the range of its code
  int (*kind)(
      std::int64_t);  ///< positive for existing objects; H5Iis_valid of 1.10 rejects types that HDF5 created itself
  std::size_t (*type_bytes)(std::int64_t);
  std::int64_t (*points)(std::int64_t);
  int (*type_class)(std::int64_t);
  int (*has_class)(std::int64_t, int);  ///< at any depth; texts of variable length are texts
  int (*is_variable_text)(std::int64_t);
  int (*members)(std::int64_t);
  std::int64_t (*member)(std::int64_t, unsigned);
  std::int64_t (*element)(std::int64_t);  ///< the type of an array's elements
  int (*close_type)(std::int64_t);
  std::int64_t (*dataset_space)(std::int64_t);
  std::int64_t (*attribute_space)(std::int64_t);
  int (*close_space)(std::int64_t);
};
inline constexpr unsigned most_hdf5 = 4;
extern Hdf5 hdf5[most_hdf5];

/// The registers as a thunk saves them, then the caller's stack.
struct Arguments {
#if defined(__x86_64__)
  std::uint64_t r10, r9, r8, rcx, rdx, rsi, rdi, rax, back;
  std::uint64_t stack[1];  ///< the seventh and later arguments

  std::uint64_t operator[](unsigned n) const {
    const std::uint64_t* registers = &r10;
    return n < 6 ? registers[6 - n] : stack[n - 6];
  }
  std::uint64_t& operator[](unsigned n) {
    std::uint64_t* registers = &r10;
    return n < 6 ? registers[6 - n] : stack[n - 6];
  }
  std::uint64_t sp() const { return reinterpret_cast<std::uint64_t>(stack); }
#endif
};

}  // namespace sonde::io

extern "C" char sonde_io_thunks[] __attribute__((visibility("hidden")));
/// The thunk of vfork.
extern "C" char sonde_io_vfork[] __attribute__((visibility("hidden")));
extern "C" void* sonde_io_vfork_target __attribute__((visibility("hidden")));
/// The address to which traced functions return.
extern "C" char sonde_io_returned[] __attribute__((visibility("hidden")));

namespace sonde::io {

inline constexpr std::size_t thunk_bytes = 16;
inline constexpr unsigned vfork_function = most_functions;  ///< a number that no function has
inline void* thunk(unsigned number) {
  return number == vfork_function ? sonde_io_vfork : sonde_io_thunks + thunk_bytes * number;
}

}  // namespace sonde::io
