#pragma once
/// A series of epochs in bounded memory: the information that a rule needs, however long the series grows.
///
/// Up to 64 batches of consecutive epochs, each with up to 64 values that represent equal shares of its samples. At the
/// 64th batch, neighbours are merged in pairs, so that dependence between epochs stays within batches. Merging and
/// thinning keep every rank correct on average: values are taken at equal steps of rank from a random start (seeded).
/// At most about 20 KiB per cell, 4 bytes per sample until then; values are stored as float (6e-8 relative).
/// Owner-thread.
///
/// Source of the merging tree: Manku, Rajagopalan and Lindsay, SIGMOD 1998, 426-435.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/random.hpp"
#include "core/stats/pooled.hpp"

namespace sonde::rules {

class EpochSketch {
 public:
  explicit EpochSketch(std::uint64_t seed) : random_(seed) {}

  /// Adds one epoch. samples: not empty, finite.
  void add(std::span<const double> samples);

  std::uint64_t epochs() const { return epochs_; }
  std::uint64_t samples() const { return samples_; }

  /// The content in order. The last batch may be smaller than the others.
  stats::Batches view() const;

  std::size_t bytes() const;

  static constexpr std::size_t most_batches = 64, most_values = 64;

 private:
  struct Block {
    std::uint64_t samples = 0;
    std::uint32_t level = 0, epochs = 0;
    std::vector<float> values;  // sorted
  };
  Block merged(const Block& a, const Block& b);
  void thin(std::vector<float>& sorted);
  void tidy();

  Random random_;
  std::uint64_t epochs_ = 0, samples_ = 0;
  std::uint32_t level_ = 0;    // of full batches; a block of level l holds 2^l epochs
  std::vector<Block> blocks_;  // in order of time, levels never rising
};

}  // namespace sonde::rules
