#pragma once
/// Names with wildcards, for partitions and servers: '*' matches any number of any characters, also '/'; '?' matches
/// one. Any-thread.

#include <string_view>

namespace sonde::bus {

inline bool is_pattern(std::string_view text) { return text.find_first_of("*?") != text.npos; }

/// The time is at most proportional to the product of both lengths.
inline bool fits(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = pattern.npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') star = p++, resume = t;
    else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) ++p, ++t;
    else if (star != pattern.npos) p = star + 1, t = ++resume;
    else return false;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace sonde::bus
