#pragma once
/// Texts in the form for errors. Any-thread.

#include <string>
#include <string_view>
#include <vector>

namespace sonde {

/// The part of an untrusted text that may be shown, in quotes: at most `most` bytes, cut between characters; characters
/// that a terminal would obey or not show become '?'.
std::string shown(std::string_view text, std::size_t most = 40);

/// "a, b, c"
std::string joined(const std::vector<std::string>& words);

/// Decodes a value that `encoded` of src/sonde/core/lines.py wrote: %41 is A. False if the encoding is not valid.
bool percent_decoded(std::string_view word, std::string& out);

/// `text` with `value` for each `name`.
std::string replaced(std::string text, std::string_view name, std::string_view value);

}  // namespace sonde
