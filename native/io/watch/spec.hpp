#pragma once
/// What is to be read out of the kernel's events: lines of text that `sonde io` writes, which knows tracefs and the layer maps.
///
///   tracing FOLDER                           of the tracefs instance
///   folder FOLDER                            of the run
///   host NAME · most BYTES · skip NAME …     name of this host · of all files · programs that only start others
///   calls ENTER EXIT                         numbers of raw_syscalls' two events
///   task EVENT PID FLAGS · exec EVENT NAME   numbers of task_newtask and sched_process_exec, and where their fields stand
///   call FUNCTION NUMBER SIZE OFFSET FILE    a system call of that number is a function
///   probe FUNCTION ENTER EXIT SIZE OFFSET FILE   numbers of a uprobe's two events
/// SIZE, OFFSET, FILE: `-`, `r` (what was returned), or @N, the eight bytes at N of the event of the entry.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace sonde::io {

struct Where {
  enum From : std::uint8_t { none, result, entry } from = none;
  std::uint32_t at = 0;
};

struct Watched {
  std::uint16_t function = 0;
  Where size, offset, file;
};

struct Spec {
  std::string tracing, folder, host;
  std::uint64_t most_bytes = 0;  ///< 0: no limit
  std::set<std::string, std::less<>> skipped;
  std::uint32_t enter = 0, exit = 0;            ///< of raw_syscalls; 0: not asked for
  std::uint32_t task = 0, task_pid = 0, task_flags = 0, exec = 0, exec_name = 0;
  std::map<std::int64_t, Watched> calls;        ///< by number
  std::map<std::uint32_t, Watched> entries;     ///< uprobes by number of event
  std::map<std::uint32_t, Watched> exits;
};

/// Errors: io.bad_spec, with the line.
Result<Spec> parse_spec(std::string_view text);

}  // namespace sonde::io
