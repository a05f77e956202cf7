#pragma once
/// The supervisor (class Keeper): a small child process of a rank that starts, drives, pauses, resumes, places and ends
/// one agent.
///
/// Call Keeper::fork() at the very beginning of main, before MPI_Init. A later fork is unsafe with most fabrics, and
/// the supervisor would inherit the rank's registered memory and descriptors. The supervisor has its own session and
/// all cores that the node allows. It has only two descriptors from the rank: one socket, and a file in memory for its
/// stderr. It blocks in poll, and wakes up for a request, a dead child or a drive that is due. All processes that the
/// agent starts stay below the supervisor, because it is a subreaper: daemons become its children, not those of init.
/// When the rank ends in any way, the socket ends, and the supervisor ends all processes that it started and then
/// itself. When the supervisor is killed, the rank finds the remaining processes by a list that the supervisor wrote
/// (Roll), and by SONDE_AGENT_DIR in their environment. When both are killed, Sonde's launcher finds them by SONDE_RUN
/// (core/launch/process.py). Processes that an agent makes others start (systemd, a container's daemon, cron) are not
/// below the supervisor, and it does not see them. Owner-thread.
///
///     int main(int argc, char** argv) {
///       auto keeper = Keeper::fork();
///       MPI_Init(&argc, &argv);
///       if (!leader_of_node) keeper->dismiss();
///       else if (auto done = keeper->start(spec); !done) ... done.error() ...

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "noise/roll.hpp"

namespace sonde::noise {

/// The agent and how to run it. In `ready` and `drive`, {dir} stands for the agent's scratch folder and {port} for the
/// number in {dir}/port, so that an agent may choose its port itself.
struct AgentSpec {
  enum Pause : std::uint8_t {
    stop_cont,   ///< SIGSTOP and SIGCONT: the agent keeps its state; a timer that is overdue fires at once
    start_stop,  ///< ended and started again with an empty scratch folder: for agents that cannot handle SIGSTOP
  };
  std::string command;   ///< for /bin/sh -c; its scratch folder is $SONDE_AGENT_DIR
  std::string log_path;  ///< stdout and stderr are appended; "": `agent.log` in the scratch folder, removed with it
  Pause pause = stop_cont;
  /// The sign that it has started. "": it has lived 0.2 s. "port:9100", "port:{port}": something accepts connections
  /// there on the loopback. "file:PATH": the file appears or changes. "for:0.5": it has lived this long, s.
  std::string ready;
  double ready_deadline_s = 20;
  /// The action that makes it do its real work while it is on. "": no action. "http://127.0.0.1:9100/metrics": a
  /// scrape, over the loopback. "sh:COMMAND": for /bin/sh -c.
  std::string drive;
  double drive_period_s = 1;
  double drive_phase = 0.5;  ///< the first drive comes this share of a period after start or resume; 0 to 1
  std::string stop_command;  ///< run before SIGTERM; "": no command
  double grace_s = 5;        ///< between SIGTERM and SIGKILL
};

/// Set one flag of a command line in the spec: "command", "log", "pause", "ready", "ready-deadline-s", "drive",
/// "drive-period-s", "drive-phase", "stop", "grace-s". false: no such flag. Error: noise.agent_bad_option.
Result<bool> read_agent_flag(AgentSpec& spec, std::string_view name, const std::string& value);

/// "0,2-5" as {0, 2, 3, 4, 5}; "" as {}. Error: noise.agent_bad_cpus.
Result<std::vector<int>> parse_cpus(std::string_view text);

/// One piece of the agent's real work.
struct Drive {
  double begin_s = 0;       ///< on the clock of now_s()
  double took_s = 0;        ///< time until the last byte, or until the end of the command
  std::uint64_t bytes = 0;  ///< received bytes; 0 for a command
  bool done = false;        ///< false: refused, no answer within 5 s, a status other than 2xx or 0, cut by a pause
};

/// The cost of the agent so far, over all its starts.
struct Usage {
  bool alive = false;  ///< started, and not found dead
  bool paused = false;
  std::string death;               ///< why it died although it was not ended: "exit status 3", "signal 9 (SIGKILL)"
  double cpu_s = 0;                ///< CPU time of all its processes and threads, including ended ones
  double paused_cpu_s = 0;         ///< the part of it during pauses; 0 when the pauses work
  std::uint64_t wakeups = 0;       ///< wake-ups of its threads; a lower bound: threads that begin and end between
                                   ///< two looks count only if the supervisor reaps their process
  int processes = 0, threads = 0;  ///< present numbers
  std::uint64_t rss_bytes = 0;     ///< sum over processes; shared pages count once for each process
  std::uint64_t drives_done = 0, drives_failed = 0, drive_bytes = 0;
  double drive_s = 0, drive_min_s = 0, drive_max_s = 0;  ///< sum and extremes of the times of completed drives
  std::string drive_failure;                             ///< why the last failed drive failed
  double keeper_cpu_s = 0;    ///< CPU time of the supervisor, and of the commands that drive and stop the agent
  std::vector<Drive> drives;  ///< since the last call, at most the last 2048
  std::vector<pid_t> pids;    ///< present processes, the first 256
  std::string folder;         ///< the scratch folder, "" when not started
};

class Keeper {
 public:
  /// Starts the supervisor. It returns only in the caller, never in the child. Error: noise.agent_no_keeper.
  static Result<Keeper> fork();

