#pragma once
/// The order of a run: every epoch visits every (cell, variant) once, in a new seeded random order.
///
/// Reason: on real networks delays come in regimes that last longer than a burst, so a thousand samples from one burst
/// show only one regime. Many short bursts spread over the run, with cells and variants mixed, show all of them. All
/// ranks make the same schedule from the same seed. Owner-thread.

#include <cstdint>
#include <optional>
#include <vector>

namespace sonde {

struct Step {
  std::uint32_t cell, variant, epoch, n;  ///< n: samples to take
};

class Schedule {
 public:
  /// epochs: largest number of visits to each cell; samples: per visit. The seed fixes the whole order.
  Schedule(std::uint32_t cells, std::uint32_t variants, std::uint32_t epochs, std::uint32_t samples,
           std::uint64_t seed);

  /// The next visit, or nothing when every cell is retired or has had all its epochs.
  std::optional<Step> next();

  /// Leaves out a cell (all its variants) from now on.
  void retire(std::uint32_t cell);

  /// Cells not yet retired.
  std::uint32_t active() const { return active_; }

 private:
  void shuffle();
  std::uint32_t variants_, epochs_, samples_, epoch_ = 0, active_;
  std::size_t at_ = 0;
  std::uint64_t state_;
  std::vector<std::uint32_t> order_;
  std::vector<bool> retired_;
};

}  // namespace sonde
