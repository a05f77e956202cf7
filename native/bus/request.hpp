#pragma once
/// Requests and replies over the bus: correlation, deadline, retry, error codes. A service named S is two topics, S and
/// S + "_reply", so that "NodeManager_get" is answered on "NodeManager_get_reply".
///
/// Both carry sonde::bus::Request and sonde::bus::Reply (request_types()): a header and the body, a payload of the
/// service's own type. A client reads replies in a partition of its own, named in each request ("reply/<guid>"):
/// replies go to who asked and to nobody else, and one who does not read holds up nobody. A server keeps for each
/// client the replies of the last requests: a repeated request is answered again, not executed again. All that waits
/// does so in threads of its own with a Waiter, never in a DDS's.

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

/// The number travels. User codes begin at 1000.
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
  TypePtr request, reply;  ///< of the bodies; null: any bytes
};

struct CallOptions {
  std::string target;     ///< which server: its name, '*' and '?' allowed; the first reply counts. Empty: any
  double deadline_s = 5;  ///< for all tries together; it travels, so that servers drop what nobody waits for
  /// The same request is sent again after this time, doubling; 0: once only. Sooner while what is sent can be lost:
  /// wait_for_server().
  double retry_s = 0.5;
};

/// Who answered, and with what.
struct Answer {
  ReplyCode code = ReplyCode::ok;
  std::string message;  ///< with other codes than ok
  std::string server;
  std::vector<std::byte> body;
  int tries = 1;
};

/// Counts since it was made. `late` came after their deadline, `unasked` belong to no call of this client.
struct CallCounts {
  std::uint64_t calls = 0, answered = 0, timed_out = 0, retried = 0, late = 0, duplicate = 0, unasked = 0,
                malformed = 0;
};

/// Any-thread; calls of several threads go on at once. All clients of one service of one Bus share two endpoints. At
/// most 64 calls of a client, 256 of all of them, are on their way at once; 65536 more wait for their turn.
class Client {
 public:
  /// `qos`: partitions, user data, latency budget, depth. What requests rest on is not to be chosen:
  /// docs/reference/bus-requests.md. Errors: bus.bad_type, and those of Bus::writer() and reader().
  static Result<std::unique_ptr<Client>> open(std::shared_ptr<Bus> bus, const std::string& service,
                                              const ServiceTypes& types = {}, const Qos& qos = {});
  virtual ~Client() = default;
  /// Errors: bus.timed_out (service, target, tries, whether any server was seen), bus.malformed (the request),
  /// bus.too_large, bus.busy (too many wait), bus.closed, bus.would_wait (within a `done`).
  /// An answer with another code than ok is an Answer, not an Error.
  virtual Result<Answer> call(Bytes body, const CallOptions& options = {}) = 0;
  /// All servers' answers that come within the deadline, or until `most` are there; none is no error.
  virtual Result<std::vector<Answer>> call_all(Bytes body, const CallOptions& options, std::size_t most) = 0;
  /// `done` is called once, by the client's thread: it must not wait.
  virtual void start(Bytes body, const CallOptions& options, std::function<void(Result<Answer>)> done) = 0;
  /// Until a server hears what is asked and its answers come back: the first call is as quick as any other then. One
  /// that prepares nothing before it is asked counts as there after 1 s.
  virtual bool wait_for_server(Deadline deadline) = 0;
  virtual CallCounts counts() const = 0;
};

/// One request, while it is answered.
struct Incoming {
  Bytes body;
  Guid client;         ///< its participant
  std::string target;  ///< as the client wrote it
  std::uint64_t number = 0;
  Deadline deadline;
  bool repeated = false;  ///< never true for a handler unless the server has forgotten the first
};

struct ServerOptions {
  std::string name;          ///< what targets are compared with
  unsigned threads = 1;      ///< that call the handler
  std::size_t queue = 1024;  ///< requests that wait for a thread; beyond: ReplyCode::busy
  std::size_t remembered =
      64;  ///< replies kept for each client, 256 MiB of all. The DDS keeps the last 256 of each participant besides
};

struct ServeCounts {
  std::uint64_t requests = 0, answered = 0, repeated = 0, expired = 0, busy = 0, malformed = 0, not_for_us = 0,
                failed = 0, clients = 0;
};

class Server {
 public:
  /// The handler's Answer goes back; what it throws becomes ReplyCode::failed.
  using Handler = std::function<Answer(const Incoming&)>;
  static Result<std::unique_ptr<Server>> open(std::shared_ptr<Bus> bus, const std::string& service,
                                              const ServiceTypes& types, Handler handler,
                                              const ServerOptions& options = {}, const Qos& qos = {});
  virtual ~Server() = default;  ///< no handler runs any more when it returns; what waited is answered `closing`
  virtual ServeCounts counts() const = 0;
};

/// The types of both topics, for foreign peers: their IDL is docs/reference/bus-requests.md's.
TypePtr request_type();
TypePtr reply_type();

}  // namespace sonde::bus
