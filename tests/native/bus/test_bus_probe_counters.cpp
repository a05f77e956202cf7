#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "bus/probe/counters.hpp"

using namespace sonde;
using namespace sonde::bus::probe;

TEST_CASE("bus probe counters: datagrams and bytes and overflows are found by their names") {
  const std::string snmp =
      "Ip: Forwarding OutRequests\nIp: 1 9\n"
      "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\nUdp: 10 0 3 12 3 0\n"
      "UdpLite: InDatagrams OutDatagrams\nUdpLite: 70 71\n";
  const std::string netstat = "TcpExt: A B\nTcpExt: 1 2\nIpExt: InOctets OutOctets\nIpExt: 500 600\n";
  const auto t = read_traffic(snmp, netstat, "Udp6OutDatagrams                \t5\nIp6OutOctets   40\n");
  REQUIRE(t);
  CHECK(t->datagrams == 17);
  CHECK(t->bytes == 640);
  CHECK(t->overflowed == 3);
  CHECK(read_traffic(snmp, netstat, "")->datagrams == 12);  // a kernel without IPv6
  CHECK_FALSE(read_traffic("", netstat, ""));
  CHECK_FALSE(read_traffic(snmp, "IpExt: InOctets OutOctets\nIpExt: 500\n", ""));
}

TEST_CASE("bus probe counters: a namespace of its own counts what is sent in it and nothing else") {
  struct Seen {
    int state;  // 1: no namespace can be had here
    std::uint64_t before, after, bytes;
  };
  auto* seen =
      static_cast<Seen*>(::mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(seen != MAP_FAILED);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (!enter_new_namespace()) {
      seen->state = 1;
      ::_exit(0);
    }
    auto before = traffic();
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(9);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    char data[100] = {};
    int sent = 0;
    for (int k = 0; k < 40; ++k) {
      sent += ::sendto(fd, data, sizeof data, 0, reinterpret_cast<sockaddr*>(&to), sizeof to) == sizeof data;
      // The refusal of one (nobody listens there) is told with the next call, which then sends nothing.
      int error = 0;
      socklen_t n = sizeof error;
      ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
    }
    auto after = traffic();
    if (!before || !after || sent != 40) ::_exit(2);
    *seen = {2, before->datagrams, after->datagrams, after->bytes - before->bytes};
    ::_exit(0);
  }
  REQUIRE(pid > 0);
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  if (seen->state == 1) {
    MESSAGE("this user may make no network namespace: nothing to count in");
  } else {
    REQUIRE(seen->state == 2);
    CHECK(seen->before == 0);
    CHECK(seen->after == 40);
    CHECK(seen->bytes >= 40 * (100 + 28));  // and what ICMP answers
  }
  ::munmap(seen, sizeof(Seen));
}

TEST_CASE("bus probe counters: a process's own work shows and instructions are counted or it is said why not") {
  const Usage before = usage();
  constexpr std::size_t bytes = 8 << 20;
  auto* memory = static_cast<char*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  ::madvise(memory, bytes, MADV_NOHUGEPAGE);
  std::memset(memory, 1, bytes);
  const Usage after = usage();
  CHECK(after.page_faults - before.page_faults >= bytes / 65536);  // pages are 64 KiB at most
  ::munmap(memory, bytes);

  const Instructions counter;
  if (counter.counted()) {
    const auto a = counter.read();
    volatile int sum = 0;
    for (int k = 0; k < 10000; ++k) sum = sum + k;
    CHECK(counter.read() - a > 10000 + counter.own());
    CHECK(counter.state().starts_with("counted"));
  } else {
    CHECK(counter.read() == 0);
    CHECK(counter.state().starts_with("not counted: "));
  }
}
