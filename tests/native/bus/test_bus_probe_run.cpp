#include <doctest/doctest.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "../claimed.hpp"
#include "bus/implementation.hpp"
#include "bus/probe/agent.hpp"
#include "bus/probe/options.hpp"
#include "core/deadline.hpp"

using namespace sonde;
using namespace sonde::bus;
using namespace sonde::bus::probe;

namespace {

std::string program() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "libexec/sonde-busprobe")
      .string();
}

struct Folder {
  std::string path;
  Folder() {
    path = (std::filesystem::temp_directory_path() / "sonde-busprobe-XXXXXX").string();
    REQUIRE(mkdtemp(path.data()));
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

/// The probe, its input and what it says.
class Probe {
 public:
  explicit Probe(std::vector<std::string> args) {
    static const std::uint32_t first = claimed::four_domains();
    args.insert(args.end(), {"--domains", std::to_string(first) + "-" + std::to_string(first + 3)});
    int in[2], out[2];
    REQUIRE(::pipe2(in, O_CLOEXEC) == 0);
    REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
    pid = ::fork();
    if (pid == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      std::string self = program();
      std::vector<char*> words{self.data()};
      for (auto& a : args) words.push_back(a.data());
      words.push_back(nullptr);
      ::execv(self.c_str(), words.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    in_ = in[1];
    out_ = out[0];
  }
  ~Probe() {
    if (!over_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    ::close(in_);
    ::close(out_);
  }
  void say(const std::string& line) {
    CHECK(::write(in_, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  }
  /// Until it says `text`; false: it ended, or took two minutes.
  bool wait_for(const std::string& text) {
    const Deadline deadline = Deadline::in_s(120);
    while (said.find(text) == std::string::npos && !deadline.passed())
      if (!read_some(deadline)) return said.find(text) != std::string::npos;
    return said.find(text) != std::string::npos;
  }
  int end() {
    const Deadline deadline = Deadline::in_s(240);
    while (read_some(deadline)) {}
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    over_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  bool says(const std::string& text) {
    if (said.find(text) != std::string::npos) return true;
    MESSAGE("said: ", said);
    return false;
  }
  std::string said;
  pid_t pid = -1;

 private:
  bool read_some(Deadline deadline) {
    pollfd fd{out_, POLLIN, 0};
    if (::poll(&fd, 1, deadline.left_ms()) <= 0) return false;
    char text[4096];
    const ssize_t n = ::read(out_, text, sizeof text);
    if (n > 0) said.append(text, static_cast<std::size_t>(n));
    return n > 0;
  }
  int in_ = -1, out_ = -1;
  bool over_ = false;
};

struct Recorded {
  std::string header;
  std::size_t length = 0;
  struct Series {
    std::vector<double> value, offset;
    std::set<std::uint32_t> epochs;
    int decided = -1;
  };
  std::map<std::tuple<std::uint32_t, std::uint32_t, Q>, Series> of;  ///< variant, case, quantity
  const Series& series(std::uint32_t variant, std::uint32_t what, Q q) { return of[{variant, what, q}]; }
};

Recorded read(const std::string& folder) {
  std::ifstream file(folder + "/rank-00000.blk", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(all.size() > 24);
  REQUIRE(all.substr(0, 8) == "SONDEBLK");
  std::uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, all.data() + 12, 4);
  Recorded r;
  r.header = all.substr(24, header_bytes);
  const auto at_length = r.header.find("\"record_length\":");
  REQUIRE(at_length != std::string::npos);
  r.length = std::stoul(r.header.substr(at_length + 16));
  for (std::size_t at = (std::size_t{24} + header_bytes + 7) / 8 * 8; at + 24 <= all.size();) {
    std::uint32_t records = 0;
    std::memcpy(&records, all.data() + at + 12, 4);
    at += 24;
    for (std::uint32_t k = 0; k < records; ++k, at += record_bytes(r.length)) {
      REQUIRE(at + record_bytes(r.length) <= all.size());
      RecordHead head;
      std::memcpy(&head, all.data() + at, sizeof head);
      auto& s = r.of[{head.variant, head.what, static_cast<Q>(head.quantity)}];
      if (head.kind == 1) {
        s.decided = static_cast<int>(head.code);
        continue;
      }
      REQUIRE(head.n <= r.length);
      const std::size_t old = s.value.size();
      s.value.resize(old + head.n);
      std::memcpy(s.value.data() + old, all.data() + at + sizeof head, head.n * sizeof(double));
      std::vector<float> offset(head.n);
      std::memcpy(offset.data(), all.data() + at + sizeof head + r.length * sizeof(double), head.n * sizeof(float));
      s.offset.insert(s.offset.end(), offset.begin(), offset.end());
      s.epochs.insert(head.epoch);
    }
  }
  return r;
}

bool all_positive(const std::vector<double>& values) {
  return !values.empty() && std::all_of(values.begin(), values.end(), [](double v) { return v > 0; });
}

std::uint32_t epoch_of(const std::string& said) {
  const auto at = said.rfind("\"epoch\":");
  return at == std::string::npos ? 0 : static_cast<std::uint32_t>(std::stoul(said.substr(at + 8)));
}

std::set<pid_t> children_of(pid_t parent) {
  std::set<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    const std::string stat{std::istreambuf_iterator<char>(file), {}};
    const auto bracket = stat.rfind(')');
    pid_t whose = 0;
    if (bracket != std::string::npos && std::sscanf(stat.c_str() + bracket + 1, " %*c %d", &whose) == 1 &&
        whose == parent)
      found.insert(std::stoi(name));
  }
  return found;
}

/// A DDS that this build has, else null: what is checked holds for each.
std::string some_bus() {
  for (const auto& name : implementation_names())
    if (name == "cyclonedds" || name == "fastdds") return name;
  return "null";
}

}  // namespace

TEST_CASE("bus probe run: every test gives every quantity of the bus and of the machine's limits in the same epochs") {
  const Folder folder;
  const std::vector<std::string> cases{"latency",
                                       "fanout:subscribers=3,processes=2",
                                       "throughput:subscribers=2",
                                       "partitions:treatment=wildcard,count=2",
                                       "discovery:entities=3,steady=100ms",
                                       "first:treatment=pause,pause=5ms",
                                       "calls:clients=2,calls=10"};
  std::vector<std::string> args{
      "run",       "--dir",          folder.path, "--variant", "bus=" + some_bus(), "--variant",    "shm=raw-shm",
      "--variant", "tcp=raw-tcp",    "--variant", "none=null", "--variant",         "absent=nodds", "--epochs",
      "2",         "--epoch-length", "10",        "--rule",    "fixed:15"};
  for (const auto& c : cases) args.insert(args.end(), {"--case", c});
  Probe probe(args);
  CHECK(probe.end() == 0);
  CHECK(probe.says("\"event\":\"end\""));
  CHECK(probe.says("bus.variant_absent"));
  CHECK(probe.says("bus.case_left_out"));
  CHECK(probe.said.find("bus.case_failed") == std::string::npos);
  if (probe.said.find("bus.case_failed") != std::string::npos) MESSAGE(probe.said);

  auto r = read(folder.path);
  CHECK(r.header.find("\"present\":[true,true,true,true,false]") != std::string::npos);
  CHECK(r.header.find("\"schema\":\"bus/1\"") != std::string::npos);
  for (std::uint32_t c = 0; c < cases.size(); ++c) {
    auto what = Case::parse(cases[c]);
    REQUIRE(what);
    for (std::uint32_t v : {0u, 1u, 2u, 3u}) {
      CAPTURE(cases[c]);
      CAPTURE(v);
      const bool limit = v == 1 || v == 2;
      const bool left_out =
          limit && (what->test == Test::partitions || what->test == Test::discovery || what->test == Test::calls);
      for (const Q q : what->gives()) {
        CAPTURE(std::string(quantities[static_cast<std::size_t>(q)].name));
        const auto& s = r.series(v, c, q);
        if (left_out) CHECK(s.value.empty());
        else if (q == Q::datagrams_unmatched) CHECK(s.value.empty());
        else if (q != Q::instructions && q != Q::make_instructions) CHECK(s.epochs.count(0) == 1);
        for (const double value : s.value) CHECK((std::isnan(value) || value >= 0));
      }
      if (left_out) continue;
      for (const Q q : what->deciding())
        if (q != Q::datagrams) CHECK(all_positive(r.series(v, c, q).value));
    }
  }
  // One sample a subscriber, a participant, a message.
  CHECK(r.series(0, 1, Q::lost).value.size() == 3 * r.series(0, 1, Q::lost).epochs.size());
  CHECK(r.series(0, 2, Q::message_rate).value.size() == 2 * r.series(0, 2, Q::message_rate).epochs.size());
  CHECK(r.series(0, 4, Q::make).value.size() == 3 * r.series(0, 4, Q::make).epochs.size());
  for (const double matched : r.series(0, 4, Q::matched).value) CHECK(matched == 1);
  for (const double sent : r.series(3, 4, Q::datagrams).value)
    CHECK(sent == 0);  // null sends none, in a namespace of its own
  for (const double lost : r.series(0, 6, Q::lost).value) CHECK(lost == 0);
  for (const double wrong : r.series(0, 6, Q::mismatched).value) CHECK(wrong == 0);
  const auto &one_way = r.series(0, 0, Q::one_way), &rtt = r.series(0, 0, Q::rtt);
  REQUIRE(one_way.value.size() == rtt.value.size());
  for (std::size_t k = 0; k < rtt.value.size(); ++k) CHECK(one_way.value[k] < rtt.value[k]);
  // fixed:15, of 20: fewer where ten round trips took longer than a burst may, as on a starved machine.
  CHECK((r.series(0, 0, Q::rtt).decided == 1) == (rtt.value.size() >= 15));
}

TEST_CASE("bus probe run: what is kept of many calls is of all the visit and not each client's first") {
  const Folder folder;
  Probe probe({"run", "--dir", folder.path, "--variant", "none=null", "--case",
               "calls:clients=20,calls=500,processes=1", "--epochs", "1", "--epoch-length", "20", "--rule",
               "fixed:20"});
  CHECK(probe.end() == 0);
  auto r = read(folder.path);
  const auto& rtt = r.series(0, 0, Q::rtt);
  REQUIRE(rtt.value.size() == 20);
  CHECK(std::is_sorted(rtt.offset.begin(), rtt.offset.end()));
  const double took_s = 20 * 500 / r.series(0, 0, Q::call_rate).value.at(0);
  CHECK(rtt.offset.back() > took_s / 10);  // the first call of each comes earlier, also where the end is held up
}

TEST_CASE("bus probe run: of several subscribers each one's way is told and the last is no shorter") {
  const Folder folder;
  Probe probe({"run", "--dir", folder.path, "--variant", "bus=" + some_bus(), "--case", "fanout:subscribers=3",
               "--epochs", "1", "--epoch-length", "30", "--burst-s", "5", "--rule", "fixed:30"});
  CHECK(probe.end() == 0);
  auto r = read(folder.path);
  const auto &one = r.series(0, 0, Q::one_way), &last = r.series(0, 0, Q::last), &first = r.series(0, 0, Q::first);
  REQUIRE(last.value.size() == 30);
  REQUIRE(one.value.size() == 30);  // of 90
  for (std::size_t k = 0; k < 30; ++k) {
    if (std::isnan(one.value[k]) || std::isnan(last.value[k])) continue;
    // One of three subscribers of the k-th message.
    CHECK(one.offset[k] == last.offset[k]);
    CHECK(one.value[k] >= first.value[k]);
    CHECK(one.value[k] <= last.value[k]);
  }
}

TEST_CASE("bus probe run: a program's first messages are told in their order and its first one alone as such") {
  const Folder folder;
  Probe probe({"run", "--dir", folder.path, "--variant", "shm=raw-shm", "--case", "first", "--case",
               "first:treatment=steady", "--epochs", "3", "--epoch-length", "12", "--burst-s", "5", "--rule",
               "fixed:3"});
  CHECK(probe.end() == 0);
  auto r = read(folder.path);
  const auto &rtt = r.series(0, 0, Q::rtt), &early = r.series(0, 0, Q::early);
  REQUIRE(rtt.value.size() == 3);
  REQUIRE(early.value.size() == 3 * 12);
  for (std::size_t k = 0; k < 3; ++k) CHECK(early.value[12 * k] == rtt.value[k]);
  for (const Q q : {Q::publish, Q::one_way, Q::page_faults, Q::lost}) CHECK(r.series(0, 0, q).value.size() == 3);
  CHECK(r.series(0, 1, Q::early).value.empty());
}

TEST_CASE("bus probe run: where programs have another machine's clock discovery takes as long as it does") {
  // A name space of its own for time is another clock, as another host has.
  const std::vector<std::string> elsewhere{"unshare", "--time", "--monotonic", "100000", "--fork", "--kill-child"};
  if (std::system("unshare --time --monotonic 100000 --fork --kill-child true 2>/dev/null") != 0) {
    MESSAGE("skipped: no name space for time here");
    return;
  }
  const Folder folder;
  std::vector<std::string> args{"run",
                                "--dir",
                                folder.path,
                                "--variant",
                                "bus=" + some_bus(),
                                "--case",
                                "discovery:entities=3,steady=0",
                                "--epochs",
                                "1",
                                "--rule",
                                "fixed:1",
                                "--host",
                                "localhost"};
  for (const auto& word : elsewhere) args.insert(args.end(), {"--start", word});
  Probe probe(args);
  CHECK(probe.end() == 0);
  CHECK(probe.said.find("bus.case_failed") == std::string::npos);
  auto r = read(folder.path);
  const auto& took = r.series(0, 0, Q::time_to_match);
  REQUIRE(took.value.size() == 1);
  CHECK(took.value[0] >= 0);
  CHECK(took.value[0] < 100);
}

TEST_CASE("bus probe run: a beginning far ahead is another machine's and is not waited for") {
  Agent agent("");
  const auto told = agent.answer(
      Talk("join").with("variant", "none=null").with("at_ns", now_ns() + std::int64_t{1'000'000} * 1'000'000'000));
  const auto error = told.error();
  REQUIRE(error);
  CHECK(error->code == "bus.internal");
  CHECK(error->what.find("told to begin") != std::string::npos);
}

TEST_CASE("bus probe run: what a profile says is recorded and what stays on a host is not measured between hosts") {
  const auto fastdds = find_implementation("fastdds");
  if (!fastdds || !*fastdds) {
    MESSAGE("skipped: no Fast DDS in this build");
    return;
  }
  const Folder folder;
  const std::string domain = std::to_string(claimed::domain());
  const auto profile = [&](const std::string& name, const std::string& what) {
    return "<profile name=\"" + name + "\" domain=\"" + domain + "\" unprotected=\"yes\">" + what + "</profile>";
  };
  std::ofstream(folder.path + "/bus.xml")
      << "<sonde-bus version=\"1\">" + profile("shm", "<transport kind=\"shared-memory\"/>") +
             profile("many",
                     "<transport kind=\"udp4\" multicast=\"all\"/><discovery kind=\"peers\" peers=\"127.0.0.1:4\"/>") +
             "</sonde-bus>";
  const std::string at = "fastdds,profile=" + folder.path + "/bus.xml#";
  std::vector<std::string> args{
      "run",       "--dir",     folder.path, "--variant", "mine=" + at + "shm", "--variant", "ours=" + at + "many",
      "--variant", "none=null", "--case",    "latency",   "--epochs",           "1",         "--epoch-length",
      "5",         "--rule",    "fixed:5"};
  Probe within(args);
  CHECK(within.end() == 0);
  auto r = read(folder.path);
  CHECK(
      r.header.find(
          R"("transports":["shared-memory","udp4-multicast","in-process"],"discoveries":["simple","peers","simple"])") !=
      std::string::npos);
  CHECK(all_positive(r.series(0, 0, Q::rtt).value));

  args.insert(args.end(), {"--host", "localhost", "--host", "127.0.0.1", "--start", "env", "--variant", "udp=raw-udp"});
  const Folder other;
  args[2] = other.path;
  Probe between(args);
  CHECK(between.end() == 0);
  CHECK(between.says("mine, latency: not measured, shared memory does not leave a host"));
  CHECK(read(other.path).series(0, 0, Q::rtt).value.empty());
}

TEST_CASE("bus probe run: two names of this machine are hosts that reach each other by its loopback") {
  const Folder folder;
  Probe probe({"run",         "--dir",       folder.path, "--variant",   "bus=" + some_bus(),
               "--variant",   "udp=raw-udp", "--variant", "tcp=raw-tcp", "--variant",
               "shm=raw-shm", "--case",      "latency",   "--case",      "throughput",
               "--case",      "fanout",      "--epochs",  "2",           "--epoch-length",
               "10",          "--rule",      "fixed:15",  "--host",      "localhost",
               "--host",      "127.0.0.1",   "--start",   "env"});
  CHECK(probe.end() == 0);
  CHECK(probe.says("\"address\":\"127.0.0.1\""));
  CHECK(probe.says("shared memory does not leave a host"));
  CHECK(probe.said.find("bus.case_failed") == std::string::npos);
  auto r = read(folder.path);
  for (const std::uint32_t v : {1u, 2u, some_bus() == "null" ? 1u : 0u}) {
    CHECK(all_positive(r.series(v, 0, Q::rtt).value));
    CHECK(r.series(v, 0, Q::one_way).value.empty());  // clocks of two hosts
    CHECK(all_positive(r.series(v, 1, Q::message_rate).value));
    CHECK(r.series(v, 2, Q::last).value.empty());
  }
  CHECK(r.series(3, 0, Q::rtt).value.empty());

  Probe unknown({"run", "--dir", folder.path, "--variant", "udp=raw-udp", "--case", "latency", "--host", "localhost",
                 "--host", "no-such-host.invalid"});
  CHECK(unknown.end() == 3);
  CHECK(unknown.says("on the host localhost: the host 'no-such-host.invalid'"));
  Probe absent({"run", "--dir", folder.path, "--variant", "udp=raw-udp", "--case", "latency", "--host", "localhost",
                "--host", "127.0.0.1", "--start", "/nonexistent/launcher"});
  CHECK(absent.end() == 3);
  CHECK(absent.says("on the host 127.0.0.1"));
}

TEST_CASE(
    "bus probe run: discovery of a star needs fewer datagrams by peers and by a server than by announcing to all, in "
    "the same shape") {
  const std::string bus = some_bus();
  if (bus == "null") {
    MESSAGE("skipped: no DDS in this build");
    return;
  }
  std::vector<std::string> args{
      "run",      "--dir", "",       "--variant", "simple=" + bus, "--variant", "peers=" + bus + ",discovery=peers",
      "--epochs", "2",     "--rule", "fixed:2"};
  if (const auto fastdds = find_implementation("fastdds"); fastdds && *fastdds)
    args.insert(args.end(), {"--variant", "own=fastdds", "--variant", "server=fastdds,discovery=server"});
  args.insert(args.end(), {"--case", "discovery:entities=16,steady=0"});
  const Folder folder;
  args[2] = folder.path;
  Probe probe(args);
  CHECK(probe.end() == 0);
  auto r = read(folder.path);
  const auto sent = [&](std::uint32_t variant) {
    for (const double share : r.series(variant, 0, Q::matched).value) CHECK(share == 1);
    const auto& all = r.series(variant, 0, Q::datagrams).value;
    REQUIRE(all.size() == 2);
    return *std::max_element(all.begin(), all.end());
  };
  if (probe.said.find("bus.whole_host") != std::string::npos) {
    MESSAGE("not counted: no network namespace here");
    return;
  }
  // Measured are a tenth and a third: each meets one, instead of all.
  CHECK(sent(1) * 2 < sent(0));
  if (args.size() > 16) CHECK(sent(3) * 3 < sent(2) * 2);
}

TEST_CASE(
    "bus probe run: participants whose time is over before all have met are told by share, also where the budget is "
    "over first") {
  const std::string bus = some_bus();
  if (bus == "null") {
    MESSAGE("skipped: no DDS in this build");
    return;
  }
  const Folder folder;
  const std::string domain = std::to_string(claimed::domain());
  // All name the first: it meets all, and they do not meet each other.
  std::ofstream(folder.path + "/hub.xml") << "<sonde-bus version=\"1\"><profile name=\"hub\" domain=\"" << domain
                                          << "\"><discovery kind=\"peers\" peers=\"127.0.0.1\"/></profile></sonde-bus>";
  Probe probe({"run", "--dir", folder.path, "--variant", "hub=" + bus + ",profile=" + folder.path + "/hub.xml",
               "--case", "discovery:entities=4,treatment=all,within=1min", "--budget-s", "1"});
  CHECK(probe.end() == 0);
  CHECK(probe.says("bus.not_matched"));
  CHECK(probe.said.find("bus.case_failed") == std::string::npos);
  auto r = read(folder.path);
  REQUIRE(r.series(0, 0, Q::matched).value.size() == 1);
  const double share = r.series(0, 0, Q::matched).value[0];
  CHECK(share > 0.4);  // each matches itself and the first: 10 pairs of 16
  CHECK(share < 1);
  REQUIRE(r.series(0, 0, Q::datagrams).value.size() == 1);
  CHECK(std::isnan(r.series(0, 0, Q::datagrams).value[0]));
  CHECK(std::isnan(r.series(0, 0, Q::time_to_match).value[0]));
  REQUIRE(r.series(0, 0, Q::datagrams_unmatched).value.size() == 1);
  CHECK(r.series(0, 0, Q::datagrams_unmatched).value[0] > 0);
}

TEST_CASE("bus probe run: what is lost is told beside the rate also when nearly all is") {
  const Folder folder;
  // A socket that holds a few messages, and a writer that nothing slows down.
  Probe probe({"run", "--dir", folder.path, "--variant", "udp=raw-udp,receive-buffer=4KiB", "--case",
               "throughput:size=2KiB", "--epochs", "3", "--burst-s", "0.1"});
  CHECK(probe.end() == 0);
  auto r = read(folder.path);
  const auto &lost = r.series(0, 0, Q::lost).value, &rate = r.series(0, 0, Q::message_rate).value,
             &sent = r.series(0, 0, Q::publish_rate).value, &full = r.series(0, 0, Q::overflowed).value;
  REQUIRE(lost.size() == 3);
  REQUIRE(rate.size() == 3);
  for (std::size_t k = 0; k < 3; ++k) {
    CHECK(lost[k] > 0);
    CHECK(lost[k] <= 1);
    CHECK(rate[k] < sent[k]);
    CHECK(full[k] > 0);
  }
}

TEST_CASE("bus probe run: it stops when told and keeps what it has") {
  const Folder folder;
  Probe probe({"run", "--dir", folder.path, "--variant", "shm=raw-shm", "--case", "latency", "--rule", "fixed:100000",
               "--cap", "100000"});
  REQUIRE(probe.wait_for("\"progress\""));
  probe.say("stop\n");
  CHECK(probe.end() == 0);
  CHECK(probe.says("\"stop_reason\":\"interrupted\""));
  CHECK(all_positive(read(folder.path).series(0, 0, Q::rtt).value));
}

TEST_CASE("bus probe run: a killed probe leaves no program behind and a file that can be read") {
  const Folder folder;
  std::set<pid_t> started;
  {
    Probe probe({"run", "--dir", folder.path, "--variant", "bus=" + some_bus(), "--variant", "udp=raw-udp", "--case",
                 "latency", "--case", "fanout:subscribers=2", "--rule", "fixed:100000"});
    REQUIRE(probe.wait_for("\"epoch\":1"));
    started = children_of(probe.pid);
    CHECK(started.size() >= 4);
  }  // SIGKILL
  const Deadline deadline = Deadline::in_s(60);
  const auto lives = [](pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
    const std::string words{std::istreambuf_iterator<char>(file), {}};
    return words.find("sonde-busprobe") != std::string::npos;
  };
  while (std::any_of(started.begin(), started.end(), lives) && !deadline.passed()) ::usleep(20000);
  for (const pid_t pid : started) CHECK_FALSE(lives(pid));
  CHECK(read(folder.path).header.find("\"latency\"") != std::string::npos);
}

TEST_CASE("bus probe run: a program that dies is told and made anew and does not end the others") {
  const Folder folder;
  Probe probe({"run", "--dir", folder.path, "--variant", "a=raw-shm", "--case", "latency", "--rule", "fixed:100000",
               "--cap", "100000"});
  REQUIRE(probe.wait_for("\"epoch\":1"));
  const auto programs = children_of(probe.pid);
  REQUIRE(programs.size() == 2);
  ::kill(*programs.begin(), SIGKILL);
  CHECK(probe.wait_for("bus.case_failed"));
  probe.said.clear();
  CHECK(probe.wait_for("\"progress\""));
  const std::uint32_t then = epoch_of(probe.said);
  CHECK(then > 0);
  probe.say("stop\n");
  CHECK(probe.end() == 0);
  auto r = read(folder.path);
  const auto& epochs = r.series(0, 0, Q::rtt).epochs;
  CHECK(epochs.size() >= 2);
  CHECK(*epochs.rbegin() >= then);
}

TEST_CASE("bus probe run: what is not understood is an error that says so") {
  Probe bad({"run", "--dir", "/nonexistent", "--variant", "a=null", "--case", "latncy"});
  CHECK(bad.end() == 2);
  CHECK(bad.says("\"code\":\"bus.bad_case\""));
  CHECK(bad.says("latency"));
  Probe nowhere({"run", "--dir", "/nonexistent", "--variant", "a=raw-shm", "--case", "latency"});
  CHECK(nowhere.end() == 3);
  CHECK(nowhere.says("core.cannot_write"));
  Probe none({"run", "--dir", "/tmp", "--variant", "a=nodds", "--case", "latency"});
  CHECK(none.end() == 3);
  CHECK(none.says("bus.nothing_to_measure"));
  Probe verb({"measure"});
  CHECK(verb.end() == 2);
  CHECK(verb.says("bus.bad_option"));
  Probe check({"check", "--variant", "a=null", "--variant", "b=raw-udp", "--case", "discovery:entities=5"});
  CHECK(check.end() == 0);
  CHECK(check.says("\"entities\":5"));
  CHECK(check.says("\"name\":\"b\""));
}
