#pragma once
/// One line of JSON, built field by field, which a probe prints as an event. Owner-thread.

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/printable.hpp"

namespace sonde {

/// Text as a JSON string with its quotes, in valid UTF-8. Controls, and characters that a terminal would obey or not
/// show, are escaped. A byte that belongs to no character becomes the text \xff, as in encodable() of printable.py:
/// names of files, programs and hosts may hold any byte.
inline std::string json_quote(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const char ch = text.front();
    std::uint32_t code = 0;
    const std::size_t n = utf8_front(text, code);
    const bool character = n > 1 || code < 0x80;
    if (ch == '"' || ch == '\\') {
      out += '\\';
      out += ch;
    } else if (character && (code < 0x20 || unprintable(code))) {
      out += json_escape(code);
    } else if (character) {
      out += text.substr(0, n);
    } else {
      char number[8];
      std::snprintf(number, sizeof number, "\\\\x%02x", code);
      out += number;
    }
    text.remove_prefix(n);
  }
  return out + '"';
}

/// The same for a name that must differ from every other name: a backslash in it that looks like the beginning of such
/// a number becomes \x5c, as in name_text() of printable.py.
inline std::string json_name(std::string_view name) {
  std::string text;
  for (; !name.empty(); name.remove_prefix(1)) {
    if (like_a_number(name)) text += "\\x5c";
    else text += name.front();
  }
  return json_quote(text);
}

class JsonLine {
 public:
  JsonLine& add(std::string_view key, std::string_view value) { return raw(key, json_quote(value)); }
  JsonLine& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
  JsonLine& add_name(std::string_view key, std::string_view name) { return raw(key, json_name(name)); }
  JsonLine& add(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
  JsonLine& add(std::string_view key, std::integral auto value) { return raw(key, std::to_string(value)); }
  /// A number that is not finite becomes null, because JSON has no NaN.
  JsonLine& add(std::string_view key, double value) {
    if (!std::isfinite(value)) return raw(key, "null");
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    return raw(key, text);
  }
  template <typename T> JsonLine& add(std::string_view key, const std::vector<T>& values) {
    std::string list = "[";
    for (const auto& v : values) {
      if (list.size() > 1) list += ',';
      if constexpr (std::is_arithmetic_v<T>) list += std::to_string(v);
      else list += json_quote(v);
    }
    return raw(key, list + "]");
  }
  /// `json` is inserted unchanged.
  JsonLine& raw(std::string_view key, std::string_view json) {
    body_ += body_.empty() ? "" : ",";
    body_ += json_quote(key);
    body_ += ':';
    body_ += json;
    return *this;
  }
  std::string text() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

}  // namespace sonde
