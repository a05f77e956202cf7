// A node: several domains, one cap.
#include <sys/inotify.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "power/hardware/node.hpp"
#include "power_tree.hpp"

using namespace sonde;
using namespace sonde::power;

namespace {

const std::string limit_0 = "class/powercap/intel-rapl:0/constraint_0_power_limit_uw",
                  limit_1 = "class/powercap/intel-rapl:1/constraint_0_power_limit_uw";

Node::Settings over(const PowerTree& tree, double base_w = 0) {
  Node::Settings out;
  out.base_w = base_w;
  HardwareSpec spec;
  spec.kind = Source::powercap;
  spec.root = tree.root;
  out.hardware = {spec};
  return out;
}

std::unique_ptr<Node> opened(const Node::Settings& settings) {
  auto out = Node::open(settings);
  REQUIRE_MESSAGE(out, (out ? "" : out.error().what));
  return std::move(*out);
}

template <typename T> std::string code(const Result<T>& result) { return result ? "" : result.error().code; }

/// Which of the two packages' limits were written, in order.
class Order {
 public:
  explicit Order(const PowerTree& tree) {
    for (const auto& path : {limit_0, limit_1})
      ids_.push_back(::inotify_add_watch(fd_, (tree.root + "/" + path).c_str(), IN_CLOSE_WRITE));
  }
  ~Order() { ::close(fd_); }
  std::vector<int> seen() {
    alignas(inotify_event) char bytes[4096];
    std::vector<int> out;
    const ssize_t n = ::read(fd_, bytes, sizeof bytes);
    for (ssize_t at = 0; at < n;) {
      const auto& one = *reinterpret_cast<const inotify_event*>(bytes + at);
      out.push_back(one.wd == ids_[0] ? 0 : 1);
      at += static_cast<ssize_t>(sizeof one + one.len);
    }
    return out;
  }

 private:
  int fd_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  std::vector<int> ids_;
};

}  // namespace

TEST_CASE("node: the cap is shared by the domains' ranges, and what cannot be capped is counted") {
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0");
  tree.zone("intel-rapl:1", "package-1", true, 400);
  const auto node = opened(over(tree, 70));
  CHECK(node->range().min_w == doctest::Approx(70 + 50 + 100));
  CHECK(node->range().max_w == doctest::Approx(70 + 200 + 400));
  auto back = node->cap(445);
  REQUIRE(back);
  CHECK(*back == doctest::Approx(445));
  CHECK(tree.get(limit_0) == "125000000");
  CHECK(tree.get(limit_1) == "250000000");
  CHECK(*node->capped() == doctest::Approx(445));
  CHECK(code(node->cap(219)) == "power.out_of_range");
  CHECK(code(node->cap(671)) == "power.out_of_range");
  CHECK(code(node->cap(NAN)) == "power.out_of_range");
  tree.put(limit_1, "390000000");  // firmware
  CHECK(*node->capped() == doctest::Approx(70 + 125 + 390));
  CHECK(node->read().cap_w == doctest::Approx(70 + 125 + 390));
}

TEST_CASE("node: it lowers before it raises, and raises nothing where lowering failed") {
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0");
  tree.zone("intel-rapl:1", "package-1");
  const auto node = opened(over(tree));
  REQUIRE(node->cap(400));
  for (const auto& [raised, lowered] : {std::pair{0, 1}, std::pair{1, 0}}) {
    tree.put(raised ? limit_1 : limit_0, "60000000");
    tree.put(raised ? limit_0 : limit_1, "190000000");
    tree.put(std::string("class/powercap/intel-rapl:") + (raised ? "1" : "0") + "/constraint_1_power_limit_uw",
             "60000000");
    Order order(tree);
    auto back = node->cap(250);
    REQUIRE(back);
    CHECK(*back == doctest::Approx(250));
    CHECK(order.seen() == std::vector<int>{lowered, raised});
  }
  tree.put(limit_0, "60000000");
  tree.put("class/powercap/intel-rapl:0/constraint_1_power_limit_uw", "60000000");
  tree.gone("class/powercap/intel-rapl:1");
  const auto back = node->cap(250);
  CHECK(code(back) == "power.hardware_gone");
  CHECK(tree.get(limit_0) == "60000000");
}

TEST_CASE("node: power is the sum of packages and base, parts are not counted twice, and memory is") {
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0");
  tree.zone("intel-rapl:0:0", "core", false);
  tree.zone("intel-rapl:0:1", "dram", false);
  auto settings = over(tree, 70);
  settings.hardware[0].domains = "package-*";  // with its parts: '*' crosses '/'
  const auto node = opened(settings);
  CHECK(node->read().domains.size() == 3);
  sleep_until(now_s() + 0.05);
  for (const char* zone : {"intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1"})
    tree.put(std::string("class/powercap/") + zone + "/energy_uj", "2000000");
  const auto now = node->read();
  const auto& d = now.domains;
  CHECK(now.source == Source::powercap);
  CHECK(now.trouble == "");
  CHECK(now.power_w == doctest::Approx(70 + d[0].now.power_w + d[2].now.power_w));
  CHECK(d[1].now.power_w > 0);
  CHECK(now.energy_j >= 2);
  CHECK(now.energy_j < 2 + 70 * 30);
}

