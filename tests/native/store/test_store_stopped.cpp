// Clients that are stopped in the middle of a batch: the server must neither wait for them nor look for them without
// end.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "providers.hpp"
#include "service.hpp"

using namespace sonde;
using namespace sonde::store;
using namespace sonde::store::test;

namespace {

constexpr std::size_t piece_bytes = 100'000;  ///< more than a link holds back to send it together with what follows
constexpr std::size_t read_bytes = 1u << 20, data_bytes = 4u << 20;
constexpr unsigned reads = 24;  ///< more than links and server keep under way

void nap(double seconds) {
  const auto ns = static_cast<std::int64_t>(seconds * 1e9);
  const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&time, nullptr);
}

double cpu_s(int who) {
  rusage use{};
  getrusage(who, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

/// What this process used, without the thread that asks: the server's threads.
double cpu_of_others_s() { return cpu_s(RUSAGE_SELF) - cpu_s(RUSAGE_THREAD); }

/// A client that stops itself, in a process of its own: a fork alone would have the locks of libraries, without the
/// threads that hold them.
class Stopped {
 public:
  Stopped(const std::string& server, const std::string& transport, const std::string& provider, const char* what) {
    const char* const words[][2] = {{"SONDE_TEST_STOP_SERVER", server.c_str()},
                                    {"SONDE_TEST_STOP_TRANSPORT", transport.c_str()},
                                    {"SONDE_TEST_STOP_PROVIDER", provider.c_str()},
                                    {"SONDE_TEST_STOP_WHAT", what}};
    for (const auto& [name, value] : words) setenv(name, value, 1);
    pid_ = fork();
    if (pid_ == 0) {
      execl("/proc/self/exe", "sonde-test-store", "--no-skip", "-m", "-tc=the child of a client that is stopped",
            static_cast<char*>(nullptr));
      _exit(10);
    }
    for (const auto& [name, value] : words) unsetenv(name);
    REQUIRE(pid_ > 0);
  }
  ~Stopped() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;

  bool stopped() {
    return changed(WUNTRACED, [](int how) { return WIFSTOPPED(how); });
  }
  void go_on() { kill(pid_, SIGCONT); }
  bool ended_well() {
    int code = -1;
    const bool ended = changed(0, [&](int how) {
      if (WIFEXITED(how)) code = WEXITSTATUS(how);
      return WIFEXITED(how);
    });
    if (ended) pid_ = -1;
    CHECK(code == 0);
    return ended && code == 0;
  }

 private:
  bool changed(int options, const std::function<bool(int)>& as_wanted) {
    for (const double until = now_s() + 60; now_s() < until; nap(5e-3)) {
      int how = 0;
      const pid_t who = waitpid(pid_, &how, WNOHANG | options);
      if (who == 0) continue;
      if (who != pid_ || !WIFSTOPPED(how)) {
        const bool wanted = who == pid_ && as_wanted(how);
        if (!wanted) pid_ = -1;
        return wanted;
      }
      return as_wanted(how);
    }
    return false;
  }

  pid_t pid_ = -1;
};

/// Of the child. A long answer takes all receives but those that are kept for what links say to each other; the last of
/// them go one by one, as each write wakes the server, which says when it sleeps again. So there is none left to say it
/// in.
bool stop_among_writes(Client& client, Bytes data) {
  auto first = client.batch();
  first.write("stopped", "long", 0, data);
  if (!first.run() || first.failed()) return false;
  first.clear();
  const auto told = client.status();
  if (!told) return false;
  const std::string& detail = (*told)[0].link.detail;  // "7 receives of 272 KiB …"
  const std::size_t receives =
      detail.find(" receives of ") == std::string::npos ? 16 : std::strtoul(detail.c_str(), nullptr, 10);
  std::vector<std::byte> into(std::min(data.size(), receives * wire::frame_data_default));
  first.read("stopped", "long", 0, into);
  if (!first.start()) return false;
  // No more than go out at once: who waits for a receive of the peer's looks at its own meanwhile.
  std::vector<Batch> writes;
  for (std::size_t k = 0; k + 4 < receives; ++k) {
    nap(0.02);
    writes.push_back(client.batch());
    writes.back().write("stopped", "o", k * piece_bytes, data.subspan(k * 1000, piece_bytes));
    if (!writes.back().start()) return false;
  }
  nap(0.02);
  raise(SIGSTOP);
  if (!first.wait() || first.failed() || !std::equal(into.begin(), into.end(), data.begin())) return false;
  return std::all_of(writes.begin(), writes.end(),
                     [](Batch& b) { return b.wait() && b.failed() == 0 && b[0].value == piece_bytes; });
}

/// Of the child. The answers are large: whatever lies between the two is full of them.
bool stop_among_reads(Client& client, Bytes data) {
  auto b = client.batch();
  b.write("stopped", "large", 0, data.first(reads + read_bytes));
  if (!b.run() || b.failed()) return false;
  b.clear();
  std::vector<std::byte> into(reads * read_bytes);
  for (unsigned k = 0; k < reads; ++k)
    b.read("stopped", "large", k, MutableBytes(into).subspan(k * read_bytes, read_bytes));
  if (!b.start()) return false;
  raise(SIGSTOP);
  if (!b.wait() || b.failed()) return false;
  for (unsigned k = 0; k < reads; ++k)
    if (std::memcmp(into.data() + k * read_bytes, data.data() + k, read_bytes) != 0) return false;
  return true;
}

void others_are_served_while(const std::string& transport, std::string provider,
                             std::initializer_list<const char*> stops) {
  const auto names = transport_names();
  if (std::find(names.begin(), names.end(), transport) == names.end()) {
    MESSAGE("this build has no libfabric");
    return;
  }
  if (provider == "net") provider = net_or_tcp();
  INFO(transport, " ", provider);
  Service service;
  auto other = service.client();
  std::deque<Stopped> stopped;
  for (const char* what : stops) stopped.emplace_back(service.servers[0]->address(), transport, provider, what);
  for (Stopped& client : stopped) REQUIRE(client.stopped());
  nap(0.1);  // what the server can still do for them, it does
  const double began_s = now_s(), before_s = cpu_of_others_s();
  int served = 0;
  while (now_s() - began_s < 0.5) {
    auto b = other.batch();
    b.put("other", "k", bytes_of("v"));
    b.get("other", "k");
    served += b.run() && b.failed() == 0;
    nap(5e-3);
  }
  const double wall_s = now_s() - began_s, used_s = cpu_of_others_s() - before_s;
  INFO("the server used ", used_s, " s of ", wall_s);
  CHECK(served > 0);
  CHECK(used_s < wall_s / 4);
  for (Stopped& client : stopped) client.go_on();
  for (Stopped& client : stopped) CHECK(client.ended_well());
}

}  // namespace

TEST_CASE("the child of a client that is stopped" * doctest::skip()) {
  const char* server = std::getenv("SONDE_TEST_STOP_SERVER");
  if (!server) return;
  Config config;
  config.servers = {server};
  config.auth = "none";
  config.transport = std::getenv("SONDE_TEST_STOP_TRANSPORT");
  config.link.provider = std::getenv("SONDE_TEST_STOP_PROVIDER");
  config.connections = 1;
  config.timeout_s = 120;
  int code = 11;
  {
    const auto data = noise(data_bytes, 21);
    auto client = Client::open(config);
    if (!client) _exit(12);
    if (std::strcmp(std::getenv("SONDE_TEST_STOP_WHAT"), "writes") == 0 ? stop_among_writes(*client, data)
                                                                        : stop_among_reads(*client, data))
      code = 0;
  }
  _exit(code);
}

TEST_CASE("clients stopped with all their receives used: the server sleeps, and serves others") {
  SUBCASE("tcp") { others_are_served_while("tcp", "", {"writes", "reads"}); }
  SUBCASE("ofi-rdm, shm") { others_are_served_while("ofi-rdm", "shm", {"writes", "reads"}); }
  SUBCASE("ofi-rma, shm") { others_are_served_while("ofi-rma", "shm", {"writes", "reads"}); }
  SUBCASE("ofi-msg, net") { others_are_served_while("ofi-msg", "net", {"writes", "reads"}); }
  SUBCASE("ofi-msg, tcp") { others_are_served_while("ofi-msg", "tcp", {"writes", "reads"}); }
}
