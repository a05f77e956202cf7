#pragma once
/// Messages to a probe from its parent: `stop` on standard input, or its end, which means that the parent died. And the
/// time limit. Only rank 0 listens. Owner-thread.

#include <poll.h>
#include <unistd.h>

#include <string>

#include "core/clock.hpp"

namespace sonde {

class Control {
 public:
  /// budget_s: from now; 0 means no limit. listen: read standard input at all.
  Control(double budget_s, bool listen) : deadline_s_(budget_s > 0 ? now_s() + budget_s : 0), listen_(listen) {}

  bool over_budget() const { return deadline_s_ > 0 && now_s() >= deadline_s_; }

  /// Puts the deadline off, so that at least this long is left: start-up must not eat all of a short budget.
  void leave_at_least(double left_s) {
    if (deadline_s_ > 0 && deadline_s_ < now_s() + left_s) deadline_s_ = now_s() + left_s;
  }

  /// True once the parent asked to stop or is gone. One poll(2) a call, about 1 µs: not for the hot path.
  bool stop_requested() {
    while (listen_ && !stop_) {
      pollfd fd{STDIN_FILENO, POLLIN, 0};
      if (::poll(&fd, 1, 0) <= 0) break;
      char text[256];
      const ssize_t n = ::read(STDIN_FILENO, text, sizeof text);
      if (n <= 0) {
        stop_ = true;
      } else {
        heard_.append(text, static_cast<std::size_t>(n));
        stop_ = heard_.find("stop\n") != std::string::npos;
        if (heard_.size() > 4096) heard_.erase(0, heard_.size() - 8);  // noise on stdin must not grow memory
      }
    }
    return stop_;
  }

 private:
  double deadline_s_;
  bool listen_, stop_ = false;
  std::string heard_;
};

}  // namespace sonde
