#pragma once
/// The log messages of Fast DDS, stored instead of printed: standard output belongs to the program. Any-thread.

#include <string>

namespace sonde::bus::fastdds {

/// Takes the process's log of Fast DDS over, once.
void keep_words();
/// Errors logged since the last call in this process, the last few, in one line: "; " between them. Empty: none.
std::string last_words();

}  // namespace sonde::bus::fastdds
