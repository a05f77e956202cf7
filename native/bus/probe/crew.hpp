#pragma once
/// The programs of a measurement, as seen by the coordinator. Owner-thread.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bus/probe/options.hpp"
#include "bus/probe/talk.hpp"
#include "core/control.hpp"

namespace sonde::bus::probe {

struct ProgramOptions {
  std::string name_space = {};  ///< "", "new", or the id of the process whose namespace it enters
  bool bind_now = false;        ///< resolve all symbols at the start (LD_BIND_NOW)
  const Host* host = nullptr;   ///< null: this host
};

/// A program that executes commands (agent.hpp). The destructor ends it: in order, or killed after some seconds.
class Program {
 public:
  /// Error: bus.failed.
  static Result<std::unique_ptr<Program>> start(const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  bool tell(const Talk& what);
  /// An answer, or nothing if none arrives within `wait_ms`. Error: bus.program_lost.
  Result<std::optional<Talk>> hear(int wait_ms);
  /// Closes its input, so that it ends; also if it is busy with a command, unless a launcher started it.
  void dismiss();
  pid_t pid() const { return pid_; }  ///< of the process on this host: for another host, the launcher
  const Host* host() const { return host_; }
  /// Whether it has ended. Does not wait.
  bool ended();
  /// The number of programs that were killed and left files to clean up.
  static std::size_t killed();

 private:
  Program(pid_t pid, int fd, const Host* host) : pid_(pid), host_(host), fd_(fd), reader_(fd) {}
  std::string how_it_ended();
  pid_t pid_;
  const Host* host_;
  int fd_;
  LineReader reader_;
  bool reaped_ = false, dismissed_ = false;
  std::size_t unanswered_ = 0;
};

using Programs = std::vector<std::unique_ptr<Program>>;
/// Ends programs: closes all inputs first, then waits, with the same time limit for all.
void end_all(Programs& programs);

/// Sends commands to programs, and listens to its parent meanwhile.
class Foreman {
 public:
  explicit Foreman(Control& control) : control_(control) {}
  /// All waits end at this time.
  void limit(Deadline last) { last_ = last; }
  /// The time until then; a long time without a limit.
  double left_s() const { return last_.at_ns ? static_cast<double>(last_.left_ms()) * 1e-3 : 1e9; }
  /// Called every few seconds of a long wait, because the parent may take silence for the end of the probe.
  void while_waiting(std::function<void()> say) { say_ = std::move(say); }
  struct Order {
    Program* to;
    Talk what;
  };
  /// Sends all commands, then waits for all answers. Errors: the first error of a program, in the order given;
  /// bus.timed_out; bus.program_lost; bus.interrupted: the parent asked to stop, or limit() was reached. The programs
  /// are unusable after any error except their own.
  Result<std::vector<Talk>> ask(const std::vector<Order>& orders, double within_s = 30);
  Result<Talk> ask(Program& program, const Talk& what, double within_s = 30);
  /// The same, but leaves out programs that do not answer in time. Errors: as ask(), except bus.timed_out.
  Result<std::vector<std::optional<Talk>>> ask_some(const std::vector<Order>& orders, double within_s);
  /// Pauses. Error: bus.interrupted.
  Result<void> pause(double s);

 private:
  bool over();
  Control& control_;
  Deadline last_;
  std::function<void()> say_;
  double said_s_ = now_s();
};

}  // namespace sonde::bus::probe
