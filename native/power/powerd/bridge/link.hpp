#pragma once
/// A connection to an MQTT 5 broker that reconnects by itself: libmosquitto (used under its EDL, the BSD licence)
/// driven from one thread, behind a Wire, with TCP_NODELAY, several messages a segment, and no wait that stop() cannot
/// interrupt. Owner-thread; stop() from any.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "power/powerd/bridge/backoff.hpp"
#include "power/powerd/bridge/wire.hpp"

struct mosquitto;
struct mosquitto_message;
struct mqtt5__property;  // NOLINT(bugprone-reserved-identifier): libmosquitto's name

namespace sonde::power::bridge {

struct LinkOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 1883;
  std::string user, password;
  std::string ca, certificate, key;  ///< with `ca` it uses TLS, and checks the broker's name
  bool unprotected = false;          ///< a broker without proof of identity gets the password, and its orders count
  std::string id;                    ///< of the client: its session at the broker survives a lost connection
  bool clean = false;                ///< start without the stored session
  /// Times the attempts and their delays, ns; a test has its own.
  std::function<std::int64_t()> clock = now_ns;
};

struct Received {
  std::string_view topic, payload, origin;  ///< origin: user property "sonde-origin"
  std::string response_topic, correlation;
  double expiry_s = 0;  ///< 0: not set
  bool retained = false;
  bool trusted = false;  ///< came over a link that is trusted()
};

struct Outgoing {
  const std::string& topic;
  std::string_view payload;
  int qos = 0;
  bool retain = false;
  const std::string* origin = nullptr;
  const std::string* correlation = nullptr;
};

class Link {
 public:
  struct Handlers {
    /// Called before each connection: topic, payload, QoS, retained; an empty topic: no will.
    std::function<void(std::string& topic, std::string& payload, int& qos, bool& retain)> will;
    std::function<void(bool session_present)> connected;
    std::function<void(const std::string& filter, const Error&)>
        refused;                                           ///< the broker refuses a subscription; the others are valid
    std::function<void(bool session_present)> subscribed;  ///< the broker has answered everything that `connected`
                                                           ///< requested; called at once if that is nothing
    std::function<void(const Error&)> lost;                ///< also after a failed attempt
    std::function<void(const Received&)> message;
    std::function<void()> dealt;  ///< after the messages of a turn, before they are acknowledged to the broker
    std::function<void(int number, bool taken, const std::string& why)> acknowledged;  ///< of QoS 1 and 2
  };
  /// Errors: bridge.bad_tls (the files), bridge.mqtt.
  static Result<std::unique_ptr<Link>> make(const LinkOptions& options, Handlers handlers);
  ~Link();

  bool connected() const { return state_ == State::connected; }
  /// Whether the broker has proved its identity, by TLS on the present connection.
  bool peer_is_proven() const;
  /// Whether it may get the password and send orders: it is proven, or `unprotected` declares it trusted.
  bool trusted() const;
  /// Connects when it is time, reads and writes what is possible; waits at most `timeout_ms` for work, or until
  /// `wake_fd` is readable (which is then read). `reads`: false leaves incoming messages at the broker.
  void turn(int timeout_ms, int wake_fd, bool reads = true);
  /// Whether the socket can take more now, and fewer than `most_unacknowledged` messages are unacknowledged.
  bool takes() const;
  /// Errors: bridge.refused_locally (MQTT cannot carry it: topic, size), bridge.lost.
  Result<int> publish(const Outgoing& message);
  Result<void> subscribe(const std::string& filter, int qos);
  /// Between these two calls, messages share segments.
  void begin_batch();
  void end_batch();
  std::size_t unacknowledged() const { return waiting_.size(); }
  /// When the next attempt is due, by the clock of the options; for an open connection, when its own was.
  std::int64_t next_attempt_ns() const { return backoff_.next_ns(); }
  std::uint64_t reconnects() const { return connects_ > 1 ? connects_ - 1 : 0; }
  /// Disconnects in order (the last will is not sent), waits at most `s` until that is sent.
  void close(double s);
  /// Called by a thread other than that of turn(): no new connection is begun, and one that is being opened is
  /// cancelled.
  void stop() { stopping_ = true; }

 private:
  enum class State { idle, handshake, connected };
  struct Calls;
  struct Lookup;
  Link(const LinkOptions& options, Handlers handlers) : options_(options), handlers_(std::move(handlers)) {}
  bool look_up(std::string& why);
  int reach(std::string& why);
  Result<void> open_wire();
  void connect();
  void drop(const Error& error);
  void served();
  void failed(const Error& error);

  LinkOptions options_;
  Handlers handlers_;
  mosquitto* mosq_ = nullptr;
  State state_ = State::idle;
  Random random_{std::random_device{}()};
  Backoff backoff_;
  std::int64_t handshake_until_ns_ = 0;
  std::uint64_t connects_ = 0, progress_ = 0;
  std::map<int, std::string>
      subscribing_;  ///< filters of this connection that the broker has not answered, by the message's number
  bool session_present_ = false;
  struct Waiting {
    int number;
    std::uint64_t published;  ///< number of messages published before it
    bool taken;
  };
  std::deque<Waiting> waiting_;  ///< of QoS 1 and 2, oldest first
  std::uint64_t published_ = 0;
  bool closing_ = false, corked_ = false, reading_ = false;
  Error last_;
  std::shared_ptr<Lookup> lookup_;  ///< of the broker's name: under way, or its result for the present attempt
  std::unique_ptr<Wire> wire_;      ///< while a connection is being opened or is open
  std::atomic<bool> stopping_{false};
};

/// libmosquitto looks at all of them for each acknowledgement: 2000 cost 10 us a message.
inline constexpr std::size_t most_unacknowledged = 256;

}  // namespace sonde::power::bridge
