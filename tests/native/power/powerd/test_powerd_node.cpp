// A node manager without the bus, on hardware of the test's own and a clock that it turns.
#include <doctest/doctest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "power/powerd/node_core.hpp"

using namespace sonde;
using namespace sonde::power;

namespace {

/// What the hardware is, beyond the Node object that has it open.
struct Machine {
  double cap_w = 380, power_w = 120, energy_j = 0;
  bool there = true, settable = true;
  double sticks_at_w = unknown;  ///< whatever it is told
  double fails_above_w = INFINITY;
  int generation = 0;  ///< who has an earlier one open has nothing any more
  int writes = 0;
  double most_w = 390;
  std::string note;
  std::string trouble;                ///< with which reading fails
  std::function<void()> before_read;  ///< what a BMC takes its time with
  std::function<void(double)> before_write, after_write;
};

struct Stand : Node {
  Machine& machine;
  std::string model_ = "stand-in";
  double energy_at_open_j;
  int generation;
  explicit Stand(Machine& m) : machine(m), energy_at_open_j(m.energy_j), generation(m.generation) {}
  bool there() const { return machine.there && generation == machine.generation; }
  Error gone() const { return {"power.hardware_gone", "it is not there", ""}; }
  Range range() const override {
    return {90, machine.most_w, machine.settable, machine.settable ? "" : "it is sealed"};
  }
  const std::string& model() const override { return model_; }
  NodeReading read() override {
    if (machine.before_read) machine.before_read();
    NodeReading out;
    out.source = Source::powercap;
    if (!there()) {
      out.trouble = "power.hardware_gone: it is not there";
      return out;
    }
    if (!machine.trouble.empty()) {
      out.trouble = machine.trouble;
      return out;
    }
    out.note = machine.note;
    out.power_w = machine.power_w, out.energy_j = machine.energy_j - energy_at_open_j, out.cap_w = machine.cap_w;
    NodeReading::Domain domain;
    domain.name = "package-0", domain.source = Source::powercap, domain.range = range();
    domain.now.power_w = out.power_w, domain.now.cap_w = out.cap_w;
    out.domains.push_back(domain);
    return out;
  }
  Result<double> cap(double cap_w) override {
    if (!there()) return gone();
    if (!machine.settable) return Error{"power.read_only", "it is sealed", ""};
    if (!(cap_w >= 90 && cap_w <= machine.most_w)) return Error{"power.out_of_range", "no", ""};
    if (cap_w > machine.fails_above_w) return Error{"power.hardware_failed", "it says no", ""};
    if (machine.before_write) machine.before_write(cap_w);
    ++machine.writes;
    machine.cap_w = std::isnan(machine.sticks_at_w) ? cap_w : machine.sticks_at_w;
    if (machine.after_write) machine.after_write(cap_w);
    return machine.cap_w;
  }
  Result<double> capped() override { return there() ? Result<double>(machine.cap_w) : gone(); }
  Result<std::vector<Original>> originals() override {
    if (!there()) return gone();
    return std::vector<Original>{{"package-0", "limit", std::to_string(machine.cap_w)}};
  }
  Result<void> restore(const std::vector<Original>& originals) override {
    if (!there()) return gone();
    for (const auto& original : originals) machine.cap_w = std::stod(original.value);
    return {};
  }
};

constexpr std::int64_t second = 1'000'000'000;

struct World {
  std::string folder;
  Machine machine;
  std::int64_t now_ns = 1000 * second;
  std::unique_ptr<NodeState> state;
  std::unique_ptr<NodeCore> core;
  std::uint64_t instance = 40;
  std::int64_t watched_ns = 0;  ///< when the guardian would act
  std::uint64_t guarded = 0;
  std::uint64_t sequence = 0;

