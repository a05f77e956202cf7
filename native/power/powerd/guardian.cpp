#include "power/powerd/guardian.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace sonde::power {

namespace {

constexpr char well = 'w';

/// All descriptors but `keep` and standard error: a pipe of the daemon that stayed open here would keep whoever reads it waiting.
void close_all_but(int keep) {
  const int nothing = ::open("/dev/null", O_RDWR);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(nothing, STDOUT_FILENO);
  if (keep != 3) {
    ::dup2(keep, 3);
  }
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, 4u, ~0u, 0u) == 0) return;
#endif
  for (int fd = 4; fd < 4096; ++fd) ::close(fd);
}

[[noreturn]] void guard(int pipe, const std::function<void()>& act) {
  ::prctl(PR_SET_NAME, "power-guardian");
  ::setsid();
  close_all_but(pipe);
  char word = 0;
  ssize_t n = 0;
  while ((n = ::read(3, &word, 1)) < 0 && errno == EINTR) {
  }
  if (n == 0 || word != well) act();
  ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<Guardian>> Guardian::start(std::function<void()> act) {
  const auto failed = [](const char* what) { return Error{"power.no_guardian", std::string("cannot ") + what + ": " + std::strerror(errno), "let it have more processes and descriptors: ulimit -u, ulimit -n"}; };
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed("make a pipe");
  const pid_t pid = ::fork();
  if (pid < 0) {
    const Error error = failed("make a process");
    ::close(ends[0]), ::close(ends[1]);
    return error;
  }
  if (pid == 0) {
    ::close(ends[1]);
    guard(ends[0], act);
  }
  ::close(ends[0]);
  return std::unique_ptr<Guardian>(new Guardian(pid, ends[1]));
}

Guardian::~Guardian() {
  if (pipe_ >= 0) ::close(pipe_);
}

void Guardian::dismiss() {
  if (pipe_ < 0) return;
  while (::write(pipe_, &well, 1) < 0 && errno == EINTR) {
  }
  ::close(pipe_);
  pipe_ = -1;
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace sonde::power
