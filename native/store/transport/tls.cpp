#include "store/transport/tls.hpp"

#include <openssl/bio.h>
#include <openssl/buffer.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>

namespace sonde::store {

namespace {

constexpr char identity[] = "sonde";
/// The label for the derivation of the TLS key: no other use of the secret has this text.
constexpr char purpose[] = "sonde store tls 1";
constexpr unsigned char suite[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256, RFC 8446 B.4

/// Where a Tls keeps its key in its SSL's application data.
const unsigned char* key_of(SSL* ssl) { return static_cast<const unsigned char*>(SSL_get_app_data(ssl)); }

/// A session that both sides can make from the key alone. nullptr: no memory.
SSL_SESSION* session_of(SSL* ssl, std::size_t key_bytes) {
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, suite);
  if (session && cipher && SSL_SESSION_set1_master_key(session, key_of(ssl), key_bytes) &&
      SSL_SESSION_set_cipher(session, cipher) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
    return session;
  SSL_SESSION_free(session);
  return nullptr;
}

constexpr std::size_t key_bytes = 32;
constexpr std::size_t kept_bytes = 128u << 10;
/// About what OpenSSL 3 allocates for an SSL, without the BIOs: while it has buffers for a handshake and for a record
/// each way; and after that, with its buffers for records let go of (SSL_MODE_RELEASE_BUFFERS; 31 KiB in OpenSSL 3.5).
constexpr std::size_t shaking_bytes = 80u << 10, open_bytes = 32u << 10;

int use_key(SSL* ssl, const EVP_MD* digest, const unsigned char** id, std::size_t* id_bytes, SSL_SESSION** session) {
  *id = reinterpret_cast<const unsigned char*>(identity);
  *id_bytes = sizeof identity - 1;
  *session = nullptr;
  // Asked again with another digest after a HelloRetryRequest: there is a key for SHA-256 alone.
  if (digest && EVP_MD_type(digest) != NID_sha256) return 1;
  *session = session_of(ssl, key_bytes);
  return *session ? 1 : 0;
}

int find_key(SSL* ssl, const unsigned char* id, std::size_t id_bytes, SSL_SESSION** session) {
  *session = nullptr;
  if (id_bytes != sizeof identity - 1 || std::memcmp(id, identity, id_bytes) != 0) return 1;
  *session = session_of(ssl, key_bytes);
  return *session ? 1 : 0;
}

/// OpenSSL's message callback: counts the records that come. at: where.
void count_record(int sent, int, int type, const void*, std::size_t, SSL*, void* at) {
  if (!sent && type == SSL3_RT_HEADER) ++*static_cast<std::uint64_t*>(at);
}

std::size_t allocated(BIO* bio) {
  BUF_MEM* memory = nullptr;
  BIO_get_mem_ptr(bio, &memory);
  return memory ? memory->max : 0;
}

/// One for each side and all connections, for good. nullptr: no memory, or no TLS 1.3.
SSL_CTX* new_context(bool client) {
  SSL_CTX* context = SSL_CTX_new(client ? TLS_client_method() : TLS_server_method());
  if (!context || !SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) ||
      !SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256")) {
    SSL_CTX_free(context);
    return nullptr;
  }
  // No tickets: each connection proves the secret itself. Buffers go while they are empty: there may be thousands of
  // connections.
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  // Without SSL_MODE_AUTO_RETRY it returns after each record without data, so that many of them block no other client.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_msg_callback(context, count_record);
  if (client) SSL_CTX_set_psk_use_session_callback(context, use_key);
  else SSL_CTX_set_psk_find_session_callback(context, find_key);
  // A server may answer an offered key with a certificate instead: no certificate authority is trusted.
  if (client) SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  return context;
}

SSL_CTX* context_of(bool client) {
  static std::atomic<SSL_CTX*> contexts[2];
  SSL_CTX* there = contexts[client].load();
  if (there) return there;
  SSL_CTX* made = new_context(client);
  if (made && !contexts[client].compare_exchange_strong(there, made)) {
    SSL_CTX_free(made);
    return there;
  }
  return made;
}

}  // namespace

Result<std::unique_ptr<Tls>> Tls::make(Side side, const std::string& secret) {
  std::unique_ptr<Tls> tls(new Tls);
  unsigned bytes = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), reinterpret_cast<const unsigned char*>(purpose),
       sizeof purpose - 1, tls->key_, &bytes);
  const bool client = side == Side::client;
  SSL_CTX* context = context_of(client);
  const auto failed = [] {
    ERR_clear_error();
    return Error{"store.unavailable", "OpenSSL cannot begin TLS 1.3: no memory, or a configuration that forbids it",
                 "see openssl.cnf, or leave TLS out"};
  };
  if (bytes != key_bytes || !context) return failed();
  tls->ssl_ = SSL_new(context);
  tls->in_ = BIO_new(BIO_s_mem());
  tls->out_ = BIO_new(BIO_s_mem());
  if (!tls->ssl_ || !tls->in_ || !tls->out_) {
    BIO_free(tls->in_);
    BIO_free(tls->out_);
    return failed();
  }
  SSL_set_bio(tls->ssl_, tls->in_, tls->out_);  // which are the SSL's from here on
  SSL_set_app_data(tls->ssl_, tls->key_);
  SSL_set_msg_callback_arg(tls->ssl_, &tls->records_);
  if (client) SSL_set_connect_state(tls->ssl_);
  else SSL_set_accept_state(tls->ssl_);
  return tls;
}