  World() {
    char name[] = "/tmp/sonde-node-XXXXXX";
    folder = ::mkdtemp(name);
  }
  ~World() {
    core.reset();
    state.reset();
    std::filesystem::remove_all(folder);
  }
  Result<void> try_begin(const Member& member) {
    core.reset();
    state.reset();
    auto opened = NodeState::open(folder, "n1");
    REQUIRE(opened);
    state = std::move(*opened);
    NodeCore::Settings settings;
    settings.member = member;
    settings.open = [this]() -> Result<std::unique_ptr<Node>> {
      if (!machine.there) return Error{"power.no_hardware", "it is not there", ""};
      return std::unique_ptr<Node>(std::make_unique<Stand>(machine));
    };
    settings.boottime_ns = settings.realtime_ns = [this] { return now_ns; };
    settings.instance = ++instance;
    settings.watch = [this](std::int64_t ns) { watched_ns = ns; };
    settings.watch_acted = [this] { return guarded; };
    auto made = NodeCore::open(settings, *state);
    if (!made) return made.error();
    core = std::move(*made);
    return {};
  }
  /// As after a kill -9: nobody was told, the hardware is as it was.
  void begin() {
    const auto begun = try_begin({"n1", 100, 400, 150});
    REQUIRE_MESSAGE(begun, (begun ? "" : begun.error().what));
  }
  void pass(double s) { now_ns += static_cast<std::int64_t>(s * 1e9); }
  NodeCommand order(double cap_w, double lease_s = 15, const Fence& fence = {1, "m"}) {
    const auto lease = core->said().lease;
    return NodeCommand::of({fence, ++sequence, {lease.instance, lease.ticket_ns}, lease_s, cap_w});
  }
  std::uint32_t set(double cap_w, double lease_s = 15, const Fence& fence = {1, "m"}) {
    return core->obey(order(cap_w, lease_s, fence)).code;
  }
};

std::uint32_t number_of(PowerCode code) { return static_cast<std::uint32_t>(code); }

}  // namespace

TEST_CASE("power node: it begins at the safe cap, obeys a grant, and goes back by itself when that ends") {
  World w;
  w.begin();
  CHECK(w.machine.cap_w == 150);
  CHECK(w.core->ends_ns() == 0);
  CHECK(w.set(300, 10) == 0);
  CHECK(w.machine.cap_w == 300);
  auto lease = w.core->answer(NodeAsk::GET_POWERCAP_NODE).lease;
  CHECK(lease.leased);
  CHECK(lease.lease_w == 300);
  CHECK(lease.cap_w == 300);
  CHECK(lease.left_s == doctest::Approx(10));
  // It begins before the end: the write takes a while.
  CHECK(w.core->ends_ns() == w.now_ns + 10 * second - second / 20);
  w.pass(9.949);
  w.core->expire();
  CHECK(w.machine.cap_w == 300);
  CHECK(w.core->said().lease.leased);
  w.pass(0.052);
  CHECK_FALSE(w.core->said().lease.leased);
  CHECK(w.core->said().lease.cap_w == 300);  // what the hardware has, not what it should have
  w.core->expire();
  CHECK(w.machine.cap_w == 150);
  CHECK(w.core->said().lease.cap_w == 150);
  CHECK(w.core->ends_ns() == 0);
}

