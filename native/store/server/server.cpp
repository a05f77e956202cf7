#include "store/server/server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "core/clock.hpp"
#include "core/json.hpp"
#include "store/auth.hpp"
#include "store/server/reactor.hpp"
#include "store/server/session.hpp"
#include "store/transport.hpp"

namespace sonde::store {

namespace {

constexpr Role all_roles[] = {Role::data, Role::kv, Role::db};
constexpr double log_every_s = 60;

/// again: a client that hears it tries once more by itself.
Outgoing unavailable(const std::string& what, const std::string& hint, bool again = false) {
  wire::Text text{{"code", "store.unavailable"}, {"what", what}, {"hint", hint}};
  if (again) text.emplace_back("again", "1");
  return plain_frame(wire::Kind::goodbye, bytes_of(wire::encode_text(text)));
}

/// A quarter of the machine's memory, at least 64 MiB.
std::size_t usual_client_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  const std::size_t all = pages > 0 && page > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page) : 0;
  return std::max(all / 4, std::size_t{64} << 20);
}

int open_spare() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

Result<std::unique_ptr<Server>> Server::start(ServerConfig config) {
  try {
    return open(std::move(config));
  } catch (const std::system_error& e) {
    return Error{"store.unavailable", std::string("the server cannot start a thread: ") + e.what(),
                 "allow this user more processes: ulimit -u, TasksMax= of a systemd unit"};
  } catch (const std::bad_alloc&) {
    return Error{"store.unavailable", "the server ran out of memory while starting",
                 "allow it more: ulimit -v, MemoryMax= of a systemd unit"};
  }
}

Result<std::unique_ptr<Server>> Server::open(ServerConfig config) {
  std::unique_ptr<Server> server(new Server);
  server->config_ = std::move(config);
  const ServerConfig& c = server->config_;
  server->budget_ = std::make_unique<Budget>(c.client_memory ? c.client_memory : usual_client_memory());
  server->gate_ = std::make_unique<Gate>(c.connections, server->budget_->max());
  server->credentials_ = std::make_unique<Credentials>(server->gate_->unproven_max());
  if (c.backends.empty())
    return Error{"store.no_backend", "the server has no backend, so it has no role",
                 "give at least one: --backend data=memory, kv=memory or db=sqlite,path=…"};
  auto address = parse_address(c.listen);
  if (!address) return address.error();
  const auto known = auth::methods();
  if (std::find(known.begin(), known.end(), c.auth) == known.end())
    return Error{"store.bad_auth", "there is no authentication '" + c.auth + "'", "use user, token, munge or none"};
  if (c.auth == "none" && !is_loopback(*address))
    return Error{"store.not_loopback",
                 "without authentication a server listens on loopback only, and " + address->host + " is not",
                 "leave --auth out, or give --auth token --token-file FILE, or --auth munge"};
  for (std::string& name : server->config_.known_as) {
    auto known = parse_address(name);
    in6_addr number{};
    if (!known || (::inet_pton(AF_INET, (*known).host.c_str(), &number) != 1 &&
                   ::inet_pton(AF_INET6, (*known).host.c_str(), &number) != 1))
      return Error{"store.usage", "--known-as '" + name + "' is not a numeric address",
                   "give the address that clients use, such as 10.0.0.17:5440 or [fd00::17]:5440"};
    name = (*known).text();
  }
  if (c.tls != "off" && c.tls != "offer" && c.tls != "require")
    return Error{"store.usage", "--tls '" + c.tls + "' is not known", "use off, offer or require"};
  if (c.tls != "off" && c.auth != "user" && c.auth != "token")
    return Error{"store.usage", "TLS makes its key from a secret, but there is no secret with --auth " + c.auth,
                 "use --auth user or token, or leave --tls out"};
  if (c.auth == "user") {
    auto key = auth::user_key(true);
    if (!key) return key.error();
    server->token_ = *key;
  }
  if (c.auth == "token") {
    auto token = auth::read_token(c.token_file, true);
    if (!token) return token.error();
    server->token_ = *token;
  }
  // Without munged no client could ever connect: report this now, not to each client.
  if (c.auth == "munge") {
    auto trial = auth::munge_credential("sonde store serve");
    if (!trial)
      return Error{trial.error().code, trial.error().what + "; so no client could connect",
                   trial.error().hint + " 'sonde doctor' makes the same trial"};
  }
  for (const auto& spec : c.backends) {
    auto& lane = server->lanes_[static_cast<std::size_t>(spec.role)];
    if (lane)
      return Error{"store.bad_backend", "two backends for the role " + std::string(name_of(spec.role)),
                   "give one for each role; start another server for the other"};
    auto backend = open_backend(spec.role, spec.name, spec.settings);
    if (!backend) return backend.error();
    lane = std::make_unique<Lane>(spec.role, std::move(*backend), server->metrics_);
  }
  server->all_transports_ = c.transports.empty() && is_loopback(*address);
  for (const auto& name : c.transports)
    if (auto there = open_transport(name); name != "tcp" && !there) return there.error();
  auto listener = tcp_listen(*address, server->port_);
  if (!listener) return listener.error();
  server->listener_ = *listener;
  server->config_.listen = Address{address->host, server->port_}.text();
  server->wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  server->spare_ = open_spare();
  server->started_s_ = now_s();
  for (unsigned k = 0; k < std::max(1u, c.threads); ++k)
    server->reactors_.push_back(std::make_unique<Reactor>(*server));
  server->acceptor_ = std::thread([s = server.get()] { s->accept_all(); });
  return server;
}