Tls::~Tls() {
  SSL_free(ssl_);
  OPENSSL_cleanse(key_, sizeof key_);
}

bool Tls::Claims::sound(Bytes cipher) {
  for (const std::byte b : cipher) {
    const auto value = std::to_integer<std::uint8_t>(b);
    if (record_left_ == 0) {  // a record's type, version and length: RFC 8446, section 5.1
      record_head_ = record_head_ << 8 | value;
      if (++record_head_bytes_ < 5) continue;
      record_head_bytes_ = 0;
      handshake_ = (record_head_ >> 32 & 0xff) == SSL3_RT_HANDSHAKE;
      record_left_ = record_head_ & 0xffff;
      continue;
    }
    --record_left_;
    if (!handshake_) continue;
    if (message_left_) {
      --message_left_;
      continue;
    }
    message_head_ = message_head_ << 8 | value;  // a message's type and length: section 4
    if (++message_head_bytes_ < 4) continue;
    message_head_bytes_ = 0;
    message_left_ = message_head_ & 0xffffff;
    if (message_left_ > handshake_message_max) return false;
  }
  return true;
}

bool Tls::over() const { return SSL_is_init_finished(ssl_); }

bool Tls::put(Bytes cipher) {
  if (!over()) {
    claims_sound_ = claims_sound_ && claims_.sound(cipher);
    if (!claims_sound_) return true;  // shake() says so
  }
  while (!cipher.empty()) {
    const int n = BIO_write(in_, cipher.data(), static_cast<int>(std::min<std::size_t>(cipher.size(), INT_MAX)));
    if (n <= 0) return false;
    cipher = cipher.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

Error Tls::why(int result) const {
  const int kind = SSL_get_error(ssl_, result);
  const unsigned long number = ERR_peek_error();
  const int reason = ERR_GET_REASON(number);
  const bool shaking = !over();
  char text[256] = "the stream ended";
  if (kind == SSL_ERROR_SSL && number) ERR_error_string_n(number, text, sizeof text);
  ERR_clear_error();
  const std::string what = std::string("TLS: ") + text;
  if (reason == ERR_R_MALLOC_FAILURE) return {"store.unavailable", "no memory for " + what, "connect again later"};
  if (shaking && (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
                  reason == SSL_R_UNSUPPORTED_PROTOCOL || reason == SSL_R_BAD_RECORD_TYPE))
    return {"store.denied", "the other side does not use TLS (" + what + ")",
            "start the server with --tls offer or require; or leave --tls out"};
  if (shaking)
    return {"store.denied", "the two sides have different secrets, so TLS cannot start (" + what + ")",
            "both need the same key or token file: see --auth and --token-file"};
  return {"store.bad_frame", "the received data were changed on the way (" + what + ")",
          "something between client and server changes the data"};
}

/// By the key, and by nothing else that TLS may end a handshake with.
Result<bool> Tls::finished() const {
  if (SSL_session_reused(ssl_)) return true;
  return Error{"store.denied", "the other side did not prove with TLS that it has the secret",
               "it may be another server: check the address, and the key or token file"};
}

Result<bool> Tls::shake() {
  if (!claims_sound_)
    return Error{"store.denied",
                 "a message of the peer's TLS handshake is larger than " + std::to_string(handshake_message_max) + " B",
                 "the other side is not Sonde: check the address"};
  if (over()) return finished();
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  filled_ = records_;  // those of the handshake are no idle ones
  if (result == 1) return finished();
  const int kind = SSL_get_error(ssl_, result);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return false;
  return why(result);
}

Result<std::ptrdiff_t> Tls::read(std::byte* to, std::size_t most) {
  const auto shaken = shake();
  if (!shaken) return shaken.error();
  if (!*shaken || most == 0) return std::ptrdiff_t{0};
  ERR_clear_error();
  const bool next = SSL_pending(ssl_) == 0;  // of what is read now the first byte is another record's
  std::size_t n = 0;
  const int result = SSL_read_ex(ssl_, to, most, &n);
  if (result == 1) {
    filled_ += next;
    plain_bytes_ += n;
  }
  // One may be on its way.
  if (const std::uint64_t idle = records_ - filled_; idle > idle_records_max + 1 + plain_bytes_ / bytes_for_idle_record)
    return Error{"store.bad_frame",
                 "the peer sends too many TLS records without data: " + std::to_string(idle - 1) + " with " +
                     std::to_string(plain_bytes_) + " B of data; " + std::to_string(idle_records_max) +
                     " are allowed, and one more for each MiB",
                 "the other side is not Sonde, or changes its keys too often"};
  if (result == 1) return static_cast<std::ptrdiff_t>(n);
  const int kind = SSL_get_error(ssl_, result);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return std::ptrdiff_t{0};
  if (kind == SSL_ERROR_ZERO_RETURN) return std::ptrdiff_t{-1};
  return why(result);
}

std::size_t Tls::unread() const { return BIO_ctrl_pending(in_); }

Result<void> Tls::write(Bytes plain) {
  while (!plain.empty()) {
    ERR_clear_error();
    std::size_t n = 0;
    const int result = SSL_write_ex(ssl_, plain.data(), plain.size(), &n);  // into memory: it does not wait
    if (result != 1) return why(result);
    plain = plain.subspan(n);
  }
  return {};
}

Bytes Tls::cipher() const {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(out_, &data);
  return {reinterpret_cast<const std::byte*>(data), bytes > 0 ? static_cast<std::size_t>(bytes) : 0};
}

void Tls::took(std::size_t bytes) {
  char gone[4096];
  while (bytes) {
    const int n = BIO_read(out_, gone, static_cast<int>(std::min(bytes, sizeof gone)));
    if (n <= 0) return;
    bytes -= static_cast<std::size_t>(n);
  }
  // A BIO keeps the memory of the most that it ever held.
  if (allocated(out_) <= kept_bytes || !cipher().empty() || !over()) return;
  if (BIO* fresh = BIO_new(BIO_s_mem())) {
    SSL_set0_wbio(ssl_, fresh);  // frees the other
    out_ = fresh;
  }
}

std::size_t Tls::held() const {
  return (over() ? open_bytes : shaking_bytes) + allocated(in_) + allocated(out_) - cipher().size();
}

}  // namespace sonde::store