TEST_CASE("power node: what is refused has its code, and changes nothing") {
  World w;
  w.begin();
  REQUIRE(w.set(300, 10, {5, "m"}) == 0);
  const int writes = w.machine.writes;
  CHECK(w.set(200, 10, {4, "z"}) == number_of(PowerCode::stale_epoch));
  CHECK(w.set(200, 10, {5, "a"}) == number_of(PowerCode::stale_epoch));
  CHECK(w.set(200, 10, {0, "m"}) == number_of(PowerCode::stale_epoch));
  auto command = w.order(200, 10, {5, "m"});
  command.sequence = 1;
  CHECK(w.core->obey(command).code == number_of(PowerCode::stale_sequence));
  command = w.order(200, 10, {5, "m"});
  command.instance ^= 1;
  CHECK(w.core->obey(command).code == number_of(PowerCode::void_ticket));
  command = w.order(200, 10, {5, "m"});
  command.ticket_ns += second;
  CHECK(w.core->obey(command).code == number_of(PowerCode::void_ticket));
  command = w.order(200, 10, {5, "m"});
  w.pass(3);
  command.lease_s = 2;
  CHECK(w.core->obey(command).code == number_of(PowerCode::lease_expired));
  for (const double lease_s : {0.0, -1.0, 601.0, double(INFINITY), double(NAN)})
    CHECK(w.set(200, lease_s, {5, "m"}) == number_of(PowerCode::bad_lease));
  for (const double cap_w : {99.0, 391.0, 99999.0, -1.0, double(INFINITY), double(NAN)})
    CHECK(w.set(cap_w, 10, {5, "m"}) == number_of(PowerCode::out_of_range));
  CHECK(w.machine.writes == writes);
  CHECK(w.machine.cap_w == 300);
  const auto reply = w.core->obey(w.order(99999, 10, {5, "m"}));
  CHECK(reply.message.find("100 W to 390 W") != std::string::npos);
}

TEST_CASE("power node: a fence survives a restart, and ends no lease") {
  World w;
  w.begin();
  REQUIRE(w.set(300, 10, {5, "m"}) == 0);
  NodeCommand fence;
  fence.order = NodeOrder::FENCE_NODE;
  fence.epoch = 9, fence.manager = "next";
  CHECK(w.core->obey(fence).code == 0);
  CHECK(w.machine.cap_w == 300);
  CHECK(w.core->said().lease.leased);
  CHECK(w.set(200, 10, {5, "m"}) == number_of(PowerCode::stale_epoch));
  w.begin();
  CHECK(w.core->said().lease.seen_epoch == 9);
  CHECK(w.core->said().lease.seen_manager == "next");
  CHECK(w.machine.cap_w == 150);
  CHECK(w.set(200, 10, {8, "z"}) == number_of(PowerCode::stale_epoch));
  CHECK(w.set(200, 10, {9, "next"}) == 0);
}

TEST_CASE("power node: after a kill -9 the originals are those from before the first cap") {
  World w;
  w.begin();
  REQUIRE(w.set(300) == 0);
  w.begin();
  REQUIRE(w.set(200) == 0);
  w.begin();
  REQUIRE(w.core->end(true));
  CHECK(w.machine.cap_w == 380);
  // They were put back: what the hardware has now is what the next one keeps.
  w.machine.cap_w = 370;
  w.begin();
  REQUIRE(w.core->end(false));
  CHECK(w.machine.cap_w == 150);
  w.begin();
  REQUIRE(w.core->end(true));
  CHECK(w.machine.cap_w == 370);
}

TEST_CASE("power node: what firmware overwrote is set again, counted and told") {
  World w;
  w.begin();
  REQUIRE(w.set(300, 600) == 0);
  w.core->look();
  CHECK(w.core->trouble().empty());
  for (int k = 1; k <= 3; ++k) {
    w.machine.cap_w = k == 2 ? 120 : 390;
    w.pass(1);
    w.core->look();
    CHECK(w.machine.cap_w == 300);
    CHECK(w.core->facts().overwritten == static_cast<std::uint64_t>(k));
  }
  CHECK(w.core->telemetry(1).trouble.starts_with("power.overwritten: "));
  w.machine.cap_w = 300.125;  // a step of the hardware
  w.pass(1);
  w.core->look();
  CHECK(w.core->facts().overwritten == 3);
  w.pass(60);
  w.core->look();
  CHECK(w.core->trouble().empty());
}

TEST_CASE("power node: hardware that does not follow loses its lease and is told of") {
  World w;
  w.begin();
  REQUIRE(w.set(300, 600) == 0);
  w.machine.sticks_at_w = 390;
  const auto reply = w.core->obey(w.order(200));
  CHECK(reply.code == number_of(PowerCode::hardware_failed));
  const auto lease = w.core->said().lease;
  CHECK_FALSE(lease.leased);
  CHECK(lease.cap_w == 390);
  CHECK(w.core->trouble().starts_with("power.hardware_failed"));
  w.machine.sticks_at_w = unknown;
  w.pass(1);
  w.core->look();
  CHECK(w.machine.cap_w == 150);
  CHECK(w.core->trouble().empty());
  CHECK(w.set(200) == 0);
}

