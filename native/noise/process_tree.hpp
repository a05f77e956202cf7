#pragma once
/// The descendants of a process, from /proc: their states and their use of resources.
/// Linux only. Owner-thread.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sonde::noise {

/// One line of /proc/<pid>/stat.
struct Process {
  pid_t pid = 0, parent = 0;
  char state = '?';                 ///< R S D T t Z X
  std::string command;              ///< the kernel's name of it, at most 15 bytes
  std::uint64_t started_ticks = 0;  ///< with pid it identifies a process uniquely
  double children_s = 0;            ///< CPU time of the children that it has reaped, to a clock tick
  std::uint64_t rss_bytes = 0;
};

/// The first `limit` bytes of a file of /proc; nullopt when it cannot be read. A stream cannot be used: if a process
/// ends between open and read, the read fails with ESRCH, and a stream's buffer then throws.
std::optional<std::string> read_text(const std::string& path, std::size_t limit = 4096);

/// The process as in /proc; pid 0 when it has ended.
Process read_process(pid_t pid);

/// All descendants of `root`, parents before their children, without `root` itself, and without the processes in
/// `except` and their descendants. Zombies are included.
std::vector<Process> descendants(pid_t root, const std::vector<pid_t>& except = {});

/// Sends a signal to exactly this process, never to a later process with the same pid. False when it has ended, or,
/// with errno EPERM, when it belongs to another user. Without pidfd (kernels before 5.3) the process may end after the
/// check.
bool send_signal(const Process& process, int number);

/// Sends SIGKILL to every process of this machine with this environment entry, except the caller. Returns the number of
/// processes that got the signal.
int kill_carriers(std::string_view entry);

/// A wait status as a text: "exit status 3", "signal 9 (SIGKILL)".
std::string status_text(int status);
/// "signal 9 (SIGKILL)".
std::string signal_text(int number);

/// The thread ids of a process; empty when it has ended.
std::vector<pid_t> threads_of(pid_t pid);

/// The state of the first thread that is neither stopped nor dead; 'T' when all are, 'X' when the process has ended.
char busiest_state(pid_t pid);

/// Whether the environment with which it was started contains exactly this entry NAME=VALUE.
bool carries(pid_t pid, std::string_view entry);

/// All processes of this machine with this entry whose environment may be read.
std::vector<pid_t> carriers(std::string_view entry);

/// The CPU time and wake-ups of a changing set of processes. Nothing is lost or counted twice.
///
/// The CPU time of a live process is its process clock, which includes ended threads; the time of children that it has
/// reaped is known to a clock tick. For a process that the owner reaped, wait4 gives the exact time. The wake-ups of
/// ended threads are those at the last look, or, for a reaped process, its context switches if they are more.
class Ledger {
 public:
  /// Counts the present processes.
  void look(const std::vector<Process>& processes);
  /// The owner has reaped a process. cpu_s and switches: of the process and all children that it had reaped.
  void reaped(pid_t pid, double cpu_s, std::uint64_t switches);
  double cpu_s() const { return total_cpu_s_; }
  std::uint64_t wakeups() const;
  int threads() const { return threads_; }

 private:
  struct Known {
    std::map<pid_t, std::uint64_t> threads;  // wake-ups by thread
    std::uint64_t ended = 0;                 // wake-ups of threads that have ended
    std::uint64_t wakeups() const;
  };
  using Name = std::pair<pid_t, std::uint64_t>;
  std::map<Name, Known> known_;
  double reaped_cpu_s_ = 0, total_cpu_s_ = 0;
  std::uint64_t ended_wakeups_ = 0;
  int threads_ = 0;
};

/// The number of times a thread was put on a core: from /proc/…/schedstat, or its context switches without schedstat.
std::uint64_t wakeups_of(pid_t pid, pid_t thread);

}  // namespace sonde::noise
