#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "store/client/connection.hpp"

namespace sonde::store {

namespace {

constexpr unsigned bit(Role role) { return 1u << static_cast<unsigned>(role); }

/// A backend in this process.
struct Local {
  std::unique_ptr<Backend> backend;
  Caps caps;
  std::mutex turn;  ///< of a backend that cannot run concurrently
};

/// A server, and the connections to it.
struct Server {
  Address address;
  unsigned wanted = 0;  ///< roles asked for; 0: those it has
  unsigned roles = 0;
  std::mutex mutex;  ///< of the vector, not of the connections
  std::vector<std::shared_ptr<Connection>> connections;
  std::size_t opening = 0;  ///< connections that are being made
};

Error nothing_there(Role role) {
  return {
      "store.no_server", "no server has the role " + std::string(name_of(role)),
      "start one with 'sonde store serve --backend " + std::string(name_of(role)) + "=…', or name it with --server"};
}

}  // namespace

struct Client::Impl {
  Config config;
  std::vector<std::unique_ptr<Server>> servers;
  std::array<std::vector<Server*>, role_count> by_role;
  std::array<std::unique_ptr<Local>, role_count> local;

  std::size_t count(Role role) const {
    const auto k = static_cast<std::size_t>(role);
    return config.embedded.empty() ? by_role[k].size() : local[k] ? 1 : 0;
  }
  Deadline deadline() const { return config.timeout_s > 0 ? Deadline::in_s(config.timeout_s) : Deadline{}; }

  /// A connection with its mutex held: one with work under way and room for more, an idle one that is alive, or a new
  /// one.
  Result<std::shared_ptr<Connection>> checkout(Server& server, std::unique_lock<std::mutex>& held) {
    std::shared_ptr<Connection> busy;
    {
      const std::lock_guard lock(server.mutex);
      std::erase_if(server.connections, [](const auto& c) {
        const std::unique_lock turn(c->mutex, std::try_to_lock);
        return turn && !c->open();
      });
      for (const auto& c : server.connections) {
        std::unique_lock turn(c->mutex, std::try_to_lock);
        if (!turn || c->in_flight() >= c->credits()) continue;
        // This may have happened meanwhile: the server ended, restarted, or closed this connection.
        if (c->in_flight() == 0 && c->idle_for(0.1)) c->progress();
        if (!c->open()) continue;
        held = std::move(turn);
        return c;
      }
      if (server.connections.size() + server.opening < config.connections || server.connections.empty())
        ++server.opening;
      else
        busy = *std::min_element(server.connections.begin(), server.connections.end(),
                                 [](const auto& a, const auto& b) { return a.use_count() < b.use_count(); });
    }
    if (busy) {
      const Deadline until = deadline();
      held = std::unique_lock(busy->mutex);
      while (busy->open() && busy->in_flight() >= busy->credits() && !until.passed()) {
        busy->flush();
        busy->progress();
        if (busy->open() && busy->in_flight() >= busy->credits()) busy->idle(until);
      }
      if (busy->open() && busy->in_flight() < busy->credits()) return busy;
      held.unlock();
      return Error{"store.timed_out", "every connection to " + server.address.text() + " is busy",
                   "raise the number of connections, or wait for batches before starting more"};
    }
    auto opened = Connection::open(server.address, config, Deadline::in_s(config.connect_timeout_s));
    const std::lock_guard lock(server.mutex);
    --server.opening;
    if (!opened) return opened.error();
    std::shared_ptr<Connection> connection = std::move(*opened);
    held = std::unique_lock(connection->mutex);
    server.roles = connection->roles();
    server.connections.push_back(connection);
    return connection;
  }