TEST_CASE("power node: hardware that vanishes is trouble, and is looked after again when it is back") {
  World w;
  w.begin();
  w.machine.energy_j = 500;
  REQUIRE(w.set(300, 600) == 0);
  w.core->look();
  w.machine.there = false;
  for (int k = 0; k < 3; ++k) {
    w.pass(1);
    w.core->look();
  }
  CHECK(w.core->trouble().starts_with("power.hardware_gone"));
  auto sample = w.core->telemetry(1);
  CHECK(std::isnan(sample.lease.cap_w));
  CHECK(sample.energy_j == 500);
  CHECK(w.core->obey(w.order(200)).code == number_of(PowerCode::hardware_failed));
  w.machine.there = true;
  w.machine.cap_w = 385;
  for (int k = 0; k < 11; ++k) {
    w.pass(1);
    w.core->look();
  }
  CHECK(w.core->trouble().empty());
  CHECK(w.machine.cap_w == 150);
  CHECK(w.set(200) == 0);
}

TEST_CASE("power node: a device that is another one now is opened anew, and its energy goes on") {
  World w;
  w.begin();
  w.machine.energy_j = 500;
  w.core->look();
  ++w.machine.generation;
  w.machine.cap_w = 385;
  w.pass(1);
  w.core->look();
  CHECK(w.machine.cap_w == 150);
  w.machine.energy_j = 600;
  w.pass(1);
  w.core->look();
  CHECK(w.core->trouble().empty());
  CHECK(w.core->telemetry(1).energy_j == 600);  // it never falls, and nothing counts twice
}

TEST_CASE("power node: an order that the hardware refuses leaves the safe cap at once") {
  World w;
  w.begin();
  REQUIRE(w.set(180, 600) == 0);
  w.machine.fails_above_w = 200;
  const auto reply = w.core->obey(w.order(300));
  CHECK(reply.code == number_of(PowerCode::hardware_failed));
  CHECK(reply.message.find("it says no") != std::string::npos);
  CHECK(w.machine.cap_w == 150);
  CHECK_FALSE(w.core->said().lease.leased);
}

TEST_CASE("power node: nothing is lent while the originals cannot be kept, also where a fence can") {
  World w;
  std::filesystem::create_directories(w.folder + "/node-n1.originals");
  w.begin();
  CHECK(w.machine.cap_w == 150);
  const auto reply = w.core->obey(w.order(300));
  CHECK(reply.code == static_cast<std::uint32_t>(bus::ReplyCode::failed));
  CHECK(w.machine.cap_w == 150);
  NodeCommand fence;
  fence.order = NodeOrder::FENCE_NODE;
  fence.epoch = 2, fence.manager = "m";
  CHECK(w.core->obey(fence).code == 0);
  std::filesystem::remove(w.folder + "/node-n1.originals");
  w.core->look();
  CHECK(w.set(300, 10, {2, "m"}) == 0);
}

TEST_CASE("power node: one that draws above its cap is told of, when it has for a while") {
  World w;
  w.begin();
  REQUIRE(w.set(200, 600) == 0);
  w.machine.power_w = 260;
  for (int k = 0; k < 9; ++k) w.pass(1), w.core->look();
  CHECK(w.core->trouble().empty());
  for (int k = 0; k < 3; ++k) w.pass(1), w.core->look();
  CHECK(w.core->trouble().starts_with("power.disobeys: it draws 260 W"));
  w.machine.power_w = 190;
  w.pass(1), w.core->look();
  CHECK(w.core->trouble().empty());
}

