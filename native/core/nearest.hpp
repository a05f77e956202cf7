#pragma once
/// The name that a user who mistyped one may have meant. Any-thread.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace sonde {

/// Levenshtein's distance in halves: 2 for a letter too many, missing or replaced, 1 where only its case differs.
inline std::size_t edits(std::string_view a, std::string_view b) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
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

/// " (nearest: X)", or nothing when half of the letters would have to change. Nobody mistypes more than 255 bytes.
inline std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  if (word.size() > 255) return "";
  const auto best = std::min_element(names.begin(), names.end(),
                                     [&](const auto& a, const auto& b) { return edits(word, a) < edits(word, b); });
  if (best == names.end() || edits(word, *best) > std::max(word.size(), best->size())) return "";
  return " (nearest: " + *best + ")";
}

}  // namespace sonde
