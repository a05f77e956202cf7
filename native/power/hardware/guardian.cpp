#include "power/hardware/guardian.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>
#include <string>

namespace sonde::power {

namespace {

constexpr char well = 'w', look = 'l';

std::int64_t boot_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// Close all descriptors but `keep` and standard error: a pipe of the daemon left open here would keep its reader
/// waiting.
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

}  // namespace

void Guardian::guard(int pipe, Shared& shared, const Act& act, std::int64_t again_ns) {
  ::prctl(PR_SET_NAME, "power-guardian");
  ::setsid();
  close_all_but(pipe);
  pipe = 3;
  // If allowed: the watchdog must also work when memory is short.
  (void)::mlockall(MCL_CURRENT);
  const int timer = ::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  bool armed = false;
  for (;;) {
    const std::int64_t due = shared.due_ns.load();
    std::int64_t wakes = INT64_MAX;
    if (due) {
      if (!armed) armed = true, shared.armed.store(act(Why::armed) == Did::failed ? -1 : 1);
      wakes = due;
      if (boot_ns() >= due) {
        // The time at which it started counts: the daemon handles a renewal that came meanwhile, since it sees that
        // this process acted.
        if (act(Why::late) == Did::set) shared.acted.fetch_add(1);
        wakes = boot_ns() + again_ns;
      }
    }
    shared.wakes_ns.store(wakes);
    if (shared.due_ns.load() != due) continue;  // changed meanwhile: until() may have seen the earlier time
    const bool sleeps = wakes == INT64_MAX;
    const itimerspec when{{}, {sleeps ? 0 : wakes / 1'000'000'000, sleeps ? 0 : wakes % 1'000'000'000}};
    ::timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, nullptr);
    pollfd ready[2] = {{pipe, POLLIN, 0}, {timer, POLLIN, 0}};
    // Without a timer it checks every `again`.
    if (::poll(ready, 2, timer < 0 && !sleeps ? static_cast<int>(again_ns / 1'000'000) : -1) < 0) continue;
    std::uint64_t count = 0;
    if (ready[1].revents) (void)!::read(timer, &count, sizeof count);
    if (!ready[0].revents) continue;
    char words[64];
    const ssize_t n = ::read(pipe, words, sizeof words);
    if (n < 0 && errno == EINTR) continue;
    if (n > 0 && std::memchr(words, well, static_cast<std::size_t>(n))) break;
    if (n > 0) continue;
    (void)act(Why::gone);
    break;
  }
  ::_exit(0);
}

Result<std::unique_ptr<Guardian>> Guardian::start(const Act& act, double again_s) {
  const auto failed = [](const char* what) {
    return Error{"power.no_guardian", std::string("cannot ") + what + ": " + std::strerror(errno),
                 "raise the limits of processes and descriptors: ulimit -u, ulimit -n"};
  };
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed("make a pipe");
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const pid_t pid = memory == MAP_FAILED ? -1 : (new (memory) Shared, ::fork());
  if (pid < 0) {
    const Error error = failed(memory == MAP_FAILED ? "map shared memory" : "start a process");
    if (memory != MAP_FAILED) ::munmap(memory, sizeof(Shared));
    ::close(ends[0]), ::close(ends[1]);
    return error;
  }
  if (pid == 0) {
    ::close(ends[1]);
    guard(ends[0], *static_cast<Shared*>(memory), act, static_cast<std::int64_t>(again_s * 1e9));
  }
  ::close(ends[0]);
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  return std::unique_ptr<Guardian>(new Guardian(pid, ends[1], static_cast<Shared*>(memory)));
}

Guardian::~Guardian() {
  if (pipe_ >= 0) ::close(pipe_);
  ::munmap(shared_, sizeof(Shared));
}

void Guardian::until(std::int64_t boottime_ns) {
  shared_->due_ns.store(boottime_ns);
  // It need not be woken for a later time: it reads that by itself. A full pipe has woken it already.
  if (boottime_ns && boottime_ns < shared_->wakes_ns.load() && pipe_ >= 0) (void)!::write(pipe_, &look, 1);
}

bool Guardian::arm(double within_s) {
  const std::int64_t ends = boot_ns() + static_cast<std::int64_t>(within_s * 1e9);
  const std::int64_t due = shared_->due_ns.load();
  until(due ? due : INT64_MAX - 1);
  while (shared_->armed.load() == 0 && boot_ns() < ends) {
    pollfd gone{pipe_, 0, 0};
    if (::poll(&gone, 1, 5) > 0) break;
  }
  if (!due) until(0);
  return shared_->armed.load() == 1;
}

void Guardian::dismiss() {
  if (pipe_ < 0) return;
  ::fcntl(pipe_, F_SETFL, 0);
  while (::write(pipe_, &well, 1) < 0 && errno == EINTR) {}
  ::close(pipe_);
  pipe_ = -1;
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {}
}

}  // namespace sonde::power
