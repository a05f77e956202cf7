#pragma once
/// What is to be read out of the kernel's events: lines of text that `sonde io` writes, which knows tracefs and the
/// layer maps. Folders, names and programs are percent-encoded (core/text.hpp), since others called them what they
/// liked.
///
///   tracing FOLDER                           of the tracefs instance
///   folder FOLDER                            of the run
///   host NAME · most BYTES · skip NAME …     name of this host · of all files · programs that only start others
///   calls ENTER EXIT                         numbers of raw_syscalls' two events
///   task EVENT PID FLAGS · exec EVENT NAME   numbers of task_newtask and sched_process_exec, and where their fields
///                                            stand
///   attached PROCESS PROGRAM · thread THREAD PROCESS   processes that ran before, and their threads
///   call FUNCTION NUMBER SIZE OFFSET FILE    a system call of that number is a function
///   entry EVENT AT · exit EVENT AT           numbers of events of uprobes, and where that of their function stands
///   probe FUNCTION SCOPE SEEN STACK STACK RESULT FAILS SIZE OFFSET FILE PATH   a function under uprobes, and where the
///                                                                              stack pointer
///                                            stands in the events of its entry and its exit
/// SIZE, OFFSET, FILE: `-`, `r` (what was returned), @N or @N:WIDTH, at N of the event of the entry; of SIZE also a
/// product of two, A*B.
/// RESULT: @N or @N:WIDTH, at N of the event of the exit. PATH: `-`, or @N, where the entry's event tells where its
/// text is. WIDTH: i32, u32, i64 (not said). FAILS: never, negative, nonzero, null. SCOPE: all, or attached: processes
/// that ran before, and their children.
/// SEEN: both, or entry.

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

/// A number of an event.
struct Part {
  enum From : std::uint8_t { none, result, entry } from = none;
  std::uint32_t at = 0;
  Width width = Width::i64;
};

/// A number of a call: `part`, times `factor` where there is one.
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
  std::uint32_t enter = 0, exit = 0;  ///< of raw_syscalls; 0: not asked for
  std::uint32_t task = 0, task_pid = 0, task_flags = 0, exec = 0, exec_name = 0;
  std::map<std::int32_t, std::string> attached;  ///< processes, and what they run
  std::map<std::int32_t, std::int32_t> threads;  ///< of them
  std::map<std::int64_t, Watched> calls;         ///< by number
  std::map<std::uint32_t, std::uint32_t> entries,
      exits;                                ///< events of uprobes, and where the number of the function stands
  std::map<std::uint32_t, Watched> probes;  ///< by function
};

/// Errors: io.bad_spec, with the line.
Result<Spec> parse_spec(std::string_view text);

}  // namespace sonde::io
