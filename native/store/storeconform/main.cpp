// sonde-storeconform MODULE [--setting NAME=VALUE …]: checks the backends and transports of a module against the
// interfaces' promises, and measures them. `sonde store conformance` starts it. Events on standard output, one JSON
// object a line.
#include <ftw.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "core/json.hpp"
#include "store/conformance/backend.hpp"
#include "store/conformance/transport.hpp"
#include "store/module.hpp"
#include "store/server/server.hpp"

namespace {

using namespace sonde;
using namespace sonde::store;

constexpr double bench_s = 0.5;  ///< for each rate

void emit(const JsonLine& line) { std::cout << line.text() << '\n' << std::flush; }

int fail(const Error& e, int code) {
  emit(JsonLine().add("event", "error").add("code", e.code).add("what", e.what).add("hint", e.hint));
  return code;
}

/// A folder of its own for each backend, removed at the end.
struct Folder {
  std::string path;
  Folder() {
    const char* base = std::getenv("TMPDIR");
    path = std::string(base && *base ? base : "/tmp") + "/sonde-conformance-XXXXXX";
    if (!::mkdtemp(path.data())) path.clear();
  }
  ~Folder() {
    if (!path.empty())
      ::nftw(
          path.c_str(), [](const char* name, const struct stat*, int, FTW*) { return ::remove(name); }, 16,
          FTW_DEPTH | FTW_PHYS);
  }
};

struct Count {
  int passed = 0, failed = 0;
  void take(const std::string& subject, const conformance::Check& c) {
    ++(c.passed ? passed : failed);
    emit(JsonLine()
             .add("event", "check")
             .add("subject", subject)
             .add("name", c.name)
             .add("passed", c.passed)
             .add("message", c.message));
  }
};

void rate(const std::string& subject, const char* what, std::size_t bytes, std::size_t batch, double operations,
          double elapsed_s) {
  emit(JsonLine()
           .add("event", "rate")
           .add("subject", subject)
           .add("what", what)
           .add("bytes", bytes)
           .add("batch", batch)
           .add("ops_s", operations / elapsed_s));
}

/// Operations/s of a backend alone: no client, no wire.
void bench_backend(const std::string& subject, Role role, Backend& backend) {
  if (role == Role::db) return;
  std::vector<std::byte> memory(4096, std::byte{7});
  for (const std::size_t batch : {std::size_t{1}, std::size_t{1000}})
    for (const bool writes : {true, false}) {
      std::vector<std::string> keys;
      std::vector<Op> ops(batch);
      for (std::size_t k = 0; k < batch; ++k) keys.push_back("key" + std::to_string(k));
      for (std::size_t k = 0; k < batch; ++k) {
        Op& op = ops[k];
        op.space = "bench";
        op.key = role == Role::data ? std::string_view(keys[0]) : std::string_view(keys[k]);
        op.offset = role == Role::data ? k * memory.size() : 0;
        op.code = role == Role::data ? (writes ? Code::object_write : Code::object_read)
                  : writes           ? Code::kv_put
                                     : Code::kv_get;
        if (writes) op.data = memory;
        else op.into = memory, op.length = memory.size();
      }
      std::vector<Outcome> outcomes(batch);
      Arena arena;
      double done = 0;
      const double began = now_s();
      while (now_s() - began < bench_s) {
        arena.clear();
        backend.execute(ops, Safety::network, outcomes, arena);
        done += static_cast<double>(batch);
      }
      rate(subject, writes ? "write" : "read", memory.size(), batch, done, now_s() - began);
    }
}

/// Operations/s of a transport between a client and a server in this process, which stores nothing.
void bench_transport(const std::string& subject, const std::string& name) {
  ServerConfig config;
  config.listen = "127.0.0.1:0";
  config.backends = {{Role::data, "null", {}}};
  auto server = Server::start(config);
  if (!server) return;
  for (const std::string& transport : {std::string("tcp"), name}) {
    Config wanted;
    wanted.servers = {(*server)->address()};
    wanted.transport = transport;
    auto client = Client::open(wanted);
    if (!client) {
      emit(JsonLine()
               .add("event", "warning")
               .add("code", "variant_absent")
               .add("evidence", transport + ": " + client.error().what)
               .add("hint", client.error().hint));
      continue;
    }
    std::vector<std::byte> memory(4u << 20, std::byte{7});
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{4096}, std::size_t{65536}, memory.size()}) {
      Batch b = (*client).batch();
      double done = 0;
      const double began = now_s();
      while (now_s() - began < bench_s) {
        b.clear();
        b.write("bench", "o", 0, Bytes(memory).first(bytes));
        if (!b.run() || b.failed()) break;
        ++done;
      }
      rate(subject, transport == name ? "write" : "write over tcp", bytes, 1, done, now_s() - began);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]).starts_with("--")) {
    std::cout << "sonde-storeconform MODULE [--setting NAME=VALUE …]   ({tmp} in a value: a fresh folder)\n";
    return argc > 1 && std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  Settings given;
  for (int k = 2; k < argc; k += 2) {
    const std::string_view word = argv[k], value = k + 1 < argc ? argv[k + 1] : "";
    const auto eq = value.find('=');
    if (word != "--setting" || eq == std::string_view::npos)
      return fail({"store.usage",
                   "sonde-storeconform does not understand '" + std::string(word) + ' ' + std::string(value) + "'",
                   "write --setting NAME=VALUE"},
                  2);
    given.emplace(value.substr(0, eq), value.substr(eq + 1));
  }
  auto module = load_module(argv[1]);
  if (!module) return fail(module.error(), 3);
  Count count;
  // Transports first: their checks fork, which needs a process without threads.
  for (const auto& entry : (*module)->transports) {
    const std::string subject = entry.name;
    emit(JsonLine().add("event", "subject").add("subject", subject).add("kind", "transport"));
    for (const auto& check :
         conformance::check_transport([make = entry.make] { return std::shared_ptr<Transport>(make()); }, {}))
      count.take(subject, check);
  }
  for (const auto& entry : (*module)->backends)
    for (const Role role : {Role::data, Role::kv, Role::db}) {
      if (!(entry.roles & 1u << static_cast<unsigned>(role))) continue;
      const std::string subject = std::string(name_of(role)) + '=' + entry.name;
      emit(JsonLine().add("event", "subject").add("subject", subject).add("kind", "backend"));
      const auto settings_in = [&](const Folder& folder) {
        Settings settings = given;
        for (auto& [name, value] : settings)
          for (std::size_t at; (at = value.find("{tmp}")) != std::string::npos;) value.replace(at, 5, folder.path);
        return settings;
      };
      Folder folder;
      const Settings own = settings_in(folder);
      const auto open = [&](const Settings& besides) {
        Settings all = own;
        for (const auto& [name, value] : besides) all.insert_or_assign(name, value);
        return entry.open(role, all);
      };
      for (const auto& check : conformance::check_backend(role, open)) count.take(subject, check);
      Folder fresh;
      if (auto backend = entry.open(role, settings_in(fresh)); backend) bench_backend(subject, role, **backend);
    }
  for (const auto& entry : (*module)->transports) bench_transport(entry.name, entry.name);
  emit(JsonLine()
           .add("event", "end")
           .add("module", (*module)->name)
           .add("passed", count.passed)
           .add("failed", count.failed));
  return count.failed ? 1 : 0;
}