  Keeper(Keeper&& other) noexcept;
  Keeper& operator=(Keeper&& other) noexcept;
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper();  ///< dismiss()

  /// Starts the agent and its drives, and returns when the agent is ready. After a failure, no process is left.
  /// Errors: noise.agent_ended (with its status and the end of its log), agent_not_ready, agent_port_taken,
  /// agent_bad_option, agent_no_folder, agent_no_log, agent_running.
  Result<void> start(const AgentSpec& spec);

  /// Waits at most 1 s for a drive in progress, and returns when no thread of the agent can run. Errors:
  /// noise.agent_not_paused (with the process and its state; the whole agent goes on), agent_not_permitted, agent_died.
  Result<void> pause();

  /// Resumes the agent; the next drive is due after drive_phase of a period. Errors: noise.agent_died, and with
  /// start_stop those of start.
  Result<void> resume();

  /// Ends the agent and all processes that it started: the stop command, SIGTERM, SIGKILL. Removes its scratch folder.
  /// It may be called after a failed call, and when nothing runs. Errors: noise.agent_not_ended, agent_not_permitted,
  /// with the process.
  Result<void> stop();

  /// Binds every thread of the agent to these cores, now and at later starts; an empty list means all. The supervisor
  /// is bound, too, because driving the agent costs time. Errors: noise.agent_bad_cpus, agent_not_permitted.
  Result<void> place(const std::vector<int>& cpus);

  /// Reads /proc. This takes milliseconds on a node with many processes, so do not call it while something is timed. A
  /// supervisor that does not answer within `deadline_s` is ended with its agent. Error: noise.agent_keeper_silent.
  Result<Usage> usage(double deadline_s = 15);

  /// Ends the agent, if there is one, and the supervisor. It never fails; a second call does nothing.
  void dismiss();

  pid_t pid() const { return pid_; }  ///< process id of the supervisor; -1 after dismiss()

 private:
  Keeper(pid_t pid, int socket, int words, Roll roll)
      : pid_(pid), socket_(socket), words_(words), roll_(std::move(roll)) {}
  Result<std::string> ask(const std::string& request, double deadline_s);
  Error lost(const std::string& trouble, bool silent);
  std::string bury(double patience_s);
  std::string last_words();
  void sweep();

  pid_t pid_ = -1;
  int socket_ = -1, words_ = -1;  // words_: its stderr, which is empty unless it fails
  double grace_s_ = 5, ready_deadline_s_ = 20;
  std::string log_path_;  // of the agent
  std::int64_t log_start_ = 0;
  Roll roll_;
  std::string folder_;  // of the running agent; after a kill of the supervisor, its processes are found by it
};

}  // namespace sonde::noise
