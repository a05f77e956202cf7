#include "power/powerd/bridge/wire.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/clock.hpp"

namespace sonde::power::bridge {

namespace {

constexpr std::size_t piece = 64u << 10;
constexpr int near_bytes = 256 << 10;  ///< the most data between libmosquitto and this object, in each direction
constexpr std::int64_t accept_ns = 1'000'000'000;

constexpr const char* tls_hint =
    "its certificate must be signed by the authority in [mqtt-bridge] ca, for the name in broker; it must trust the "
    "authority of the bridge's certificate";

Error system_error(const std::string& what) {
  return {"bridge.mqtt", what + ": " + std::strerror(errno),
          "check that loopback is up, and the limit of descriptors (ulimit -n)"};
}

std::string openssl_says() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code ? ERR_reason_error_string(code) : nullptr;
  std::string out = reason ? reason : "no reason given";
  ERR_clear_error();
  return out;
}

/// For a key with a password: the password is not asked for.
int no_password(char*, int, int, void*) { return 0; }

bool same_socket(const sockaddr_in& a, const sockaddr_in& b) {
  return a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr;
}

sockaddr_in address_of(int socket, int (*which)(int, sockaddr*, socklen_t*)) {
  sockaddr_in at{};
  socklen_t bytes = sizeof at;
  if (which(socket, reinterpret_cast<sockaddr*>(&at), &bytes) != 0) at = {};
  return at;
}

}  // namespace

Result<std::shared_ptr<ssl_ctx_st>> tls_context(const std::string& ca, const std::string& certificate,
                                                const std::string& key) {
  if (ca.empty()) return std::shared_ptr<ssl_ctx_st>();
  ERR_clear_error();
  std::shared_ptr<ssl_ctx_st> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  const auto bad = [](const std::string& what) {
    return Error{"bridge.bad_tls", what + " cannot be used: " + openssl_says(),
                 "[mqtt-bridge] ca, certificate and key must be readable PEM files, and the key must have no password"};
  };
  if (!context || !SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION)) return bad("TLS 1.2");
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Calls return after each record without data, so that many such records block nothing.
  SSL_CTX_clear_mode(context.get(), SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_default_passwd_cb(context.get(), no_password);
  if (SSL_CTX_load_verify_locations(context.get(), ca.c_str(), nullptr) != 1) return bad("the authority " + ca);
  if (certificate.empty()) return context;
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate.c_str()) != 1)
    return bad("the certificate " + certificate);
  if (SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM) != 1) return bad("the key " + key);
  return context;
}

Result<std::unique_ptr<Wire>> Wire::make(int broker, std::shared_ptr<ssl_ctx_st> context, const std::string& host) {
  std::unique_ptr<Wire> wire(new Wire);
  wire->broker_ = broker;
  const int one = 1;
  ::setsockopt(broker, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (!context) return wire;
  wire->context_ = std::move(context);
  wire->ssl_ = SSL_new(wire->context_.get());
  // An address is compared with the certificate's addresses, anything else with its names.
  const bool named =
      wire->ssl_ &&
      (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(wire->ssl_), host.c_str()) == 1 ||
       (SSL_set1_host(wire->ssl_, host.c_str()) == 1 && SSL_set_tlsext_host_name(wire->ssl_, host.c_str()) == 1));
  if (!named || SSL_set_fd(wire->ssl_, broker) != 1)
    return Error{"bridge.mqtt", "TLS cannot start with the name " + host + ": " + openssl_says(), tls_hint};
  SSL_set_connect_state(wire->ssl_);
  return wire;
}

Wire::~Wire() {
  SSL_free(ssl_);
  for (const int fd : {broker_, near_, listener_})
    if (fd >= 0) ::close(fd);
}

Error Wire::tls_error(int result) const {
  const int kind = SSL_get_error(ssl_, result);
  const long verified = SSL_get_verify_result(ssl_);
  std::string what = verified != X509_V_OK       ? X509_verify_cert_error_string(verified)
                     : kind == SSL_ERROR_SYSCALL ? std::strerror(errno ? errno : ECONNRESET)
                                                 : openssl_says();
  ERR_clear_error();
  return {"bridge.tls", "TLS with the broker failed: " + what, tls_hint};
}

Result<bool> Wire::shake() {
  if (!ssl_) return true;
  ERR_clear_error();
  errno = 0;
  const int result = SSL_do_handshake(ssl_);
  if (result == 1) return true;
  const int kind = SSL_get_error(ssl_, result);
  writes_first_ = kind == SSL_ERROR_WANT_WRITE;
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return false;
  return tls_error(result);
}

bool Wire::proven() const {
  return ssl_ && SSL_is_init_finished(ssl_) && (SSL_get_verify_mode(ssl_) & SSL_VERIFY_PEER) &&
         SSL_get_verify_result(ssl_) == X509_V_OK && SSL_get_peer_cert_chain(ssl_);
}

Result<std::uint16_t> Wire::listen() {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener_ < 0) return system_error("cannot open a socket for libmosquitto");
  ::setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &near_bytes, sizeof near_bytes);
  ::setsockopt(listener_, SOL_SOCKET, SO_SNDBUF, &near_bytes, sizeof near_bytes);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 || ::listen(listener_, 16) != 0)
    return system_error("cannot open a port on 127.0.0.1 for libmosquitto");
  return ntohs(address_of(listener_, ::getsockname).sin_port);
}

