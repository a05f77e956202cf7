#pragma once
/// libsonde-store: keys, objects, striped objects, items and tables, on servers or in this process.
///
///   auto client = sonde::store::Client::open({.servers = {"127.0.0.1:5440"}});
///   if (!client) return fail(client.error());
///   auto batch = (*client).batch(Safety::storage);
///   batch.put("runs", "42/input", bytes_of("…"));
///   batch.write("fields", "pressure", 0, bytes);
///   if (auto sent = batch.run(); !sent) return fail(sent.error());    // the connection failed, or the time ran out
///   if (batch.failed()) …                                             // an operation did: batch[k].status
///
/// The batch is the unit: it goes as one message to each server that it concerns, however many keys or pieces it has,
/// and every operation has its own outcome. What it means when it is acknowledged says its Safety (types.hpp).
///
///   atomic      kv and db: all of a batch that goes to one server, or nothing. Not across servers, nor for objects.
///   order       operations of a batch on one server and role run in order, later ones see earlier ones. Batches do so
///               when the first was acknowledged before the second began; batches in flight together have no order.
///   visible     what is acknowledged (network or storage), every client sees. Reads never see half a kv or db batch.
///               Concurrent writes to one object: each block of 4 KiB at a multiple of 4 KiB comes from one of them.
///   placement   keys, objects and schemas go to the server that the CRC32C of "space NUL name" chooses (modulo their
///               number):
///               every client must name the same servers in the same order.
///
/// A Client may be used from any thread; a Batch, and what reads from it, belongs to one thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "store/backend.hpp"
#include "store/transport.hpp"
#include "store/types.hpp"

namespace sonde::store {

/// A backend to be opened: "memory", "posix,path=/scratch/store", "lmdb,path=/scratch/kv,map=8GiB".
struct BackendSpec {
  Role role{};
  std::string name;
  Settings settings;
};
/// Error: store.bad_backend.
Result<BackendSpec> parse_backend(Role role, std::string_view text);

struct Config {
  /// "host:port"; each is asked for its roles. "data@host:port,kv@…" restricts it to those named.
  std::vector<std::string> servers;
  /// No server: these backends, in this process. One of the two.
  std::vector<BackendSpec> embedded;
  std::string transport = "tcp";  ///< open_transport's names; a server that does not have it refuses
  LinkOptions link;
  /// "user", "token", "munge", "none"; empty: user or token, as the server asks. By the others the server does not
  /// prove whose it is, so they have to be named.
  std::string auth;
  /// For auth token, and for auth user when the server is another user's: a file of 16 bytes or more that only its
  /// owner may read.
  std::string token_file;
  /// Everything in TLS 1.3, with a key derived from the secret: no one between can read or change it. Not with munge or
  /// none, which have no secret; data that goes over another transport than tcp is not in it. The server must offer it.
  bool tls = false;
  bool checksum = true;  ///< CRC32C of all data, not only of headers and tables
  double connect_timeout_s = 15;
  double timeout_s = 30;       ///< of a batch; 0: no limit
  unsigned connections = 8;    ///< at most, to each server
  std::function<bool()> stop;  ///< asked ten times a second while a connection is made; true: Error store.interrupted
};

/// Where time went, of one batch that went to one server and role: its message's own figures.
struct Timing {
  double total_s = 0;      ///< from run() or start() to the last answer
  double serialise_s = 0;  ///< building the message, checksums included
  double wait_s = 0;       ///< in the server, before the backend
  double backend_s = 0;
};

/// Which of `servers` holds a key, object or schema.
std::size_t placement(std::string_view space, std::string_view key, std::size_t servers);

class Batch;

/// One server, as a client sees it.
struct ServerInfo {
  std::string address;
  std::vector<Role> roles;
  LinkInfo link;
  std::string status;  ///< JSON, as the server gave it; empty in embedded mode
};

class Client {
 public:
  /// Connects to every server. Errors: store.unreachable, store.timed_out, store.denied (authentication),
  /// store.bad_frame, store.unknown_transport, store.no_server, store.cannot_open (embedded).
  static Result<Client> open(Config config);
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  Batch batch(Safety safety = Safety::network);