  void run_here(Exchange& x) {
    Local& at = *local[static_cast<std::size_t>(x.role)];
    x.begin_ns = now_ns();
    if (x.safety == Safety::storage && !at.caps.durable) {
      for (std::uint32_t k = 0; k < x.size(); ++k) x.outcomes[x.place(k)].status = Status::unsupported;
    } else {
      std::unique_lock turn(at.turn, std::defer_lock);
      if (!at.caps.concurrent) turn.lock();
      std::vector<Op> some;
      std::vector<Outcome> outcomes(x.size());
      for (const std::uint32_t k : x.places) some.push_back(x.ops[k]);
      const std::span<const Op> ops = x.places.empty() ? x.ops : std::span<const Op>(some);
      execute(*at.backend, ops, x.safety, outcomes, *x.arena);
      if (turn) turn.unlock();
      const bool all = std::any_of(x.ops.begin(), x.ops.end(), [](const Op& op) { return op.code == Code::sync; });
      const bool sync = all || x.safety == Safety::storage;
      bool synced = true;
      if (sync)
        trace::call(sonde_store_backend_sync, trace::unknown, trace::unknown,
                    [&] { synced = bool(at.backend->sync(all)); });
      for (std::uint32_t k = 0; k < x.size(); ++k) {
        x.outcomes[x.place(k)] = outcomes[k];
        if (!synced && outcomes[k].status == Status::ok) x.outcomes[x.place(k)].status = Status::io_error;
      }
    }
    x.backend_us = static_cast<std::uint32_t>((now_ns() - x.begin_ns) / 1000);
    x.done.store(true, std::memory_order_release);
  }
};

struct Batch::Impl {
  std::shared_ptr<Client::Impl> client;
  Safety safety{};
  std::vector<Op> ops;
  std::vector<Outcome> outcomes;
  std::vector<std::int16_t> targets;  ///< server within the role
  Arena names{4096};
  /// Read data, one arena for each part: two threads may receive the answers of different parts at the same time.
  std::vector<std::unique_ptr<Arena>> results;
  struct Part {
    Exchange exchange;
    std::shared_ptr<Connection> connection;
  };
  std::vector<std::unique_ptr<Part>> parts, spare_parts;
  std::vector<std::pair<Part*, std::size_t>> to;  ///< each part's server; while it starts
  bool started = false, finished = false;
  std::int64_t begin_ns = 0, end_ns = 0;
  Error failure;
  Role sync_role{};  ///< of the code sync, which has none of its own

  ~Impl() { give_up(); }

  Role role_at(std::size_t k) const {
    Role role = sync_role;
    role_of(ops[k].code, role);
    return role;
  }

  void give_up() {
    if (!started || finished) return;
    for (auto& part : parts)
      if (part->connection && !part->exchange.done.load(std::memory_order_acquire)) {
        const std::lock_guard turn(part->connection->mutex);
        part->connection->close("a batch was abandoned by its owner");
        part->connection->flush();
      }
    finished = true;
  }

  std::string_view keep(std::string_view name, std::string_view before) {
    if (name == before) return before;
    return text_of(names.copy(bytes_of(name)));
  }

  /// Every operation's server, and whether there is one.
  Result<void> route() {
    for (std::size_t k = 0; k < ops.size(); ++k) {
      const Role role = role_at(k);
      const std::size_t n = client->count(role);
      if (n == 0) return nothing_there(role);
      if (targets[k] < 0) targets[k] = static_cast<std::int16_t>(n == 1 ? 0 : placement(ops[k].space, ops[k].key, n));
      if (static_cast<std::size_t>(targets[k]) >= n)
        return Error{"store.no_server",
                     "there is no server " + std::to_string(targets[k]) + " of the role " + std::string(name_of(role)),
                     "they are numbered from 0 to " + std::to_string(n - 1)};
    }
    return {};
  }

  Part& part_of(Role role) {
    std::unique_ptr<Part> part;
    if (spare_parts.empty()) {
      part = std::make_unique<Part>();
    } else {
      part = std::move(spare_parts.back());
      spare_parts.pop_back();
      part->exchange.clear();
    }
    part->exchange.ops = ops;
    part->exchange.outcomes = outcomes;
    if (results.size() == parts.size()) results.push_back(std::make_unique<Arena>());
    part->exchange.arena = results[parts.size()].get();
    part->exchange.role = role;
    part->exchange.safety = safety;
    part->exchange.timeout_s = client->config.timeout_s;
    parts.push_back(std::move(part));
    return *parts.back();
  }

