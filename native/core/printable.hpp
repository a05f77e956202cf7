#pragma once
/// The filter for texts of others on a terminal: they cannot move its cursor, or deceive the reader. The same as
/// src/sonde/core/printable.py. Any-thread.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace sonde {

/// The length in bytes and the value of the UTF-8 character at the beginning of `text`. Without a complete character: 1
/// and the byte itself.
inline std::size_t utf8_front(std::string_view text, std::uint32_t& code) {
  code = static_cast<unsigned char>(text.front());
  const std::size_t n = code < 0xc2 ? 1 : code < 0xe0 ? 2 : code < 0xf0 ? 3 : code < 0xf5 ? 4 : 1;
  if (n == 1 || text.size() < n) return 1;
  std::uint32_t whole = code & (0xffu >> (n + 1));
  for (std::size_t k = 1; k < n; ++k) {
    const auto next = static_cast<unsigned char>(text[k]);
    if ((next & 0xc0) != 0x80) return 1;
    whole = whole << 6 | (next & 0x3f);
  }
  code = whole;
  return n;
}

/// Controls of both sets (ISO 6429: ESC and CSI are among them) except line break and tab; soft hyphens; characters
/// that are invisible or reverse the order of the following text (Unicode's format characters, "Trojan Source",
/// CVE-2021-42574); line and paragraph separators; surrogates.
inline bool unprintable(std::uint32_t code) {
  const auto within = [code](std::uint32_t first, std::uint32_t last) { return code >= first && code <= last; };
  if (code < 0x7f) return code < 0x20 && code != '\n' && code != '\t';
  return within(0x7f, 0x9f) || code == 0xad || code == 0x61c || code == 0x180e || within(0x200b, 0x200f) ||
         within(0x2028, 0x202e) || within(0x2060, 0x206f) || within(0xd800, 0xdfff) || code == 0xfeff ||
         within(0xfff9, 0xfffb) || within(0xe0000, 0xe007f);
}

/// A character as JSON's escape: \u202e; beyond U+FFFF both surrogates.
inline std::string json_escape(std::uint32_t code) {
  char text[24];
  if (code < 0x10000) std::snprintf(text, sizeof text, "\\u%04x", code);
  else std::snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + (code & 0x3ff));
  return text;
}

/// The text in which characters that a terminal would obey, or not show, are replaced by a backslash and their number:
/// \x1b, \u202e. A byte that belongs to no character, and would be a control in Latin-1, counts as that control.
inline std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::uint32_t code = 0;
    const std::size_t n = utf8_front(text, code);
    if (!unprintable(code)) {
      out += text.substr(0, n);
    } else if (code < 0x100) {
      char number[8];
      std::snprintf(number, sizeof number, "\\x%02x", code);
      out += number;
    } else {
      out += json_escape(code);
    }
    text.remove_prefix(n);
  }
  return out;
}

}  // namespace sonde
