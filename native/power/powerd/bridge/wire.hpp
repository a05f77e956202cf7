#pragma once
/// The connection between libmosquitto and the broker. libmosquitto has a socket to this process. Data from the broker
/// pass Packets first, and TLS ends here. So the checks hold with and without TLS, and the broker proves its identity
/// before libmosquitto gets a password. Owner-thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/error.hpp"
#include "power/powerd/bridge/packets.hpp"

struct ssl_st;
struct ssl_ctx_st;

namespace sonde::power::bridge {

/// The TLS settings, from the present files. An empty `ca`: no TLS, and nullptr.
/// Error: bridge.bad_tls (a file that cannot be used).
Result<std::shared_ptr<ssl_ctx_st>> tls_context(const std::string& ca, const std::string& certificate,
                                                const std::string& key);

class Wire {
 public:
  /// `broker`: a connected, non-blocking socket, which the Wire owns. `host`: the name that the broker's certificate
  /// must have, if there is a context. Error: bridge.mqtt (no memory, no descriptor).
  static Result<std::unique_ptr<Wire>> make(int broker, std::shared_ptr<ssl_ctx_st> context, const std::string& host);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  /// Continues the TLS handshake. True: it is complete; at once without TLS. Error: bridge.tls.
  Result<bool> shake();
  /// Whether TLS is used, with the broker's certificate signed by the authority and issued for the name: as OpenSSL
  /// verified it, not as configured.
  bool proven() const;

  /// A port of 127.0.0.1 for libmosquitto, for one connection. Error: bridge.mqtt.
  Result<std::uint16_t> listen();
  /// Accepts the connection of libmosquitto's `socket`, and no other. Error: bridge.mqtt.
  Result<void> accept(int socket);

  int broker() const { return broker_; }
  int near() const { return near_; }
  /// The events that poll() has to wait for. `reads`: whether the broker may be read.
  short wants_of_broker(bool reads) const;
  short wants_of_near() const;
  /// Whether in() has work that no socket event shows.
  bool ready(bool reads) const;
  /// Moves one piece towards libmosquitto; `reads`: including new data of the broker. Returns whether data moved.
  /// Error: bridge.bad_packet.
  Result<bool> in(bool reads);
  /// Moves data towards the broker, as far as possible.
  void out();
  /// Forwards the last bytes of libmosquitto, while the broker is connected; the broker may close first.
  void finish(std::int64_t until_ns);
  bool blocked() const { return out_at_ < out_.size(); }
  /// Why the broker's side ended, if it did not end in order; else its code is empty.
  const Error& why() const { return why_; }

 private:
  Wire() = default;
  std::ptrdiff_t read(char* to, std::size_t most);
  std::ptrdiff_t write(const char* from, std::size_t bytes);
  std::ptrdiff_t over_tls(int result);
  Error tls_error(int result) const;
  bool may_read() const;

  int broker_ = -1, near_ = -1, listener_ = -1;
  std::shared_ptr<ssl_ctx_st> context_;
  ssl_st* ssl_ = nullptr;
  bool writes_first_ = false;  ///< TLS cannot continue before it has written
  bool over_ = false;          ///< the broker sends no more
  bool shut_ = false;          ///< libmosquitto was notified
  bool near_over_ = false;     ///< libmosquitto writes no more
  std::string in_, out_;       ///< data in transfer; bytes before the following positions have been moved
  std::size_t in_at_ = 0, out_at_ = 0;
  Packets from_broker_{Packets::From::broker}, from_bridge_{Packets::From::bridge};
  Error why_;
};

}  // namespace sonde::power::bridge