  Result<void> start() {
    if (ops.empty())
      return Error{"store.empty_batch", "the batch has no operations", "add some before run() or start()"};
    if (ops.size() > limit::batch_ops)
      return Error{
          "store.too_large",
          "the batch has " + std::to_string(ops.size()) + " operations; allowed: " + std::to_string(limit::batch_ops),
          "make several batches of them"};
    if (started) return Error{"store.started", "the batch was started already", "call clear() to use it again"};
    begin_ns = now_ns();
    if (auto ok = route(); !ok) return ok.error();
    started = true;
    finished = false;
    outcomes.assign(ops.size(), {});
    // One message a role and server. The common batch, for one of them, needs no map of places.
    const Role first = role_at(0);
    bool one = true, sound = true;
    for (std::size_t k = 0; k < ops.size(); ++k) {
      const Role role = role_at(k);
      one &= role == first && targets[k] == targets[0];
      outcomes[k].status = check(ops[k]);
      sound &= outcomes[k].status == Status::ok;
      outcomes[k].status = outcomes[k].status == Status::ok ? Status::pending : outcomes[k].status;
    }
    to.clear();
    if (one && sound) {
      to.emplace_back(&part_of(first), static_cast<std::size_t>(targets[0]));
    } else {
      for (std::size_t k = 0; k < ops.size(); ++k) {
        const Role role = role_at(k);
        auto found = std::find_if(to.begin(), to.end(), [&](const auto& t) {
          return t.first->exchange.role == role && t.second == static_cast<std::size_t>(targets[k]);
        });
        if (found == to.end()) found = to.insert(to.end(), {&part_of(role), static_cast<std::size_t>(targets[k])});
        found->first->exchange.places.push_back(static_cast<std::uint32_t>(k));
      }
      // An operation that no server would take: of kv and db it takes its batch with it, as it would there.
      for (auto& [part, server] : to) {
        auto& places = part->exchange.places;
        const bool bad =
            std::any_of(places.begin(), places.end(), [&](auto k) { return outcomes[k].status != Status::pending; });
        if (bad && part->exchange.role != Role::data)
          for (const auto k : places)
            if (outcomes[k].status == Status::pending) outcomes[k].status = Status::aborted;
        std::erase_if(places, [&](auto k) { return outcomes[k].status != Status::pending; });
        if (places.empty()) part->exchange.done = true;
      }
    }
    for (auto& [part, server] : to) {
      Exchange& x = part->exchange;
      if (x.done) continue;
      const auto role = static_cast<std::size_t>(x.role);
      if (!client->config.embedded.empty()) {
        client->run_here(x);
        continue;
      }
      std::unique_lock<std::mutex> held;
      auto connection = client->checkout(*client->by_role[role][server], held);
      if (!connection) {
        if (failure.code.empty()) failure = connection.error();
        for (std::uint32_t k = 0; k < x.size(); ++k) outcomes[x.place(k)].status = Status::disconnected;
        x.failed = true;
        x.done = true;
        continue;
      }
      part->connection = *connection;
      x.begin_ns = begin_ns;
      (*connection)->start(x);
    }
    return {};
  }

  Result<void> wait() {
    if (!started) return Error{"store.not_started", "the batch was not started", "call start() first, or run()"};
    const Deadline deadline = client->config.timeout_s > 0
                                  ? Deadline{begin_ns + static_cast<std::int64_t>(client->config.timeout_s * 1e9)}
                                  : Deadline{};
    // All parts go out before the first is waited for.
    if (parts.size() > 1)
      for (auto& part : parts)
        if (part->connection && !part->exchange.done) {
          const std::lock_guard turn(part->connection->mutex);
          part->connection->flush();
        }
    for (auto& part : parts) {
      Exchange& x = part->exchange;
      if (!x.done.load(std::memory_order_acquire)) {
        const std::lock_guard turn(part->connection->mutex);
        part->connection->wait(x, deadline);
      }
      if (x.failed && failure.code.empty() && part->connection) {
        const std::lock_guard turn(part->connection->mutex);
        failure = part->connection->failure();
        if (std::any_of(outcomes.begin(), outcomes.end(),
                        [](const Outcome& o) { return o.status == Status::timed_out; }))
          failure = part->connection->too_slow(client->config.timeout_s, "timeout_s");
        if (failure.code.empty())
          failure = part->connection->named({"store.bad_frame", "the server left operations of a batch unanswered",
                                             "both sides must run the same version of Sonde"});
      }
    }
    finished = true;
    end_ns = now_ns();
    if (!failure.code.empty()) return failure;
    return {};
  }
};

std::size_t placement(std::string_view space, std::string_view key, std::size_t servers) {
  constexpr std::byte nul[1]{};
  return wire::crc32c(bytes_of(key), wire::crc32c(nul, wire::crc32c(bytes_of(space)))) % servers;
}

Result<BackendSpec> parse_backend(Role role, std::string_view text) {
  BackendSpec spec{role, {}, {}};
  const auto bad = [&](const std::string& why) {
    return Error{"store.bad_backend", "'" + std::string(text) + "' is not a backend: " + why,
                 "write NAME or NAME,SETTING=VALUE,… as posix,path=/scratch/store"};
  };
  std::string_view rest = text;
  for (bool first = true; first || !rest.empty(); first = false) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (first) {
      if (word.empty()) return bad("the name is missing");
      spec.name = word;
      continue;
    }
    const std::size_t eq = word.find('=');
    if (eq == std::string_view::npos || eq == 0) return bad("'" + std::string(word) + "' is not SETTING=VALUE");
    if (!spec.settings.emplace(word.substr(0, eq), word.substr(eq + 1)).second)
      return bad("'" + std::string(word.substr(0, eq)) + "' is given twice");
  }
  return spec;
}

