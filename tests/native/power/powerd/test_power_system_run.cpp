// System managers as processes, over Cyclone DDS on loopback, with nodes that have no hardware but a lease each. The
// caps of all nodes are added up every few milliseconds, whatever happens meanwhile.
#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "../../claimed.hpp"
#include "bus/typed.hpp"
#include "core/clock.hpp"
#include "power/messages.hpp"
#include "power/powerd/audit.hpp"
#include "power/powerd/kept.hpp"
#include "power/powerd/wiring.hpp"

extern char** environ;

using namespace sonde;
using namespace sonde::power;

namespace {

struct Folder {
  std::string path;
  Folder() {
    std::string form = (std::filesystem::temp_directory_path() / "sonde-power-XXXXXX").string();
    REQUIRE(::mkdtemp(form.data()));
    path = form;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path + "/" + name) << text;
    return path + "/" + name;
  }
  std::string read(const std::string& name) const {
    std::stringstream out;
    out << std::ifstream(path + "/" + name).rdbuf();
    return out.str();
  }
};

/// sonde-powerd, which ends with its standard input.
class Daemon {
 public:
  explicit Daemon(const std::vector<std::string>& words) {
    int in[2], out[2];
    REQUIRE(::pipe2(in, O_CLOEXEC) == 0);
    REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::vector<char*> argv{const_cast<char*>(SONDE_TEST_POWERD)};
    for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(const_cast<char*>("--with-parent"));
    argv.push_back(nullptr);
    REQUIRE(::posix_spawn(&pid_, SONDE_TEST_POWERD, &actions, nullptr, argv.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]), ::close(out[1]);
    in_ = in[1], out_ = out[0];
  }
  ~Daemon() {
    if (pid_ > 0) kill();
    ::close(out_);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// The next event with this in it, or empty after a minute: long, for others may use the machine.
  std::string event(const std::string& part) {
    const Deadline until = Deadline::in_s(60);
    for (;;) {
      for (auto end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
        const std::string line = text_.substr(0, end);
        text_.erase(0, end + 1);
        if (line.find(part) != std::string::npos) return line;
      }
      pollfd ready{out_, POLLIN, 0};
      if (until.passed() || ::poll(&ready, 1, until.left_ms()) <= 0) return {};
      char bytes[4096];
      const ssize_t n = ::read(out_, bytes, sizeof bytes);
      if (n <= 0) return {};
      text_.append(bytes, static_cast<std::size_t>(n));
    }
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    wait();
  }
  int end() {
    ::close(in_);
    in_ = -1;
    return wait();
  }

 private:
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    if (in_ >= 0) ::close(in_), in_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string text_;
};

std::int64_t boot_ns() {
  timespec t;
  clock_gettime(CLOCK_BOOTTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// A node manager without hardware: what its lease says is what it has.
class StandIn {
 public:
  StandIn(const bus::Profile& profile, const std::string& name, std::uint64_t instance)
      : name_(name), keeper_({50, 400, 100, 600}, instance) {
    auto opened = bus::Bus::open(profile);
    REQUIRE(opened);
    bus_ = *opened;
    bus::ServerOptions options;
    options.name = name;
    auto get = bus::Server::open(bus_, topic::node_get, bus::service_types<NodeQuery, NodeAnswer>(),
                                 bus::handler<NodeQuery, NodeAnswer>(
                                     [this](const bus::Incoming&, const NodeQuery&) { return answer(Refusal::none); }),
                                 options);
    REQUIRE(get);
    get_ = std::move(*get);
    auto set =
        bus::Server::open(bus_, topic::node_set, bus::service_types<NodeCommand, NodeAnswer>(),
                          bus::handler<NodeCommand, NodeAnswer>([this](const bus::Incoming&, const NodeCommand& c) {
                            const std::lock_guard lock(mutex_);
                            return answered(c.order == NodeOrder::FENCE_NODE ? keeper_.fence({c.epoch, c.manager})
                                                                             : keeper_.offer(c.grant(), boot_ns()));
                          }),
                          options);
    REQUIRE(set);
    set_ = std::move(*set);
  }
  double cap_w() {
    const std::lock_guard lock(mutex_);
    return keeper_.cap_w(boot_ns());
  }
  Fence seen() {
    const std::lock_guard lock(mutex_);
    return keeper_.seen();
  }
  void deaf() { get_.reset(), set_.reset(); }

 private:
  bus::AnswerOf<NodeAnswer> answer(Refusal refusal) {
    const std::lock_guard lock(mutex_);
    return answered(refusal);
  }
  bus::AnswerOf<NodeAnswer> answered(Refusal refusal) {
    bus::AnswerOf<NodeAnswer> out;
    if (refusal != Refusal::none) {
      out.code = static_cast<bus::ReplyCode>(999 + static_cast<std::uint32_t>(refusal));
      out.message = name_of(refusal);
      return out;
    }
    const std::int64_t now = boot_ns();
    Report report{keeper_.ticket(now),
                  keeper_.seen(),
                  keeper_.sequence(),
                  keeper_.leased(now),
                  keeper_.leased(now) ? static_cast<double>(keeper_.ends_ns() - now) / 1e9 : 0,
                  keeper_.cap_w(now),
                  keeper_.cap_w(now)};
    out.body.node = name_;
    out.body.power_w = keeper_.cap_w(now) * 0.9;
    out.body.lease = LeaseState::of(report);
    return out;
  }

  std::string name_;
  std::mutex mutex_;
  LeaseKeeper keeper_;
  std::shared_ptr<bus::Bus> bus_;
  std::unique_ptr<bus::Server> get_, set_;
};

std::string http_get(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET, to.sin_port = htons(static_cast<std::uint16_t>(port)),
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  const std::string ask =
      "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n";
  REQUIRE(::write(fd, ask.data(), ask.size()) == static_cast<ssize_t>(ask.size()));
  std::string out;
  char bytes[4096];
  for (ssize_t n; (n = ::read(fd, bytes, sizeof bytes)) > 0;) out.append(bytes, static_cast<std::size_t>(n));
  ::close(fd);
  return out;
}

bool becomes(const std::function<bool()>& what) {
  for (const Deadline until = Deadline::in_s(60); !until.passed(); ::usleep(10'000))
    if (what()) return true;
  return false;
}

}  // namespace

TEST_CASE(
    "two system managers as processes: a budget, a shed, a kill -9 and a takeover, and the sum of caps within the "
    "budget all the time") {
  const Folder folder;
  const auto domain = claimed::domain();
  folder.write("bus.xml", "<sonde-bus version=\"1\"><profile name=\"default\" domain=\"" + std::to_string(domain) +
                              "\"/></sonde-bus>");
  constexpr double lease_s = 2;
  const auto config = [&](const std::string& name, const char* takeover) {
    return folder.write(
        name + ".toml",
        "cluster = \"t\"\n[bus]\nprofile = \"" + folder.path +
            "/bus.xml\"\n[budget]\npower_limit = \"800W\"\nlease = \"2s\"\nrenew = \"700ms\"\nperiod = \"500ms\"\n"
            "[[nodes]]\nhosts = \"n[1-4]\"\nmin = \"50W\"\nmax = \"400W\"\nsafe = \"100W\"\n[system-manager]\nname = "
            "\"" +
            name + "\"\nstate = \"" + folder.path + "/state\"\naudit = \"" + folder.path + "/" + name +
            ".jsonl\"\ntakeover = \"" + takeover + "\"\nmetrics = \"127.0.0.1:0\"\n");
  };
  const std::string first_config = config("m1", "1500ms"), second_config = config("m2", "3s");
  auto profile = bus::load_profile(folder.path + "/bus.xml");
  REQUIRE(profile);
  std::vector<std::unique_ptr<StandIn>> nodes;
  for (std::uint64_t k = 1; k <= 4; ++k)
    nodes.push_back(std::make_unique<StandIn>(*profile, "n" + std::to_string(k), k));

  std::atomic<double> allowed_w = 800, most_w = 0, over_w = 0;
  std::atomic<bool> ending = false;
  const auto caps = [&] {
    std::array<double, 4> out{};
    for (std::size_t k = 0; k < 4; ++k) out[k] = nodes[k]->cap_w();
    return out;
  };
  const auto sum = [&] {
    const auto all = caps();
    return std::accumulate(all.begin(), all.end(), 0.0);
  };
  struct Joined {
    std::atomic<bool>& ending;
    std::thread thread;
    ~Joined() {
      ending = true;
      thread.join();
    }
  } sampler{ending, std::thread([&] {
              while (!ending) {
                // One after the other, twice: only what did not change meanwhile was so at one time.
                const double allowed = allowed_w;
                const auto before = caps(), after = caps();
                if (before == after) {
                  const double now = std::accumulate(after.begin(), after.end(), 0.0);
                  most_w = std::max(most_w.load(), now);
                  if (now > allowed + 1e-6) over_w = std::max(over_w.load(), now - allowed);
                }
                ::usleep(3000);
              }
            })};

  auto opened = bus::Bus::open(*profile);
  REQUIRE(opened);
  auto get = bus::Client::open(*opened, topic::system_get, bus::service_types<SystemQuery, SystemAnswer>());
  auto set = bus::Client::open(*opened, topic::system_set, bus::service_types<SystemCommand, SystemAnswer>());
  REQUIRE(get);
  REQUIRE(set);
  const auto ask = [&](const std::string& target) {
    return bus::call<SystemAnswer>(**get, SystemQuery{SystemAsk::GET_POWER}, {target, 60, 0.5});
  };
  const auto order = [&](const SystemCommand& c, const std::string& target = "active") {
    auto answer = bus::call<SystemAnswer>(**set, c, {target, 60, 0.5});
    REQUIRE(answer);
    return *answer;
  };

  auto first = std::make_unique<Daemon>(std::vector<std::string>{"system-manager", "--config", first_config});
  const std::string ready = first->event("\"ready\"");
  REQUIRE(ready.find("\"manager\":\"m1\"") != std::string::npos);
  REQUIRE(!first->event("\"leading\"").empty());
  auto second = std::make_unique<Daemon>(std::vector<std::string>{"system-manager", "--config", second_config});
  REQUIRE(!second->event("\"following\"").empty());
  REQUIRE(becomes([&] { return sum() > 799; }));
  REQUIRE(becomes([&] { return most_w > 799; }));  // the sampler runs, and reads what is so

  auto told = ask("active");
  REQUIRE(told);
  CHECK((*told).body.cluster.manager == "m1");
  CHECK((*told).body.cluster.state == "active");
  CHECK((*told).body.nodes.size() == 4);
  told = ask("m2");
  REQUIRE(told);
  CHECK((*told).body.cluster.state == "standby");

  // Orders.
  SystemCommand c;
  c.budget_w = 399;
  auto answer = order(c);
  CHECK(static_cast<PowerCode>(answer.code) == PowerCode::budget_too_small);
  CHECK(answer.message.find("400 W") != std::string::npos);
  c.budget_w = 600;
  CHECK(static_cast<PowerCode>(order(c, "m2").code) == PowerCode::not_active);
  c.wait_s = 50, c.reason = "a test", c.user = "ada";
  answer = order(c);
  CHECK(answer.code == bus::ReplyCode::ok);
  CHECK(answer.message == "");  // the standby has it on its disk
  CHECK(answer.body.comply_s >= 0);
  allowed_w = 600;  // from when it is answered
  CHECK(folder.read("state/system-manager-m2.state").find("budget_w 600\n") != std::string::npos);
  c = {};
  c.order = SystemOrder::SHED, c.share = 0.25, c.for_s = 2, c.wait_s = 50;
  answer = order(c);
  CHECK(answer.code == bus::ReplyCode::ok);
  CHECK(answer.body.cluster.budget_w == 450);
  CHECK(!first->event("\"shed_over\"").empty());
  REQUIRE(becomes([&] { return sum() > 599; }));
  const int port = std::stoi(ready.substr(ready.find("metrics_port\":") + 14));
  REQUIRE(becomes([&] { return http_get(port).find("\nsonde_power_budget_watts 600\n") != std::string::npos; }));
  CHECK(http_get(port).find("\nsonde_power_leading 1\n") != std::string::npos);

  // Killed.
  first->kill();
  const std::int64_t killed = boot_ns();
  ::usleep(static_cast<useconds_t>((lease_s + 1) * 1e6));
  for (auto& n : nodes) CHECK((n->cap_w() == 100 || n->seen().manager.starts_with("m2#")));
  REQUIRE(!second->event("\"leading\"").empty());
  INFO("takeover seen after ", static_cast<double>(boot_ns() - killed) / 1e9, " s");
  REQUIRE(becomes([&] { return sum() > 599; }));
  CHECK(nodes[0]->seen().epoch == 2);
  told = ask("active");
  REQUIRE(told);
  CHECK((*told).body.cluster.manager == "m2");
  CHECK((*told).body.cluster.budget_w == 600);

  // It comes back and stands by, and leads again when the other ends in order; with the budget that was set. Its audit
  // log cannot be written now: it is a link, which is not followed.
  const std::string before = folder.read("m1.jsonl");
  std::filesystem::remove(folder.path + "/m1.jsonl");
  std::filesystem::create_symlink("/dev/full", folder.path + "/m1.jsonl");
  first = std::make_unique<Daemon>(std::vector<std::string>{"system-manager", "--config", first_config});
  CHECK(!first->event("\"audit_trouble\"").empty());
  REQUIRE(!first->event("\"following\"").empty());
  CHECK(second->end() == 0);
  REQUIRE(!first->event("\"leading\"").empty());
  REQUIRE(becomes([&] { return nodes[0]->seen().epoch == 3 && sum() > 599; }));
  c = {};
  c.budget_w = 601;
  answer = order(c);
  CHECK(answer.code == bus::ReplyCode::failed);
  CHECK(answer.message.find("is a link") != std::string::npos);
  c.budget_w = 598;
  CHECK(order(c).code == bus::ReplyCode::ok);
  // A node that answers no more holds up nobody.
  nodes[3]->deaf();
  REQUIRE(becomes([&] { return nodes[3]->cap_w() == 100 && nodes[0]->cap_w() > 160; }));

  CHECK(first->end() == 0);
  CHECK(over_w == 0);

  const std::string& audit = before;
  for (const char* part : {"\"what\":\"takeover\"", "\"what\":\"SET_POWER\"", "\"from_w\":800,\"to_w\":600",
                           "\"reason\":\"a test\",\"result\":\"ok\"", "\"user_by_own_word\":\"ada\"",
                           "\"result\":\"refused\",\"code\":1009", "\"what\":\"SHED\"", "\"what\":\"shed_over\"",
                           "\"what\":\"complied\"", "\"what\":\"cap\""})
    CHECK_MESSAGE(audit.find(part) != std::string::npos, part);
  CHECK(audit.find("\"client\":\"" + (*opened)->guid().text().substr(0, 24)) != std::string::npos);
  const std::string other = folder.read("m2.jsonl");
  CHECK(other.find("\"epoch\":2,\"what\":\"takeover\",\"after\":\"m1\"") != std::string::npos);
  CHECK(other.find("\"what\":\"stepped_back\",\"why\":\"it ends\"") != std::string::npos);
}

TEST_CASE("a system manager that cannot be one says why, and ends with 2 or 3") {
  const Folder folder;
  folder.write("bus.xml", "<sonde-bus version=\"1\"><profile name=\"default\" domain=\"" +
                              std::to_string(claimed::domain()) + "\"/></sonde-bus>");
  const auto run = [&](const std::string& more, const std::string& code) {
    const std::string path =
        folder.write("c.toml", "cluster = \"t\"\n[bus]\nprofile = \"" + folder.path +
                                   "/bus.xml\"\n[budget]\npower_limit = \"800W\"\n[[nodes]]\nhosts = \"n[1-4]\"\nmin = "
                                   "\"50W\"\nmax = \"400W\"\nsafe = \"100W\"\nrack = \"r\"\n" +
                                   more);
    Daemon daemon({"system-manager", "--config", path});
    CHECK(daemon.event("\"event\":\"error\"").find("\"code\":\"" + code + "\"") != std::string::npos);
    return daemon.end();
  };
  const std::string own = "[system-manager]\nname = \"m1\"\nstate = \"" + folder.path + "/state\"\naudit = \"" +
                          folder.path + "/a.jsonl\"\n";
  CHECK(run(own + "[racks.r]\npower_limit = \"399W\"\n", "power.safe_above_rack") == 2);
  CHECK(run("[system-manager]\nname = \"active\"\nstate = \"" + folder.path + "/state\"\n", "power.bad_value") == 2);
  std::filesystem::create_directories(folder.path + "/state");
  std::ofstream(kept_path(folder.path + "/state", "m1")) << "sonde-system-manager 1\nepoch 3\n";
  CHECK(run(own, "power.state") == 3);
}

TEST_CASE("what a system manager cannot have kept is damage, whatever its checksum says") {
  const Folder folder;
  const std::string path = kept_path(folder.path, "m1");
  const auto taken = [&](const std::string& budget, const std::string& shed, const std::string& ends,
                         const std::string& lease, const std::string& more = "") {
    const std::string text = "sonde-system-manager 1\nepoch 7\nbudget_version 9\nbudget_w " + budget +
                             "\nconfigured_w 800\nshed_w " + shed + "\nshed_ends_ns " + ends + "\nlease_s " + lease +
                             "\n" + more;
    std::uint64_t sum = 0xcbf29ce484222325ull;
    for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    std::ofstream(path) << text << "sum " << sum << '\n';
    const auto loaded = load_kept(path, 1'800'000'000'000'000'000);
    if (!loaded) CHECK(loaded.error().code == "power.state");
    return bool(loaded);
  };
  CHECK(taken("800", "nan", "0", "0"));
  CHECK(taken("nan", "600", "1800000050000000000", "60.5"));
  for (const char* wrong : {"-1", "inf", "-inf"}) {
    CHECK_FALSE(taken(wrong, "nan", "0", "0"));
    CHECK_FALSE(taken("800", wrong, "0", "0"));
    CHECK_FALSE(taken("800", "nan", "0", wrong));
  }
  CHECK_FALSE(taken("800", "nan", "0", "nan"));
  CHECK_FALSE(taken("800", "nan", "0", "1e300"));
  for (const char* wrong : {"-9223372036854775808", "9223372036854775807", "-1"})
    CHECK_FALSE(taken("800", "600", wrong, "0"));
  CHECK_FALSE(taken("800", "nan", "0", "0", std::string(5000, ' ')));
}

TEST_CASE("what a system manager keeps is there again, or it says that it is damaged") {
  const Folder folder;
  const std::string path = kept_path(folder.path + "/deep/er", "m/1");
  CHECK(path.ends_with("/system-manager-m_1.state"));
  auto none = load_kept(path, 0);
  REQUIRE(none);
  CHECK(!(*none).has_value());
  Kept kept;
  kept.epoch = 7, kept.budget_version = 9, kept.budget_w = 812.25, kept.configured_w = 1000, kept.shed_w = 600.1,
  kept.shed_left_s = 50, kept.lease_s = 60.5;
  REQUIRE(save(path, kept, 1'000'000'000'000));
  auto again = load_kept(path, 1'020'000'000'000);
  REQUIRE(again);
  REQUIRE((*again).has_value());
  const Kept& k = **again;
  CHECK(k.epoch == 7);
  CHECK(k.budget_version == 9);
  CHECK(k.budget_w == 812.25);
  CHECK(k.configured_w == 1000);
  CHECK(k.shed_w == 600.1);
  CHECK(k.shed_left_s == doctest::Approx(30));
  CHECK(k.lease_s == 60.5);
  // Of before leases were kept: as such a version wrote it.
  std::ofstream(path) << "sonde-system-manager 1\nepoch 3\nbudget_version 5\nbudget_w 800\nconfigured_w 1000\nshed_w "
                         "nan\nshed_ends_ns 0\nsum 11929192651325873968\n";
  again = load_kept(path, 0);
  REQUIRE(again);
  CHECK((**again).budget_w == 800);
  CHECK((**again).lease_s == 0);
  REQUIRE(save(path, kept, 1'000'000'000'000));
  again = load_kept(path, 1'060'000'000'000);
  REQUIRE(again);
  CHECK(std::isnan((**again).shed_w));
  for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(path).parent_path()))
    CHECK(file.path().extension() != ".part");
  std::string text;
  {
    std::stringstream whole;
    whole << std::ifstream(path).rdbuf();
    text = whole.str();
  }
  for (std::size_t cut : {std::size_t{0}, text.size() / 2, text.size() - 2}) {
    std::ofstream(path) << text.substr(0, cut);
    const auto bad = load_kept(path, 0);
    REQUIRE(!bad);
    CHECK(bad.error().code == "power.state");
  }
  text[text.find("812")] = '9';
  std::ofstream(path) << text;
  CHECK(!load_kept(path, 0));
  CHECK(save("/proc/none/state", kept, 0).error().code == "power.state");
}

TEST_CASE(
    "the audit log: whole lines, a new file when it is large, and a full disk that says later how much is missing") {
  const Folder folder;
  const std::string path = folder.path + "/logs/a.jsonl";
  {
    Audit audit(path, 400);
    CHECK(audit.works());
    for (int k = 0; k < 10; ++k) CHECK(audit.write(JsonLine().add("what", "x").add("k", k), k % 2));
  }
  std::string now = folder.read("logs/a.jsonl"), before = folder.read("logs/a.jsonl.1");
  CHECK(now.size() <= 400);
  CHECK(before.size() <= 400);
  CHECK(now.find("\"k\":9}\n") != std::string::npos);
  CHECK(before.starts_with("{\"at\":\"20"));
  // What a crash left half is ended.
  std::ofstream(path, std::ios::app) << "{\"at\":\"half";
  {
    Audit audit(path, 4000);
    CHECK(audit.write(JsonLine().add("what", "y"), true));
  }
  CHECK(folder.read("logs/a.jsonl").find("half\n{\"at\"") != std::string::npos);
  // A disk without room, and with room again.
  Audit full(folder.path + "/full", 4000);
  rlimit before_limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_limit) == 0);
  const auto on_limit = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit no_room{0, before_limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &no_room) == 0);
  for (int k = 0; k < 3; ++k) {
    const auto written = full.write(JsonLine().add("what", "z"), true);
    REQUIRE(!written);
    CHECK(written.error().code == "power.audit");
  }
  ::setrlimit(RLIMIT_FSIZE, &before_limit);
  std::signal(SIGXFSZ, on_limit);
  CHECK(!full.works());
  CHECK(full.lost() == 3);
  Audit nowhere("/proc/none/a.jsonl", 4000);
  CHECK(!nowhere.works());
  CHECK(!nowhere.write(JsonLine().add("what", "z"), true));
  CHECK(rfc3339(1'795'000'000'123'456'789) == "2026-11-18T11:06:40.123Z");
}