TEST_CASE(
    "power node: that it draws above its cap is a new sentence at the change, and then when the time has doubled") {
  World w;
  w.begin();
  REQUIRE(w.set(200, 600) == 0);
  int sentences = 0;
  std::string last;
  for (int k = 0; k < 300; ++k) {
    w.machine.power_w = 260 + k % 7;
    w.pass(1), w.core->look();
    if (w.core->trouble() != last) ++sentences, last = w.core->trouble();
  }
  CHECK_MESSAGE(sentences == 5, last);  // after about 10 s, 20 s, 40 s, 80 s, 160 s
  CHECK_MESSAGE(last.find("for 2 min 4") != std::string::npos, last);
  w.machine.power_w = 190;
  w.pass(1), w.core->look();
  CHECK(w.core->trouble().empty());
}

TEST_CASE("power node: a domain that is not counted is told of, but after every trouble") {
  World w;
  w.machine.note = "power.hardware_failed: node#2 is not counted";
  w.begin();
  REQUIRE(w.set(200, 600) == 0);
  w.core->look();
  CHECK(w.core->trouble() == w.machine.note);
  w.machine.power_w = 260;
  for (int k = 0; k < 12; ++k) w.pass(1), w.core->look();
  CHECK(w.core->trouble().starts_with("power.disobeys"));
}

TEST_CASE("power node: a range that shrinks, as one of two domains was the other, is that of orders from then on") {
  World w;
  w.begin();
  REQUIRE(w.set(350, 600) == 0);
  w.machine.most_w = 220, w.machine.cap_w = 175;  // half of it was that of a domain that is none
  w.core->look();
  CHECK(w.core->said().max_w == 220);
  CHECK(w.machine.cap_w == 150);
  CHECK(w.core->facts().overwritten == 0);
  CHECK(w.set(300) == number_of(PowerCode::out_of_range));
  CHECK(w.set(220) == 0);
  CHECK(w.machine.cap_w == 220);
}

TEST_CASE("power node: hardware that takes no cap is read, and says so") {
  World w;
  w.machine.settable = false;
  w.begin();
  w.core->look();
  const auto reply = w.core->obey(w.order(200));
  CHECK(reply.code == number_of(PowerCode::read_only));
  CHECK(reply.message.find("it is sealed") != std::string::npos);
  CHECK(std::isnan(w.core->said().lease.cap_w));
  CHECK(w.core->answer(NodeAsk::GET_POWER_NODE).power_w == 120);
  CHECK(w.core->trouble().empty());
  CHECK(w.core->end(true));
}

TEST_CASE("power node: a safe cap that the hardware cannot have is refused") {
  World w;
  const auto begun = w.try_begin({"n1", 50, 400, 60});
  REQUIRE(!begun);
  CHECK(begun.error().code == "power.bad_node");
  CHECK(w.machine.writes == 0);
}

TEST_CASE("power node: with a full disk it is at its safe cap and lends nothing; when there is room it goes on") {
  World w;
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{0, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &none);
  w.begin();
  const auto refused = w.core->obey(w.order(300));
  const std::string trouble = w.core->trouble();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(w.machine.cap_w == 150);
  CHECK(refused.code == static_cast<std::uint32_t>(bus::ReplyCode::failed));
  CHECK(refused.message.find("power.state") != std::string::npos);
  CHECK(trouble.starts_with("power.state"));
  w.core->look();
  CHECK(w.core->trouble().empty());
  CHECK(w.set(300) == 0);
}

TEST_CASE("power node: telemetry has the mean since the last, and says of what it is") {
  World w;
  w.begin();
  for (const double power_w : {100.0, 200.0, 600.0}) {
    w.machine.power_w = power_w;
    w.pass(1);
    w.core->look();
  }
  auto sample = w.core->telemetry(3);
  CHECK(sample.power_w == doctest::Approx(300));
  CHECK(sample.source == Source::powercap);
  CHECK(sample.period_s == 3);
  REQUIRE(sample.domains.size() == 1);
  CHECK(sample.domains[0].name == "package-0");
  w.machine.power_w = 50;
  w.pass(1);
  w.core->look();
  CHECK(w.core->telemetry(1).power_w == doctest::Approx(50));
}

