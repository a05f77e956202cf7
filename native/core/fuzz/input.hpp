#pragma once
/// The common part of every libFuzzer harness: the input as text or piece by piece, and how it reports a broken
/// promise. Any-thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace sonde::fuzz {

/// The input, byte for byte.
inline std::string_view text_of(const std::uint8_t* bytes, std::size_t n) {
  return {reinterpret_cast<const char*>(bytes), n};
}

/// The input, piece by piece; of what is behind its end, zeros. Owner-thread.
class Input {
 public:
  Input(const std::uint8_t* bytes, std::size_t n) : left_(reinterpret_cast<const std::byte*>(bytes), n) {}

  bool empty() const { return left_.empty(); }

  template <typename Number> Number next() {
    Number value{};
    const auto piece = take(sizeof value);
    if (!piece.empty()) std::memcpy(&value, piece.data(), piece.size());
    return value;
  }

  /// At most `n` bytes.
  std::span<const std::byte> take(std::size_t n) {
    const auto piece = left_.first(std::min(n, left_.size()));
    left_ = left_.subspan(piece.size());
    return piece;
  }

  std::string_view text(std::size_t n) {
    const auto piece = take(n);
    return {reinterpret_cast<const char*>(piece.data()), piece.size()};
  }

 private:
  std::span<const std::byte> left_;
};

/// Ends the process, which libFuzzer reports with the input, where `what` is not empty.
inline void hold(const std::string& what) {
  if (what.empty()) return;
  std::fprintf(stderr, "wrong: %s\n", what.c_str());
  std::abort();
}

/// Ends the process if `kept` is false.
inline void hold(bool kept, const char* promise) {
  if (!kept) hold(std::string(promise));
}

/// An error has a code of its room and says what failed.
inline void hold(const Error& error, std::string_view room) {
  if (!error.code.starts_with(room) || error.what.empty())
    hold("an error without its room's code, or without words: '" + error.code + "' '" + error.what + "'");
}

}  // namespace sonde::fuzz