TEST_CASE("the audit log: no link leads it to another file") {
  const Folder folder;
  folder.write("precious", "root's own\n");
  std::filesystem::create_symlink(folder.path + "/precious", folder.path + "/a.jsonl");
  std::filesystem::create_hard_link(folder.path + "/precious", folder.path + "/b.jsonl");
  for (const char* name : {"/a.jsonl", "/b.jsonl"}) {
    Audit audit(folder.path + name, 4000);
    CHECK(!audit.works());
    const auto written = audit.write(JsonLine().add("what", "x"), true);
    REQUIRE(!written);
    CHECK(written.error().code == "power.audit");
  }
  CHECK(folder.read("precious") == "root's own\n");
}

TEST_CASE("the audit log: a line that the disk did not take is not in the file, and is told to be missing") {
  const Folder folder;
  const std::string path = folder.path + "/a.jsonl";
  static bool fails_to_sync = false;
  Audit audit(path, 4000, [](int fd) { return fails_to_sync ? (errno = EIO, -1) : ::fdatasync(fd); });
  REQUIRE(audit.write(JsonLine().add("what", "one"), true));
  fails_to_sync = true;
  const auto written = audit.write(JsonLine().add("what", "two"), true);
  fails_to_sync = false;
  REQUIRE(!written);
  CHECK(written.error().code == "power.audit");
  CHECK(audit.lost() == 1);
  REQUIRE(audit.write(JsonLine().add("what", "three"), true));
  const std::string text = folder.read("a.jsonl");
  CHECK(text.find("two") == std::string::npos);
  CHECK(text.find("\"what\":\"audit_gap\",\"lost\":1}") != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
}

TEST_CASE("an audit log that had no room has it again: the gap is told") {
  const Folder folder;
  std::filesystem::create_directory(folder.path + "/later");
  const std::string path = folder.path + "/later/x/a.jsonl";
  folder.write("later/x", "in the way");
  Audit audit(path, 4000);
  CHECK(!audit.works());
  CHECK(!audit.write(JsonLine().add("what", "one"), true));
  CHECK(!audit.write(JsonLine().add("what", "two"), true));
  std::filesystem::remove(folder.path + "/later/x");
  std::filesystem::create_directory(folder.path + "/later/x");
  CHECK(audit.write(JsonLine().add("what", "three"), true));
  const std::string text = folder.read("later/x/a.jsonl");
  CHECK(text.find("\"what\":\"audit_gap\",\"lost\":2}") != std::string::npos);
  CHECK(text.find("\"what\":\"three\"") != std::string::npos);
}