TEST_CASE("power node: questions do not wait for hardware that takes its time") {
  World w;
  w.begin();
  std::promise<void> begun, go;
  w.machine.before_read = [&] {
    begun.set_value();
    go.get_future().wait();
  };
  auto looking = std::async(std::launch::async, [&] { w.core->look(); });
  begun.get_future().wait();
  // A deadlock here is a failure of the test's own time limit.
  CHECK(w.core->answer(NodeAsk::GET_POWER_NODE).node == "n1");
  CHECK(w.core->telemetry(1).lease.cap_w == 150);
  CHECK(w.core->ends_ns() == 0);
  go.set_value();
  looking.get();
}

TEST_CASE("power node: an order that is refused while another lease runs leaves that one running") {
  World w;
  w.begin();
  REQUIRE(w.set(300, 10) == 0);
  CHECK(w.set(99999, 10) == number_of(PowerCode::out_of_range));
  CHECK(w.core->said().lease.leased);
  CHECK(w.core->said().lease.sequence == 1);
  CHECK(w.machine.cap_w == 300);
}

TEST_CASE(
    "power node: whenever a cap above the safe one can be in the hardware, somebody is told when it has to be gone") {
  World w;
  std::int64_t ends = 0;  // of the earliest lease whose cap may be in the hardware
  std::size_t looked = 0;
  const auto look = [&](double) {
    ++looked;
    if (w.machine.cap_w <= 150) return;
    CHECK(w.watched_ns > 0);
    CHECK(w.watched_ns < ends);
  };
  w.begin();
  CHECK(w.watched_ns == 0);
  w.machine.before_write = w.machine.after_write = look;
  ends = w.now_ns + 10 * second;
  // Before the write: a process that is stopped right then has it in the hardware, and does nothing more.
  w.machine.before_write = [&](double) { CHECK((w.watched_ns > 0 && w.watched_ns < ends)); };
  REQUIRE(w.set(300, 10) == 0);
  w.machine.before_write = look;
  CHECK(w.watched_ns > w.core->ends_ns());  // later than when it is to be done here
  CHECK(w.watched_ns < ends);
  // A lower cap of a longer lease: until it is in the hardware, the time of the higher one counts.
  w.pass(4);
  REQUIRE(w.set(200, 20) == 0);
  CHECK(w.watched_ns > ends);
  ends = w.now_ns + 20 * second;
  CHECK(w.watched_ns < ends);
  // At or below the safe cap there is nothing to watch.
  REQUIRE(w.set(120, 20) == 0);
  CHECK(w.watched_ns == 0);
  REQUIRE(w.set(250, 20) == 0);
  CHECK(w.watched_ns > 0);
  w.pass(20);
  w.core->expire();
  CHECK(w.machine.cap_w == 150);
  CHECK(w.watched_ns == 0);
  // Hardware that does not follow stays watched.
  ends = w.now_ns + 20 * second;
  REQUIRE(w.set(250, 20) == 0);
  w.machine.sticks_at_w = 250;
  w.pass(20);
  w.core->expire();
  CHECK(w.watched_ns > 0);
  w.machine.sticks_at_w = unknown;
  w.core->look();
  CHECK(w.machine.cap_w == 150);
  CHECK(w.watched_ns == 0);
  CHECK(looked > 6);
}

TEST_CASE("power node: a write that takes longer than its lease ends at the safe cap, and is not told to be obeyed") {
  World w;
  w.begin();
  w.machine.before_write = [&](double cap_w) {
    if (cap_w > 150) w.pass(11);
  };
  CHECK(w.set(300, 10) == number_of(PowerCode::lease_expired));
  CHECK(w.machine.cap_w == 150);
  CHECK_FALSE(w.core->said().lease.leased);
  CHECK(w.core->ends_ns() == 0);
  CHECK(w.watched_ns == 0);
}

