#pragma once
/// What is measured: one operation of one client, of one size, in batches of a length, so many of them under way.
/// Owner-thread.

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/striped.hpp"

namespace sonde::store::bench {

/// "object.write:4096:1:1" is client.operation : bytes : operations a batch : batches under way.
struct Case {
  std::string client, operation;
  std::size_t bytes = 0, batch = 1, depth = 1;
  std::string text() const;
  /// Error: store.bad_case, with the names that are known.
  static Result<Case> parse(std::string_view text);
};

/// "tcp", "shm=ofi-rdm,provider=shm", "plain=tcp,nodelay=no,gather=no", "raw=raw-tcp": a name, and how to connect.
struct Variant {
  std::string name, transport;
  LinkOptions link;
  bool checksum = true;
  bool tls = false;
  std::string clients;  ///< "object+kv": only their cases are measured on it; empty: all
  std::string without;  ///< "object.write:4096:10000:1+…": cases that are not measured on it
  /// No storage system: a bare way to another process.
  bool raw() const { return transport.starts_with("raw-"); }
  bool takes(const Case& what) const;
  /// Error: store.bad_variant.
  static Result<Variant> parse(std::string_view text);
};

/// The time of a stage that cannot be separated from the others.
constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

/// Where one iteration's time went, s.
struct Stages {
  double serialise_s, wait_s, backend_s;
};

/// A case on one variant. An iteration is `depth` batches of `batch` operations.
class Load {
 public:
  virtual ~Load() = default;
  /// Whatever has to be there before: objects to be read, keys to be got. fill: no other load of this case has done so.
  virtual Result<void> prepare(bool fill) = 0;
  /// What the next iteration needs and is no part of it; called before each, and not measured.
  virtual Result<void> ready() { return {}; }
  virtual Result<void> iterate(Stages& stages) = 0;
  /// Removes what it made.
  virtual void clean() {}
};

/// Memory that a case wants: its data once, of large batches a part that is used again and again.
std::size_t memory_of(const Case& what);

/// space: where this load may write; loads of the same case on other variants do so too, and find what the first one
/// made. memory: memory_of(what) bytes or more, of which all loads may have the same, as they run one after the other.
Result<std::unique_ptr<Load>> make_load(const Case& what, Client& client, const std::string& space, Safety safety,
                                        MutableBytes memory);

/// A process of its own that takes so many bytes and answers with so many: what a socket, or libfabric, can do alone.
class RawPeer {
 public:
  /// TCP over loopback. Both start a process by fork(): before there is any thread.
  static Result<std::unique_ptr<RawPeer>> start_tcp();
  /// libfabric, loaded with the module `ofi`. Errors: store.unknown_transport, there is no such module.
  static Result<std::unique_ptr<RawPeer>> start_ofi();
  virtual ~RawPeer() = default;
  /// Before the first exchange. provider: of libfabric, empty chooses. memory: what all exchanges will use. Error:
  /// store.no_provider.
  virtual Result<void> connect(const std::string& provider, MutableBytes memory) = 0;
  /// Sends a request of `out` bytes and waits for an answer of `in`: from and into the client's memory, over and over
  /// where that is less.
  virtual Result<void> exchange(std::size_t out, std::size_t in, MutableBytes memory) = 0;
  virtual std::string provider() const = 0;
  virtual std::string detail() const = 0;
};

/// The same bytes as the case has, there and back, without a storage system; memory as above, for what a way costs
/// depends on whether its data is in a cache.
std::unique_ptr<Load> make_raw_load(const Case& what, RawPeer& peer, MutableBytes memory);

}  // namespace sonde::store::bench