  /// Sends what is queued and waits until every batch under Safety::none has reached its server.
  /// Error store.lost: how many of their operations failed since the last flush.
  Result<void> flush();
  /// Everything executed before, by any client, reaches stable storage on every server.
  Result<void> sync();

  /// Calls `each` for the keys of a space that begin with `prefix`, from all servers, in byte order; it returns false
  /// to stop. Values are empty with keys_only. `after`: only keys after that one.
  Result<void> scan(std::string_view space, std::string_view prefix, bool keys_only,
                    const std::function<bool(std::string_view key, Bytes value)>& each, std::string_view after = {});
  /// The same for the names of objects.
  Result<void> list(std::string_view space, std::string_view prefix,
                    const std::function<bool(std::string_view name)>& each, std::string_view after = {});

  std::size_t servers(Role role) const;
  Result<std::vector<ServerInfo>> status();
  const Config& config() const;

 private:
  friend class Batch;
  struct Impl;
  explicit Client(std::shared_ptr<Impl> impl);
  Result<void> scan_all(Code code, std::string_view space, std::string_view prefix, bool keys_only,
                        std::string_view after, const std::function<bool(std::string_view, Bytes)>& each);
  std::shared_ptr<Impl> impl_;
};

class Batch {
 public:
  Batch(Batch&&) noexcept;
  Batch& operator=(Batch&&) noexcept;
  /// A batch that is still on its way is given up; its connection with it.
  ~Batch();

  // Each returns the operation's place in the batch. Names are copied, data is not: it must stay until the batch is
  // done.
  std::size_t put(std::string_view space, std::string_view key, Bytes value, std::uint8_t flags = 0);
  std::size_t get(std::string_view space, std::string_view key, MutableBytes into = {});
  std::size_t remove(std::string_view space, std::string_view key);
  std::size_t create(std::string_view space, std::string_view object, std::uint8_t flags = 0);
  std::size_t write(std::string_view space, std::string_view object, std::uint64_t offset, Bytes data,
                    std::uint8_t flags = 0);
  /// Up to into.size() bytes.
  std::size_t read(std::string_view space, std::string_view object, std::uint64_t offset, MutableBytes into);
  /// Up to `length` bytes, in memory of the batch.
  std::size_t read(std::string_view space, std::string_view object, std::uint64_t offset, std::uint64_t length);
  std::size_t status(std::string_view space, std::string_view object);
  std::size_t truncate(std::string_view space, std::string_view object, std::uint64_t size);
  std::size_t remove_object(std::string_view space, std::string_view object);
  /// Any operation; `server`: which of those of its role, -1 for the one that its name chooses.
  std::size_t add(const Op& op, int server = -1);

  /// Sends the batch and waits for its answers. Errors: store.disconnected, store.timed_out, store.empty_batch; the
  /// outcomes say how far it came. Operations that fail by themselves are no error here: see failed().
  Result<void> run();
  /// Sends without waiting, at once where nothing else is under way, else together with what follows, at the latest
  /// with the next wait() or flush(). Many batches may be under way.
  Result<void> start();
  /// Waits for a batch that was started.
  Result<void> wait();
  /// Looks, without waiting, whether it is done.
  bool done();
  /// Waits for it, but no longer than that, s; returns whether it is done. For callers that must check something else
  /// meanwhile.
  bool done_within(double seconds);

  std::size_t size() const;
  const Outcome& operator[](std::size_t k) const;
  /// explain() of the outcome; where the server or the way to it failed, with the server's address.
  std::string why(std::size_t k) const;
  /// The operations, with the batch's own copy of their names.
  const Op& op(std::size_t k) const;
  /// Operations whose status is not ok. Under Safety::none they stay `pending`, which does not count.
  std::size_t failed() const;
  Timing timing() const;
  /// Empty again, and what was read is forgotten; keeps its memory.
  void clear();

 private:
  friend class Client;
  struct Impl;
  explicit Batch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sonde::store
