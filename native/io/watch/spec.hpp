#pragma once
/// The specification of the kernel's events to read: lines of text that `sonde io` writes, which knows tracefs and the
/// layer maps. Folders, names and programs are percent-encoded (core/text.hpp), because other users chose them.
///
///   tracing FOLDER                           of the tracefs instance
///   folder FOLDER                            of the run
///   host NAME · most BYTES · skip NAME …     name of this host · of all files · programs that only start others
///   calls ENTER EXIT                         numbers of raw_syscalls' two events
///   task EVENT PID FLAGS · exec EVENT NAME   numbers of task_newtask and sched_process_exec, and the positions of
///                                            their fields
///   attached PROCESS PROGRAM · thread THREAD PROCESS   processes that ran before, and their threads
///   call FUNCTION NUMBER SIZE OFFSET FILE    a system call of that number is a function
///   entry EVENT AT · exit EVENT AT           numbers of events of uprobes, and the position of their function's
///   probe FUNCTION SCOPE SEEN STACK STACK RESULT FAILS SIZE OFFSET FILE PATH   a function under uprobes, and where the
///                                                                              stack pointer
///                                            stands in the events of its entry and its exit
/// SIZE, OFFSET, FILE: `-`, `r` (the result), @N or @N:WIDTH, at position N of the entry's event; SIZE can also be a
/// product of two, A*B.
/// RESULT: @N or @N:WIDTH, at position N of the exit's event. PATH: `-`, or @N, the position in the entry's event of
/// the reference to its text. WIDTH: i32, u32, i64 (default). FAILS: never, negative, nonzero, null. SCOPE: all, or
/// attached: processes that ran before, and their children. SEEN: both, or entry.

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "io/table.hpp"

namespace sonde::io {

/// The position of a number in an event.
struct Part {
  enum From : std::uint8_t { none, result, entry } from = none;
  std::uint32_t at = 0;
  Width width = Width::i64;
};

/// A number of a call: `part`, times `factor` if there is one.
struct Where {
  Part part, factor;
};

struct Watched {
  std::uint16_t function = 0;
  Where size;
  Part offset, file;
  Fails fails = Fails::negative;
  // For uprobes:
  bool attached_only = false, entry_only = false;
  std::uint32_t entry_stack = 0, exit_stack = 0, path = 0;  ///< path: 0: none
  Part result;
};

struct Spec {
  std::string tracing, folder, host;
  std::uint64_t most_bytes = 0;  ///< 0: no limit
  std::set<std::string, std::less<>> skipped;
  std::uint32_t enter = 0, exit = 0;  ///< of raw_syscalls; 0: not requested
  std::uint32_t task = 0, task_pid = 0, task_flags = 0, exec = 0, exec_name = 0;
  std::map<std::int32_t, std::string> attached;  ///< processes and their programs
  std::map<std::int32_t, std::int32_t> threads;  ///< their threads
  std::map<std::int64_t, Watched> calls;         ///< by number
  std::map<std::uint32_t, std::uint32_t> entries,
      exits;                                ///< events of uprobes, and the position of the function's number
  std::map<std::uint32_t, Watched> probes;  ///< by function
};

/// Errors: io.bad_spec, with the line.
Result<Spec> parse_spec(std::string_view text);

}  // namespace sonde::io
