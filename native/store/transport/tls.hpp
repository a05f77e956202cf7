#pragma once
/// TLS 1.3 between two sides with the same secret, without certificates: the secret is a pre-shared key (RFC 8446,
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
  /// Errors: store.denied (also of a message that is longer than Sonde's), store.bad_frame, store.unavailable (no
  /// memory).
  Result<bool> shake();
  /// Plain bytes of what came; 0: more has to come first, or, where bytes are unread(), what was read held no data;
  /// -1: the peer ended the stream in order.
  /// Errors: store.denied (it does not know the secret), store.bad_frame (no TLS, changed on its way, or more records
  /// without data than a peer has use for).
  Result<std::ptrdiff_t> read(std::byte* to, std::size_t most);
  /// Bytes that put() took and nothing has looked at yet.
  std::size_t unread() const;
  /// Only after the handshake. Error: store.bad_frame.
  Result<void> write(Bytes plain);
  /// The bytes to send to the network, until took() removes them.
  Bytes cipher() const;
  void took(std::size_t bytes);
  /// About what is allocated for the connection, without cipher().
  std::size_t held() const;

  /// Records without data that a peer may send, and bytes of data that allow one more: new keys, which a peer
  /// needs each few hundred GB (RFC 8446, section 5.5), tickets, warnings, and records of nothing. Ours sends none.
  static constexpr std::uint64_t idle_records_max = 32, bytes_for_idle_record = 1u << 20;
  /// Limit for a message of the handshake, which comes from an unauthenticated peer; ours have less than 2 KiB.
  static constexpr std::size_t handshake_message_max = 15u << 10;

 private:
  /// Follows the records of a handshake before it has keys: OpenSSL makes room for as much as a message claims to be.
  class Claims {
   public:
    /// False: a message claims more than handshake_message_max.
    bool sound(Bytes cipher);

   private:
    std::uint64_t record_head_ = 0;
    std::uint32_t message_head_ = 0;
    int record_head_bytes_ = 0, message_head_bytes_ = 0;
    std::size_t record_left_ = 0, message_left_ = 0;
    bool handshake_ = false;
  };

  Tls() = default;
  Error why(int result) const;
  bool over() const;
  Result<bool> finished() const;

  ssl_st* ssl_ = nullptr;
  bio_st* in_ = nullptr;   ///< of ssl_
  bio_st* out_ = nullptr;  ///< of ssl_
  unsigned char key_[32] = {};
  Claims claims_;
  bool claims_sound_ = true;
  std::uint64_t records_ = 0;      ///< whose head has come
  std::uint64_t filled_ = 0;       ///< of them, those that brought data
  std::uint64_t plain_bytes_ = 0;  ///< that they brought
};

}  // namespace sonde::store
