#pragma once
/// One measured case: an operation of a client, with a size, in batches of a length, with a number of them in flight.
/// Owner-thread.

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/striped.hpp"

namespace sonde::store::bench {

/// "object.write:4096:1:1" is client.operation : bytes : operations per batch : batches in flight.
struct Case {
  std::string client, operation;
  std::size_t bytes = 0, batch = 1, depth = 1;
  std::string text() const;
  /// Error: store.bad_case, with the known names.
  static Result<Case> parse(std::string_view text);
};

/// "tcp", "shm=ofi-rdm,provider=shm", "plain=tcp,nodelay=no,gather=no", "raw=raw-tcp": a name, and the options of the
/// connection.
struct Variant {
  std::string name, transport;
  LinkOptions link;
  bool checksum = true;
  bool tls = false;
  std::string clients;  ///< "object+kv": only their cases are measured on it; empty: all
  std::string without;  ///< "object.write:4096:10000:1+…": cases that are not measured on it
  /// Whether it is a raw limit: a bare transport to another process, without a storage system.
  bool raw() const { return transport.starts_with("raw-"); }
  bool takes(const Case& what) const;
  /// Error: store.bad_variant.
  static Result<Variant> parse(std::string_view text);
};

/// The time of a stage that cannot be separated from the others.
constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

/// The time of one iteration's stages, s.
struct Stages {
  double serialise_s, wait_s, backend_s;
};

/// A case on one variant. An iteration is `depth` batches of `batch` operations.
class Load {
 public:
  virtual ~Load() = default;
  /// Creates what the case needs: objects for reads, keys for gets. fill: no other load of this case has done so.
  virtual Result<void> prepare(bool fill) = 0;
  /// Prepares the next iteration without being part of it; called before each, and not measured.
  virtual Result<void> ready() { return {}; }
  virtual Result<void> iterate(Stages& stages) = 0;
  /// Removes what it created.
  virtual void clean() {}
};

/// The memory that a case needs: its data once; for large batches a part that is used repeatedly.
std::size_t memory_of(const Case& what);

/// space: the space that this load may write to. Loads of the same case on other variants use it too, and find the
/// objects of the first one. memory: memory_of(what) bytes or more; all loads may share it, because they run one after
/// the other.
Result<std::unique_ptr<Load>> make_load(const Case& what, Client& client, const std::string& space, Safety safety,
                                        MutableBytes memory);

/// A separate process that takes a number of bytes and answers with a number of bytes: the limit of a socket, or of
/// libfabric.
class RawPeer {
 public:
  /// TCP over loopback. Both start a process by fork(): call them before there is any thread.
  static Result<std::unique_ptr<RawPeer>> start_tcp();
  /// libfabric, loaded with the module `ofi`. Errors: store.unknown_transport, there is no such module.
  static Result<std::unique_ptr<RawPeer>> start_ofi();
  virtual ~RawPeer() = default;
  /// Call it before the first exchange. provider: of libfabric, empty chooses one. memory: the memory of all exchanges.
  /// Error: store.no_provider.
  virtual Result<void> connect(const std::string& provider, MutableBytes memory) = 0;
  /// Sends a request of `out` bytes and waits for an answer of `in`: from and into the client's memory, repeatedly if
  /// that is smaller.
  virtual Result<void> exchange(std::size_t out, std::size_t in, MutableBytes memory) = 0;
  virtual std::string provider() const = 0;
  virtual std::string detail() const = 0;
};

/// Sends the same bytes as the case in both directions, without a storage system. It uses memory as above, because the
/// cost depends on whether the data is in a cache.
std::unique_ptr<Load> make_raw_load(const Case& what, RawPeer& peer, MutableBytes memory);

}  // namespace sonde::store::bench
