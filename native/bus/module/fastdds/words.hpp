#pragma once
/// What Fast DDS writes to its log, kept instead of printed: its programs' standard output is theirs. Any-thread.

#include <string>

namespace sonde::bus::fastdds {

/// Takes the process's log of Fast DDS over, once.
void keep_words();
/// Errors logged since the last call in this process, the last few, in one line: "; " between them. Empty: none.
std::string last_words();

}  // namespace sonde::bus::fastdds
