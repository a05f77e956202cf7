#include "core/text.hpp"

#include <charconv>
#include <cstdint>

#include "core/printable.hpp"

namespace sonde {

std::string shown(std::string_view text, std::size_t most) {
  std::string out(text.substr(0, most));
  if (text.size() > most) {
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0) == 0x80) out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xc0) out.pop_back();
    out += "...";
  }
  std::string safe = "'";
  for (std::string_view rest = out; !rest.empty();) {
    std::uint32_t code = 0;
    const std::size_t n = utf8_front(rest, code);
    if (code < 0x20 || unprintable(code)) safe += '?';
    else safe += rest.substr(0, n);
    rest.remove_prefix(n);
  }
  return safe + "'";
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

bool percent_decoded(std::string_view word, std::string& out) {
  out.clear();
  for (std::size_t k = 0; k < word.size(); ++k) {
    if (word[k] != '%') {
      out += word[k];
      continue;
    }
    unsigned byte = 0;
    if (word.size() - k < 3) return false;
    const char* const digits = word.data() + k + 1;
    const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
    if (error != std::errc{} || end != digits + 2 || byte == 0) return false;
    out += static_cast<char>(byte);
    k += 2;
  }
  return true;
}

std::string replaced(std::string text, std::string_view name, std::string_view value) {
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
    text.replace(at, name.size(), value);
  return text;
}

}  // namespace sonde
