#pragma once
/// Requests and replies over the bus: correlation, deadline, retry, error codes. A service named S is two topics, S and
/// S + "_reply", so "NodeManager_get" is answered on "NodeManager_get_reply".
///
/// Both carry sonde::bus::Request and sonde::bus::Reply (request_types()): a header and the body, a payload of the
/// service's own type. A client reads replies in its own partition, named in each request ("reply/<guid>"). So only the
/// client gets its replies, and a client that does not read delays no other. A server stores the last replies of each
/// client: it answers a repeated request again without executing it again. Waiting happens in separate threads with a
/// Waiter, never in a thread of a DDS.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bus/bus.hpp"

namespace sonde::bus {

/// The number is sent. User codes begin at 1000.
enum class ReplyCode : std::uint32_t {
  ok = 0,
  bad_request = 1,
  denied = 2,
  not_found = 3,
  busy = 4,
  failed = 5,
  expired = 6,
  unsupported = 7,
  closing = 8
};
std::string_view name_of(ReplyCode code);

struct ServiceTypes {
  TypePtr request, reply;  ///< types of the bodies; null: any bytes
};

struct CallOptions {
  std::string target;     ///< name of the server, '*' and '?' allowed; the first reply counts. Empty: any server
  double deadline_s = 5;  ///< for all attempts together; sent, so that servers drop expired requests
  /// The same request is sent again after this time, which doubles; 0: only once. It is sent again sooner while samples
  /// can be lost: wait_for_server().
  double retry_s = 0.5;
};

/// The answer of a server.
struct Answer {
  ReplyCode code = ReplyCode::ok;
  std::string message;  ///< with other codes than ok
  std::string server;
  std::vector<std::byte> body;
  int tries = 1;
};

/// Counts since the creation. `late`: arrived after the deadline; `unasked`: belong to no call of this client.
struct CallCounts {
  std::uint64_t calls = 0, answered = 0, timed_out = 0, retried = 0, late = 0, duplicate = 0, unasked = 0,
                malformed = 0;
};

/// Any-thread; calls of several threads run in parallel. All clients of one service of one Bus share two endpoints. At
/// most 64 calls of a client, and 256 of all of them, run at a time; 65536 more wait for their turn.
class Client {
 public:
  /// `qos`: partitions, user data, latency budget, depth. The other policies are fixed:
  /// docs/reference/bus-requests.md. Errors: bus.bad_type, and those of Bus::writer() and reader().
  static Result<std::unique_ptr<Client>> open(const std::shared_ptr<Bus>& bus, const std::string& service,
                                              const ServiceTypes& types = {}, const Qos& qos = {});
  virtual ~Client() = default;
  /// Errors: bus.timed_out (service, target, attempts, whether any server was found), bus.malformed (the request),
  /// bus.too_large, bus.busy (too many wait), bus.closed, bus.would_wait (within a `done`).
  /// An answer with another code than ok is an Answer, not an Error.
  virtual Result<Answer> call(Bytes body, const CallOptions& options = {}) = 0;
  /// All answers that arrive within the deadline, or the first `most`; no answer is not an error.
  virtual Result<std::vector<Answer>> call_all(Bytes body, const CallOptions& options, std::size_t most) = 0;
  /// `done` is called once, by the client's thread, and must not wait.
  virtual void start(Bytes body, const CallOptions& options, std::function<void(Result<Answer>)> done) = 0;
  /// Waits until a server receives requests and its answers can arrive, so that the first call is as fast as any other.
  /// A server that opens its writer only for a request counts as present after 1 s.
  virtual bool wait_for_server(Deadline deadline) = 0;
  virtual CallCounts counts() const = 0;
};

/// A request during its execution.
struct Incoming {
  Bytes body;
  Guid client;         ///< its participant
  std::string target;  ///< as given by the client
  std::uint64_t number = 0;
  Deadline deadline;
  bool repeated = false;  ///< true for a handler only if the server has forgotten the first reply
};

struct ServerOptions {
  std::string name;          ///< compared with the targets of requests
  unsigned threads = 1;      ///< number of threads that call the handler
  std::size_t queue = 1024;  ///< requests that wait for a thread; beyond: ReplyCode::busy
  std::size_t remembered =
      64;  ///< replies stored for each client, 256 MiB in total. The DDS also stores the last 256 of each participant
};

struct ServeCounts {
  std::uint64_t requests = 0, answered = 0, repeated = 0, expired = 0, busy = 0, malformed = 0, not_for_us = 0,
                failed = 0, clients = 0;
};

class Server {
 public:
  /// Sends the handler's Answer; an exception becomes ReplyCode::failed.
  using Handler = std::function<Answer(const Incoming&)>;
  static Result<std::unique_ptr<Server>> open(std::shared_ptr<Bus> bus, const std::string& service,
                                              const ServiceTypes& types, Handler handler,
                                              const ServerOptions& options = {}, const Qos& qos = {});
  virtual ~Server() = default;  ///< when it returns, no handler runs; waiting requests are answered with `closing`
  virtual ServeCounts counts() const = 0;
};

/// The types of both topics, for foreign peers; the IDL is in docs/reference/bus-requests.md.
TypePtr request_type();
TypePtr reply_type();

}  // namespace sonde::bus
