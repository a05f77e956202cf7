#include "core/text.hpp"

#include <algorithm>

namespace sonde {
namespace {

char small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Levenshtein's distance in halves: 2 for a letter too many, missing or replaced, 1 where only its case differs.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = 2 * j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = 2 * i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t step = a[i - 1] == b[j - 1] ? 0 : small(a[i - 1]) == small(b[j - 1]) ? 1 : 2;
      const std::size_t replaced = diagonal + step;
      diagonal = row[j];
      row[j] = std::min({row[j] + 2, row[j - 1] + 2, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string shown(std::string_view text, std::size_t most) {
  std::string out(text.substr(0, most));
  if (text.size() > most) {
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0) == 0x80) out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xc0) out.pop_back();
    out += "...";
  }
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return "'" + out + "'";
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::string nearest_of(std::string_view word, const std::vector<std::string>& words) {
  if (word.size() > 255) return "";  // nobody meant that, and distances cost the product of the lengths
  const std::string* best = nullptr;
  std::size_t least = 0;
  for (const std::string& candidate : words) {
    const std::size_t distance = edits(word, candidate);
    if (best && distance >= least) continue;
    best = &candidate;
    least = distance;
  }
  return best && least <= std::max(word.size(), best->size()) ? *best : "";
}

std::string nearest(std::string_view word, const std::vector<std::string>& words) {
  const std::string found = nearest_of(word, words);
  return found.empty() ? "" : " (nearest: " + found + ")";
}

}  // namespace sonde
