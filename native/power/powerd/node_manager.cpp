// Role node-manager: the bus, timers and signals around NodeCore.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "bus/typed.hpp"
#include "core/nearest.hpp"
#include "core/units.hpp"
#include "power/messages.hpp"
#include "power/powerd/guardian.hpp"
#include "power/powerd/node_core.hpp"
#include "power/powerd/roles.hpp"
#include "power/powerd/tell.hpp"
#include "power/powerd/wiring.hpp"
#include "service/daemon.hpp"

namespace sonde::power {

namespace {

constexpr double look_s = 1, look_afar_s = 5;   // a BMC has better to do than to answer each second
constexpr int release_tries = 3;

std::int64_t clock_ns(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::int64_t ns_of(double s) { return static_cast<std::int64_t>(s * 1e9); }

std::uint64_t random_instance() {
  std::uint64_t out = 0;
  while (out == 0)
    if (::getrandom(&out, sizeof out, 0) != sizeof out) out = static_cast<std::uint64_t>(clock_ns(CLOCK_REALTIME)) ^ static_cast<std::uint64_t>(::getpid()) << 48;
  return out;
}

Result<Member> member_of(const Config& config, const Options& options) {
  const std::string name = own_name(options.name, config.node_manager.name);
  std::vector<std::string> names;
  for (const auto& node : config.nodes) {
    if (node.member.name == name) return node.member;
    if (names.size() < 4096) names.push_back(node.member.name);
  }
  return Error{"power.unknown_node", "the node " + name + " is not in [[nodes]] of " + config.path + nearest(name, names), "add it there, or say which it is: --name NODE, or `name` of [node-manager]"};
}

Result<std::unique_ptr<Node>> open_node(const NodeManagerConfig& config) {
  return Node::open({config.base_w, config.hardware});
}

/// What is left to do after a kill -9: nothing of the dead daemon's is used.
Result<double> set_safe(const Config& config, const Member& member) {
  auto node = open_node(config.node_manager);
  if (!node) return node.error();
  return (*node)->cap(member.safe_w);
}

/// What the machine or a file is to blame for is 3, what was written wrongly 2.
int exit_of(const Error& error) {
  for (const char* wrong : {"power.bad_node", "power.bad_hardware", "power.unknown_domain", "power.unknown_node", "power.no_cap", "bus.bad_profile", "bus.unknown_key", "bus.no_profile"})
    if (error.code == wrong) return 2;
  return 3;
}

class Daemon {
 public:
  Daemon(const Config& config, const Options& options, const Member& member) : config_(config), options_(options), member_(member) {}

  int run();

 private:
  Result<void> serve();
  void publish(bool at_once);
  void tell_trouble();
  /// Returns the signal that ended it, 0: whoever started it did.
  int loop();
  bool parent_ended();
  bus::AnswerOf<NodeAnswer> obey(const NodeCommand& command);

  const Config& config_;
  const Options& options_;
  const Member member_;
  std::unique_ptr<Guardian> guardian_;
  std::unique_ptr<NodeState> state_;
  std::unique_ptr<NodeCore> core_;
  std::shared_ptr<bus::Bus> bus_;
  std::unique_ptr<bus::Publisher<NodeTelemetry>> telemetry_;
  std::unique_ptr<bus::Server> get_, set_;
  int timer_ = -1, wake_ = -1;
  std::string told_, heard_;
  double look_s_ = look_s;
  std::int64_t published_ns_ = 0;
  bool publish_failed_ = false, guardian_gone_ = false;
};

bus::AnswerOf<NodeAnswer> Daemon::obey(const NodeCommand& command) {
  const auto reply = core_->obey(command);
  // The end of the lease is another one now, or the cap is another than was told.
  const std::uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof one);
  bus::AnswerOf<NodeAnswer> out;
  out.code = static_cast<bus::ReplyCode>(reply.code);
  out.message = reply.message;
  if (reply.code == 0) out.body = core_->said();
  return out;
}

Result<void> Daemon::serve() {
  auto bus = open_bus(config_, "node-manager " + member_.name);
  if (!bus) return bus.error();
  bus_ = std::move(*bus);
  auto telemetry = bus::Publisher<NodeTelemetry>::open(bus_, topic::node_telemetry);
  if (!telemetry) return telemetry.error();
  telemetry_ = std::move(*telemetry);
  bus::ServerOptions options;
  options.name = member_.name;
  auto get = bus::Server::open(bus_, topic::node_get, bus::service_types<NodeQuery, NodeAnswer>(), bus::handler<NodeQuery, NodeAnswer>([this](const bus::Incoming&, const NodeQuery& query) {
                                 bus::AnswerOf<NodeAnswer> out;
                                 out.body = core_->answer(query.ask);
                                 return out;
                               }),
                               options);
  if (!get) return get.error();
  get_ = std::move(*get);
  auto set = bus::Server::open(bus_, topic::node_set, bus::service_types<NodeCommand, NodeAnswer>(),
                               bus::handler<NodeCommand, NodeAnswer>([this](const bus::Incoming&, const NodeCommand& command) { return obey(command); }), options);
  if (!set) return set.error();
  set_ = std::move(*set);
  return {};
}

void Daemon::tell_trouble() {
  std::string now = core_->trouble();
  if (now.empty() && guardian_gone_) now = "power.no_guardian: the process that would set the safe cap after a kill -9 is gone; start the node manager anew";
  if (now == told_) return;
  told_ = now;
  const auto colon = now.find(": ");
  event(JsonLine().add("event", "trouble").add("code", now.substr(0, colon)).add("what", colon == std::string::npos ? "" : now.substr(colon + 2)));
  log_line(now.empty() ? "all is well again" : now);
}

void Daemon::publish(bool at_once) {
  const std::int64_t now = clock_ns(CLOCK_BOOTTIME);
  const std::string before = told_;
  tell_trouble();
  // Half a look early counts: looks and telemetry are to fall together.
  if (!at_once && told_ == before && now - published_ns_ < ns_of(config_.node_manager.telemetry_s - look_s_ / 2)) return;
  auto sample = core_->telemetry(published_ns_ ? static_cast<double>(now - published_ns_) * 1e-9 : config_.node_manager.telemetry_s);
  if (sample.trouble.empty()) sample.trouble = told_.substr(0, 256);
  published_ns_ = now;
  const auto sent = telemetry_->write(sample);
  if (!sent && !publish_failed_) log_error(sent.error());
  publish_failed_ = !sent;
}

bool Daemon::parent_ended() {
  char text[256];
  const ssize_t n = ::read(STDIN_FILENO, text, sizeof text);
  if (n > 0) heard_.append(text, static_cast<std::size_t>(n));
  if (heard_.size() > 4096) heard_.erase(0, heard_.size() - 8);
  return n <= 0 || heard_.find("stop\n") != std::string::npos;
}

int Daemon::loop() {
  std::int64_t next_look = clock_ns(CLOCK_BOOTTIME);
  std::uint64_t overwritten = 0;
  for (;;) {
    std::int64_t now = clock_ns(CLOCK_BOOTTIME);
    if (const std::int64_t ends = core_->ends_ns(); ends && ends <= now) {
      core_->expire();
      event(JsonLine().add("event", "lease_ended").add("cap_w", core_->facts().cap_w));
      publish(true);
    }
    if (now >= next_look) {
      core_->look();
      // One that hangs is killed by the unit's WatchdogSec, and its guardian acts.
      service::notify("WATCHDOG=1");
      const auto facts = core_->facts();
      publish(facts.overwritten != overwritten);
      overwritten = facts.overwritten;
      next_look += ns_of(look_s_);
      if (now = clock_ns(CLOCK_BOOTTIME); next_look <= now) next_look = now + ns_of(look_s_);
    }
    const std::int64_t ends = core_->ends_ns();
    const std::int64_t until = ends ? std::min(ends, next_look) : next_look;
    const itimerspec when{{}, {until / 1'000'000'000, until % 1'000'000'000}};
    ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
    pollfd ready[5] = {{options_.signals, POLLIN, 0}, {timer_, POLLIN, 0}, {wake_, POLLIN, 0}, {options_.with_parent ? STDIN_FILENO : -1, POLLIN, 0},
                       {guardian_gone_ ? -1 : guardian_->descriptor(), 0, 0}};
    if (::poll(ready, 5, -1) < 0) continue;
    if (ready[0].revents) {
      signalfd_siginfo info{};
      (void)!::read(options_.signals, &info, sizeof info);
      return static_cast<int>(info.ssi_signo);
    }
    std::uint64_t count = 0;
    if (ready[1].revents) (void)!::read(timer_, &count, sizeof count);
    if (ready[2].revents) (void)!::read(wake_, &count, sizeof count);
    if (ready[3].revents && parent_ended()) return 0;
    if (ready[4].revents) guardian_gone_ = true;
  }
}

int Daemon::run() {
  const auto& own = config_.node_manager;
  // While this process has one thread, and nothing of the hardware open.
  auto guardian = Guardian::start([this] {
    for (int k = 0; k < release_tries; ++k) {
      if (k) std::this_thread::sleep_for(std::chrono::seconds(k));
      const auto set = set_safe(config_, member_);
      if (set) {
        log_line("the node manager of " + member_.name + " is gone; the safe cap of " + format_power(member_.safe_w) + " was set");
        return;
      }
      log_error(set.error());
      if (set.error().code == "power.read_only") return;
    }
  });
  if (!guardian) return fail(guardian.error(), 3);
  guardian_ = std::move(*guardian);

  auto state = NodeState::open(own.state, member_.name);
  if (!state) {
    // Another one looks after this node.
    if (state.error().code == "power.already_running") guardian_->dismiss();
    return fail(state.error(), 3);
  }
  state_ = std::move(*state);
  auto core = NodeCore::open({member_, [this] { return open_node(config_.node_manager); }, [] { return clock_ns(CLOCK_BOOTTIME); }, [] { return clock_ns(CLOCK_REALTIME); }, random_instance()}, *state_);
  if (!core) {
    // What is written wrongly, the guardian would read as wrongly.
    if (exit_of(core.error()) == 2) guardian_->dismiss();
    return fail(core.error(), exit_of(core.error()));
  }
  core_ = std::move(*core);
  const bool afar = std::any_of(own.hardware.begin(), own.hardware.end(), [](const HardwareSpec& spec) { return spec.kind == Source::redfish || spec.kind == Source::ipmi; });
  look_s_ = std::min(afar ? look_afar_s : look_s, own.telemetry_s);
  timer_ = ::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (timer_ < 0 || wake_ < 0) return fail({"power.no_descriptor", std::string("cannot make a timer: ") + std::strerror(errno), "let it have more descriptors: ulimit -n"}, 3);
  core_->look();
  // From here on the safe cap is set: whatever follows can end in order.
  if (auto served = serve(); !served) {
    if (core_->trouble().empty()) guardian_->dismiss();
    return fail(served.error(), exit_of(served.error()));
  }
  const auto facts = core_->facts();
  event(JsonLine().add("event", "ready").add("role", "node-manager").add("node", member_.name).add("pid", ::getpid()).add("guardian", guardian_->pid()).add("bus", bus_->implementation())
          .add("model", facts.model).add("source", name_of(facts.source)).add("settable", facts.settable).add("min_w", facts.min_w).add("max_w", facts.max_w).add("safe_w", facts.safe_w).add("cap_w", facts.cap_w));
  publish(true);
  service::notify("READY=1");

  const int signal = loop();
  service::notify("STOPPING=1");
  event(JsonLine().add("event", "closing").add("signal", signal));
  // Whoever waits for an answer is told `closing`; nobody lends any more.
  set_.reset();
  get_.reset();
  const bool restore = options_.restore || own.restore;
  const auto ended = core_->end(restore);
  auto last = core_->telemetry(0);
  (void)telemetry_->write(last);
  (void)telemetry_->dispose(last);
  (void)telemetry_->writer().wait_acknowledged(Deadline::in_s(0.5));
  // What could not be set here, it tries once more.
  if (ended) guardian_->dismiss();
  else log_error(ended.error());
  JsonLine line;
  line.add("event", "end").add("signal", signal).add("cap_w", core_->facts().cap_w).add("restored", restore && ended);
  event(line);
  return ended ? 0 : 3;
}

}  // namespace

int run_node_manager(const Config& config, const Options& options) {
  auto member = member_of(config, options);
  if (!member) return fail(member.error(), 2);
  if (config.node_manager.hardware.empty())
    return fail({"power.no_hardware", config.path + " has no [[node-manager.hardware]]", "say what this node has: kind = \"powercap\", \"redfish\", \"ipmi\", \"nvml\", or \"simulated\" for one that is none"}, 2);
  return Daemon(config, options, *member).run();
}

int release(const Config& config, const Options& options, bool restore) {
  auto member = member_of(config, options);
  if (!member) return fail(member.error(), 2);
  auto state = NodeState::open(config.node_manager.state, member->name);
  // A full or broken disk is no reason to leave a cap where it is.
  if (!state && (restore || state.error().code == "power.already_running")) return fail(state.error(), 3);
  if (!state) log_error(state.error());
  auto node = open_node(config.node_manager);
  if (!node) return fail(node.error(), exit_of(node.error()));
  if (restore) {
    auto kept = (*state)->originals();
    if (!kept) return fail(kept.error(), 3);
    if (kept->has_value()) {
      if (auto restored = (*node)->restore(**kept); !restored) return fail(restored.error(), 3);
      if (auto forgotten = (*state)->forget_originals(); !forgotten) return fail(forgotten.error(), 3);
      const auto has = (*node)->capped();
      event(JsonLine().add("event", "released").add("node", member->name).add("restored", true).add("cap_w", has ? *has : unknown));
      return 0;
    }
    log_error({"power.no_originals", "nothing is kept of what the hardware of " + member->name + " had: the safe cap is set", ""});
  }
  if (!restore && config.node_manager.restore && state) {
    // It ended in order, and put everything back.
    if (auto kept = (*state)->originals(); kept && !kept->has_value()) {
      const auto has = (*node)->capped();
      event(JsonLine().add("event", "released").add("node", member->name).add("restored", true).add("cap_w", has ? *has : unknown));
      return 0;
    }
  }
  const auto set = (*node)->cap(member->safe_w);
  if (!set && set.error().code != "power.read_only") return fail(set.error(), 3);
  event(JsonLine().add("event", "released").add("node", member->name).add("restored", false).add("cap_w", set ? *set : unknown));
  return 0;
}

}  // namespace sonde::power
