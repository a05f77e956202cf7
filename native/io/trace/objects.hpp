#pragma once
/// The shared objects of this process: which of their functions belong to layers, and which slots of all objects lead
/// there. Called with the loader's lock not held, at start and after dlopen and dlclose; any-thread, one at a time.
/// Uses the C library: not in the hot path.

#include <cstdint>

#include "io/table.hpp"

namespace sonde::io {

struct Counts {
  std::uint32_t objects, functions, slots, full;  ///< full: functions left out, for all numbers are taken
};

/// Finds functions of objects that are new, and lets every slot that leads to one lead to its thunk. own: an address in
/// the tracer. False where their names could not be written, and nothing leads to them.
bool patch_objects(const TableHeader& table, const void* own);
/// Forgets functions of objects that are gone: their addresses may come to mean others.
void forget_objects();
/// The pointer to use instead of one from the loader: the function's thunk, or the pointer itself.
std::uint64_t instead(std::uint64_t address);
/// A return instruction in the object that holds `address`; null: none.
const void* return_in(const void* address);

const Counts& counts();

}  // namespace sonde::io
