#pragma once
/// The encoding of records in the key-value store: little-endian numbers, and strings with their length in front.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "store/h5/failure.hpp"

namespace sonde::store::h5 {

class RecordWriter {
 public:
  template <typename T>
    requires std::is_integral_v<T> || std::is_enum_v<T>
  RecordWriter& number(T value) {
    for (std::size_t k = 0; k < sizeof(T); ++k) {
      out_.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * k)));
    }
    return *this;
  }
  RecordWriter& text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    out_.append(value);
    return *this;
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class RecordReader {
 public:
  /// `what` names the record in error messages.
  RecordReader(std::string_view in, std::string_view what) : in_(in), what_(what) {}

  template <typename T>
    requires std::is_integral_v<T> || std::is_enum_v<T>
  T number() {
    const std::string_view bytes = need(sizeof(T));
    std::uint64_t value = 0;
    for (std::size_t k = 0; k < sizeof(T); ++k) {
      value |= std::uint64_t{static_cast<unsigned char>(bytes[k])} << (8 * k);
    }
    return static_cast<T>(value);
  }
  std::string text() { return std::string(need(number<std::uint32_t>())); }
  /// Refuses a record that has bytes left.
  void finish() const {
    if (!in_.empty()) {
      refuse("continues beyond its end");
    }
  }
  /// `why` follows "the record of … in the store".
  [[noreturn]] void refuse(const std::string& why) const {
    fail(Why::io,
         "the record of " + std::string(what_) + " in the store " + why + ": it is damaged, or from a later Sonde");
  }

 private:
  std::string_view need(std::size_t n) {
    if (n > in_.size()) {
      refuse("is truncated");
    }
    const std::string_view out = in_.substr(0, n);
    in_.remove_prefix(n);
    return out;
  }

  std::string_view in_, what_;
};

}  // namespace sonde::store::h5
