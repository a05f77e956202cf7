// Role node-manager: the bus, timers and signals around NodeCore.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bus/typed.hpp"
#include "core/nearest.hpp"
#include "core/units.hpp"
#include "power/hardware/guardian.hpp"
#include "power/messages.hpp"
#include "power/powerd/node_core.hpp"
#include "power/powerd/pace.hpp"
#include "power/powerd/roles.hpp"
#include "power/powerd/tell.hpp"
#include "power/powerd/wiring.hpp"
#include "service/daemon.hpp"

namespace sonde::power {

namespace {

constexpr double look_s = 1, look_afar_s = 5;  // a BMC is asked less often: it has other work
constexpr int release_tries = 3;
constexpr double least_gap_s = 0.1;  // least time between two reports, however often the cap changes
constexpr double slow_told_s = 0.5;  // check interval while the hardware is waited for
constexpr double alive_told_s = 1;   // interval of messages to the unit's watchdog
constexpr double exchange_timeouts =
    8;  // an exchange with all hardware takes at most this many `timeout` of each BMC, and
constexpr double least_exchange_s = 20;  // this for the rest

std::int64_t clock_ns(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// The longest time of one exchange with the hardware.
double exchange_s(const NodeManagerConfig& config) {
  double out = least_exchange_s;
  for (const auto& spec : config.hardware)
    if (spec.kind == Source::redfish || spec.kind == Source::ipmi) out += exchange_timeouts * spec.timeout_s;
  return out;
}

std::int64_t ns_of(double s) { return static_cast<std::int64_t>(s * 1e9); }

Pace::Now clocks() { return {clock_ns(CLOCK_BOOTTIME), clock_ns(CLOCK_REALTIME)}; }

std::uint64_t random_instance() {
  std::uint64_t out = 0;
  while (out == 0)
    if (::getrandom(&out, sizeof out, 0) != sizeof out)
      out = static_cast<std::uint64_t>(clock_ns(CLOCK_REALTIME)) ^ static_cast<std::uint64_t>(::getpid()) << 48;
  return out;
}

Result<Member> member_of(const Config& config, const Options& options) {
  const std::string name = own_name(options.name, config.node_manager.name);
  std::vector<std::string> names;
  for (const auto& node : config.nodes) {
    if (node.member.name == name) return node.member;
    if (names.size() < 4096) names.push_back(node.member.name);
  }
  return Error{"power.unknown_node",
               "the node " + name + " is not in [[nodes]] of " + config.path + nearest(name, names),
               "add it there, or set the node's name: --name NODE, or `name` of [node-manager]"};
}

/// The first hardware that an order on the bus would set: this machine's own, or a BMC's. Simulated hardware, or a tree
/// of files elsewhere, does not count.
const HardwareSpec* set_by_orders(const NodeManagerConfig& config) {
  for (const auto& spec : config.hardware) {
    const bool files = spec.kind == Source::powercap || spec.kind == Source::cpufreq;
    if (!spec.read_only && spec.kind != Source::simulated && (!files || spec.root == "/sys")) return &spec;
  }
  return nullptr;
}

/// Errors: power.open_bus; those of bus_profile().
Result<void> check_bus(const Config& config, const Member& member) {
  const auto* hardware = set_by_orders(config.node_manager);
  if (!hardware) return {};
  auto profile = bus_profile(config, "");
  if (!profile) return profile.error();
  if (profile->security || profile->unprotected) return {};
  return Error{"power.open_bus",
               std::string("the node manager would set the ") + name_of(hardware->kind) + " of " + member.name +
                   " on orders from any sender on its bus, because this bus checks no identity",
               "add <security> to the profile of [bus], with keys from 'sonde bus keys init'; if every user of this "
               "machine may set its power, write unprotected=\"yes\" in the profile"};
}

Result<std::unique_ptr<Node>> open_node(const NodeManagerConfig& config) {
  return Node::open({config.base_w, config.hardware});
}

/// The action of the watchdog process: it uses nothing of the daemon's.
class SafeCap {
 public:
  SafeCap(const Config& config, const Member& member) : config_(config), member_(member) {}

  Guardian::Did act(Guardian::Why why) {
    if (why == Guardian::Why::armed) return open() ? Guardian::Did::nothing : Guardian::Did::failed;
    const int tries = why == Guardian::Why::gone ? release_tries : 1;
    for (int k = 0; k < tries; ++k) {
      if (k) std::this_thread::sleep_for(std::chrono::seconds(k));
      const auto did = once(why);
      if (did) return *did;
      // Tried again each second, but logged once.
      if (did.error().code + did.error().what != told_) log_error(did.error());
      told_ = did.error().code + did.error().what;
      node_.reset();
      if (did.error().code == "power.read_only") break;
    }
    return Guardian::Did::failed;
  }

 private:
  bool open() {
    if (node_) return true;
    auto node = open_node(config_.node_manager);
    if (node) node_ = std::move(*node);
    return static_cast<bool>(node);
  }
  Result<Guardian::Did> once(Guardian::Why why) {
    if (!node_) {
      auto node = open_node(config_.node_manager);
      if (!node) return node.error();
      node_ = std::move(*node);
    }
    if (why == Guardian::Why::late) {
      // It runs again and again: an earlier, delayed call may also set the hardware.
      const auto has = node_->capped();
      if (has && *has <= member_.safe_w + 1) return Guardian::Did::nothing;
    }
    const auto set = node_->cap(member_.safe_w);
    if (!set) return set.error();
    told_.clear();
    log_line("the node manager of " + member_.name +
             (why == Guardian::Why::gone ? " has ended" : " let a lease run out") + "; the safe cap of " +
             format_power(member_.safe_w) + " was set");
    return Guardian::Did::set;
  }

  const Config& config_;
  const Member member_;
  std::unique_ptr<Node> node_;
  std::string told_;
};

/// Waits for the hardware, so that the thread of leases and reports need not. One thing at a time.
class Hands {
 public:
  struct Done {
    bool looked = false, expired = false;
  };
  Hands(NodeCore& core, int wake) : core_(core), wake_(wake), thread_([this] { run(); }) {}
  ~Hands() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void look() { ask(&Done::looked); }
  void expire() { ask(&Done::expired); }
  /// The work done since the last call.
  Done take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }
  bool busy() {
    const std::lock_guard lock(mutex_);
    return works_ || asked_.looked || asked_.expired;
  }

 private:
  void ask(bool Done::* what) {
    {
      const std::lock_guard lock(mutex_);
      asked_.*what = true;
    }
    changed_.notify_one();
  }
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ends_ || asked_.looked || asked_.expired; });
      if (ends_) return;
      const Done now = std::exchange(asked_, {});
      works_ = true;
      lock.unlock();
      if (now.expired) core_.expire();
      if (now.looked) core_.look();
      lock.lock();
      works_ = false;
      done_.looked |= now.looked, done_.expired |= now.expired;
      const std::uint64_t one = 1;
      (void)!::write(wake_, &one, sizeof one);
    }
  }

  NodeCore& core_;
  const int wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Done asked_, done_;
  bool works_ = false, ends_ = false;
  std::thread thread_;
};

