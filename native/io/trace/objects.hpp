#pragma once
/// The shared objects of this process: which of their functions belong to layers, and which slots of all objects lead
/// to these functions. Called without the loader's lock, at start and after dlopen and dlclose; any-thread, one at a
/// time. It uses the C library, so it must not be called in the hot path.

#include <cstdint>

#include "io/table.hpp"

namespace sonde::io {

struct Counts {
  std::uint32_t objects, functions, slots, full;  ///< full: functions left out, because all numbers are in use
};

/// Finds functions in new objects, and points every slot of such a function to its thunk. own: an address in the
/// tracer. False if their names could not be written; then no slot leads to the thunks.
bool patch_objects(const TableHeader& table, const void* own);
/// Forgets functions of unloaded objects, because their addresses may be used again.
void forget_objects();
/// The pointer to use instead of one from the loader: the function's thunk, or the pointer itself.
std::uint64_t instead(std::uint64_t address);
/// A return instruction in the object that holds `address`; null: none.
const void* return_in(const void* address);

const Counts& counts();

}  // namespace sonde::io