Client::Client(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

Result<Client> Client::open(Config config) {
  auto impl = std::make_shared<Impl>();
  impl->config = std::move(config);
  if (impl->config.servers.empty() == impl->config.embedded.empty())
    return Error{"store.no_server",
                 impl->config.servers.empty() ? "neither a server nor an embedded backend was given"
                                              : "both servers and embedded backends were given",
                 "give one or the other"};
  if (impl->config.connections == 0) impl->config.connections = 1;
  for (const auto& spec : impl->config.embedded) {
    auto backend = open_backend(spec.role, spec.name, spec.settings);
    if (!backend) return backend.error();
    auto& place = impl->local[static_cast<std::size_t>(spec.role)];
    if (place)
      return Error{"store.bad_backend", "two backends for the role " + std::string(name_of(spec.role)),
                   "give one for each role"};
    place = std::make_unique<Local>();
    place->caps = (*backend)->caps();
    place->backend = std::move(*backend);
  }
  for (const auto& text : impl->config.servers) {
    auto server = std::make_unique<Server>();
    std::string_view rest = text;
    if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
      for (std::string_view roles = rest.substr(0, at); !roles.empty();) {
        const std::size_t end = std::min(roles.find('+'), roles.size());
        const std::string_view name = roles.substr(0, end);
        roles.remove_prefix(std::min(end + 1, roles.size()));
        unsigned found = 0;
        for (const Role role : {Role::data, Role::kv, Role::db})
          if (name == name_of(role)) found = bit(role);
        if (!found)
          return Error{"store.bad_address", "'" + std::string(name) + "' in '" + text + "' is not a role",
                       "write data@HOST:PORT, or data+kv@HOST:PORT; the roles are data, kv, db"};
        server->wanted |= found;
      }
      rest.remove_prefix(at + 1);
    }
    auto address = parse_address(rest);
    if (!address) return address.error();
    server->address = *address;
    impl->servers.push_back(std::move(server));
  }
  for (auto& server : impl->servers) {
    std::unique_lock<std::mutex> held;
    auto connection = impl->checkout(*server, held);
    if (!connection) return connection.error();
    for (const Role role : {Role::data, Role::kv, Role::db}) {
      const bool has = server->roles & bit(role), wants = server->wanted == 0 || server->wanted & bit(role);
      if (server->wanted && wants && !has)
        return Error{
            "store.no_server",
            "the server at " + server->address.text() + " does not have the role " + std::string(name_of(role)),
            "start it with --backend " + std::string(name_of(role)) + "=…"};
      if (has && wants) impl->by_role[static_cast<std::size_t>(role)].push_back(server.get());
    }
  }
  return Client(std::move(impl));
}

const Config& Client::config() const { return impl_->config; }
std::size_t Client::servers(Role role) const { return impl_->count(role); }

Batch Client::batch(Safety safety) {
  auto impl = std::make_unique<Batch::Impl>();
  impl->client = impl_;
  impl->safety = safety;
  return Batch(std::move(impl));
}