bool Server::serves(const std::string& transport) const {
  const auto& named = config_.transports;
  return transport == "tcp" || all_transports_ || std::find(named.begin(), named.end(), transport) != named.end();
}

Server::~Server() {
  stop();
  if (listener_ >= 0) ::close(listener_);
  if (wake_ >= 0) ::close(wake_);
  if (spare_ >= 0) ::close(spare_);
}

std::string Server::address() const { return config_.listen; }

void Server::accept_all() noexcept {
  for (;;) {
    pollfd ready[2] = {{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0 && errno != EINTR) return;
    if (stopping()) return;
    if (const int wait_ms = gate_->crowded_ms()) {
      ::poll(&ready[1], 1, std::min(wait_ms, 5));  // by then one may have proved itself
      if (stopping()) return;
      continue;
    }
    try {
      accept_one();
    } catch (...) {  // out of memory: the next may come when there is some
      failed("a connection could not be accepted: out of memory");
    }
  }
}

void Server::accept_one() {
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) cannot_accept(errno);
    return;
  }
  // The spare one went to another thread, if only for a moment (the first malloc of a thread reads a file): this one
  // becomes it.
  if (spare_ < 0) spare_ = open_spare();
  if (spare_ < 0) {
    const Error why = no_descriptor(errno);
    refuse(fd, why.what, why.hint);
    spare_ = open_spare();
    return;
  }
  serve(fd);
}

void Server::log(const Error& error) {
  if (!config_.log) return;
  const std::lock_guard lock(log_mutex_);
  const double now = now_s();
  if (logged_s_ != 0 && now - logged_s_ <= log_every_s) return;
  logged_s_ = now;
  config_.log(error);
}

void Server::failed(std::string_view what) noexcept {
  try {
    metrics_.failed(std::string(what));
    log({"store.unavailable", std::string(what),
         "allow the server more memory: MemoryMax= of a systemd unit, ulimit -v"});
  } catch (...) {
    return;  // there is no memory to report it
  }
}

Error Server::no_descriptor(int error) {
  Error why{"store.no_descriptor", std::string("cannot accept a connection: ") + std::strerror(error),
            "free memory on this host"};
  if (error == EMFILE) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    why.what += ": this server may have " + std::to_string(limit.rlim_cur) + " descriptors open, and has";
    why.hint =
        "allow it more (ulimit -Hn, LimitNOFILE= of a systemd unit), or limit its connections: "
        "--connections";
  } else if (error == ENFILE) {
    why.hint = "allow this host more: sysctl fs.file-max";
  }
  return why;
}

/// The connection is still in the queue, so that accepting again at once would spin. It is accepted nevertheless and
/// gets the reason, or it stays in the queue for a while.
void Server::cannot_accept(int error) {
  const Error why = no_descriptor(error);
  metrics_.failed(why.what);
  log(why);
  int fd = -1;
  if (spare_ >= 0) {
    ::close(spare_);
    fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  }
  if (fd >= 0) refuse(fd, why.what, why.hint);
  spare_ = open_spare();
  if (fd >= 0) return;
  pollfd ended{wake_, POLLIN, 0};
  ::poll(&ended, 1, 100);
}

void Server::serve(int fd) noexcept {
  try {
    admit(fd);
  } catch (...) {
    metrics_.dropped.fetch_add(1, std::memory_order_relaxed);
    failed("a connection was not accepted: out of memory");
    ::close(fd);
  }
}

