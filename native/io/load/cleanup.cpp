#include "io/load/cleanup.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "io/load/files.hpp"

namespace sonde::ioload {

namespace {

std::array<char, 4096> guarded{};
volatile std::sig_atomic_t guards = 0;
volatile std::sig_atomic_t tells = 0;

// Signal-safe calls only.
extern "C" void on_signal(int number) {
  if (guards) {
    const bool removed = ::unlink(guarded.data()) == 0;
    if (removed && tells) {
      constexpr char before[] = "sonde-ioload: interrupted; removed ", after[] = "\n";
      [[maybe_unused]] ssize_t told = ::write(STDERR_FILENO, before, sizeof before - 1);
      told = ::write(STDERR_FILENO, guarded.data(), std::strlen(guarded.data()));
      told = ::write(STDERR_FILENO, after, sizeof after - 1);
    }
  }
  ::_exit(128 + number);  // and not by the signal: some launchers take ranks that their own signal ended for a success
}

}  // namespace

void remove_when_interrupted(bool speaks) {
  tells = speaks;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGINT);
  sigaddset(&action.sa_mask, SIGTERM);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

void guard(const std::string& path) {
  guards = 0;
  if (path.empty() || path.size() >= guarded.size()) return;
  std::memcpy(guarded.data(), path.c_str(), path.size() + 1);
  guards = 1;
}

int remove_now(const std::string& path, bool is_mine) {
  const int number = is_mine ? files().remove(path) : 0;
  guards = 0;
  return number == ENOENT ? 0 : number;
}

}  // namespace sonde::ioload
