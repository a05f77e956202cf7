// The system manager as a process: its bus, clock, disk, audit log and page. system.hpp makes the decisions. One thread
// decides; threads of the bus put received messages into a queue, and wait for the result.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <deque>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bus/typed.hpp"
#include "core/clock.hpp"
#include "core/number.hpp"
#include "power/powerd/audit.hpp"
#include "power/powerd/roles.hpp"
#include "power/powerd/system.hpp"
#include "power/powerd/tell.hpp"
#include "power/powerd/wiring.hpp"
#include "service/daemon.hpp"
#include "service/http.hpp"

namespace sonde::power {

namespace {

constexpr double grant_deadline_s = 1, retry_s = 0.25;  ///< the ledger lends again what was not confirmed within 1 s
constexpr double replicate_s = 1;
constexpr std::size_t calls_of_client = 64;  ///< of a bus::Client: most calls under way
constexpr std::size_t clients_of_living =
    3;  ///< one more is for nodes that do not answer: 256 calls of a service can be under way

/// Continues while the machine sleeps, as leases do.
std::int64_t boot_ns() {
  timespec t;
  clock_gettime(CLOCK_BOOTTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
std::int64_t real_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::uint64_t random_instance() {
  std::uint64_t out = 0;
  const int fd = ::open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::read(fd, &out, sizeof out) != sizeof out)
    out ^= static_cast<std::uint64_t>(real_ns()) * 0x9e3779b97f4a7c15ull ^ static_cast<std::uint64_t>(::getpid());
  if (fd >= 0) ::close(fd);
  return out;
}

/// Clients of a service of the nodes. Nodes that do not answer never take the places of those that do.
class Calls {
 public:
  Result<void> open(const std::shared_ptr<bus::Bus>& bus, const char* service, const bus::ServiceTypes& types,
                    std::size_t nodes) {
    const std::size_t living =
        std::clamp<std::size_t>((nodes + calls_of_client - 1) / calls_of_client, 1, clients_of_living);
    for (std::size_t k = 0; k <= living; ++k) {
      auto client = bus::Client::open(bus, service, types);
      if (!client) return client.error();
      clients_.push_back(std::move(*client));
    }
    return {};
  }
  /// Does not wait. Only as many missing nodes are asked at once that no other node waits for its turn.
  template <typename Request>
  void start(std::size_t node, bool missing, const std::string& target, const Request& request, double deadline_s,
             std::function<void(Result<bus::Answer>)> done) {
    if (missing && missing_->load() >= static_cast<int>(calls_of_client)) return;
    std::vector<std::byte> body;
    if (!bus::encode(request, body)) return;
    bus::CallOptions options;
    options.target = target, options.deadline_s = deadline_s, options.retry_s = retry_s;
    if (missing) ++*missing_;
    bus::Client& client = missing ? *clients_.back() : *clients_[node % (clients_.size() - 1)];
    client.start(body, options, [done = std::move(done), missing, count = missing_](Result<bus::Answer> answer) {
      if (missing) --*count;
      done(std::move(answer));
    });
  }
  void close() { clients_.clear(); }

 private:
  std::vector<std::unique_ptr<bus::Client>> clients_;
  std::shared_ptr<std::atomic<int>> missing_ = std::make_shared<std::atomic<int>>(0);
};

class SystemDaemon {
 public:
  SystemDaemon(const Config& config, const Options& options)
      : config_(config), options_(options), name_(own_name(options.name, config.system_manager.name)) {}
  ~SystemDaemon() { stop(); }

  /// Exit code, 0: it started.
  int start();
  void stop();

 private:
  using Task = std::function<void(std::int64_t now_ns)>;
  struct Waiting {
    std::promise<bus::Answer> promise;
  };

  void post(Task task) {
    {
      const std::lock_guard lock(mutex_);
      inbox_.push_back(std::move(task));
    }
    waiter_->wake();
  }
  void run();
  void apply(std::int64_t now_ns);
  void take_samples(std::int64_t now_ns);
  void serve_active(bool serves);
  void send(const Manager::Ask& ask, std::int64_t now_ns);
  void send(std::size_t node, const Grant& grant, std::int64_t now_ns);
  void answered(std::size_t node, std::int64_t asked_ns, Result<bus::Answer> answer);
  void log(const Manager::Line& line);
  void replicate();
  void refresh();
  Manager::Caller caller(const bus::Guid& client) const;
  bus::Server::Handler get_handler();
  bus::Server::Handler set_handler();
  bus::Answer wait_for(std::future<bus::Answer>& answer, const bus::Incoming& incoming) const;
  Result<std::unique_ptr<bus::Server>> server(const char* service, const std::string& name, bool sets);
  std::string bearer(Error& error) const;

  const Config& config_;
  const Options& options_;
  const std::string name_;
  std::string state_path_;
  std::unique_ptr<Manager> manager_;
  std::unique_ptr<Audit> audit_;
  std::shared_ptr<bus::Bus> bus_;
  std::unique_ptr<bus::Subscriber<NodeTelemetry>> node_samples_;
  std::unique_ptr<bus::Subscriber<ClusterTelemetry>> cluster_samples_;
  std::unique_ptr<bus::Subscriber<JobTelemetry>> job_samples_;
  std::unique_ptr<bus::Publisher<ClusterTelemetry>> cluster_out_;
  std::unique_ptr<bus::Waiter> waiter_;
  Calls gets_, sets_;
  std::unique_ptr<bus::Client> managers_;
  std::unique_ptr<bus::Server> own_get_, own_set_, active_get_, active_set_;
  std::unique_ptr<service::Http> http_;
  std::thread thread_, replicator_;
  std::vector<std::future<void>> retiring_;  ///< servers of "active" that are being closed

  std::mutex mutex_;
  std::deque<Task> inbox_;
  std::map<std::uint64_t, Waiting> waiting_;  ///< of the deciding thread
  std::uint64_t orders_ = 0;
  std::atomic<bool> ending_ = false, closed_ = false;

  std::mutex replicate_mutex_;
  std::condition_variable replicate_wake_;
  std::uint64_t replicate_version_ = 0;  ///< 0: no request is under way

  mutable std::mutex page_mutex_;
  SystemAnswer page_;
  Manager::Counts page_counts_;
  bool page_leads_ = false;
  std::uint64_t page_lost_ = 0;
  std::atomic<std::uint64_t> bus_failed_ = 0;
  std::int64_t refreshed_ns_ = 0;
};

std::string SystemDaemon::bearer(Error& error) const {
  const std::string& path = config_.system_manager.metrics_token_file;
  if (path.empty()) return {};
  std::ifstream in(path);
  std::string token;
  if (!std::getline(in, token) || token.empty())
    error = {"power.no_file", "the token for scrapers cannot be read from " + path, "write one line into the file"};
  return token;
}

int SystemDaemon::start() {
  if (name_.empty() || name_ == active_manager || name_.size() > 64)
    return fail({"power.bad_value",
                 "the system manager is called '" + name_ + "'; allowed: 1 to 64 characters, and not \"" +
                     active_manager + "\", which means the leader",
                 "set another name in [system-manager]"});
  state_path_ = kept_path(config_.system_manager.state, name_);
  auto kept = load_kept(state_path_, real_ns());
  if (!kept) return fail(kept.error());
  Manager::Settings s;
  s.cluster = config_.cluster, s.name = name_, s.instance = random_instance(), s.budget = config_.budget,
  s.nodes = config_.nodes, s.racks = config_.racks;
  s.takeover_s = config_.system_manager.takeover_s, s.priority = config_.system_manager.priority;
  s.observe = options_.observe || config_.budget.observe;
  auto manager = Manager::open(s, *kept, boot_ns());
  if (!manager) return fail(manager.error());
  manager_ = std::move(*manager);
  if (const auto& before = *kept; before && before->configured_w == config_.budget.power_limit_w &&
                                  before->budget_w != config_.budget.power_limit_w)
    event(JsonLine()
              .add("event", "budget_of_before")
              .add("budget_w", manager_->budget_w())
              .add("configured_w", config_.budget.power_limit_w)
              .add("why", "it was set after the configuration was written"));
  audit_ = std::make_unique<Audit>(config_.system_manager.audit, config_.system_manager.audit_bytes);
  if (!audit_->works()) log_error(audit_->trouble()), manager_->audit_works(false, audit_->trouble().what);

  auto bus = open_bus(config_, "sonde-system-manager " + name_);
  if (!bus) return fail(bus.error());
  bus_ = std::move(*bus);
  const auto opened = [&]() -> Result<void> {
    auto nodes = bus::Subscriber<NodeTelemetry>::open(bus_, topic::node_telemetry);
    if (!nodes) return nodes.error();
    node_samples_ = std::move(*nodes);
    auto clusters = bus::Subscriber<ClusterTelemetry>::open(bus_, topic::cluster_telemetry);
    if (!clusters) return clusters.error();
    cluster_samples_ = std::move(*clusters);
    auto jobs = bus::Subscriber<JobTelemetry>::open(bus_, topic::job_telemetry);
    if (!jobs) return jobs.error();
    job_samples_ = std::move(*jobs);
    auto out = bus::Publisher<ClusterTelemetry>::open(bus_, topic::cluster_telemetry);
    if (!out) return out.error();
    cluster_out_ = std::move(*out);
    auto waiter = bus_->waiter();
    if (!waiter) return waiter.error();
    waiter_ = std::move(*waiter);
    if (auto ok = waiter_->attach(node_samples_->reader(), 1); !ok) return ok;
    if (auto ok = waiter_->attach(cluster_samples_->reader(), 2); !ok) return ok;
    if (auto ok = gets_.open(bus_, topic::node_get, bus::service_types<NodeQuery, NodeAnswer>(), config_.nodes.size());
        !ok)
      return ok;
    if (auto ok =
            sets_.open(bus_, topic::node_set, bus::service_types<NodeCommand, NodeAnswer>(), config_.nodes.size());
        !ok)
      return ok;
    auto managers = bus::Client::open(bus_, topic::system_get, bus::service_types<SystemQuery, SystemAnswer>());
    if (!managers) return managers.error();
    managers_ = std::move(*managers);
    auto get = server(topic::system_get, name_, false);
    if (!get) return get.error();
    own_get_ = std::move(*get);
    auto set = server(topic::system_set, name_, true);
    if (!set) return set.error();
    own_set_ = std::move(*set);
    return {};
  }();
  if (!opened) return fail(opened.error());
  if (!config_.system_manager.metrics.empty()) {
    Error wrong;
    const std::string& at = config_.system_manager.metrics;
    const auto colon = at.rfind(':');
    unsigned long port = 0;
    if (colon == std::string::npos || !number(std::string_view(at).substr(colon + 1), port) || port > 65535)
      return fail(
          {"power.bad_value", "[system-manager] metrics is '" + at + "'", "write HOST:PORT, like 127.0.0.1:9441"});
    service::HttpConfig page{at.substr(0, colon), static_cast<std::uint16_t>(port), bearer(wrong)};
    if (!wrong.code.empty()) return fail(wrong);
    auto http = service::Http::start(page, [this] {
      const std::lock_guard lock(page_mutex_);
      return metrics_text(page_, page_counts_, page_leads_, page_lost_, bus_failed_.load());
    });
    if (!http) return fail(http.error());
    http_ = std::move(*http);
  }
  JsonLine ready;
  ready.add("event", "ready")
      .add("role", "system-manager")
      .add("manager", name_)
      .add("cluster", config_.cluster)
      .add("pid", ::getpid())
      .add("nodes", config_.nodes.size());
  ready.add("budget_w", manager_->budget_w()).add("observe", s.observe).add("implementation", bus_->implementation());
  if (http_) ready.add("metrics_port", http_->port());
  event(ready);
  thread_ = std::thread([this] { run(); });
  replicator_ = std::thread([this] { replicate(); });
  return 0;
}

void SystemDaemon::stop() {
  ending_ = true;
  if (thread_.joinable()) {
    waiter_->wake();
    thread_.join();
  }
  {
    const std::lock_guard lock(replicate_mutex_);
    replicate_wake_.notify_all();
  }
  if (replicator_.joinable()) replicator_.join();
  closed_ = true;     // handlers return by themselves
  retiring_.clear();  // waits for them
  http_.reset();
  active_get_.reset(), active_set_.reset(), own_get_.reset(), own_set_.reset();
  managers_.reset();
  gets_.close(), sets_.close();
}

// ---- the deciding thread

void SystemDaemon::run() {
  std::deque<Task> tasks;
  for (;;) {
    const std::int64_t wait_ns = std::max<std::int64_t>(manager_->next_ns() - boot_ns(), 0);
    // A machine that slept is served at once: CLOCK_MONOTONIC, on which this waits, stood still.
    waiter_->wait(Deadline{now_ns() + std::min<std::int64_t>(wait_ns, 10'000'000'000) + 1});
    std::int64_t now = boot_ns();
    {
      const std::lock_guard lock(mutex_);
      tasks.swap(inbox_);
    }
    take_samples(now);
    for (auto& task : tasks) {
      task(now);
      apply(now);
    }
    tasks.clear();
    now = boot_ns();
    if (ending_) {
      manager_->close(now);
      apply(now);
      serve_active(false);
      for (auto& [number, waits] : waiting_)
        waits.promise.set_value(bus::Answer{bus::ReplyCode::closing, "the system manager ends", {}, {}, 1});
      waiting_.clear();
      return;
    }
    manager_->tick(now);
    apply(now);
    serve_active(manager_->serves_active());
    if (now - refreshed_ns_ > 500'000'000) refresh(), refreshed_ns_ = now;
  }
}

void SystemDaemon::take_samples(std::int64_t now) {
  node_samples_->take([&](const bus::SampleInfo& info, const NodeTelemetry& t) {
    if (info.has_data) manager_->node_said(t.node, t.lease.report(), t.power_w, t.period_s, t.trouble, 0, now);
  });
  cluster_samples_->take([&](const bus::SampleInfo& info, const ClusterTelemetry& t) {
    if (info.has_data && info.state == bus::InstanceState::alive) manager_->cluster_said(t, now);
  });
  // Not waited for: they count at the next decision.
  job_samples_->take([&](const bus::SampleInfo& info, const JobTelemetry& t) {
    if (info.has_data) manager_->job_said(t, now);
  });
}

void SystemDaemon::log(const Manager::Line& line) {
  if (auto written = audit_->write(line.json, line.sync); !written) manager_->audit_works(false, written.error().what);
  else manager_->audit_works(true);
}

void SystemDaemon::apply(std::int64_t now) {
  for (int round = 0; round < 64; ++round) {
    Manager::Effects effects = manager_->take();
    if (effects.empty()) return;
    for (const auto& line : effects.audit) log(line);
    for (const auto& commit : effects.commits) {
      if (commit.log) {
        log(*commit.log);
        if (commit.must_log && !audit_->works()) {
          manager_->kept(commit.number, audit_->trouble(), now);
          continue;
        }
      }
      manager_->kept(commit.number, save(state_path_, commit.kept, real_ns()), now);
    }
    for (const auto& line : effects.events) event(line);
    for (auto& telemetry : effects.telemetry) {
      telemetry.at_ns = real_ns();
      if (!cluster_out_->write(telemetry)) ++bus_failed_;
    }
    // Grants before requests: a cap that must be lowered waits for nothing.
    for (const auto& [node, grant] : effects.grants) send(node, grant, now);
    for (const auto& ask : effects.asks) send(ask, now);
    for (const auto version : effects.replicate) {
      const std::lock_guard lock(replicate_mutex_);
      replicate_version_ = version;
      replicate_wake_.notify_all();
    }
    for (auto& done : effects.done) {
      const auto at = waiting_.find(done.order);
      if (at == waiting_.end()) continue;
      done.answer.body.cluster.at_ns = real_ns();
      bus::Answer answer{done.answer.code, done.answer.message, {}, {}, 1};
      if (answer.code == bus::ReplyCode::ok)
        if (auto fine = bus::encode(done.answer.body, answer.body); !fine)
          answer = {bus::ReplyCode::failed, fine.error().what, {}, {}, 1};
      at->second.promise.set_value(std::move(answer));
      waiting_.erase(at);
    }
  }
}

void SystemDaemon::refresh() {
  const auto answer = manager_->answer({SystemAsk::GET_POWER}, boot_ns());
  const std::lock_guard lock(page_mutex_);
  page_ = answer.body;
  page_counts_ = manager_->counts();
  page_leads_ = manager_->state() == Manager::State::leading;
  page_lost_ = audit_->lost();
}

// ---- nodes

void SystemDaemon::answered(std::size_t node, std::int64_t asked_ns, Result<bus::Answer> answer) {
  if (!answer) {
    ++bus_failed_;  // it is asked again
    return;
  }
  if (answer->code == bus::ReplyCode::ok) {
    auto told = bus::decode<NodeAnswer>(answer->body);
    if (!told || told->node != config_.nodes[node].member.name) {
      ++bus_failed_;
      return;
    }
    post([this, told = std::move(*told), asked_ns](std::int64_t now) {
      manager_->node_ranges(told.node, told.min_w, told.max_w);
      manager_->node_said(told.node, told.lease.report(), told.power_w, 0, {}, asked_ns, now);
    });
    return;
  }
  if (answer->code == bus::ReplyCode::closing || answer->code == bus::ReplyCode::busy) return;
  post([this, node, code = static_cast<std::uint32_t>(answer->code), message = answer->message](std::int64_t now) {
    manager_->node_refused(node, code, message, now);
  });
}

void SystemDaemon::send(const Manager::Ask& ask, std::int64_t now) {
  const auto done = [this, node = ask.node, now](Result<bus::Answer> answer) {
    answered(node, now, std::move(answer));
  };
  const std::string& target = config_.nodes[ask.node].member.name;
  const double deadline_s = std::max(1.0, config_.budget.period_s);
  if (!ask.fence)
    return gets_.start(ask.node, ask.missing, target, NodeQuery{NodeAsk::GET_POWER_NODE}, deadline_s, done);
  NodeCommand command;
  command.order = NodeOrder::FENCE_NODE;
  command.epoch = manager_->fence().epoch, command.manager = manager_->fence().manager;
  sets_.start(ask.node, ask.missing, target, command, deadline_s, done);
}

void SystemDaemon::send(std::size_t node, const Grant& grant, std::int64_t now) {
  sets_.start(node, false, config_.nodes[node].member.name, NodeCommand::of(grant), grant_deadline_s,
              [this, node, now](Result<bus::Answer> answer) { answered(node, now, std::move(answer)); });
}

// ---- standbys

/// Asks all other managers whether they have stored the budget. A thread of its own, since it waits.
void SystemDaemon::replicate() {
  for (;;) {
    std::uint64_t version = 0;
    {
      std::unique_lock lock(replicate_mutex_);
      replicate_wake_.wait(lock, [&] { return ending_ || replicate_version_; });
      if (ending_) return;
      version = replicate_version_;
      replicate_version_ = 0;
    }
    const Deadline until = Deadline::in_s(replicate_s);
    std::set<std::string> have;
    std::size_t others = 0;
    std::vector<std::byte> body;
    (void)bus::encode(SystemQuery{SystemAsk::GET_INFO}, body);
    do {
      std::set<bus::Guid> known;
      for (const auto& endpoint : bus_->endpoints())
        if (!endpoint.writes && endpoint.topic == topic::system_get && endpoint.participant != bus_->guid())
          known.insert(endpoint.participant);
      others = known.size();
      if (!others) break;
      bus::CallOptions options;
      options.target = "*", options.deadline_s = 0.2, options.retry_s = 0.1;
      auto answers = managers_->call_all(body, options, others + 2);  // this manager's own two among them
      for (const auto& answer : answers ? *answers : std::vector<bus::Answer>{}) {
        if (answer.code != bus::ReplyCode::ok || answer.server == name_ || answer.server == active_manager) continue;
        const auto told = bus::decode<SystemAnswer>(answer.body);
        if (told && (*told).cluster.cluster == config_.cluster && (*told).cluster.budget_version >= version)
          have.insert(answer.server);
      }
    } while (have.size() < others && !until.passed() && !ending_);
    post([this, version, have = have.size(), others](std::int64_t now) {
      manager_->replicated(version, have, others, now);
    });
  }
}

// ---- requests

Manager::Caller SystemDaemon::caller(const bus::Guid& client) const {
  Manager::Caller out;
  out.client = client.text();
  for (const auto& peer : bus_->peers())
    if (std::equal(peer.guid.bytes.begin(), peer.guid.bytes.begin() + 12, client.bytes.begin()))
      out.name = peer.name, out.host = peer.host, out.pid = peer.pid;
  return out;
}

bus::Answer SystemDaemon::wait_for(std::future<bus::Answer>& answer, const bus::Incoming& incoming) const {
  // A waiting request is always answered: by its deadline, or when this manager ends.
  while (answer.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
    if (closed_) return {bus::ReplyCode::closing, "the system manager ends", {}, {}, 1};
    if (incoming.deadline.passed())
      return {bus::ReplyCode::expired, "the call's deadline passed before there was an answer", {}, {}, 1};
  }
  return answer.get();
}

bus::Server::Handler SystemDaemon::get_handler() {
  return [this](const bus::Incoming& incoming) -> bus::Answer {
    auto query = bus::decode<SystemQuery>(incoming.body);
    if (!query) return {bus::ReplyCode::bad_request, query.error().what, {}, {}, 1};
    auto promise = std::make_shared<std::promise<bus::Answer>>();
    auto future = promise->get_future();
    post([this, query = *query, promise](std::int64_t now) {
      auto told = manager_->answer(query, now);
      told.body.cluster.at_ns = real_ns();
      bus::Answer answer{told.code, {}, {}, {}, 1};
      if (auto fine = bus::encode(told.body, answer.body); !fine)
        answer = {bus::ReplyCode::failed, fine.error().what, {}, {}, 1};
      promise->set_value(std::move(answer));
    });
    return wait_for(future, incoming);
  };
}

bus::Server::Handler SystemDaemon::set_handler() {
  return [this](const bus::Incoming& incoming) -> bus::Answer {
    auto command = bus::decode<SystemCommand>(incoming.body);
    if (!command) return {bus::ReplyCode::bad_request, command.error().what, {}, {}, 1};
    auto promise = std::make_shared<std::promise<bus::Answer>>();
    auto future = promise->get_future();
    const auto who = caller(incoming.client);
    post([this, command = std::move(*command), who, deadline = incoming.deadline, promise](std::int64_t now) {
      const std::uint64_t number = ++orders_;
      waiting_[number].promise = std::move(*promise);
      const std::int64_t deadline_ns = deadline.at_ns ? now + (deadline.at_ns - sonde::now_ns()) : 0;
      manager_->order(number, command, who, deadline_ns, now);
    });
    return wait_for(future, incoming);
  };
}

Result<std::unique_ptr<bus::Server>> SystemDaemon::server(const char* service, const std::string& name, bool sets) {
  bus::ServerOptions options;
  options.name = name;
  options.threads = sets ? 8 : 2;  // an order may wait until the nodes comply
  return sets ? bus::Server::open(bus_, service, bus::service_types<SystemCommand, SystemAnswer>(), set_handler(),
                                  options)
              : bus::Server::open(bus_, service, bus::service_types<SystemQuery, SystemAnswer>(), get_handler(),
                                  options);
}

void SystemDaemon::serve_active(bool serves) {
  if (serves == (active_get_ != nullptr)) return;
  if (serves) {
    auto get = server(topic::system_get, active_manager, false);
    auto set = server(topic::system_set, active_manager, true);
    if (!get || !set) {
      log_error(get ? set.error() : get.error());  // tried again at the next step
      return;
    }
    active_get_ = std::move(*get), active_set_ = std::move(*set);
    return;
  }
  // Its handlers may wait for this thread: another thread waits for them.
  std::erase_if(retiring_,
                [](std::future<void>& f) { return f.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  retiring_.push_back(
      std::async(std::launch::async,
                 [get = std::move(active_get_), set = std::move(active_set_)]() mutable { get.reset(), set.reset(); }));
}

}  // namespace

int run_system_manager(const Config& config, const Options& options) {
  SystemDaemon daemon(config, options);
  if (const int code = daemon.start(); code) return code;
  service::notify("READY=1");
  const int signal = service::wait_for_end(options.signals, options.with_parent);
  service::notify("STOPPING=1");
  daemon.stop();
  event(JsonLine().add("event", "end").add("signal", signal));
  return 0;
}

}  // namespace sonde::power
