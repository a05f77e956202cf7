#pragma once
/// Reads a call's size, offset and file according to its rule. Inlined into the engine, because this is its hot path.

#include <cstdint>

#include "core/ticks.hpp"
#include "io/trace/engine.hpp"
#include "io/trace/thread.hpp"

extern "C" {
void sonde_io_with_vectors(void (*call)(void*), void* what) __attribute__((visibility("hidden")));
extern std::uint32_t sonde_io_vector_bytes __attribute__((visibility("hidden")));
}

namespace sonde::io {

/// Longer names are cut at the end.
inline constexpr std::uint32_t longest_path = 4000;

inline std::uint64_t pointed(std::uint64_t address, Width width) {
  if (address < 4096) return unknown;
  if (width == Width::i64) return *reinterpret_cast<const std::uint64_t*>(address);
  return widened(*reinterpret_cast<const std::uint32_t*>(address), width);
}

/// The size of one element of an MPI datatype, B; `unknown` if unknown.
std::uint64_t datatype_bytes(Thread& thread, std::uint64_t type, bool fortran);

/// `count` elements of an MPI datatype, B; `unknown` if unknown.
inline std::uint64_t datatypes(std::uint64_t count, std::uint64_t bytes) {
  return bytes == unknown ? bytes : count * bytes;
}

/// Whether a rule's `path` says where the bytes that came are counted.
inline bool counts_bytes(From from) { return from >= From::mpi_status; }

/// Before a read of MPI-IO: where its MPI_Status is. A call that wants none is given one of the tracer's.
std::uint64_t status_of(Thread& thread, const Frame& frame, const Value& value, Arguments& arguments);

/// After the call: replaces the size that was asked by that of what came. Returns flag_asked if that is not known.
std::uint8_t read_moved(Thread& thread, Frame& frame, const Function& function);

/// The size of a request to HDF5, B; `unknown` if unknown.
std::uint64_t hdf5_bytes(Thread& thread, const Function& function, const Value& value, const Arguments& arguments);

inline std::uint64_t iovec_bytes(std::uint64_t vector, std::uint64_t count) {
  if (vector < 4096 || count > 1024) return 0;
  const auto* pairs = reinterpret_cast<const std::uint64_t*>(vector);
  std::uint64_t sum = 0;
  for (std::uint64_t k = 0; k < count; ++k) sum += pairs[2 * k + 1];
  return sum;
}

/// The length without the NUL; `unknown` if it is not a text.
inline std::uint64_t text_bytes(std::uint64_t address) {
  if (address < 4096) return unknown;
  const char* text = reinterpret_cast<const char*>(address);
  std::uint64_t length = 0;
  while (text[length] != 0) ++length;
  return length;
}

/// A value that exists before the call; `unknown` for values that only the result contains.
inline std::uint64_t before(Thread& thread, const Function& function, const Value& value, const Arguments& arguments) {
  switch (value.from) {
    case From::arg: return widened(arguments[value.a], value.width);
    case From::ref: return arguments[value.a] < 4096 ? unknown : pointed(arguments[value.a] + value.b, value.width);
    case From::product: return widened(arguments[value.a], value.width) * widened(arguments[value.b], value.width);
    case From::mpi:
      return datatypes(widened(arguments[value.a], value.width), datatype_bytes(thread, arguments[value.b], false));
    case From::mpi_ref:
      return datatypes(pointed(arguments[value.a], value.width),
                       datatype_bytes(thread, pointed(arguments[value.b], Width::i32), true));
    case From::iov: return iovec_bytes(arguments[value.a], widened(arguments[value.b], Width::i32));
    case From::result_product: return arguments[value.a];
    case From::text:
    case From::counted_text:
    case From::out_length: return arguments[value.a];
    case From::out: return arguments[value.a] < 4096 ? 0 : arguments[value.a] + value.b;
    case From::constant: return value.a;
    case From::length: return text_bytes(arguments[value.a]);
    case From::hdf5:
    case From::hdf5_attribute: return hdf5_bytes(thread, function, value, arguments);
    case From::none:
    case From::result:
    case From::mpi_status:
    case From::mpi_ref_status:
    case From::later: break;
  }
  return unknown;
}

/// The return instruction for the loader's functions: see the thunks.
std::uint64_t via(std::uint64_t caller);

inline void read_before(Thread& thread, Frame& frame, const Function& function, Arguments& arguments) {
  const Rule* rule = function.rule;
  frame.path = frame.via = 0;
  if (rule == nullptr) [[unlikely]] {
    if (function.watch == nullptr) {
      const Busy busy(thread);
      frame.via = via(arguments.back);
    } else {
      keep_descriptor();  // a filter may follow that forbids opening files
    }
    frame.handle = arguments[3];
    frame.size = arguments[1];
    frame.offset = arguments[2];
    return;
  }
  frame.size = before(thread, function, rule->size, arguments);
  frame.offset = before(thread, function, rule->offset, arguments);
  frame.handle = rule->file.from == From::none ? 0 : before(thread, function, rule->file, arguments);
  if (counts_bytes(rule->path.from)) {
    frame.path = status_of(thread, frame, rule->path, arguments);
  } else if (rule->path.from != From::none) [[unlikely]] {
    frame.path = arguments[rule->path.a];
    const bool counted = rule->path.from == From::counted_text;
    frame.path_bytes = counted ? static_cast<std::uint32_t>(arguments[rule->path.b]) : 0;
    if (counted && frame.path_bytes == 0) frame.path = 0;
  }
}

/// Reads the values that only the result contains. Returns the record's flags.
inline std::uint8_t read_after(Frame& frame, const Function& function, std::uint64_t result) {
  const Rule* rule = function.rule;
  if (rule == nullptr) [[unlikely]]
    return 0;
  const std::uint64_t value = widened(result, rule->result);
  bool failed = false;
  switch (rule->fails) {
    case Fails::never: break;
    case Fails::negative: failed = static_cast<std::int64_t>(value) < 0; break;
    case Fails::nonzero: failed = value != 0; break;
    case Fails::null: failed = value == 0; break;
  }
  if (rule->size.from == From::result) frame.size = failed ? 0 : value;
  if (rule->size.from == From::result_product) frame.size = failed ? 0 : value * frame.size;
  if (rule->size.from == From::out_length) frame.size = result != 0 ? text_bytes(frame.size) : 0;
  if (rule->size.from == From::out) frame.size = failed ? 0 : pointed(frame.size, rule->size.width);
  if (rule->file.from == From::result) frame.handle = value;
  if (rule->file.from == From::out) frame.handle = failed ? 0 : pointed(frame.handle, rule->file.width);
  return failed ? flag_failed : 0;
}

}  // namespace sonde::io
