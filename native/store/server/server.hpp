#pragma once
/// The storage server: listens, authenticates, and carries batches from links to backends. Any-thread where not said
/// otherwise.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "store/server/budget.hpp"
#include "store/server/credentials.hpp"
#include "store/server/gate.hpp"
#include "store/server/lane.hpp"
#include "store/store.hpp"

namespace sonde::store {

class Reactor;

struct ServerConfig {
  std::string listen = "127.0.0.1:5440";  ///< port 0: any
  std::vector<BackendSpec> backends;      ///< one a role at most; the roles are those that have one
  std::string auth = "user";              ///< auth.hpp: "user", "token", "munge"; "none" (loopback only)
  std::string token_file;                 ///< of auth token
  /// "off", "offer": to clients who ask for it; "require". Of auth user and token.
  std::string tls = "off";
  /// "HOST:PORT" with a numeric host, beside the listening addresses: what clients reach the server by where something
  /// forwards to it, such as a tunnel. Whoever holds such an address can pass on what clients prove, and so gets in.
  std::vector<std::string> known_as;
  std::vector<unsigned> users;  ///< munge: let in beside root and the server's own user
  /// That a client may ask for; empty: all that there are on loopback, and tcp alone where others reach the address,
  /// since links of other transports do not prove each message.
  std::vector<std::string> transports;
  unsigned threads = 1;         ///< that read from and write to connections
  unsigned connections = 4096;  ///< that have proved who they are, at most
  std::size_t frame_data = wire::frame_data_default;
  unsigned credits = 128;         ///< messages a client may have under way on a connection
  std::size_t client_memory = 0;  ///< B held for all clients together, at most; 0: a quarter of this machine's
  double hello_timeout_s = 3;     ///< for a connection to prove who it is
  double link_timeout_s = 15;     ///< for the two halves of a transport to make their link
  /// For a message in several frames to be complete, and a second more for each 64 KiB that came of it.
  double message_timeout_s = 30;
  double query_timeout_s = 10;  ///< for a batch of tables, whatever longer time its client would allow
  LinkOptions link;
  std::function<void(const Error&)> log;  ///< what no client can be told, once a minute at most; called by any thread
};

class Server {
 public:
  /// Opens the backends, listens, and serves until stop(). Errors: store.cannot_listen, store.cannot_open,
  /// store.bad_token, store.no_key, store.no_munge, store.usage (known_as), store.not_loopback (an address that others
  /// can reach, without authentication), store.no_backend, store.unavailable (no memory, or no thread).
  static Result<std::unique_ptr<Server>> start(ServerConfig config);
  /// As stop().
  ~Server();

  std::uint16_t port() const { return port_; }
  std::string address() const;
  /// Whether a client may have it; tcp, in which it asks, always.
  bool serves(const std::string& transport) const;
  /// JSON: roles, backends, counts, latencies, connections, last error.
  std::string status() const;
  /// The same as OpenMetrics text.
  std::string metrics_text() const;
  /// No new connections and requests; what is under way is answered within the grace, what then is not is given up, and
  /// backends are synced and closed.
  void stop(double grace_s = 5);

  /// Serves a connected socket as if it had been accepted; takes it.
  void serve(int fd) noexcept;

  // For sessions.
  const ServerConfig& config() const { return config_; }
  /// The secret of auth user and token.
  const std::string& token() const { return token_; }
  Credentials& credentials() { return *credentials_; }
  Budget& budget() { return *budget_; }
  Metrics& metrics() { return metrics_; }
  Lane* lane(Role role) { return lanes_[static_cast<std::size_t>(role)].get(); }
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }
  /// Set when nobody waits for an answer any more.
  const std::atomic<bool>* abandoned() const { return &abandoned_; }
  Gate& gate() { return *gate_; }
  /// Counts as the last error, and is logged, once a minute at most.
  void failed(std::string_view what) noexcept;

 private:
  Server() = default;
  static Result<std::unique_ptr<Server>> open(ServerConfig config);
  void accept_all() noexcept;
  void accept_one();
  void admit(int fd);
  void log(const Error& error);
  /// Why a connection cannot be taken, from errno.
  static Error no_descriptor(int error);
  void cannot_accept(int error);
  void refuse(int fd, const std::string& what, const std::string& hint);

  ServerConfig config_;
  std::string token_;
  Metrics metrics_;
  bool all_transports_ = false;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<Budget> budget_;
  std::unique_ptr<Credentials> credentials_;
  std::array<std::unique_ptr<Lane>, role_count> lanes_;
  std::vector<std::unique_ptr<Reactor>> reactors_;
  int listener_ = -1, wake_ = -1;
  int spare_ = -1;  ///< given up to take a connection that there is no descriptor for, and to tell it so
  std::mutex log_mutex_;
  double logged_s_ = 0;
  std::uint16_t port_ = 0;
  double started_s_ = 0;
  std::atomic<bool> stopping_ = false, abandoned_ = false;
  bool stopped_ = false;
  std::thread acceptor_;
};

}  // namespace sonde::store
