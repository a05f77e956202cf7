#pragma once
/// Processes below one process, as /proc shows them: who is there, in which state, what they have used.
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
  std::string command;              ///< the kernel's name of it, 15 bytes at most
  std::uint64_t started_ticks = 0;  ///< with pid it names a process for good
  double children_s = 0;            ///< CPU of the children it has waited for, to a clock tick
  std::uint64_t rss_bytes = 0;
};

/// A file of /proc, its first `limit` bytes; nullopt when it cannot be read. Streams do not serve: the file of a
/// process that goes between open and read fails with ESRCH, for which a stream's buffer throws.
std::optional<std::string> read_text(const std::string& path, std::size_t limit = 4096);

/// What /proc says of it; pid 0 when it is gone.
Process read_process(pid_t pid);

/// All processes below `root`, parents before their children, without `root` itself and without what is below
/// those in `except`. Zombies are among them.
std::vector<Process> descendants(pid_t root, const std::vector<pid_t>& except = {});

/// A signal to this very process, not to one that has its number by now. False when it is gone, or with errno EPERM
/// when it is another user's. Where the kernel has no pidfd (before 5.3) a process may still go after it was looked at.
bool send_signal(const Process& process, int number);

/// SIGKILL to every process of this machine that carries it, but for the caller; how many there were that could be sent
/// it.
int kill_carriers(std::string_view entry);

/// A wait status in words: "exit status 3", "signal 9 (SIGKILL)".
std::string status_text(int status);
/// "signal 9 (SIGKILL)".
std::string signal_text(int number);

/// Thread ids of a process; none when it is gone.
std::vector<pid_t> threads_of(pid_t pid);

/// State of the first thread that is neither stopped nor dead; 'T' when all are, 'X' when the process is gone.
char busiest_state(pid_t pid);

/// Whether the environment with which it was started holds NAME=VALUE as a whole.
bool carries(pid_t pid, std::string_view entry);

/// Every process of this machine that carries it and may be looked at.
std::vector<pid_t> carriers(std::string_view entry);

/// CPU and wake-ups of a changing set of processes, so that nothing counted once is lost or counted twice.
///
/// CPU of a live process is its process clock, which includes threads that ended; of the children it waited for it
/// knows to a clock tick; of one that the owner reaped, wait4 tells all exactly. Wake-ups of ended threads are those
/// seen last, or for a reaped process its context switches when they are more.
class Ledger {
 public:
  /// Takes stock of what is there now.
  void look(const std::vector<Process>& processes);
  /// The owner has reaped it. cpu_s and switches: of the process and all it had waited for.
  void reaped(pid_t pid, double cpu_s, std::uint64_t switches);
  double cpu_s() const { return total_cpu_s_; }
  std::uint64_t wakeups() const;
  int threads() const { return threads_; }

 private:
  struct Known {
    std::map<pid_t, std::uint64_t> threads;  // wake-ups by thread
    std::uint64_t ended = 0;                 // wake-ups of threads that are gone
    std::uint64_t wakeups() const;
  };
  using Name = std::pair<pid_t, std::uint64_t>;
  std::map<Name, Known> known_;
  double reaped_cpu_s_ = 0, total_cpu_s_ = 0;
  std::uint64_t ended_wakeups_ = 0;
  int threads_ = 0;
};

/// Times a thread was put on a core: /proc/…/schedstat, or where the kernel has none its context switches.
std::uint64_t wakeups_of(pid_t pid, pid_t thread);

}  // namespace sonde::noise
