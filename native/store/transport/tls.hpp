#pragma once
/// TLS 1.3 between two who know the same secret, without certificates: the secret is a pre-shared key (RFC 8446,
/// section 2.2), and each connection has keys of its own that the secret does not give away later (psk_dhe_ke). OpenSSL
/// does it; bytes go in and out here, sockets are the caller's. Owner-thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/error.hpp"
#include "store/types.hpp"

struct ssl_st;
struct bio_st;

namespace sonde::store {

class Tls {
 public:
  enum class Side { client, server };
  /// secret: that of auth.hpp's token or user key; the TLS key is derived from it.
  /// Error: store.unavailable (no memory, or an OpenSSL without TLS 1.3).
  static Result<std::unique_ptr<Tls>> make(Side side, const std::string& secret);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  /// Whether a stream that begins with this byte is TLS: a record of a handshake. No frame of ours begins so.
  static bool begins_with(std::byte first) { return first == std::byte{22}; }

  /// Takes what came from the network. False: there is no memory for it, and the stream has a hole.
  bool put(Bytes cipher);
  /// Goes on with the handshake as far as what came allows. Whether it is over, and the other side knows the secret.
  /// Errors: store.denied, store.bad_frame, store.unavailable (no memory).
  Result<bool> shake();
  /// Plain bytes of what came; 0: more has to come first; -1: the peer ended the stream in order.
  /// Errors: store.denied (it does not know the secret), store.bad_frame (no TLS, or changed on its way).
  Result<std::ptrdiff_t> read(std::byte* to, std::size_t most);
  /// Only after the handshake. Error: store.bad_frame.
  Result<void> write(Bytes plain);
  /// What has to go to the network, up to its taking by took().
  Bytes cipher() const;
  void took(std::size_t bytes);

 private:
  Tls() = default;
  Error why(int result) const;

  ssl_st* ssl_ = nullptr;
  bio_st* in_ = nullptr;   ///< of ssl_
  bio_st* out_ = nullptr;  ///< of ssl_
  unsigned char key_[32] = {};
};

}  // namespace sonde::store
