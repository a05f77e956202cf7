// libFuzzer: what ipmitool prints, parted by NUL, one for each time that it is started. Starting a program and waiting
// for it are here instead of the C library's, and hand it on. What begins with 'e' comes on standard error, from a
// program that failed.
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "core/fuzz/input.hpp"
#include "power/hardware/kinds.hpp"

namespace {

constexpr pid_t child = 1 << 30;  // above what any kernel gives

std::string_view answers;
std::size_t asked = 0;
int out_fd = -1, err_fd = -1, exit_code = 0;

/// A folder with a program of that name, which is never started.
struct Program {
  std::string folder, file;
  Program() {
    char name[] = "/tmp/sonde-fuzz-XXXXXX";
    if (!::mkdtemp(name)) std::abort();
    folder = name;
    file = folder + "/ipmitool";
    std::ofstream(file) << "#!/bin/false\n";
    if (::chmod(file.c_str(), 0700) != 0) std::abort();
    ::setenv("PATH", folder.c_str(), 1);
  }
  ~Program() {
    ::unlink(file.c_str());
    ::rmdir(folder.c_str());
  }
};

}  // namespace

extern "C" {

int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t*, int from, int to) noexcept {
  (to == STDOUT_FILENO ? out_fd : err_fd) = from;
  return 0;
}

int posix_spawn(pid_t* pid, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*,
                char* const*) {
  if (asked > answers.size()) asked = 0;
  const std::size_t end = std::min(answers.find('\0', asked), answers.size());
  auto text = answers.substr(asked, end - asked);
  asked = end + 1;
  exit_code = text.starts_with('e');
  if (exit_code) text.remove_prefix(1);
  text = text.substr(0, 60000);  // what a pipe holds
  (void)!::write(exit_code ? err_fd : out_fd, text.data(), text.size());
  *pid = child;
  return 0;
}

pid_t waitpid(pid_t pid, int* status, int) {
  if (status) *status = exit_code << 8;
  return pid;
}

int kill(pid_t, int) noexcept { return 0; }

}  // extern "C"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  using namespace sonde::power;
  using sonde::fuzz::hold;
  static const Program program;
  answers = sonde::fuzz::text_of(bytes, n);
  asked = 0;
  HardwareSpec spec;
  spec.kind = Source::ipmi;
  spec.max_w = 500;
  spec.min_w = 100;
  auto opened = kinds::open_ipmi(spec);
  if (!opened) {
    hold(opened.error(), "power.");
    return 0;
  }
  Hardware& bmc = **opened;
  hold(bmc.model().size() <= 200, "a model without end");
  if (auto now = bmc.read(); !now) {
    hold(now.error(), "power.");
  } else {
    for (const auto& one : *now)
      hold(!(one.power_w < 0) && !(one.power_w > 1e6) && !(one.cap_w < 0) && !(one.cap_w > 1e6) && one.energy_j >= 0,
           "a reading out of its bounds");
  }
  if (const auto sensors = bmc.sensors(); !sensors) hold(sensors.error(), "power.");
  const auto before = bmc.originals();
  if (!before) hold(before.error(), "power.");
  if (auto cap = bmc.cap(0, 200); !cap) hold(cap.error(), "power.");
  if (before)
    if (const auto done = bmc.restore(*before); !done) hold(done.error(), "power.");
  return 0;
}