Result<void> Client::flush() {
  std::uint64_t lost = 0;
  Error failure;
  for (auto& server : impl_->servers) {
    std::vector<std::shared_ptr<Connection>> connections;
    {
      const std::lock_guard lock(server->mutex);
      connections = server->connections;
    }
    for (auto& c : connections) {
      const std::lock_guard turn(c->mutex);
      if (!c->open()) {
        if (failure.code.empty()) failure = c->failure();
        continue;
      }
      auto drained = c->drain(impl_->deadline());
      if (drained) lost += *drained;
      else if (failure.code.empty()) failure = drained.error();
    }
  }
  if (!failure.code.empty()) return failure;
  if (lost)
    return Error{"store.lost", std::to_string(lost) + " operations without acknowledgement failed since the last flush",
                 "use the safety level 'network' to see which ones, and why"};
  return {};
}

Result<void> Client::sync() {
  for (const Role role : {Role::data, Role::kv, Role::db})
    for (std::size_t k = 0; k < impl_->count(role); ++k) {
      Batch b = batch(Safety::network);
      b.impl_->ops.push_back({Code::sync, 0, {}, {}, 0, 0, {}, {}});
      b.impl_->targets.push_back(static_cast<std::int16_t>(k));
      b.impl_->sync_role = role;
      if (auto ok = b.run(); !ok) return ok.error();
      if (b.failed())
        return Error{"store.io_error", "a server could not bring everything to stable storage: " + b.why(0),
                     "see its status"};
    }
  return {};
}

namespace {

/// Whether a page continues after `after` with names that were asked for, in ascending order. A server whose
/// pages do not would be listed for ever.
bool moves_on(const std::vector<std::pair<std::string_view, Bytes>>& entries, std::string_view prefix,
              std::string_view after) {
  for (const auto& [name, value] : entries) {
    if (name <= after || !name.starts_with(prefix) || name.size() > limit::object_name_bytes) return false;
    after = name;
  }
  return true;
}

/// The entries of one server, a page at a time.
struct Pages {
  std::string after;
  std::vector<std::byte> packed;
  std::vector<std::pair<std::string_view, Bytes>> entries;
  std::size_t at = 0;
  bool more = true;
};

}  // namespace

Result<void> Client::scan_all(Code code, std::string_view space, std::string_view prefix, bool keys_only,
                              std::string_view after, const std::function<bool(std::string_view, Bytes)>& each) {
  const Role role = code == Code::kv_scan ? Role::kv : Role::data;
  std::vector<Pages> servers(impl_->count(role));
  if (servers.empty()) return nothing_there(role);
  for (Pages& p : servers) p.after = after;
  const auto fill = [&](std::size_t k) -> Result<void> {
    Pages& p = servers[k];
    while (p.at == p.entries.size() && p.more) {
      Batch b = batch(Safety::network);
      Op op;
      op.code = code;
      op.space = space;
      op.key = prefix;
      op.data = bytes_of(p.after);
      op.flags = keys_only ? flag::keys_only : 0;
      b.add(op, static_cast<int>(k));
      if (auto ok = b.run(); !ok) return ok.error();
      if (b[0].status != Status::ok)
        return Error{"store." + std::string(name_of(b[0].status)),
                     "cannot list '" + std::string(space) + "': " + b.why(0), "see the server's status"};
      p.packed.assign(b[0].data.begin(), b[0].data.end());
      p.more = b[0].time_ns != 0;
      p.at = 0;
      const bool whole = unpack_pairs(p.packed, p.entries);
      if (!whole || !moves_on(p.entries, prefix, p.after)) {
        const auto& served = impl_->by_role[static_cast<std::size_t>(role)];
        return Error{"store.bad_frame",
                     (served.empty() ? "a backend" : "the server at " + served[k]->address.text()) +
                         " returned a list of '" + std::string(space) + "' that " +
                         (whole ? "does not continue in the order of names" : "is cut short"),
                     "both sides must run the same version of Sonde"};
      }
      if (p.entries.empty()) p.more = false;
      if (!p.entries.empty()) p.after = p.entries.back().first;
    }
    return {};
  };
  for (;;) {
    Pages* least = nullptr;
    for (std::size_t k = 0; k < servers.size(); ++k) {
      if (auto ok = fill(k); !ok) return ok.error();
      Pages& p = servers[k];
      if (p.at < p.entries.size() && (!least || p.entries[p.at].first < least->entries[least->at].first)) least = &p;
    }
    if (!least) return {};
    // A striped object has a piece of its name on several servers.
    const std::string name(least->entries[least->at].first);
    const Bytes value = least->entries[least->at].second;
    const bool go_on = each(name, value);
    for (Pages& p : servers)
      if (p.at < p.entries.size() && p.entries[p.at].first == name) ++p.at;
    if (!go_on) return {};
  }
}