TEST_CASE("node: two dies that are one meter are one domain: of the power, the range and the cap") {
  const PowerTree tree;
  for (const char* die : {"0", "1"}) tree.zone(std::string("intel-rapl:") + die, std::string("package-0-die-") + die);
  std::atomic<bool> ended = false;
  std::thread counting([&] {
    for (int turn = 1; !ended; ++turn, sleep_until(now_s() + 0.01))
      for (const char* die : {"0", "1"}) {
        tree.put("next", std::to_string(turn * 680'000));
        std::filesystem::rename(tree.root + "/next",
                                tree.root + "/class/powercap/intel-rapl:" + std::string(die) + "/energy_uj");
      }
  });
  const auto node = opened(over(tree, 70));
  auto now = node->read();
  for (int k = 0; k < 500 && now.note.empty(); ++k, now = node->read()) sleep_until(now_s() + 0.01);
  ended = true;
  counting.join();
  CHECK(now.power_w == doctest::Approx(70 + now.domains[0].now.power_w));
  CHECK(now.domains[1].now.power_w > 0);
  CHECK(now.note.find("are one meter") != std::string::npos);
  CHECK(now.trouble == "");
  CHECK(node->range().max_w == doctest::Approx(70 + 200));
  auto back = node->cap(170);
  REQUIRE(back);
  CHECK(*back == doctest::Approx(170));
  CHECK(tree.get(limit_0) == "100000000");
  CHECK(tree.get(limit_1) == "100000000");
  CHECK(*node->capped() == doctest::Approx(170));
}

TEST_CASE("node: a domain of the whole node stands for all of it") {
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0");
  tree.zone("intel-rapl:1", "psys");
  auto settings = over(tree, 70);
  settings.hardware[0].domains = "*";
  settings.hardware[0].min_w = 80;
  const auto node = opened(settings);
  sleep_until(now_s() + 0.02);
  const auto now = node->read();
  CHECK(now.power_w == 0);
  CHECK(node->range().min_w == 80);
  REQUIRE(node->cap(150));
  CHECK(tree.get(limit_0) == "200000000");
  CHECK(tree.get(limit_1) == "150000000");
}

TEST_CASE("node: what fails is NaN and told, what is put back goes where it came from") {
  const PowerTree tree, kept;
  tree.zone("intel-rapl:0", "package-0");
  auto settings = over(tree);
  HardwareSpec simulated;
  simulated.kind = Source::simulated;
  simulated.root = kept.root;
  settings.hardware.push_back(simulated);
  const auto node = opened(settings);
  CHECK(node->model() == "RAPL (powercap), simulated node");
  auto saved = node->originals();
  REQUIRE(saved);
  CHECK(saved->front().domain == "powercap:package-0");
  CHECK(saved->back().domain == "simulated:node");
  tree.put(limit_0, "60000000");
  kept.put("simulated-cap", "100");
  auto more = *saved;
  more.insert(more.begin(), {"redfish:node", "LimitInWatts", "1"});
  CHECK(code(node->restore(more)) == "power.unknown_domain");
  CHECK(tree.get(limit_0) == "200000000");
  CHECK(std::stod(kept.get("simulated-cap")) == 300);
  tree.gone("class/powercap/intel-rapl:0");
  const auto now = node->read();
  CHECK(now.trouble.starts_with("power.hardware_gone"));
  CHECK(std::isnan(now.domains[0].now.power_w));
  CHECK(now.source == Source::simulated);
}

TEST_CASE("node: without anything to cap it has to be said that it is read only") {
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0", false);
  auto settings = over(tree);
  const auto none = Node::open(settings);
  REQUIRE(!none);
  CHECK(none.error().code == "power.no_cap");
  CHECK(none.error().what.find("constraint_0_power_limit_uw does not exist") != std::string::npos);
  settings.hardware[0].read_only = true;
  const auto node = opened(settings);
  CHECK(!node->range().settable);
  CHECK(code(node->cap(100)) == "power.read_only");
  CHECK(std::isnan(node->read().cap_w));
  CHECK(code(Node::open({})) == "power.no_hardware");
  CHECK(code(Node::open({-1, settings.hardware})) == "power.bad_hardware");
}

TEST_CASE("obedience: who draws above the cap for longer than patience disobeys") {
  Obedience o(0.05, 10);
  CHECK(o.add(104, 100, 0) == 0);
  CHECK(o.add(106, 100, 1) == 0);
  CHECK(o.add(120, 100, 6) == 5);
  CHECK(o.add(NAN, 100, 8) == 5);  // what is not known neither accuses nor acquits
  CHECK(!o.disobeys());
  CHECK(o.add(120, 100, 11) == 10);
  CHECK(o.disobeys());
  CHECK(o.add(100, 100, 12) == 0);
  CHECK(!o.disobeys());
  CHECK(o.add(120, 100, 13) == 0);
}

TEST_CASE("node: sensors and domains of one name have several names, of each kind for itself") {
  PowerTree tree, other;
  for (const auto* one : {&tree, &other}) {
    one->zone("intel-rapl:0", "package-0");
    one->put("class/hwmon/hwmon0/name", "chip");
    for (const char* channel : {"temp1", "temp2", "fan1"}) {
      one->put(std::string("class/hwmon/hwmon0/") + channel + "_input", "42000");
      one->put(std::string("class/hwmon/hwmon0/") + channel + "_label", "CPU");
    }
  }
  auto settings = over(tree);
  settings.hardware.push_back(over(other).hardware.front());
  const auto node = opened(settings);
  const auto now = node->read();
  std::multiset<std::string> sensors, domains;
  for (const auto& one : now.sensors) sensors.insert(one.name);
  for (const auto& one : now.domains) domains.insert(one.name);
  CHECK(sensors ==
        std::multiset<std::string>{"chip/CPU", "chip/CPU#2", "chip/CPU#3", "chip/CPU#4", "chip/CPU", "chip/CPU#2"});
  CHECK(domains == std::multiset<std::string>{"package-0", "package-0#2"});
}
