#pragma once
// The memory and the threads of the whole test program, libraries included: what is taken is counted, and what is too
// large is refused.

#include <cstddef>

namespace sonde::test {

/// While one is alive, of all threads:
struct Allocations {
  Allocations();
  ~Allocations();
  Allocations(const Allocations&) = delete;
  static std::size_t largest();  ///< bytes of the largest single allocation since it began
  static std::size_t held();     ///< bytes that are allocated now and were not when it began; 0 where fewer are
  /// Larger ones throw std::bad_alloc from now on. How many did.
  static void refuse_from(std::size_t bytes);
  static std::size_t refused();
};

/// While one is alive no thread can be made beyond the first `allowed`, as where a limit of processes is reached.
struct NoThreads {
  explicit NoThreads(unsigned allowed = 0);
  ~NoThreads();
  NoThreads(const NoThreads&) = delete;
  static unsigned refused();
};

}  // namespace sonde::test