class Daemon {
 public:
  Daemon(const Config& config, const Options& options, const Member& member)
      : config_(config), options_(options), member_(member) {}

  int run();

 private:
  Result<void> serve();
  void publish(bool looked, bool at_once);
  void tell_trouble();
  /// Returns the signal that ended it, 0: the end of standard input did.
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
  std::unique_ptr<Pace> pace_;
  std::int64_t published_ns_ = 0;  ///< the last report
  std::uint64_t published_changes_ = 0;
  bool publish_failed_ = false, guardian_gone_ = false;
};

bus::AnswerOf<NodeAnswer> Daemon::obey(const NodeCommand& command) {
  const auto reply = core_->obey(command);
  // The end of the lease, or the cap, differs from the last report.
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
  auto get =
      bus::Server::open(bus_, topic::node_get, bus::service_types<NodeQuery, NodeAnswer>(),
                        bus::handler<NodeQuery, NodeAnswer>([this](const bus::Incoming&, const NodeQuery& query) {
                          bus::AnswerOf<NodeAnswer> out;
                          out.body = core_->answer(query.ask);
                          return out;
                        }),
                        options);
  if (!get) return get.error();
  get_ = std::move(*get);
  auto set = bus::Server::open(bus_, topic::node_set, bus::service_types<NodeCommand, NodeAnswer>(),
                               bus::handler<NodeCommand, NodeAnswer>(
                                   [this](const bus::Incoming&, const NodeCommand& command) { return obey(command); }),
                               options);
  if (!set) return set.error();
  set_ = std::move(*set);
  return {};
}

void Daemon::tell_trouble() {
  std::string now = core_->trouble();
  if (now.empty() && guardian_gone_)
    now =
        "power.no_guardian: the watchdog process, which sets the safe cap after a kill -9, has ended; start the node "
        "manager again";
  if (now == told_) return;
  const std::string& about = now.empty() ? told_ : now;  // of a trouble that has ended, which one it was
  const auto colon = about.find(": ");
  event(JsonLine()
            .add("event", now.empty() ? "mended" : "trouble")
            .add("code", about.substr(0, colon))
            .add("what", colon == std::string::npos ? "" : about.substr(colon + 2)));
  told_ = now;
  log_line(now.empty() ? "no trouble any more" : now);
}

