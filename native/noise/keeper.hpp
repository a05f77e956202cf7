#pragma once
/// The keeper: a small process beside a rank that starts, drives, pauses, resumes, places and ends one agent.
///
/// Call Keeper::fork() first thing in main, before MPI_Init: a fork later is unsafe with most fabrics, and would
/// hand the keeper the rank's registered memory and descriptors. The keeper has its own session, no descriptor of
/// the rank's but one socket and a file in memory for its stderr, and all cores the node allows it; it blocks in poll,
/// and wakes for a request, a dead child or a drive that is due. Everything the agent starts stays below it, for it is
/// a subreaper: what daemonises is handed to the keeper and not to init. When the rank goes, however it goes, the
/// socket ends, and the keeper ends all it started and leaves. When the keeper itself is killed, the rank finds what is
/// left by a roll that the keeper kept, and by SONDE_AGENT_DIR in the environment; when both are, SONDE_RUN serves
/// Sonde's launcher (core/launch/process.py). What an agent makes others start (systemd, a container's daemon, cron) is
/// not below the keeper and not seen. Owner-thread.
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

/// What runs, and how. In `ready` and `drive`, {dir} stands for the agent's scratch folder and {port} for the
/// number in {dir}/port, so that an agent may choose its port itself.
struct AgentSpec {
  enum Pause : std::uint8_t {
    stop_cont,   ///< SIGSTOP and SIGCONT: the agent keeps its state; a timer that is overdue fires at once
    start_stop,  ///< ended and started anew, with an empty scratch folder: for what does not bear being stopped
  };
  std::string command;   ///< for /bin/sh -c; its scratch folder is $SONDE_AGENT_DIR
  std::string log_path;  ///< stdout and stderr are appended; "": `agent.log` in the scratch folder, gone with it
  Pause pause = stop_cont;
  /// When it counts as started. "": as soon as it has lived 0.2 s. "port:9100", "port:{port}": something accepts
  /// connections there on the loopback. "file:PATH": the file appears, or changes. "for:0.5": it has lived so long, s.
  std::string ready;
  double ready_deadline_s = 20;
  /// What makes it do its real work while it is on. "": nothing. "http://127.0.0.1:9100/metrics": a scrape, over
  /// the loopback. "sh:COMMAND": for /bin/sh -c.
  std::string drive;
  double drive_period_s = 1;
  double drive_phase = 0.5;  ///< the first drive comes this share of a period after start or resume; 0 to 1
  std::string stop_command;  ///< run before SIGTERM; "": none
  double grace_s = 5;        ///< between SIGTERM and SIGKILL
};

/// One flag of a command line into the spec: "command", "log", "pause", "ready", "ready-deadline-s", "drive",
/// "drive-period-s", "drive-phase", "stop", "grace-s". false: no such flag. Error: noise.agent_bad_option.
Result<bool> read_agent_flag(AgentSpec& spec, std::string_view name, const std::string& value);

/// "0,2-5" as {0, 2, 3, 4, 5}; "" as none. Error: noise.agent_bad_cpus.
Result<std::vector<int>> parse_cpus(std::string_view text);

/// One piece of the agent's real work.
struct Drive {
  double begin_s = 0;       ///< on the clock of now_s()
  double took_s = 0;        ///< until the last byte, or the end of the command
  std::uint64_t bytes = 0;  ///< received; 0 for a command
  bool done = false;        ///< false: refused, not answered within 5 s, a status other than 2xx or 0, cut by a pause
};

/// What the agent cost so far, over all its starts.
struct Usage {
  bool alive = false;  ///< started, and not found dead
  bool paused = false;
  std::string death;          ///< why it is not alive although nobody ended it: "exit status 3", "signal 9 (SIGKILL)"
  double cpu_s = 0;           ///< of all its processes and threads, ended ones included
  double paused_cpu_s = 0;    ///< of that, while it was meant to be paused; 0 where the pause holds
  std::uint64_t wakeups = 0;  ///< times one of its threads was put on a core; a lower bound: what began and
                              ///< ended between two looks is counted only where the keeper reaps it
  int processes = 0, threads = 0;  ///< there now
  std::uint64_t rss_bytes = 0;     ///< summed over processes; shared pages count once for each
  std::uint64_t drives_done = 0, drives_failed = 0, drive_bytes = 0;
  double drive_s = 0, drive_min_s = 0, drive_max_s = 0;  ///< of those done: sum and extremes
  std::string drive_failure;                             ///< why the last one failed
  double keeper_cpu_s = 0;    ///< of the keeper, and of the commands that drive and stop the agent
  std::vector<Drive> drives;  ///< since the last call, the last 2048 at most
  std::vector<pid_t> pids;    ///< there now, the first 256
  std::string folder;         ///< the scratch folder, "" when not started
};

class Keeper {
 public:
  /// Starts the keeper. Returns in the caller only; the child never comes back. Error: noise.agent_no_keeper.
  static Result<Keeper> fork();

  Keeper(Keeper&& other) noexcept;
  Keeper& operator=(Keeper&& other) noexcept;
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper();  ///< dismiss()

  /// Starts the agent, and its drives, and returns when it is ready. When it fails nothing of it is left.
  /// Errors: noise.agent_ended (with its status and the end of its log), agent_not_ready, agent_port_taken,
  /// agent_bad_option, agent_no_folder, agent_no_log, agent_running.
  Result<void> start(const AgentSpec& spec);

  /// Lets a drive in progress finish, for 1 s at most, and returns when no thread of the agent can run. Errors:
  /// noise.agent_not_paused (which process, and its state; all of it goes on), agent_not_permitted, agent_died.
  Result<void> pause();

  /// Lets it run again; a drive is due drive_phase of a period from now. Errors: noise.agent_died, and with
  /// start_stop those of start.
  Result<void> resume();

  /// Ends it with all it started: the stop command, SIGTERM, SIGKILL; removes its scratch folder. Also after a
  /// failed call, and when nothing runs. Error: noise.agent_not_ended, agent_not_permitted, naming the process.
  Result<void> stop();

  /// Binds every thread of the agent, and the keeper as its driving costs too, to these cores, now and at later
  /// starts; none means all. Errors: noise.agent_bad_cpus, agent_not_permitted.
  Result<void> place(const std::vector<int>& cpus);

  /// Looks through /proc: milliseconds on a node with many processes, so not while something is being timed. A keeper
  /// that does not answer within `deadline_s` is ended with its agent. Error: noise.agent_keeper_silent.
  Result<Usage> usage(double deadline_s = 15);

  /// Ends the agent, if there is one, and the keeper. Never fails; a second call does nothing.
  void dismiss();

  pid_t pid() const { return pid_; }  ///< the keeper's; -1 once dismissed

 private:
  Keeper(pid_t pid, int socket, int words, Roll roll)
      : pid_(pid), socket_(socket), words_(words), roll_(std::move(roll)) {}
  Result<std::string> ask(const std::string& request, double deadline_s);
  Error lost(const std::string& trouble, bool silent);
  std::string bury(double patience_s);
  std::string last_words();
  void sweep();

  pid_t pid_ = -1;
  int socket_ = -1, words_ = -1;  // words_: what it wrote to stderr, which is nothing unless it fails
  double grace_s_ = 5, ready_deadline_s_ = 20;
  std::string log_path_;  // of the agent
  std::int64_t log_start_ = 0;
  Roll roll_;
  std::string folder_;  // of the agent that runs; what a killed keeper left is found by it
};

}  // namespace sonde::noise
