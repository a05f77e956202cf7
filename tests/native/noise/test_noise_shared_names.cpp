#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>

#include "noise/process_tree.hpp"
#include "noise/shared_names.hpp"

using namespace sonde::noise;

TEST_CASE("names below /dev/shm among a process's mappings; those that are gone are left out") {
  const std::string maps =
      "55d0c0a00000-55d0c0a01000 r--p 00000000 fe:00 1234      /usr/bin/agent\n"
      "7f0000000000-7f0000001000 rw-s 00000000 00:17 77        /dev/shm/agent_ring\n"
      "7f0000002000-7f0000003000 rw-s 00000000 00:17 78        /dev/shm/sem.agent (1)\n"
      "7f0000004000-7f0000005000 rw-s 00000000 00:17 79        /dev/shm/old (deleted)\n"
      "7f0000006000-7f0000007000 rw-s 00001000 00:17 77        /dev/shm/agent_ring\n"
      "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0         [stack]";
  CHECK(shared_names_in(maps) == std::set<std::string>{"agent_ring", "sem.agent (1)"});
  CHECK(shared_names_in("").empty());
}

// Between open and read of /proc/…/maps the process may go, and its parent wait for it: the read then fails with ESRCH.
namespace {

void read_mappings_of_processes_that_end(int processes) {
  struct sigaction ignored{}, before{};
  ignored.sa_handler = SIG_IGN;  // nobody waits for them: they are gone at once
  ::sigaction(SIGCHLD, &ignored, &before);
  SharedNames names;
  names.begin();
  for (int k = 0; k < processes; ++k) {
    Process brief;
    brief.pid = ::fork();
    REQUIRE(brief.pid >= 0);
    if (brief.pid == 0) {
      for (volatile int turn = 0; turn < k % 100 * 500;) turn = turn + 1;
      ::_exit(0);
    }
    do CHECK_NOTHROW(names.look({brief}));
    while (::kill(brief.pid, 0) == 0);
  }
  ::sigaction(SIGCHLD, &before, nullptr);
}

}  // namespace

TEST_CASE("a process that ends while its mappings are read has none, and is no reason to end oneself") {
  read_mappings_of_processes_that_end(100);
}
TEST_CASE("a thousand processes that end while their mappings are read have none" * doctest::test_suite("soak")) {
  read_mappings_of_processes_that_end(1000);
}

TEST_CASE("what an agent mapped and left is removed, unless another still maps it") {
  for (const bool held : {false, true}) {
    CAPTURE(held);
    const std::string name = "/sonde-test-names-" + std::to_string(::getpid());
    SharedNames names;
    names.begin();
    const int fd = ::shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
    REQUIRE(fd >= 0);
    REQUIRE(::ftruncate(fd, 4096) == 0);
    void* here = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    Process self;
    self.pid = ::getpid();
    names.look({self});
    if (!held) ::munmap(here, 4096);
    names.remove();
    CHECK((::access(("/dev/shm" + name).c_str(), F_OK) == 0) == held);
    if (held) ::munmap(here, 4096);
    ::shm_unlink(name.c_str());
  }
}