void Daemon::publish(bool looked, bool at_once) {
  const Pace::Now at = clocks();
  const std::int64_t now = at.boottime_ns;
  const std::string before = told_;
  tell_trouble();
  const std::uint64_t changes = core_->cap_changes();
  const bool in_turn = pace_->due(at, looked);
  if (!in_turn && !at_once && told_ == before &&
      !(changes != published_changes_ && now - published_ns_ >= ns_of(least_gap_s)))
    return;
  const double since_s = in_turn ? pace_->reported(at) : 0;
  auto sample = core_->telemetry(since_s > 0 ? since_s : config_.node_manager.telemetry_s);
  if (sample.trouble.empty()) sample.trouble = told_.substr(0, 256);
  published_ns_ = now, published_changes_ = changes;
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
  Hands hands(*core_, wake_);
  const std::int64_t exchange_ns = ns_of(exchange_s(config_.node_manager));
  std::int64_t asked_ns = 0, alive_ns = 0;
  std::uint64_t overwritten = 0, guarded = 0;
  for (;;) {
    const auto done = hands.take();
    if (done.expired) event(JsonLine().add("event", "lease_ended").add("cap_w", core_->facts().cap_w));
    const auto facts = core_->facts();
    if (facts.guarded != guarded)
      event(JsonLine().add("event", "guardian_acted").add("times", facts.guarded).add("cap_w", facts.cap_w));
    publish(done.looked, done.expired || facts.overwritten != overwritten || facts.guarded != guarded);
    overwritten = facts.overwritten, guarded = facts.guarded;

    const Pace::Now at = clocks();
    const std::int64_t now = at.boottime_ns;
    const bool busy = hands.busy();
    // WatchdogSec of the unit kills a process that hangs, and the watchdog process acts. A BMC that does not answer is
    // no reason for that: a restart would not make it faster.
    const bool hangs = busy && now - std::max(core_->moved_ns(), asked_ns) > exchange_ns;
    if (!hangs && (!alive_ns || now - alive_ns >= ns_of(alive_told_s))) alive_ns = now, service::notify("WATCHDOG=1");
    const std::int64_t ends = core_->ends_ns();
    const bool over = ends && ends <= now;
    if (over && !busy) hands.expire(), asked_ns = now;
    if (now >= pace_->next_ns() && !busy) {
      hands.look(), asked_ns = now;
      pace_->looks(at);
    }
    std::int64_t until = ends && !over ? std::min(ends, pace_->next_ns()) : pace_->next_ns();
    // Slow hardware is reported, even if an order waits for it.
    if (const std::int64_t soon = now + ns_of(slow_told_s); busy || over)
      until = until > now ? std::min(until, soon) : soon;
    if (core_->cap_changes() != published_changes_) until = std::min(until, published_ns_ + ns_of(least_gap_s));
    const itimerspec when{{}, {until / 1'000'000'000, until % 1'000'000'000}};
    ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
    pollfd ready[5] = {{options_.signals, POLLIN, 0},
                       {timer_, POLLIN, 0},
                       {wake_, POLLIN, 0},
                       {options_.with_parent ? STDIN_FILENO : -1, POLLIN, 0},
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
  // To open the hardware, read it, set the safe cap, and look: a start that waits for a BMC does not hang.
  service::notify(("EXTEND_TIMEOUT_USEC=" + std::to_string(static_cast<std::int64_t>(4e6 * exchange_s(own)))).c_str());
  const bool afar = std::any_of(own.hardware.begin(), own.hardware.end(), [](const HardwareSpec& spec) {
    return spec.kind == Source::redfish || spec.kind == Source::ipmi;
  });
  // While this process has one thread, and no hardware is open.
  auto guardian = Guardian::start(
      [safe = std::make_shared<SafeCap>(config_, member_)](Guardian::Why why) { return safe->act(why); },
      afar ? look_afar_s : look_s);
  if (!guardian) return fail(guardian.error());
  guardian_ = std::move(*guardian);

  auto state = NodeState::open(own.state, member_.name);
  if (!state) {
    // Another process supervises this node.
    if (state.error().code == "power.already_running") guardian_->dismiss();
    return fail(state.error());
  }
  state_ = std::move(*state);
  NodeCore::Settings settings;
  settings.member = member_, settings.instance = random_instance();
  settings.open = [this] { return open_node(config_.node_manager); };
  settings.boottime_ns = [] { return clock_ns(CLOCK_BOOTTIME); },
  settings.realtime_ns = [] { return clock_ns(CLOCK_REALTIME); };
  settings.watch = [this](std::int64_t boottime_ns) { guardian_->until(boottime_ns); };
  settings.watch_acted = [this] { return guardian_->acted(); };
  auto core = NodeCore::open(std::move(settings), *state_);
  if (!core) {
    // The watchdog process would read a wrong configuration the same way.
    if (kind_of(core.error()) == ErrorKind::usage) guardian_->dismiss();
    return fail(core.error());
  }
  core_ = std::move(*core);
  timer_ = ::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (timer_ < 0 || wake_ < 0)
    return fail({"power.no_descriptor", std::string("cannot make a timer: ") + std::strerror(errno),
                 "raise the limit of descriptors: ulimit -n"});
  pace_ = std::make_unique<Pace>(ns_of(std::min(afar ? look_afar_s : look_s, own.telemetry_s)), ns_of(own.telemetry_s),
                                 own.in_step, clock_ns(CLOCK_BOOTTIME));
  core_->look();
  // The safe cap is set: an orderly end is possible from here on.
  if (auto served = serve(); !served) {
    if (core_->trouble().empty()) guardian_->dismiss();
    return fail(served.error());
  }
  const auto facts = core_->facts();
  event(JsonLine()
            .add("event", "ready")
            .add("role", "node-manager")
            .add("node", member_.name)
            .add("pid", ::getpid())
            .add("guardian", guardian_->pid())
            .add("bus", bus_->implementation())
            .add("model", facts.model)
            .add("source", name_of(facts.source))
            .add("settable", facts.settable)
            .add("min_w", facts.min_w)
            .add("max_w", facts.max_w)
            .add("safe_w", facts.safe_w)
            .add("cap_w", facts.cap_w));
  publish(true, true);
  service::notify("READY=1");

  const int signal = loop();
  service::notify("STOPPING=1");
  event(JsonLine().add("event", "closing").add("signal", signal));
  // Callers that wait for an answer get `closing`; no manager can lend any more.
  set_.reset();
  get_.reset();
  const bool restore = options_.restore || own.restore;
  const auto ended = core_->end(restore);
  auto last = core_->telemetry(0);
  (void)telemetry_->write(last);
  (void)telemetry_->dispose(last);
  (void)telemetry_->writer().wait_acknowledged(Deadline::in_s(0.5));
  // If the safe cap could not be set here, the watchdog process tries once more.
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
  if (!member) return fail(member.error());
  if (config.node_manager.hardware.empty()) {
    fail({"power.no_hardware", config.path + " has no [[node-manager.hardware]]",
          "add it, with kind = \"powercap\", \"redfish\", \"ipmi\", \"nvml\", or \"simulated\" for "
          "a simulated node"});
    return 2;  // the file lacks it; elsewhere the code says that the machine does
  }

  if (auto checked = check_bus(config, *member); !checked) return fail(checked.error());
  return Daemon(config, options, *member).run();
}

int release(const Config& config, const Options& options, bool restore) {
  auto member = member_of(config, options);
  if (!member) return fail(member.error());
  auto state = NodeState::open(config.node_manager.state, member->name);
  // A full or broken disk is no reason to leave a cap in place.
  if (!state && (restore || state.error().code == "power.already_running")) return fail(state.error());
  if (!state) log_error(state.error());
  auto node = open_node(config.node_manager);
  if (!node) return fail(node.error());
  if (restore) {
    auto kept = (*state)->originals();
    if (!kept) return fail(kept.error());
    if (const auto& originals = *kept) {
      if (auto restored = (*node)->restore(*originals); !restored) return fail(restored.error());
      if (auto forgotten = (*state)->forget_originals(); !forgotten) return fail(forgotten.error());
      const auto has = (*node)->capped();
      event(JsonLine()
                .add("event", "released")
                .add("node", member->name)
                .add("restored", true)
                .add("cap_w", has ? *has : unknown));
      return 0;
    }
    log_error({"power.no_originals",
               "no settings from before the first cap are stored for the hardware of " + member->name +
                   ": the safe cap is set",
               ""});
  }
  if (!restore && config.node_manager.restore && state) {
    // The node manager ended in order, and restored everything.
    if (auto kept = (*state)->originals(); kept && !kept->has_value()) {
      const auto has = (*node)->capped();
      event(JsonLine()
                .add("event", "released")
                .add("node", member->name)
                .add("restored", true)
                .add("cap_w", has ? *has : unknown));
      return 0;
    }
  }
  const auto set = (*node)->cap(member->safe_w);
  if (!set && set.error().code != "power.read_only") return fail(set.error());
  event(JsonLine()
            .add("event", "released")
            .add("node", member->name)
            .add("restored", false)
            .add("cap_w", set ? *set : unknown));
  return 0;
}

}  // namespace sonde::power
