// sonde-stored: the storage server. `sonde store serve` starts it; by hand or by systemd it takes the same words.
// Standard output carries events, one JSON object a line; standard error the log.
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/error_kind.hpp"
#include "core/json.hpp"
#include "core/number.hpp"
#include "core/units.hpp"
#include "service/daemon.hpp"
#include "service/http.hpp"
#include "store/auth.hpp"
#include "store/module.hpp"
#include "store/server/server.hpp"
#include "store/transport/tcp.hpp"

namespace {

using namespace sonde;
using namespace sonde::store;

constexpr const char* usage = R"(sonde-stored: the storage server of Sonde

  sonde-stored --backend ROLE=NAME[,SETTING=VALUE…] [--backend …] [options]

roles and backends
  data    objects:     null, memory[,limit=4GiB], posix,path=DIR
  kv      keys:        null, memory[,limit=4GiB], lmdb,path=DIR, rocksdb,path=DIR
  db      tables:      null, memory, sqlite,path=DIR

options
  --listen HOST:PORT      address to listen at (127.0.0.1:5440; port 0: any, reported in the event `ready`)
  --auth HOW              how clients prove who they are: user (only the user who started it, with a key in the home
                          folder), token, munge, none (on loopback only: every user of this machine) (user)
  --token-file FILE       the shared secret of --auth token
  --tls HOW               off, offer (to clients that request it), require: TLS 1.3 with keys from the secret of user or
                          token (off)
  --known-as HOST:PORT    address that clients use when connections to this server are forwarded; may be repeated
  --user UID              munge: allow this user, too; may be repeated
  --transports NAME,…     transports that clients may use (all on loopback, else tcp)
  --allow-provider NAME   allow clients this provider of libfabric, although any process that reaches its port can
                          end the server: sockets, udp;ofi_rxd; may be repeated
  --threads N             threads that serve connections (1)
  --connections N         maximum number of authenticated connections (4096)
  --client-memory SIZE    maximum memory for all clients together (a quarter of this machine's memory)
  --query-timeout TIME    maximum time of a batch with tables (10s)
  --module FILE           load backends and transports from a shared object; may be repeated
  --metrics HOST:PORT     serve OpenMetrics over HTTP at /metrics
  --metrics-token FILE    token that scrapers must send; required when other hosts can reach the address
  --no-nodelay, --cork    unoptimised TCP, to show its cost
  --spin SECONDS          maximum time to spin before sleeping (as the machine allows)
  --with-parent           end when standard input ends
  --list                  print the features of this build as JSON
)";

constexpr std::size_t client_memory_least = 16u << 20;

void tell(const Error& error) {
  std::cerr << "error: store: " << error.what << '\n' << std::flush;
  if (!error.hint.empty()) std::cerr << "  hint: " << error.hint << '\n' << std::flush;
}

int fail(const Error& error) {
  tell(error);
  std::cout
      << JsonLine().add("event", "error").add("code", error.code).add("what", error.what).add("hint", error.hint).text()
      << '\n'
      << std::flush;
  return exit_status(error);
}

/// As many descriptors as the system lets this process have. The usual 1024 are for programs that use select(), which
/// this does not; a connection takes one, over a fabric a dozen.
void raise_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Error bad_usage(const std::string& what) { return {"store.usage", what, "see sonde-stored --help"}; }

}  // namespace