TEST_CASE("power node: hardware that takes its time is begun with earlier, so that the cap is gone when the lease is") {
  World w;
  w.begin();
  w.machine.before_write = [&](double) { w.pass(2); };
  REQUIRE(w.set(300, 30) == 0);
  const std::int64_t ends = w.now_ns + static_cast<std::int64_t>(w.core->said().lease.left_s * 1e9);
  w.now_ns = w.core->ends_ns();
  CHECK(w.watched_ns > w.now_ns);
  w.core->expire();
  CHECK(w.machine.cap_w == 150);
  CHECK(w.now_ns <= ends);
}

TEST_CASE("power node: while hardware is waited for, the lease runs out in all that is told, and the reason is") {
  World w;
  w.begin();
  REQUIRE(w.set(300, 10) == 0);
  std::promise<void> begun, go;
  w.machine.before_read = [&] {
    w.pass(11);
    begun.set_value();
    go.get_future().wait();
  };
  auto looking = std::async(std::launch::async, [&] { w.core->look(); });
  begun.get_future().wait();
  const auto told = w.core->telemetry(1);
  CHECK_FALSE(told.lease.leased);
  CHECK(told.lease.cap_w == 300);  // the ledger counts it with that
  CHECK(told.trouble.find("power.hardware_slow") == 0);
  CHECK(told.trouble.find("the lease has run out") != std::string::npos);
  CHECK((w.core->ends_ns() > 0 && w.core->ends_ns() <= w.now_ns));
  go.set_value();
  looking.get();
  w.machine.before_read = {};
  // It did that as soon as it could.
  CHECK(w.machine.cap_w == 150);
  CHECK(w.core->telemetry(1).trouble == "");
}

TEST_CASE("power node: one that wakes up after its guardian acted believes in no lease, and says what was") {
  World w;
  w.begin();
  REQUIRE(w.set(300, 10) == 0);
  const auto order = w.order(350, 30);
  // It stands still here, until long after.
  w.pass(12);
  w.machine.cap_w = 150, ++w.guarded;
  w.core->look();
  CHECK(w.machine.cap_w == 150);
  CHECK_FALSE(w.core->said().lease.leased);
  CHECK(w.core->facts().guarded == 1);
  CHECK(w.core->facts().overwritten == 0);
  CHECK(w.core->trouble().find("power.late") == 0);
  CHECK(w.watched_ns == 0);
  w.pass(31);
  w.core->look();
  CHECK(w.core->trouble() == "");
  // One that was renewed meanwhile, by the books of this process: the hardware has the safe cap, and nothing is leased.
  REQUIRE(w.set(320, 10) == 0);
  w.machine.cap_w = 150, ++w.guarded;
  w.core->look();
  CHECK(w.machine.cap_w == 150);
  CHECK_FALSE(w.core->said().lease.leased);
  CHECK(w.core->obey(order).code == number_of(PowerCode::stale_sequence));
  REQUIRE(w.set(330, 10) == 0);
  CHECK(w.machine.cap_w == 330);
}

TEST_CASE("power node: telemetry says since when the cap is what it is, on the side that is surely so") {
  World w;
  w.begin();
  w.machine.before_write = w.machine.after_write = [&](double) { w.pass(1); };
  std::int64_t before = w.now_ns;
  REQUIRE(w.set(300, 30) == 0);
  CHECK(w.core->telemetry(1).cap_since_ns == before);  // it may have had it since
  const auto changes = w.core->cap_changes();
  REQUIRE(w.set(200, 30) == 0);
  CHECK(w.core->telemetry(1).cap_since_ns == w.now_ns);  // it surely has it since
  CHECK(w.core->cap_changes() == changes + 1);
  before = w.now_ns;
  REQUIRE(w.set(200, 30) == 0);
  CHECK(w.core->cap_changes() == changes + 1);
  CHECK(w.core->telemetry(1).cap_since_ns == before);
}

