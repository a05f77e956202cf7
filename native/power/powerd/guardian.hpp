#pragma once
/// A small process beside a daemon that outlives a kill -9 of it: when the daemon is gone without having said that all is well, it does one thing,
/// and ends. Made before the daemon has threads; it holds nothing of the daemon's but standard error.

#include <sys/types.h>

#include <functional>
#include <memory>

#include "core/error.hpp"

namespace sonde::power {

class Guardian {
 public:
  /// `act` runs in the guardian, with the memory as it is now. Errors: power.no_guardian.
  static Result<std::unique_ptr<Guardian>> start(std::function<void()> act);
  /// As dismiss() was not called: the guardian acts.
  ~Guardian();
  /// All is well: it ends without having acted, and is waited for.
  void dismiss();
  /// Becomes readable in poll(2) (POLLERR) when the guardian is gone.
  int descriptor() const { return pipe_; }
  pid_t pid() const { return pid_; }

 private:
  Guardian(pid_t pid, int pipe) : pid_(pid), pipe_(pipe) {}
  pid_t pid_;
  int pipe_;
};

}  // namespace sonde::power
