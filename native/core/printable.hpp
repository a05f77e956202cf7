#pragma once
/// The filter for texts of others on a terminal: they cannot move its cursor, or deceive the reader. The same as
/// src/sonde/core/printable.py. Any-thread.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace sonde {

/// The length in bytes and the value of the UTF-8 character at the beginning of `text`. Without a complete and valid
/// character (RFC 3629: neither overlong nor a surrogate): 1 and the byte itself.
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
  if (n == 3 && (whole < 0x800 || (whole >= 0xd800 && whole < 0xe000))) return 1;
  if (n == 4 && (whole < 0x10000 || whole > 0x10ffff)) return 1;
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

/// Whether `text` begins like the number of a byte or character in name_text() of printable.py: \xff, \u202e.
inline bool like_a_number(std::string_view text) {
  if (text.size() < 2 || text[0] != '\\' || (text[1] != 'x' && text[1] != 'u')) return false;
  const std::size_t digits = text[1] == 'x' ? 2 : 4;
  if (text.size() < 2 + digits) return false;
  for (const char ch : text.substr(2, digits))
    if ((ch < '0' || ch > '9') && (ch < 'a' || ch > 'f')) return false;
  return true;
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
