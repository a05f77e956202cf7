#pragma once
/// The cost of tracing on this machine, measured where it is spent: each process does it once, before its program
/// begins.

#include <cstdint>

#include "io/trace/engine.hpp"

namespace sonde::io {

inline constexpr unsigned cost_calls = 100;
/// Number of the function that is traced for it, and for nothing else.
inline constexpr unsigned cost_function = most_functions - 1;

/// Ticks that `cost_calls` calls take longer when they are traced, and how many of them lie within what is recorded as
/// the calls' own time. The least that was seen, of a call whose values lie in registers: others, and cold caches, cost
/// more.
struct Cost {
  std::uint64_t all = 0, inside = 0;
};

/// Before the first traced call, with nothing else running. 0, 0 where there is no memory for it.
Cost measure_cost();

}  // namespace sonde::io
