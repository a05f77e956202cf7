#pragma once
/// The written data: 8-byte words, each a function of a seed and of its place, so that a missing, misplaced or old
/// word, or one of another file, differs from the right one. Word k of a stream is the k-th number of core's
/// Random(key), to which SplitMix64 can jump. Any-thread.

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "core/random.hpp"

namespace sonde::ioload {

/// The place of the first wrong data. Trivially copyable, because it is sent between ranks as bytes.
struct Mismatch {
  std::uint64_t offset;  ///< in the file, B
  std::uint64_t expected, found;
};

class Pattern {
 public:
  /// file: the rank of the file with a file per process, else 0.
  Pattern(std::uint64_t seed, std::uint64_t file) : key_(Random(Random(seed).next() + file).next()) {}

  /// The word at `offset`, a multiple of 8.
  std::uint64_t word(std::uint64_t offset) const { return Random(key_ + offset / 8 * step).next(); }

  void fill(std::span<std::uint64_t> words, std::uint64_t offset) const {
    Random numbers(key_ + offset / 8 * step);
    for (std::uint64_t& word : words) word = numbers.next();
  }

  /// The number of wrong `words`, read at `offset`; the first is stored in `first` if that is empty.
  std::uint64_t compare(std::span<const std::uint64_t> words, std::uint64_t offset,
                        std::optional<Mismatch>& first) const {
    Random numbers(key_ + offset / 8 * step);
    std::uint64_t wrong = 0;
    for (std::size_t k = 0; k < words.size(); ++k) {
      const std::uint64_t expected = numbers.next();
      if (words[k] == expected) continue;
      ++wrong;
      if (!first) first = Mismatch{offset + 8 * k, expected, words[k]};
    }
    return wrong;
  }

 private:
  static constexpr std::uint64_t step = 0x9e3779b97f4a7c15ull;  ///< what Random adds to its state for each number

  std::uint64_t key_;
};

}  // namespace sonde::ioload