Result<void> Wire::accept(int socket) {
  // Every user of the machine can connect to the port: the right connection has the addresses of libmosquitto's socket.
  const sockaddr_in from = address_of(socket, ::getsockname);
  const std::int64_t until = now_ns() + accept_ns;
  while (near_ < 0 && now_ns() < until) {
    pollfd ready{listener_, POLLIN, 0};
    if (::poll(&ready, 1, 100) <= 0) continue;
    sockaddr_in peer{};
    socklen_t bytes = sizeof peer;
    const int one = ::accept4(listener_, reinterpret_cast<sockaddr*>(&peer), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (one >= 0 && same_socket(peer, from)) near_ = one;
    else if (one >= 0) ::close(one);
  }
  if (near_ < 0) return system_error("libmosquitto did not connect");
  ::close(std::exchange(listener_, -1));
  const int one = 1;
  ::setsockopt(near_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &near_bytes, sizeof near_bytes);
  ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &near_bytes, sizeof near_bytes);
  return {};
}

/// Nothing more is read from a broker that does not read acknowledgements, because these would fill the memory here.
bool Wire::may_read() const {
  return !over_ && in_at_ == in_.size() &&
         from_broker_.messages() < from_bridge_.acknowledgements() + std::uint64_t{receive_maximum};
}

short Wire::wants_of_broker(bool reads) const {
  return static_cast<short>((reads && may_read() ? POLLIN : 0) | (blocked() || writes_first_ ? POLLOUT : 0));
}

short Wire::wants_of_near() const {
  return static_cast<short>((in_at_ < in_.size() ? POLLOUT : 0) | (!blocked() && !near_over_ ? POLLIN : 0));
}

bool Wire::ready(bool reads) const {
  return (over_ && !shut_ && in_at_ == in_.size()) || (reads && ssl_ && may_read() && SSL_pending(ssl_) > 0);
}

/// The result of an OpenSSL call as read() and write() of a socket return it: -1 with EAGAIN, 0 at the end.
std::ptrdiff_t Wire::over_tls(int result) {
  writes_first_ = false;
  if (result > 0) return result;
  const int kind = SSL_get_error(ssl_, result);
  writes_first_ = kind == SSL_ERROR_WANT_WRITE;
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) {
    errno = EAGAIN;
    return -1;
  }
  if (kind == SSL_ERROR_ZERO_RETURN) return 0;
  if (why_.code.empty()) why_ = tls_error(result);
  errno = ECONNRESET;
  return -1;
}

std::ptrdiff_t Wire::read(char* to, std::size_t most) {
  errno = 0;
  if (!ssl_) return ::recv(broker_, to, most, 0);
  ERR_clear_error();
  return over_tls(SSL_read(ssl_, to, static_cast<int>(most)));
}

std::ptrdiff_t Wire::write(const char* from, std::size_t bytes) {
  errno = 0;
  if (!ssl_) return ::send(broker_, from, bytes, MSG_NOSIGNAL);
  ERR_clear_error();
  return over_tls(SSL_write(ssl_, from, static_cast<int>(bytes)));
}

Result<bool> Wire::in(bool reads) {
  bool moved = false;
  if (reads && may_read()) {
    in_.resize(piece);
    in_at_ = 0;
    const auto n = read(in_.data(), in_.size());
    const bool later = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    over_ = n <= 0 && !later;
    in_.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    moved = n > 0;
    if (auto fine = from_broker_.follow(in_); !fine) {
      in_.clear();
      over_ = true;
      return fine.error();
    }
  }
  if (in_at_ < in_.size()) {
    const auto n = ::send(near_, in_.data() + in_at_, in_.size() - in_at_, MSG_NOSIGNAL);
    if (n > 0) in_at_ += static_cast<std::size_t>(n), moved = true;
  }
  // libmosquitto reads the remaining data, then the end of the stream.
  if (over_ && in_at_ == in_.size() && !std::exchange(shut_, true)) {
    ::shutdown(near_, SHUT_WR);
    moved = true;
  }
  return moved;
}

void Wire::out() {
  for (;;) {
    if (!blocked()) {
      if (near_over_ || near_ < 0) return;
      out_.resize(piece);
      out_at_ = 0;
      const auto n = ::recv(near_, out_.data(), out_.size(), 0);
      near_over_ = n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
      out_.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
      if (n <= 0) return;
      (void)from_bridge_.follow(out_);
    }
    const auto n = write(out_.data() + out_at_, out_.size() - out_at_);
    if (n > 0) {
      out_at_ += static_cast<std::size_t>(n);
      continue;
    }
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    // The broker accepts no more data; the next read shows the reason.
    out_at_ = out_.size();
    over_ = true;
    return;
  }
}

void Wire::finish(std::int64_t until_ns) {
  while (now_ns() < until_ns) {
    out();
    if (over_ || (near_over_ && !blocked())) break;
    pollfd ready[2] = {{broker_, static_cast<short>(blocked() ? POLLOUT : 0), 0}, {near_, wants_of_near(), 0}};
    ::poll(ready, 2, 20);
  }
  if (ssl_ && !over_) (void)SSL_shutdown(ssl_);
  // If the socket were closed with unread bytes, TCP would discard data that the broker has not read yet.
  ::shutdown(broker_, SHUT_WR);
  char sink[4096];
  while (now_ns() < until_ns) {
    const auto n = ::recv(broker_, sink, sizeof sink, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) break;
    pollfd ready{broker_, POLLIN, 0};
    if (n < 0) ::poll(&ready, 1, 20);
  }
}

}  // namespace sonde::power::bridge
