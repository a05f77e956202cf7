// The process beside a daemon that acts when that one does not.
#include <doctest/doctest.h>

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "power/hardware/guardian.hpp"

using namespace sonde::power;

namespace {

std::int64_t boot_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
constexpr std::int64_t second = 1'000'000'000;

/// What guardians do, as letters.
struct Letters {
  int ends[2];
  Letters() { REQUIRE(::pipe(ends) == 0); }
  ~Letters() {
    for (const int fd : ends)
      if (fd >= 0) ::close(fd);
  }
  /// For the guardian: it closes all descriptors but its own, so that its letters go over standard error.
  void as_standard_error(const std::function<void()>& fork) {
    const int kept = ::dup(STDERR_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    fork();
    ::dup2(kept, STDERR_FILENO);
    ::close(kept);
    ::close(ends[1]);
    ends[1] = -1;
  }
  /// The next one; 0: none within the time; '.': nobody is left to write any.
  char next(int ms) const {
    pollfd ready{ends[0], POLLIN, 0};
    if (::poll(&ready, 1, ms) != 1) return 0;
    char letter = '.';
    return ::read(ends[0], &letter, 1) == 1 ? letter : '.';
  }
};

Guardian::Act writing(Guardian::Did late) {
  return [late](Guardian::Why why) {
    const char letter = why == Guardian::Why::armed ? 'a' : why == Guardian::Why::late ? 'l' : 'g';
    (void)!::write(STDERR_FILENO, &letter, 1);
    return late;
  };
}

constexpr int patience_ms = 20'000;  // no measure of anything

}  // namespace

TEST_CASE(
    "guardian: it acts when a time was told and none after it, again and again, and says so; and not for a daemon that "
    "goes on") {
  Letters letters;
  std::unique_ptr<Guardian> guardian;
  letters.as_standard_error([&] {
    auto made = Guardian::start(writing(Guardian::Did::set), 0.05);
    REQUIRE(made);
    guardian = std::move(*made);
  });
  CHECK(letters.next(50) == 0);
  // Ever later: it is prepared, and does nothing.
  for (int k = 0; k < 20; ++k) guardian->until(boot_ns() + 100 * second + k);
  CHECK(letters.next(patience_ms) == 'a');
  guardian->until(0);
  CHECK(letters.next(50) == 0);
  CHECK(guardian->acted() == 0);
  const std::int64_t due = boot_ns() + second / 5;
  guardian->until(due);
  CHECK(letters.next(patience_ms) == 'l');
  CHECK(boot_ns() >= due);
  CHECK(letters.next(patience_ms) == 'l');
  CHECK(letters.next(patience_ms) == 'l');
  CHECK(guardian->acted() >= 2);
  guardian->until(0);
  while (letters.next(200) == 'l') {}
  const auto acted = guardian->acted();
  CHECK(letters.next(200) == 0);
  CHECK(guardian->acted() == acted);
  guardian->dismiss();
  CHECK(letters.next(patience_ms) == '.');
}

TEST_CASE("guardian: what was as it should be is not told as done") {
  Letters letters;
  std::unique_ptr<Guardian> guardian;
  letters.as_standard_error([&] {
    auto made = Guardian::start(writing(Guardian::Did::nothing), 0.05);
    REQUIRE(made);
    guardian = std::move(*made);
  });
  guardian->until(1);
  CHECK(letters.next(patience_ms) == 'a');
  CHECK(letters.next(patience_ms) == 'l');
  CHECK(letters.next(patience_ms) == 'l');
  CHECK(guardian->acted() == 0);
  // Gone without a word.
  guardian.reset();
  char last = 0;
  while ((last = letters.next(patience_ms)) == 'l') {}
  CHECK(last == 'g');
  CHECK(letters.next(patience_ms) == '.');
}

TEST_CASE("guardian: a daemon that is stopped keeps nothing from it") {
  Letters letters;
  const pid_t daemon = [&] {
    pid_t pid = 0;
    letters.as_standard_error([&] {
      pid = ::fork();
      if (pid != 0) return;
      auto guardian = Guardian::start(writing(Guardian::Did::set), 0.05);
      if (!guardian) ::_exit(1);
      (*guardian)->until(boot_ns() + second / 2);
      ::raise(SIGSTOP);
      // Woken up: it sees what was done meanwhile.
      const char letter = (*guardian)->acted() ? 'y' : 'n';
      (*guardian)->dismiss();
      (void)!::write(STDERR_FILENO, &letter, 1);
      ::_exit(0);
    });
    return pid;
  }();
  REQUIRE(daemon > 0);
  int status = 0;
  REQUIRE(::waitpid(daemon, &status, WUNTRACED) == daemon);
  REQUIRE(WIFSTOPPED(status));
  char letter = letters.next(patience_ms);
  if (letter == 'a') letter = letters.next(patience_ms);
  CHECK(letter == 'l');
  CHECK(letters.next(patience_ms) == 'l');  // the count is there by now
  REQUIRE(::kill(daemon, SIGCONT) == 0);
  while ((letter = letters.next(patience_ms)) == 'l') {}
  CHECK(letter == 'y');
  REQUIRE(::waitpid(daemon, &status, 0) == daemon);
}
