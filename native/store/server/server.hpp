#pragma once
/// The storage server: listens, authenticates, and passes batches from links to backends. Any-thread unless stated
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
  std::vector<BackendSpec> backends;      ///< at most one for each role; the server's roles are those with a backend
  std::string auth = "user";              ///< auth.hpp: "user", "token", "munge"; "none" (loopback only)
  std::string token_file;                 ///< of auth token
  /// "off", "offer" (to clients that request it), "require". Only with auth user and token.
  std::string tls = "off";
  /// "HOST:PORT" with a numeric host: further addresses by which clients reach the server when something forwards to
  /// it, such as a tunnel. A program that listens at such an address can forward the proofs of clients and so connect.
  std::vector<std::string> known_as;
  std::vector<unsigned> users;  ///< munge: users allowed besides root and the server's own user
  /// The transports that a client may request; empty: all on loopback, but tcp alone when other hosts reach the
  /// address, because links of other transports do not authenticate each message.
  std::vector<std::string> transports;
  unsigned threads = 1;         ///< threads that read from and write to connections
  unsigned connections = 4096;  ///< maximum of authenticated connections
  std::size_t frame_data = wire::frame_data_default;
  unsigned credits = 128;         ///< messages that a client may have in flight on a connection
  std::size_t client_memory = 0;  ///< maximum memory for all clients together, B; 0: a quarter of this machine's
  double hello_timeout_s = 3;     ///< for a connection to prove its identity
  double link_timeout_s = 15;     ///< for the two halves of a transport to make their link
  /// For a message in several frames to be complete, plus one second for each 64 KiB received of it.
  double message_timeout_s = 30;
  double query_timeout_s = 10;  ///< for a batch of tables, even if its client allows more
  LinkOptions link;
  std::function<void(const Error&)>
      log;  ///< errors that no client can receive, at most once a minute; called by any thread
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
  /// Whether a client may use a transport. tcp, over which it asks, is always allowed.
  bool serves(const std::string& transport) const;
  /// JSON: roles, backends, counts, latencies, connections, last error.
  std::string status() const;
  /// The same as OpenMetrics text.
  std::string metrics_text() const;
  /// Ends the server. New connections and requests are refused; requests in progress are answered within the grace
  /// time, or else abandoned; backends are synced and closed.
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
  /// Set when no answer is needed any more.
  const std::atomic<bool>* abandoned() const { return &abandoned_; }
  Gate& gate() { return *gate_; }
  /// Records an error as the last one, and logs it, at most once a minute.
  void failed(std::string_view what) noexcept;

 private:
  Server() = default;
  static Result<std::unique_ptr<Server>> open(ServerConfig config);
  void accept_all() noexcept;
  void accept_one();
  void admit(int fd);
  void log(const Error& error);
  /// The reason why a connection cannot be accepted, from errno.
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
  int spare_ = -1;  ///< closed to accept a connection when no descriptor is left, and to report this to it
  std::mutex log_mutex_;
  double logged_s_ = 0;
  std::uint16_t port_ = 0;
  double started_s_ = 0;
  std::atomic<bool> stopping_ = false, abandoned_ = false;
  bool stopped_ = false;
  std::thread acceptor_;
};

}  // namespace sonde::store
