#pragma once
/// What somebody who mistyped a name may have meant. Any-thread.

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace sonde {

/// Levenshtein's distance.
inline std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

/// " (nearest: X)", or nothing when half of the letters would have to change.
inline std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  const auto best = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) { return edits(word, a) < edits(word, b); });
  if (best == names.end() || 2 * edits(word, *best) > std::max(word.size(), best->size())) return "";
  return " (nearest: " + *best + ")";
}

}  // namespace sonde
