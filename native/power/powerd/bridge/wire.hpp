#pragma once
/// The connection between libmosquitto and the broker. libmosquitto has a socket to this process; what the broker sends
/// passes Packets first, and TLS is spoken here, so that both hold with TLS and without, and the broker has proved who
/// it is before a password is handed to libmosquitto. Owner-thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/error.hpp"
#include "power/powerd/bridge/packets.hpp"

struct ssl_st;
struct ssl_ctx_st;

namespace sonde::power::bridge {

/// The settings of TLS, from files as they are now. An empty `ca`: none, and nullptr.
/// Error: bridge.bad_tls (a file that cannot be used).
Result<std::shared_ptr<ssl_ctx_st>> tls_context(const std::string& ca, const std::string& certificate,
                                                const std::string& key);

class Wire {
 public:
  /// `broker`: a connected socket that does not block, and belongs to the Wire. `host`: the name that the broker's
  /// certificate has to have, where there is a context. Error: bridge.mqtt (no memory, no descriptor).
  static Result<std::unique_ptr<Wire>> make(int broker, std::shared_ptr<ssl_ctx_st> context, const std::string& host);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  /// Goes on with the TLS handshake. Whether it is over; at once without TLS. Error: bridge.tls.
  Result<bool> shake();
  /// TLS, and the broker's certificate is of the authority and for the name: as OpenSSL has it, not the configuration.
  bool proven() const;

  /// A port of 127.0.0.1 for libmosquitto, for one connection. Error: bridge.mqtt.
  Result<std::uint16_t> listen();
  /// The connection of `socket`, which is libmosquitto's, and nobody else's. Error: bridge.mqtt.
  Result<void> accept(int socket);

  int broker() const { return broker_; }
  int near() const { return near_; }
  /// The events that poll() has to wait for. `reads`: whether the broker may be read.
  short wants_of_broker(bool reads) const;
  short wants_of_near() const;
  /// Whether in() has something to do that no socket shows.
  bool ready(bool reads) const;
  /// Towards libmosquitto: one piece; `reads`: of what the broker has sent, too. Whether something moved.
  /// Error: bridge.bad_packet.
  Result<bool> in(bool reads);
  /// Towards the broker, as far as it goes.
  void out();
  /// Passes on the last bytes of libmosquitto, while the broker is connected; the broker may close first.
  void finish(std::int64_t until_ns);
  bool blocked() const { return out_at_ < out_.size(); }
  /// Why the broker's side ended, where it did otherwise than in order; else its code is empty.
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
  bool writes_first_ = false;  ///< TLS cannot go on before it has written
  bool over_ = false;          ///< the broker sends no more
  bool shut_ = false;          ///< libmosquitto knows
  bool near_over_ = false;     ///< libmosquitto writes no more
  std::string in_, out_;       ///< on the way; what lies before the following places has gone
  std::size_t in_at_ = 0, out_at_ = 0;
  Packets from_broker_{Packets::From::broker}, from_bridge_{Packets::From::bridge};
  Error why_;
};

}  // namespace sonde::power::bridge