int main(int argc, char** argv) {
  const int signals = service::claim_signals();
  std::signal(SIGXFSZ, SIG_IGN);  // a file over the limit of this process is an operation's answer, not the end of all
  ServerConfig config;
  std::string metrics, metrics_token;
  bool with_parent = false, list = false;
  for (int k = 1; k < argc; ++k) {
    const std::string_view word = argv[k];
    std::string_view value;
    bool has_value = false;
    std::string_view name = word;
    if (const auto eq = word.find('='); word.starts_with("--") && eq != std::string_view::npos) {
      name = word.substr(0, eq);
      value = word.substr(eq + 1);
      has_value = true;
    }
    const auto need = [&]() -> bool {
      if (has_value) return true;
      if (k + 1 >= argc) return false;
      value = argv[++k];
      return true;
    };
    const auto missing = [&] { return fail(bad_usage(std::string(name) + " needs a value")); };
    unsigned long n = 0;
    if (name == "--help" || name == "-h") {
      std::cout << usage;
      return 0;
    } else if (name == "--version") {
      std::cout << SONDE_VERSION << "\n";
      return 0;
    } else if (name == "--list") {
      list = true;
    } else if (name == "--with-parent") {
      with_parent = true;
    } else if (name == "--no-nodelay") {
      config.link.nodelay = false;
    } else if (name == "--cork") {
      config.link.cork = true;
    } else if (name == "--backend") {
      if (!need()) return missing();
      const auto eq = value.find('=');
      Role role{};
      bool known = false;
      for (const Role r : {Role::data, Role::kv, Role::db})
        if (eq != std::string_view::npos && value.substr(0, eq) == name_of(r)) role = r, known = true;
      if (!known) return fail(bad_usage("--backend '" + std::string(value) + "' must begin with data=, kv= or db="));
      auto spec = parse_backend(role, value.substr(eq + 1));
      if (!spec) return fail(spec.error());
      config.backends.push_back(*spec);
    } else if (name == "--listen") {
      if (!need()) return missing();
      config.listen = value;
    } else if (name == "--auth") {
      if (!need()) return missing();
      config.auth = value;
    } else if (name == "--known-as") {
      if (!need()) return missing();
      config.known_as.emplace_back(value);
    } else if (name == "--client-memory") {
      if (!need()) return missing();
      auto size = parse_size(value);
      if (!size) return fail(size.error());
      if (*size < client_memory_least)
        return fail(bad_usage("--client-memory is at least " + format_size(client_memory_least) + ", not " +
                              format_size(*size)));
      config.client_memory = *size;
    } else if (name == "--transports") {
      if (!need()) return missing();
      for (std::size_t at = 0; at <= value.size();) {
        const auto comma = std::min(value.find(',', at), value.size());
        config.transports.emplace_back(value.substr(at, comma - at));
        at = comma + 1;
      }
    } else if (name == "--allow-provider") {
      if (!need()) return missing();
      if (value.empty() || value.find(' ') != std::string_view::npos)
        return fail(bad_usage("--allow-provider '" + std::string(value) + "' is not the name of a provider"));
      std::string& allowed = config.link.more["ofi.allow"];
      allowed += (allowed.empty() ? "" : " ") + std::string(value);
    } else if (name == "--token-file") {
      if (!need()) return missing();
      config.token_file = value;
    } else if (name == "--tls") {
      if (!need()) return missing();
      config.tls = value;
    } else if (name == "--module") {
      if (!need()) return missing();
      if (auto module = load_module(std::string(value)); !module) return fail(module.error());
    } else if (name == "--metrics") {
      if (!need()) return missing();
      metrics = value;
    } else if (name == "--metrics-token") {
      if (!need()) return missing();
      auto token = auth::read_token(std::string(value), true);
      if (!token) return fail(token.error());
      metrics_token = *token;
    } else if (name == "--query-timeout") {
      if (!need()) return missing();
      auto time = parse_duration(value);
      if (!time) return fail(time.error());
      if (*time <= 0 || *time > 86400) return fail(bad_usage("--query-timeout is more than 0s, and at most 24h"));
      config.query_timeout_s = *time;
    } else if (name == "--spin") {
      if (!need()) return missing();
      auto spin = parse_duration(value);
      if (!spin) return fail(spin.error());
      config.link.spin_s = *spin;
    } else if (name == "--user" || name == "--threads" || name == "--connections" || name == "--frame-data") {
      if (!need()) return missing();
      if (!number(value, n))
        return fail(bad_usage(std::string(name) + " needs a number, not '" + std::string(value) + "'"));
      if (name == "--user") config.users.push_back(static_cast<unsigned>(n));
      if (name == "--threads") {
        if (n < 1 || n > 256) return fail(bad_usage("--threads is from 1 to 256"));
        config.threads = static_cast<unsigned>(n);
      }
      if (name == "--connections") {
        if (n < 1 || n > 1'000'000) return fail(bad_usage("--connections is from 1 to 1000000"));
        config.connections = static_cast<unsigned>(n);
      }
      if (name == "--frame-data") {
        if (n < 4096 || n > wire::data_bytes_max)
          return fail(bad_usage("--frame-data is from 4096 to " + std::to_string(wire::data_bytes_max)));
        config.frame_data = n;
      }
    } else {
      return fail(bad_usage("unknown option '" + std::string(word) + "'"));
    }
  }
  if (list) {
    JsonLine json;
    for (const Role role : {Role::data, Role::kv, Role::db}) json.add(name_of(role), backend_names(role));
    std::string broken;
    for (const Error& error : broken_modules())
      broken += (broken.empty() ? "" : ",") + JsonLine().add("what", error.what).add("hint", error.hint).text();
    json.raw("broken_modules", '[' + broken + ']');
    std::cout << json.add("transports", transport_names()).add("auth", auth::methods()).text() << '\n' << std::flush;
    return 0;
  }
  if (!config.users.empty() && config.auth != "munge")
    return fail(bad_usage("--user needs --auth munge: no other method checks the user"));
  if (signals < 0)
    return fail({"store.no_descriptor", std::string("cannot wait for signals: ") + std::strerror(errno),
                 "raise the limit of descriptors: ulimit -n"});
  raise_descriptors();
  config.log = tell;
  // Not without: it would load what comes with this build too, libraries that most servers never need.
  if (std::getenv("SONDE_STORE_MODULES"))
    for (const Error& broken : broken_modules()) tell(broken);
  auto server = Server::start(config);
  if (!server) return fail(server.error());
  if (config.auth == "none")
    std::cerr << "warning: store: without authentication every user and program of this machine can read, change and "
                 "remove everything in this store; without --auth, only the user who starts it can connect"
              << '\n'
              << std::flush;
  std::unique_ptr<service::Http> http;
  if (!metrics.empty()) {
    auto address = parse_address(metrics);
    if (!address) return fail(address.error());
    auto started =
        service::Http::start({address->host, address->port, metrics_token}, [&] { return (*server)->metrics_text(); });
    if (!started) return fail(started.error());
    http = std::move(*started);
  }
  JsonLine ready;
  ready.add("event", "ready").add("listen", (*server)->address()).add("port", (*server)->port()).add("pid", ::getpid());
  if (http) ready.add("metrics_port", http->port());
  std::cout << ready.text() << '\n' << std::flush;
  service::notify("READY=1");
  const int signal = service::wait_for_end(signals, with_parent);
  service::notify("STOPPING=1");
  http.reset();
  (*server)->stop();
  std::cout << JsonLine().add("event", "end").add("signal", signal).text() << '\n' << std::flush;
  return 0;
}
