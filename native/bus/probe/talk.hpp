#pragma once
/// Commands for the programs of a measurement and their answers: one line each, on standard input and output, so that a
/// program behind a launcher works like one on this host. No command is sent during a timed measurement. Any-thread,
/// except for LineReader.

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/deadline.hpp"
#include "core/error.hpp"
#include "core/number.hpp"

namespace sonde::bus::probe {

/// "verb key=value key=value": blanks, line ends and '%' in values are written as %20.
class Talk {
 public:
  Talk() = default;
  explicit Talk(std::string verb) : verb_(std::move(verb)) {}

  const std::string& verb() const { return verb_; }
  Talk& with(std::string_view key, std::string_view value) {
    values_.insert_or_assign(std::string(key), std::string(value));
    return *this;
  }
  template <typename T>
    requires std::is_arithmetic_v<T>
  Talk& with(std::string_view key, T value) {
    if constexpr (std::is_same_v<T, bool>) return with(key, std::string_view(value ? "1" : "0"));
    else if constexpr (std::is_integral_v<T>) return with(key, std::string_view(std::to_string(value)));
    else return with(key, std::vector<double>{static_cast<double>(value)});
  }
  Talk& with(std::string_view key, const std::vector<double>& values);
  Talk& with(std::string_view key, const std::vector<std::string>& words);  ///< the words contain no ','

  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  const std::string& text(std::string_view key) const;  ///< "" for a missing key
  /// The number of a key; `fallback` for a missing key or a text that is no number.
  template <typename T> T number(std::string_view key, T fallback = {}) const {
    T value{};
    return sonde::number(std::string_view(text(key)), value) ? value : fallback;
  }
  std::vector<double> numbers(std::string_view key) const;
  std::vector<std::string> words(std::string_view key) const;

  std::string line() const;                                 ///< with the line end
  static std::optional<Talk> parse(std::string_view line);  ///< without the line end
  static Talk ok() { return Talk("ok"); }
  static Talk failed(const Error& e) {
    return std::move(Talk("error").with("code", e.code).with("what", e.what).with("hint", e.hint));
  }
  std::optional<Error> error() const;

 private:
  std::string verb_;
  std::map<std::string, std::string, std::less<>> values_;
};

/// Reads lines from a descriptor. Owner-thread.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}
  enum class Got { line, later, end };
  /// Waits at most `wait_ms` (-1: no limit).
  Got next(std::string& line, int wait_ms);

 private:
  int fd_;
  std::string held_;
};

/// Writes all of it; false: the other end is closed.
bool write_line(int fd, std::string_view line);

}  // namespace sonde::bus::probe
