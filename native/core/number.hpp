#pragma once
/// Numbers as programs pass them in arguments. Any-thread.

#include <charconv>
#include <string_view>

namespace sonde {

/// The whole text as a number of type T, in C's notation whatever the locale; no blanks, no sign except '-'. False: it
/// is not a number, or does not fit; `out` may then be changed.
template <typename T> bool number(std::string_view text, T& out) {
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), out);
  return why == std::errc{} && end == text.data() + text.size();
}

}  // namespace sonde
