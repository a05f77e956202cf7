#pragma once
/// The cost of tracing on this machine: each process measures it once, before its program begins.

#include <cstdint>

#include "io/trace/engine.hpp"

namespace sonde::io {

inline constexpr unsigned cost_calls = 100;
/// The number of the function that is traced only for this measurement.
inline constexpr unsigned cost_function = most_functions - 1;

/// The additional ticks of `cost_calls` traced calls, and the part of them that the recorded times of the calls
/// include. This is the lowest cost observed, for a call with all values in registers; other calls and cold caches cost
/// more.
struct Cost {
  std::uint64_t all = 0, inside = 0;
};

/// Called before the first traced call, while no other thread runs. 0, 0 if there is no memory for it.
Cost measure_cost();

}  // namespace sonde::io