Result<void> Client::scan(std::string_view space, std::string_view prefix, bool keys_only,
                          const std::function<bool(std::string_view, Bytes)>& each, std::string_view after) {
  return scan_all(Code::kv_scan, space, prefix, keys_only, after, each);
}

Result<void> Client::list(std::string_view space, std::string_view prefix,
                          const std::function<bool(std::string_view)>& each, std::string_view after) {
  return scan_all(Code::object_list, space, prefix, true, after,
                  [&](std::string_view name, Bytes) { return each(name); });
}

Result<std::vector<ServerInfo>> Client::status() {
  std::vector<ServerInfo> all;
  for (auto& server : impl_->servers) {
    ServerInfo info;
    info.address = server->address.text();
    {
      std::unique_lock<std::mutex> held;
      auto connection = impl_->checkout(*server, held);
      if (!connection) return connection.error();
      info.link = (*connection)->info();
    }
    for (const Role role : {Role::data, Role::kv, Role::db})
      if (server->roles & bit(role)) info.roles.push_back(role);
    // Over a connection of its own: one that is busy with batches should not keep anyone from asking.
    Config plain = impl_->config;
    plain.transport = "tcp";
    auto asking = Connection::open(server->address, plain, Deadline::in_s(plain.connect_timeout_s));
    if (!asking) return asking.error();
    auto text = (*asking)->status(Deadline::in_s(plain.connect_timeout_s));
    if (!text) return text.error();
    info.status = *text;
    all.push_back(std::move(info));
  }
  return all;
}

Batch::Batch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;
Batch::~Batch() = default;

std::size_t Batch::add(const Op& op, int server) {
  Impl& b = *impl_;
  Op own = op;
  const bool first = b.ops.empty();
  own.space = b.keep(op.space, first ? std::string_view{} : b.ops.back().space);
  own.key = b.keep(op.key, first ? std::string_view{} : b.ops.back().key);
  b.ops.push_back(own);
  b.targets.push_back(static_cast<std::int16_t>(server));
  return b.ops.size() - 1;
}

std::size_t Batch::put(std::string_view space, std::string_view key, Bytes value, std::uint8_t flags) {
  return add({Code::kv_put, flags, space, key, 0, 0, value, {}});
}
std::size_t Batch::get(std::string_view space, std::string_view key, MutableBytes into) {
  return add({Code::kv_get, 0, space, key, 0, 0, {}, into});
}
std::size_t Batch::remove(std::string_view space, std::string_view key) {
  return add({Code::kv_remove, 0, space, key, 0, 0, {}, {}});
}
std::size_t Batch::create(std::string_view space, std::string_view object, std::uint8_t flags) {
  return add({Code::object_create, flags, space, object, 0, 0, {}, {}});
}
std::size_t Batch::write(std::string_view space, std::string_view object, std::uint64_t offset, Bytes data,
                         std::uint8_t flags) {
  return add({Code::object_write, flags, space, object, offset, 0, data, {}});
}
std::size_t Batch::read(std::string_view space, std::string_view object, std::uint64_t offset, MutableBytes into) {
  return add({Code::object_read, 0, space, object, offset, into.size(), {}, into});
}
std::size_t Batch::read(std::string_view space, std::string_view object, std::uint64_t offset, std::uint64_t length) {
  return add({Code::object_read, 0, space, object, offset, length, {}, {}});
}
std::size_t Batch::status(std::string_view space, std::string_view object) {
  return add({Code::object_status, 0, space, object, 0, 0, {}, {}});
}
std::size_t Batch::truncate(std::string_view space, std::string_view object, std::uint64_t size) {
  return add({Code::object_truncate, 0, space, object, 0, size, {}, {}});
}
std::size_t Batch::remove_object(std::string_view space, std::string_view object) {
  return add({Code::object_remove, 0, space, object, 0, 0, {}, {}});
}

