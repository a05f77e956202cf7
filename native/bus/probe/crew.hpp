#pragma once
/// The programs that are measured, as who started them sees them. Owner-thread.

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
  std::string name_space = {};  ///< "", "new", or the number of the process whose one to enter
  bool bind_now = false;        ///< all symbols are looked up when it starts (LD_BIND_NOW)
  const Host* host = nullptr;   ///< where; null: this one
};

/// One that does what it is told (agent.hpp). It goes when this is destroyed, in any case: in order, or after some
/// seconds killed.
class Program {
 public:
  /// Error: bus.failed.
  static Result<std::unique_ptr<Program>> start(const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  bool tell(const Talk& what);
  /// An answer, or nothing yet within `wait_ms`. Error: bus.program_lost.
  Result<std::optional<Talk>> hear(int wait_ms);
  /// Ends its input: it begins to end; at once where it is busy with what it was told, unless it is behind a launcher.
  void dismiss();
  pid_t pid() const { return pid_; }  ///< of what was started here: of another host's program that which starts it
  const Host* host() const { return host_; }
  /// Whether it has ended; looks, and does not wait.
  bool ended();
  /// How many of all had to be killed: what they left is to be cleaned up.
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
/// All begin to end before any is waited for, and have the same time for it.
void end_all(Programs& programs);

/// Speaks with programs while it listens to who started the whole.
class Foreman {
 public:
  explicit Foreman(Control& control) : control_(control) {}
  /// Nothing is waited for any longer then.
  void limit(Deadline last) { last_ = last; }
  /// How long that is from now; much, where nothing was said.
  double left_s() const { return last_.at_ns ? static_cast<double>(last_.left_ms()) * 1e-3 : 1e9; }
  /// Called every few seconds of a long wait: who started this may take silence for its end.
  void while_waiting(std::function<void()> say) { say_ = std::move(say); }
  struct Order {
    Program* to;
    Talk what;
  };
  /// Tells all, then hears all. Errors: the first of theirs, in the order given; bus.timed_out; bus.program_lost;
  /// bus.interrupted: the parent asked to stop meanwhile, or limit() was reached. After any but the programs' own
  /// errors, they are of no use any more.
  Result<std::vector<Talk>> ask(const std::vector<Order>& orders, double within_s = 30);
  Result<Talk> ask(Program& program, const Talk& what, double within_s = 30);
  /// The same, but whoever has not answered by then is left out. Errors: as ask(), but bus.timed_out.
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