void Server::admit(int fd) {
  if (!budget_->admits(Session::entry_bytes)) {
    const Error why = Session::no_room(*budget_);
    return refuse(fd, why.what, why.hint);
  }
  Reactor* least = reactors_.front().get();
  for (auto& r : reactors_)
    if (r->sessions() < least->sessions()) least = r.get();
  const Outgoing words =
      unavailable("another connection takes the place of this one, which is not authenticated yet; there are " +
                      std::to_string(gate_->unproven_max()) + " such places",
                  "connect again; check which other clients connect to this server", true);
  bool room = false;
  const std::uint64_t place = gate_->enter(fd, peer_of(fd), text_of(words.head), room);
  if (room) ++metrics_.refused;
  try {
    least->add(fd, place);
  } catch (...) {
    gate_->leave(place);
    throw;
  }
}

void Server::refuse(int fd, const std::string& what, const std::string& hint) {
  ++metrics_.refused;
  const Outgoing no = unavailable(what, hint);
  (void)!::send(fd, no.head.data(), no.head.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::close(fd);
}

void Server::stop(double grace_s) {
  if (stopped_) return;
  stopped_ = true;
  stopping_ = true;
  const std::uint64_t one = 1;
  if (wake_ >= 0) (void)!::write(wake_, &one, sizeof one);
  if (acceptor_.joinable()) acceptor_.join();
  // New connections are now refused at once, instead of waiting for an answer.
  if (listener_ >= 0) ::close(std::exchange(listener_, -1));
  const Deadline by = Deadline::in_s(grace_s);
  for (auto& r : reactors_) r->stop(by);
  abandoned_ = true;
  credentials_.reset();  // its answers go to sessions, which still exist
  // Lanes first: what they still have asks for its lane, and posts to reactors, which are only memory now.
  for (auto& lane : lanes_)
    if (lane) lane->finish();
  for (auto& lane : lanes_) lane.reset();
  reactors_.clear();
}

std::string Server::status() const {
  JsonLine json;
  json.add("version", SONDE_VERSION)
      .add("listen", config_.listen)
      .add("auth", config_.auth)
      .add("up_s", now_s() - started_s_);
  std::string roles = "[";
  for (const Role role : all_roles) {
    const auto k = static_cast<std::size_t>(role);
    if (!lanes_[k]) continue;
    const auto spec =
        std::find_if(config_.backends.begin(), config_.backends.end(), [&](const auto& b) { return b.role == role; });
    JsonLine one;
    one.add("role", name_of(role)).add("backend", spec->name).add("detail", lanes_[k]->backend().describe());
    one.add("messages", metrics_.worked[k].count());
    one.add("wait_p50_s", metrics_.waited[k].quantile_s(.5)).add("wait_p99_s", metrics_.waited[k].quantile_s(.99));
    one.add("backend_p50_s", metrics_.worked[k].quantile_s(.5))
        .add("backend_p99_s", metrics_.worked[k].quantile_s(.99));
    one.add("syncs", metrics_.synced[k].count())
        .add("sync_p50_s", metrics_.synced[k].quantile_s(.5))
        .add("sync_p99_s", metrics_.synced[k].quantile_s(.99));
    one.add("waiting", lanes_[k]->waiting());
    if (const std::string broken = lanes_[k]->broken(); !broken.empty()) one.add("broken", broken);
    roles += (roles.size() > 1 ? "," : "") + one.text();
  }
  json.raw("roles", roles + "]");
  JsonLine operations, outcomes;
  for (std::size_t k = 0; k < metrics_.operations.size(); ++k)
    if (const auto n = metrics_.operations[k].load(std::memory_order_relaxed))
      operations.add(name_of(static_cast<Code>(k)), n);
  for (std::size_t k = 0; k < metrics_.outcomes.size(); ++k)
    if (const auto n = metrics_.outcomes[k].load(std::memory_order_relaxed))
      outcomes.add(name_of(static_cast<Status>(k)), n);
  json.raw("operations", operations.text()).raw("outcomes", outcomes.text());
  json.add("connections", metrics_.connections.load())
      .add("connections_ever", metrics_.connections_ever.load())
      .add("refused", metrics_.refused.load())
      .add("dropped", metrics_.dropped.load())
      .add("foreign_messages", foreign_messages().load());
  json.add("client_memory_bytes", budget_->used())
      .add("client_memory_max_bytes", budget_->max())
      .add("client_memory_refused", budget_->refused());
  json.add("frames", metrics_.frames.load()).add("bad_frames", metrics_.bad_frames.load());
  json.add("bytes_in", metrics_.bytes_in.load()).add("bytes_out", metrics_.bytes_out.load());
  json.add("last_error", metrics_.last_error()).add("last_error_s_ago", metrics_.last_error_s_ago());
  json.add("last_refused", metrics_.last_refused()).add("last_refused_s_ago", metrics_.last_refused_s_ago());
  return json.text();
}

std::string Server::metrics_text() const {
  std::string out;
  char line[256];
  const auto family = [&](const char* name, const char* type, const char* help, const char* unit = nullptr) {
    out += std::string("# TYPE ") + name + ' ' + type + '\n';
    if (unit) out += std::string("# UNIT ") + name + ' ' + unit + '\n';
    out += std::string("# HELP ") + name + ' ' + help + '\n';
  };
  family("sonde_store_operations", "counter", "Operations executed or refused, by kind.");
  for (std::size_t k = 0; k < metrics_.operations.size(); ++k)
    if (const auto n = metrics_.operations[k].load(std::memory_order_relaxed)) {
      std::snprintf(line, sizeof line, "sonde_store_operations_total{operation=\"%s\"} %llu\n",
                    std::string(name_of(static_cast<Code>(k))).c_str(), static_cast<unsigned long long>(n));
      out += line;
    }
  family("sonde_store_outcomes", "counter", "Operations by their status.");
  for (std::size_t k = 0; k < metrics_.outcomes.size(); ++k)
    if (const auto n = metrics_.outcomes[k].load(std::memory_order_relaxed)) {
      std::snprintf(line, sizeof line, "sonde_store_outcomes_total{status=\"%s\"} %llu\n",
                    std::string(name_of(static_cast<Status>(k))).c_str(), static_cast<unsigned long long>(n));
      out += line;
    }
  const auto counter = [&](const char* name, const char* help, std::uint64_t n, const char* unit = nullptr) {
    family(name, "counter", help, unit);
    std::snprintf(line, sizeof line, "%s_total %llu\n", name, static_cast<unsigned long long>(n));
    out += line;
  };
  counter("sonde_store_in_bytes", "Data received, without headers and tables.", metrics_.bytes_in.load(), "bytes");
  counter("sonde_store_out_bytes", "Data sent, without headers and tables.", metrics_.bytes_out.load(), "bytes");
  counter("sonde_store_frames", "Frames received.", metrics_.frames.load());
  counter("sonde_store_bad_frames", "Frames that were malformed or damaged.", metrics_.bad_frames.load());
  counter("sonde_store_refused", "Connections refused.", metrics_.refused.load());
  counter("sonde_store_dropped", "Connections that the server had to end, for example for lack of memory.",
          metrics_.dropped.load());
  counter("sonde_store_foreign_messages", "Messages at fabric endpoints that came from no peer; dropped.",
          foreign_messages().load());
  counter("sonde_store_client_memory_refused", "Requests and connections for which there was no memory left.",
          budget_->refused());
  const auto gauge_bytes = [&](const char* name, const char* help, std::size_t n) {
    family(name, "gauge", help, "bytes");
    std::snprintf(line, sizeof line, "%s %zu\n", name, n);
    out += line;
  };
  gauge_bytes("sonde_store_client_memory_bytes", "Memory in use for clients.", budget_->used());
  gauge_bytes("sonde_store_client_memory_max_bytes", "Maximum memory for clients.", budget_->max());
  family("sonde_store_connections", "gauge", "Connections open now.");
  std::snprintf(line, sizeof line, "sonde_store_connections %llu\n",
                static_cast<unsigned long long>(metrics_.connections.load()));
  out += line;
  const auto histogram = [&](const char* name, const char* help, const std::array<Durations, role_count>& by_role) {
    family(name, "histogram", help, "seconds");
    for (const Role role : all_roles) {
      const Durations& d = by_role[static_cast<std::size_t>(role)];
      if (!lanes_[static_cast<std::size_t>(role)]) continue;
      std::uint64_t sum = 0;
      const std::string label = "role=\"" + std::string(name_of(role)) + '"';
      for (std::size_t k = 0; k < Durations::classes; ++k) {
        sum += d.in_class(k);
        if (k + 1 < Durations::classes)
          std::snprintf(line, sizeof line, "%s_bucket{%s,le=\"%.9g\"} %llu\n", name, label.c_str(),
                        Durations::edge_s(k), static_cast<unsigned long long>(sum));
        else
          std::snprintf(line, sizeof line, "%s_bucket{%s,le=\"+Inf\"} %llu\n", name, label.c_str(),
                        static_cast<unsigned long long>(sum));
        out += line;
      }
      std::snprintf(line, sizeof line, "%s_count{%s} %llu\n%s_sum{%s} %.9g\n", name, label.c_str(),
                    static_cast<unsigned long long>(sum), name, label.c_str(), d.sum_s());
      out += line;
    }
  };
  histogram("sonde_store_wait_seconds", "A message's time in the server before its backend.", metrics_.waited);
  histogram("sonde_store_backend_seconds", "A message's time in its backend.", metrics_.worked);
  histogram("sonde_store_sync_seconds", "Time to bring a group of batches to stable storage.", metrics_.synced);
  return out + "# EOF\n";
}

}  // namespace sonde::store