Result<void> Batch::start() {
  trace::Asked asked;
  for (const Op& op : impl_->ops) asked.add(op);
  Result<void> ok;
  trace::call(asked.of(sonde_store_start_read, sonde_store_start_write, sonde_store_start_other), asked.bytes, 0,
              [&] { ok = impl_->start(); });
  return ok;
}
Result<void> Batch::wait() {
  Result<void> ok;
  trace::call(sonde_store_wait, trace::unknown, 0, [&] { ok = impl_->wait(); });
  return ok;
}
Result<void> Batch::run() {
  trace::Asked asked;
  for (const Op& op : impl_->ops) asked.add(op);
  Result<void> ok;
  trace::call(asked.of(sonde_store_run_read, sonde_store_run_write, sonde_store_run_other), asked.bytes, 0, [&] {
    ok = impl_->start();
    if (ok) ok = impl_->wait();
  });
  return ok;
}

bool Batch::done() {
  Impl& b = *impl_;
  if (!b.started) return false;
  bool all = true;
  for (auto& part : b.parts) {
    Exchange& x = part->exchange;
    if (x.done.load(std::memory_order_acquire)) continue;
    const std::unique_lock turn(part->connection->mutex, std::try_to_lock);
    if (turn) {
      part->connection->flush();
      part->connection->progress();
    }
    all &= x.done.load(std::memory_order_acquire);
  }
  return all;
}

bool Batch::done_within(double seconds) {
  const Deadline until = Deadline::in_s(seconds);
  bool over = done();
  if (over || !impl_->started) return over;
  trace::call(sonde_store_wait, trace::unknown, 0, [&] {
    for (; !over && !until.passed(); over = done())
      for (auto& part : impl_->parts)
        if (!part->exchange.done.load(std::memory_order_acquire)) {
          const std::lock_guard turn(part->connection->mutex);
          if (!part->exchange.done.load(std::memory_order_acquire)) part->connection->idle(until);
          break;
        }
  });
  return over;
}

std::size_t Batch::size() const { return impl_->ops.size(); }
const Outcome& Batch::operator[](std::size_t k) const { return impl_->outcomes[k]; }
std::string Batch::why(std::size_t k) const {
  const Outcome& outcome = impl_->outcomes[k];
  std::string text = explain(outcome);
  const auto& servers = impl_->client->by_role[static_cast<std::size_t>(impl_->role_at(k))];
  switch (outcome.status) {
    case Status::ok:
    case Status::not_found:
    case Status::exists:
    case Status::invalid:
    case Status::too_large:
    case Status::aborted:
    case Status::pending: return text;
    default: break;
  }
  const auto target = static_cast<std::size_t>(impl_->targets[k]);
  return impl_->targets[k] >= 0 && target < servers.size() ? text + " (" + servers[target]->address.text() + ")" : text;
}
const Op& Batch::op(std::size_t k) const { return impl_->ops[k]; }

std::size_t Batch::failed() const {
  return static_cast<std::size_t>(std::count_if(impl_->outcomes.begin(), impl_->outcomes.end(), [](const Outcome& o) {
    return o.status != Status::ok && o.status != Status::pending;
  }));
}

Timing Batch::timing() const {
  Timing t;
  t.total_s = static_cast<double>(impl_->end_ns - impl_->begin_ns) * 1e-9;
  for (const auto& part : impl_->parts) {
    t.serialise_s = std::max(t.serialise_s, static_cast<double>(part->exchange.serialise_ns) * 1e-9);
    t.wait_s = std::max(t.wait_s, part->exchange.wait_us * 1e-6);
    t.backend_s = std::max(t.backend_s, part->exchange.backend_us * 1e-6);
  }
  return t;
}

void Batch::clear() {
  Impl& b = *impl_;
  b.give_up();
  b.ops.clear();
  b.outcomes.clear();
  b.targets.clear();
  for (auto& part : b.parts) {
    part->connection.reset();
    b.spare_parts.push_back(std::move(part));
  }
  b.parts.clear();
  b.names.clear();
  for (auto& arena : b.results) arena->clear();
  b.failure = {};
  b.started = b.finished = false;
}

}  // namespace sonde::store
