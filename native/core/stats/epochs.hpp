#pragma once
/// Samples grouped by their epoch. Any-thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sonde::stats {

/// Epochs in ascending order of number, the samples of each in the order given. Negative epochs are left out. x and
/// epoch must have the same length, otherwise there are no epochs. Contains a copy of the samples.
class Epochs {
 public:
  Epochs(std::span<const double> x, std::span<const std::int32_t> epoch);

  std::size_t size() const { return first_.size(); }
  /// All samples that belong to an epoch.
  std::span<const double> samples() const { return samples_; }
  std::span<const double> operator[](std::size_t k) const;
  /// The position in x of the first sample of epoch k.
  std::size_t first_index(std::size_t k) const { return first_[k]; }

 private:
  std::vector<double> samples_;
  std::vector<std::size_t> begin_, first_;
};

}  // namespace sonde::stats
