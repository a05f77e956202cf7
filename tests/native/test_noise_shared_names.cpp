#include <doctest/doctest.h>

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
