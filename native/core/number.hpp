#pragma once
/// Numbers as programs tell each other in their arguments. Any-thread.

#include <charconv>
#include <string_view>

namespace sonde {

/// The whole text as a number of T's kind, in C's notation whatever the locale; no blanks, no sign but '-'. False: it
/// is none, or does not fit; `out` may then be changed.
template <typename T> bool number(std::string_view text, T& out) {
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), out);
  return why == std::errc{} && end == text.data() + text.size();
}

}  // namespace sonde
