#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdint>

namespace {

/// Shared memory holds the tests' files where it has the room: no test is about the disk, and its syncs take their time
/// beside others that write. Whoever sets TMPDIR decides otherwise.
void keep_files_in_memory() {
  constexpr long tmpfs = 0x01021994;
  constexpr std::uint64_t room = std::uint64_t{1} << 30;  // databases reserve maps that they do not fill
  struct statfs about{};
  if (statfs("/dev/shm", &about) != 0 || about.f_type != tmpfs || access("/dev/shm", W_OK | X_OK) != 0) return;
  if (std::uint64_t{about.f_bavail} * static_cast<std::uint64_t>(about.f_bsize) >= room)
    setenv("TMPDIR", "/dev/shm", 0);
}

}  // namespace

int main(int argc, char** argv) {
  keep_files_in_memory();
  return doctest::Context(argc, argv).run();
}