TEST_CASE(
    "power node: a cap that was switched off is set again and told; of a reading that failed nothing is concluded") {
  World w;
  w.begin();
  REQUIRE(w.set(300, 600) == 0);
  w.core->look();
  int writes = w.machine.writes;
  w.machine.cap_w = unknown;  // as of a BMC that began anew: it has no cap in force
  w.pass(1);
  w.core->look();
  CHECK(w.machine.cap_w == 300);
  CHECK(w.machine.writes == writes + 1);
  CHECK(w.core->facts().overwritten == 1);
  CHECK(w.core->trouble().starts_with("power.overwritten: the cap was found switched off instead of 300 W"));
  CHECK(w.core->said().lease.leased);
  w.pass(60);
  writes = w.machine.writes;
  w.machine.trouble = "power.bmc_timeout: it did not answer";
  w.core->look();
  CHECK(w.machine.writes == writes);
  CHECK(w.core->facts().overwritten == 1);
  CHECK(w.core->trouble().starts_with("power.bmc_timeout"));
}

TEST_CASE("power node: a lease that is renewed writes no cap that is there already, and all else is as if it had") {
  World w;
  w.begin();
  REQUIRE(w.set(300, 10) == 0);
  const int writes = w.machine.writes;
  std::int64_t ends = 0;
  for (int k = 0; k < 5; ++k) {
    w.pass(4);
    w.core->look();
    REQUIRE(w.set(300, 10) == 0);
    ends = w.now_ns + 10 * second;
    CHECK(w.core->said().lease.left_s == doctest::Approx(10));
    CHECK(w.core->said().lease.sequence == w.sequence);
    CHECK(w.core->said().lease.cap_w == 300);
    CHECK((w.watched_ns > w.core->ends_ns() && w.watched_ns < ends));
  }
  CHECK(w.machine.writes == writes);
  // A shorter one: who watches is told so as well.
  REQUIRE(w.set(300, 5) == 0);
  CHECK(w.machine.writes == writes);
  CHECK(w.watched_ns < w.now_ns + 5 * second);
  // What was overwritten meanwhile is put right by the next look, as before.
  w.machine.cap_w = 390;
  REQUIRE(w.set(300, 10) == 0);
  w.core->look();
  CHECK(w.machine.cap_w == 300);
  CHECK(w.core->facts().overwritten == 1);
  CHECK(w.machine.writes == writes + 1);
  // And it ends.
  w.pass(10);
  w.core->expire();
  CHECK(w.machine.cap_w == 150);
  CHECK(w.watched_ns == 0);
}

TEST_CASE("power node: a renewal writes where it is not known that the hardware has the cap") {
  World w;
  w.begin();
  REQUIRE(w.set(300, 60) == 0);
  int writes = w.machine.writes;
  // A reading that failed.
  w.machine.trouble = "power.bmc_timeout: it did not answer";
  w.core->look();
  REQUIRE(w.set(300, 60) == 0);
  CHECK(w.machine.writes == ++writes);
  // The guardian acted.
  w.machine.trouble.clear();
  w.core->look();
  w.machine.cap_w = 150, ++w.guarded;
  REQUIRE(w.set(300, 60) == 0);
  CHECK(w.machine.cap_w == 300);
  // It is gone.
  w.machine.there = false;
  w.core->look();
  CHECK(w.core->obey(w.order(300)).code == number_of(PowerCode::hardware_failed));
}

TEST_CASE("power node: a lease that ends earlier than the one before is watched from before its write on") {
  World w;
  w.begin();
  REQUIRE(w.set(300, 600) == 0);
  const std::int64_t ends = w.now_ns + 10 * second;
  int looked = 0;
  w.machine.before_write = [&](double) {
    ++looked;
    CHECK((w.watched_ns > 0 && w.watched_ns < ends));
  };
  REQUIRE(w.set(350, 10) == 0);
  CHECK(looked == 1);
  CHECK(w.watched_ns < ends);
}
