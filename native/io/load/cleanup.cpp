#include "io/load/cleanup.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "io/load/files.hpp"

namespace sonde::ioload {

namespace {

constexpr std::size_t rank_digits = 8;  // digits of the rank in file names, as in IOR
std::array<char, 4096> guarded{};
std::size_t length = 0;
int own = 0, ranks = 1,
    others = 0;  // the file's rank, the number of ranks, and the number of following ranks whose files are also removed
volatile std::sig_atomic_t guards = 0;
volatile std::sig_atomic_t tells = 0;

// Signal-safe, because a handler calls it.
void put_rank(int rank) {
  for (std::size_t k = 1; k <= rank_digits; ++k, rank /= 10) guarded[length - k] = static_cast<char>('0' + rank % 10);
}

// Signal-safe calls only.
extern "C" void on_signal(int number) {
  if (guards) {
    for (int k = others; k > 0; --k) {
      put_rank((own + k) % ranks);
      ::unlink(guarded.data());
    }
    if (others > 0) put_rank(own);
    const bool removed = ::unlink(guarded.data()) == 0;
    if (removed && tells) {
      constexpr char before[] = "sonde-ioload: interrupted; removed ", after[] = "\n";
      [[maybe_unused]] ssize_t told = ::write(STDERR_FILENO, before, sizeof before - 1);
      told = ::write(STDERR_FILENO, guarded.data(), std::strlen(guarded.data()));
      told = ::write(STDERR_FILENO, after, sizeof after - 1);
    }
  }
  ::_exit(128 + number);  // not by the signal: some launchers treat a rank that their own signal ended as a success
}

}  // namespace

void remove_when_interrupted(bool speaks) {
  tells = speaks;
  struct sigaction action{};
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
  length = path.size();
  others = 0;
  guards = 1;
}

void guard_of_rank(const std::string& path, int rank, int of_ranks) {
  guard(path);
  guards = 0;
  if (path.empty() || path.size() >= guarded.size()) return;
  char digits[16];
  std::snprintf(digits, sizeof digits, ".%08d", rank);
  own = rank;
  ranks = of_ranks;
  others = path.ends_with(digits) ? (rank == 0 ? ranks - 1 : 1) : 0;
  guards = 1;
}

int remove_now(const std::string& path, bool is_mine) {
  const int number = is_mine ? files().remove(path) : 0;
  guards = 0;
  return number == ENOENT ? 0 : number;
}

}  // namespace sonde::ioload
