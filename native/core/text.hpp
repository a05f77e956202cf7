#pragma once
/// Words as errors show them. Any-thread.

#include <string>
#include <string_view>
#include <vector>

namespace sonde {

/// What may be shown of a hostile text, in quotes: at most `most` bytes, cut between characters, control bytes as '?'.
std::string shown(std::string_view text, std::size_t most = 40);

/// "a, b, c"
std::string joined(const std::vector<std::string>& words);

/// The word of `words` that was meant by `word`; empty where half of the letters would have to change. A small letter for a capital
/// counts for less than another letter.
std::string nearest_of(std::string_view word, const std::vector<std::string>& words);

/// " (nearest: X)", or nothing where none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& words);

}  // namespace sonde
