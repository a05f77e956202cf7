// TLS by a secret that both sides know, and links that go through it.
#include <malloc.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/sanitizer.hpp"
#include "providers.hpp"
#include "service.hpp"
#include "store/transport/tcp.hpp"
#include "store/transport/tls.hpp"

using namespace sonde;
using namespace sonde::store;
using namespace sonde::store::test;

namespace {

const std::string secret = "a secret of more than sixteen bytes";

/// A file with it, for as long as a test lasts.
struct TokenFile {
  char path[32] = "/tmp/sonde-token-XXXXXX";
  explicit TokenFile(const std::string& text = secret) {
    const int fd = ::mkstemp(path);
    REQUIRE(fd >= 0);
    REQUIRE(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    ::close(fd);
  }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
  ~TokenFile() { ::unlink(path); }
};

Service service_with(const TokenFile& token, const char* tls) {
  ServerConfig base;
  base.auth = "token";
  base.token_file = token.path;
  base.tls = tls;
  Service service(1, memory_backends(), base);
  service.config.auth = "token";
  service.config.token_file = token.path;
  return service;
}

std::unique_ptr<Tls> made(Tls::Side side, const std::string& with = secret) {
  auto tls = Tls::make(side, with);
  REQUIRE(tls);
  return std::move(*tls);
}

/// Hands over what one has for the other, `most` bytes at once.
void pass(Tls& from, Tls& to, std::size_t most = 1u << 20) {
  while (!from.cipher().empty()) {
    const Bytes piece = from.cipher().first(std::min(most, from.cipher().size()));
    to.put(piece);
    from.took(piece.size());
  }
}

class Counting final : public Sink {
 public:
  void frame(Link&, const wire::Header& h, Bytes, Bytes data, bool) override {
    ids.push_back(h.id);
    bytes += data.size();
    intact &= h.body_crc == wire::crc32c(data);
  }
  void closed(Link&, const Error* error) override {
    ended = true;
    why = error ? error->code + ": " + error->what : "";
  }
  std::vector<std::uint64_t> ids;
  std::size_t bytes = 0;
  bool intact = true, ended = false;
  std::string why;
};

/// A side that knows the secret, and does with TLS what ours does not.
class Peer {
 public:
  explicit Peer(Tls::Side side = Tls::Side::client)
      : context_(SSL_CTX_new(side == Tls::Side::client ? TLS_client_method() : TLS_server_method())) {
    SSL_CTX_set_psk_use_session_callback(context_, offer);
    SSL_CTX_set_psk_find_session_callback(context_, find);
    SSL_CTX_set_ciphersuites(context_, "TLS_AES_128_GCM_SHA256");
    ssl_ = SSL_new(context_);
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl_, in_, out_);
    if (side == Tls::Side::client) SSL_set_connect_state(ssl_);
    else SSL_set_accept_state(ssl_);
  }
  ~Peer() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void hears(int fd) {
    char text[16384];
    for (ssize_t n; (n = ::recv(fd, text, sizeof text, MSG_DONTWAIT)) > 0;) BIO_write(in_, text, static_cast<int>(n));
  }
  /// What it has to say next of the handshake.
  std::vector<std::byte> flight() {
    SSL_do_handshake(ssl_);
    return said();
  }
  bool shaken() const { return SSL_is_init_finished(ssl_); }
  /// Messages that change its keys, each of which the other side has to answer with its own where `asks`.
  std::vector<std::byte> new_keys(int n, bool asks) {
    while (n--) {
      REQUIRE(SSL_key_update(ssl_, asks ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
      SSL_do_handshake(ssl_);
    }
    return said();
  }
  /// Of a server: tickets for sessions to come.
  std::vector<std::byte> tickets(int n) {
    while (n--) {
      REQUIRE(SSL_new_session_ticket(ssl_) == 1);
      SSL_do_handshake(ssl_);
    }
    return said();
  }
  /// Each byte in a record of its own.
  std::vector<std::byte> sealed_byte_by_byte(Bytes plain) {
    for (const std::byte b : plain) {
      std::size_t n = 0;
      REQUIRE(SSL_write_ex(ssl_, &b, 1, &n) == 1);
    }
    return said();
  }
  std::vector<std::byte> sealed(Bytes plain) {
    std::size_t n = 0;
    REQUIRE(SSL_write_ex(ssl_, plain.data(), plain.size(), &n) == 1);
    return said();
  }

 private:
  static int offer(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* id_bytes, SSL_SESSION** made) {
    static constexpr unsigned char identity[] = {'s', 'o', 'n', 'd', 'e'};
    *id = identity;
    *id_bytes = sizeof identity;
    return find(ssl, identity, sizeof identity, made);
  }
  static int find(SSL* ssl, const unsigned char*, std::size_t, SSL_SESSION** made) {
    static constexpr unsigned char suite[] = {0x13, 0x01};
    static constexpr std::string_view purpose = "sonde store tls 1";
    unsigned char key[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
         reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size(), key, &size);
    *made = SSL_SESSION_new();
    SSL_SESSION_set1_master_key(*made, key, size);
    SSL_SESSION_set_cipher(*made, SSL_CIPHER_find(ssl, suite));
    SSL_SESSION_set_protocol_version(*made, TLS1_3_VERSION);
    return 1;
  }
  std::vector<std::byte> said() {
    std::vector<std::byte> out(static_cast<std::size_t>(BIO_pending(out_)));
    if (!out.empty()) BIO_read(out_, out.data(), static_cast<int>(out.size()));
    return out;
  }

  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  BIO *in_ = nullptr, *out_ = nullptr;
};

/// As much as the socket takes now; what is left.
Bytes send_some(int fd, Bytes bytes) {
  for (ssize_t n; !bytes.empty() && (n = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL)) > 0;)
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  return bytes;
}

/// A server's link that has let in a peer.
struct Attacked {
  explicit Attacked(Sink& sink) : link(open(fd), {}, sink) {
    link.offer_tls(secret, true);
    for (int turn = 0; turn < 10 && !link.secured(); ++turn) {
      REQUIRE(send_some(fd, peer.flight()).empty());
      link.progress();
      peer.hears(fd);
    }
    REQUIRE(link.secured());
  }
  ~Attacked() { ::close(fd); }
  Attacked(const Attacked&) = delete;
  Attacked& operator=(const Attacked&) = delete;

  /// All of it, unless the link ends before; the peer reads nothing of what comes back.
  void hears(Bytes bytes) {
    while (link.open() && (!bytes.empty() || link.undelivered())) {
      bytes = send_some(fd, bytes);
      link.progress();
      CHECK(link.backlog() < 64u << 10);
    }
  }

  int fd = -1;
  Peer peer;
  TcpLink link;

 private:
  static int open(int& other) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    other = ends[0];
    return ends[1];
  }
};

}  // namespace

TEST_CASE("TLS: two who know the same secret understand each other, however their bytes are cut on the way") {
  for (const std::size_t most : {std::size_t{1}, std::size_t{7}, std::size_t{1} << 20}) {
    CAPTURE(most);
    const auto client = made(Tls::Side::client), server = made(Tls::Side::server);
    bool over = false;
    for (int turn = 0; turn < 10 && !over; ++turn) {
      const auto one = client->shake();
      pass(*client, *server, most);
      const auto other = server->shake();
      pass(*server, *client, most);
      REQUIRE(one);
      REQUIRE(other);
      over = *one && *other;
    }
    REQUIRE(over);
    const auto text = noise(100'000, 1);
    REQUIRE(client->write(text));
    pass(*client, *server, most);
    std::vector<std::byte> got(text.size() + 1);
    std::size_t n = 0;
    for (;;) {
      const auto more = server->read(got.data() + n, got.size() - n);
      REQUIRE(more);
      if (*more <= 0) break;
      n += static_cast<std::size_t>(*more);
    }
    got.resize(n);
    CHECK(got == text);
  }
}

TEST_CASE("TLS: whoever knows another secret is told so, and so is whoever talks no TLS") {
  const auto client = made(Tls::Side::client), server = made(Tls::Side::server, "another secret of enough bytes");
  REQUIRE(client->shake());
  pass(*client, *server);
  const auto refused = server->shake();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == "store.denied");
  CHECK(refused.error().what.find("different secrets") != std::string::npos);
  pass(*server, *client);  // the alert
  const auto heard = client->shake();
  REQUIRE_FALSE(heard);
  CHECK(heard.error().code == "store.denied");

  const auto other = made(Tls::Side::client);
  REQUIRE(other->shake());
  other->put(bytes_of("HTTP/1.1 400 Bad Request\r\n\r\n"));
  const auto plain = other->shake();
  REQUIRE_FALSE(plain);
  CHECK(plain.error().what.find("does not use TLS") != std::string::npos);
}

TEST_CASE("TLS: a certificate is no proof, whoever shows it") {
  // A server of TLS 1.3 with a certificate that it made itself, which leaves the offered key alone.
  EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
  X509* certificate = X509_new();
  REQUIRE(key);
  REQUIRE(certificate);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  REQUIRE(X509_sign(certificate, key, EVP_sha256()) > 0);
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  REQUIRE(SSL_CTX_use_certificate(context, certificate) == 1);
  REQUIRE(SSL_CTX_use_PrivateKey(context, key) == 1);
  SSL* server = SSL_new(context);
  BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
  SSL_set_bio(server, in, out);
  SSL_set_accept_state(server);
  const auto client = made(Tls::Side::client);
  Result<bool> over = false;
  for (int turn = 0; turn < 5 && over && !*over; ++turn) {
    over = client->shake();
    const Bytes cipher = client->cipher();
    BIO_write(in, cipher.data(), static_cast<int>(cipher.size()));
    client->took(cipher.size());
    SSL_do_handshake(server);
    char text[8192];
    const int n = BIO_read(out, text, sizeof text);
    if (n > 0) client->put(bytes_of(std::string_view(text, static_cast<std::size_t>(n))));
  }
  REQUIRE_FALSE(over);
  CHECK(over.error().code == "store.denied");
  CHECK(SSL_is_init_finished(server) == 0);
  SSL_free(server);
  SSL_CTX_free(context);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

TEST_CASE("TLS: links deliver frames of all sizes in order, and tell what is left when a turn is over") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  Counting near, far;
  TcpLink client(ends[0], {}, near), server(ends[1], {}, far);
  server.offer_tls(secret, true);
  client.secure(made(Tls::Side::client));
  std::size_t bytes = 0;
  std::uint64_t id = 0;
  std::vector<std::vector<std::byte>> kept;
  for (const std::size_t size : {0, 1, 100, 16'383, 16'384, 16'385, 70'000, 1'000'000, 5, 900'000})
    for (int again = 0; again < 3; ++again) {
      kept.push_back(noise(size, static_cast<unsigned>(size)));
      client.send(plain_frame(wire::Kind::ping, kept.back(), id++));
      bytes += size;
    }
  for (int turn = 0; turn < 100'000 && far.ids.size() < id; ++turn) {
    client.flush();
    client.progress();
    server.progress();
  }
  REQUIRE(far.ids.size() == id);
  CHECK(std::is_sorted(far.ids.begin(), far.ids.end()));
  CHECK(far.bytes == bytes);
  CHECK(far.intact);
  CHECK(client.backlog() == 0);
  CHECK(server.secured());
  CHECK(server.info().detail.find("TLS") != std::string::npos);
  // All that is here already is delivered before the end is.
  for (int k = 0; k < 50; ++k) client.send(plain_frame(wire::Kind::ping, noise(20'000, 3), id++));
  while (client.backlog()) {
    client.flush();
    server.progress();
  }
  ::shutdown(ends[0], SHUT_WR);
  while (!far.ended) server.progress();
  CHECK(far.ids.size() == id);
  CHECK(far.why == "");
}

TEST_CASE("TLS: a peer whose records bring a byte each has its turns, and others theirs") {
  Counting far;
  Attacked server(far);
  const auto frame = plain_frame(wire::Kind::ping, noise(20'000, 1), 7);
  const std::vector<std::byte> all = server.peer.sealed_byte_by_byte(frame.head);
  int turns = 0;
  bool more = false;
  for (Bytes left = all; far.ids.empty() && !far.ended && turns < 100'000; ++turns) {
    left = send_some(server.fd, left);
    server.link.progress();
    more |= server.link.undelivered();
  }
  CHECK(far.ids.size() == 1);
  CHECK(far.intact);
  CHECK(far.why == "");
  CHECK(more);  // it came back although there was something to read
}

TEST_CASE("TLS: a peer that changes its keys more often than it has use for is sent away") {
  for (const bool asks : {false, true}) {
    CAPTURE(asks);
    Counting far;
    Attacked server(far);
    const auto ping = plain_frame(wire::Kind::ping, noise(1000, 1), 7);
    constexpr int allowed = static_cast<int>(Tls::idle_records_max);
    server.hears(server.peer.new_keys(allowed, asks));
    server.hears(server.peer.sealed(ping.head));
    REQUIRE(far.ids.size() == 1);
    CHECK(far.why == "");
    // Each MiB of data is worth one more.
    const auto large = plain_frame(wire::Kind::ping, noise(1'000'000, 2), 8);
    for (int k = 0; k < 6; ++k) {
      for (Bytes left(large.head); !left.empty(); left = left.subspan(std::min<std::size_t>(left.size(), 16'000)))
        server.hears(server.peer.sealed(left.first(std::min<std::size_t>(left.size(), 16'000))));
      if (k % 2) server.hears(server.peer.new_keys(1, asks));
    }
    CHECK(far.ids.size() == 7);
    CHECK(far.why == "");
    std::vector<std::byte> flood = server.peer.new_keys(5000, asks);
    const auto last = server.peer.sealed(ping.head);
    flood.insert(flood.end(), last.begin(), last.end());
    server.hears(flood);
    CHECK(far.ids.size() == 7);
    CHECK(far.ended);
    CHECK(far.why.find("store.bad_frame") != std::string::npos);
    CHECK(far.why.find("too many TLS records without data") != std::string::npos);
  }
}

TEST_CASE("TLS: a server that sends tickets without end is left") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  Counting near;
  TcpLink client(ends[1], {}, near);
  client.secure(made(Tls::Side::client));
  Peer peer(Tls::Side::server);
  for (int turn = 0; turn < 10 && !(client.secured() && peer.shaken()); ++turn) {
    peer.hears(ends[0]);
    REQUIRE(send_some(ends[0], peer.flight()).empty());
    client.progress();
  }
  REQUIRE(client.secured());
  const auto flood = peer.tickets(1000);
  for (Bytes left(flood); !left.empty() && !near.ended; client.progress()) left = send_some(ends[0], left);
  while (client.undelivered()) client.progress();
  CHECK(near.ended);
  CHECK(near.why.find("too many TLS records without data") != std::string::npos);
  ::close(ends[0]);
}

TEST_CASE("TLS: a message of the handshake that claims much is refused before there is room for it") {
  const auto refused = [](std::uint32_t claim, std::size_t bytes_a_record) {
    const auto server = made(Tls::Side::server);
    const unsigned char head[4] = {1, static_cast<unsigned char>(claim >> 16), static_cast<unsigned char>(claim >> 8),
                                   static_cast<unsigned char>(claim)};
    for (std::size_t at = 0; at < sizeof head; at += bytes_a_record) {
      const auto n = static_cast<unsigned char>(std::min(bytes_a_record, sizeof head - at));
      std::vector<unsigned char> record{22, 3, 1, 0, n};
      record.insert(record.end(), head + at, head + at + n);
      for (const unsigned char b : record) REQUIRE(server->put(std::as_bytes(std::span(&b, 1))));
    }
    const auto over = server->shake();
    if (over) {
      CHECK_FALSE(*over);
      return false;
    }
    CHECK(over.error().code == "store.denied");
    CHECK(over.error().what.find("is larger than") != std::string::npos);
    return true;
  };
  for (const std::size_t bytes_a_record : {1, 3, 4}) {
    CAPTURE(bytes_a_record);
    CHECK_FALSE(refused(Tls::handshake_message_max, bytes_a_record));
    CHECK(refused(Tls::handshake_message_max + 1, bytes_a_record));
    CHECK(refused(131'000, bytes_a_record));
  }
}

TEST_CASE("TLS: what a connection has OpenSSL hold is counted, in a handshake and after it" *
          doctest::skip(sonde::sanitized)) {
  constexpr std::size_t links = 40;
  const auto held = [] { return ::mallinfo2().uordblks + ::mallinfo2().hblkhd; };
  {
    Counting far;
    const Attacked first(far);
  }  // what all connections share
  for (const bool finished : {false, true}) {
    CAPTURE(finished);
    std::vector<std::unique_ptr<TcpLink>> all;
    std::vector<int> open;
    Counting far;
    const std::size_t before = held();
    std::size_t counted = 0;
    for (std::size_t k = 0; k < links; ++k) {
      int ends[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
      open.push_back(ends[0]);
      all.push_back(std::make_unique<TcpLink>(ends[1], LinkOptions{}, far));
      TcpLink& link = *all.back();
      link.limit_frames(4096);
      link.offer_tls(secret, true);
      if (finished) {
        Peer peer;
        for (int turn = 0; turn < 10 && !link.secured(); ++turn) {
          REQUIRE(send_some(ends[0], peer.flight()).empty());
          link.progress();
          peer.hears(ends[0]);
        }
        REQUIRE(link.secured());
        for (int n = 0; n < 20; ++n) {
          REQUIRE(send_some(ends[0], peer.sealed(plain_frame(wire::Kind::ping, noise(3000, 1)).head)).empty());
          link.progress();
          link.send(plain_frame(wire::Kind::pong, noise(3000, 1)));
          link.flush();
          peer.hears(ends[0]);
        }
      } else {
        std::vector<std::byte> begun(9 + 3000);
        const unsigned char head[9] = {22, 3, 1, 0x30, 0, 1, 0, 0x2f, 0xfc};
        std::memcpy(begun.data(), head, sizeof head);
        REQUIRE(send_some(ends[0], begun).empty());
        link.progress();
      }
      counted += link.room_in() + link.backlog();
    }
    CHECK(far.why == "");
    CHECK(held() - before < counted);
    CHECK(counted < (held() - before) * 4);  // and not far more than that
    for (const int fd : open) ::close(fd);
  }
}

TEST_CASE("TLS: others are served while peers flood a server with new keys, or with records that say nothing") {
  const TokenFile token;
  Service service = service_with(token, "require");
  service.config.tls = true;
  Server& server = *service.servers[0];
  std::vector<int> open;
  const auto connect = [&] {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    server.serve(ends[1]);
    open.push_back(ends[0]);
    return ends[0];
  };
  Client owner = service.client();
  const auto call = [&](Bytes value) {
    auto batch = owner.batch();
    batch.put("s", "k", value);
    batch.get("s", "k");
    const auto sent = batch.run();
    REQUIRE_MESSAGE(sent, sent.error().what);
    CHECK(batch.failed() == 0);
    CHECK(std::ranges::equal(batch[1].data, value));
  };
  std::vector<std::vector<std::byte>> floods;
  // Two that know the secret, and take none of the answers.
  for (int k = 0; k < 2; ++k) {
    const int fd = connect();
    Peer peer;
    for (int turn = 0; turn < 100'000 && !peer.shaken(); ++turn) {
      REQUIRE(send_some(fd, peer.flight()).empty());
      ::sched_yield();
      peer.hears(fd);
    }
    REQUIRE(peer.shaken());
    REQUIRE(send_some(fd, peer.flight()).empty());
    floods.push_back(peer.new_keys(5000, true));
  }
  // Three that do not: after the begin of a handshake they send its end marks, warnings, and records of nothing.
  for (const std::array<unsigned char, 7>& record :
       {std::array<unsigned char, 7>{20, 3, 3, 0, 1, 1}, {21, 3, 3, 0, 2, 1, 90}, {23, 3, 3, 0, 0}}) {
    const int fd = connect();
    Peer peer;
    REQUIRE(send_some(fd, peer.flight()).empty());
    auto& flood = floods.emplace_back();
    for (int k = 0; k < 20'000; ++k)
      flood.insert(flood.end(), reinterpret_cast<const std::byte*>(record.data()),
                   reinterpret_cast<const std::byte*>(record.data()) + 5 + record[4]);
  }
  std::vector<Bytes> left(floods.begin(), floods.end());
  const auto value = noise(5000, 2);
  for (int turn = 0; turn < 200; ++turn) {
    for (std::size_t k = 0; k < left.size(); ++k) left[k] = send_some(open[k], left[k]);
    call(value);
    const std::string status = server.status();
    const std::string_view name = "\"client_memory_bytes\":";
    const auto at = status.find(name);
    REQUIRE(at != std::string::npos);
    CHECK(std::strtoll(status.c_str() + at + name.size(), nullptr, 10) < 32 << 20);
  }
  // Each was sent away, and none of its bytes is waited for.
  for (std::size_t k = 0; k < open.size(); ++k) {
    CAPTURE(k);
    char text[4096];
    pollfd ready{open[k], POLLIN, 0};
    ssize_t n = 1;
    while (n > 0 && ::poll(&ready, 1, 60'000) > 0) n = ::recv(open[k], text, sizeof text, 0);
    CHECK(n <= 0);
    ::close(open[k]);
  }
  call(value);
}

TEST_CASE("TLS: a store serves clients with it and without, or with it alone, over every transport") {
  const TokenFile token;
  for (const char* tls : {"offer", "require"}) {
    CAPTURE(tls);
    const Service service = service_with(token, tls);
    std::vector<std::pair<std::string, std::string>> ways{{"tcp", ""}};
    const auto names = transport_names();
    if (std::find(names.begin(), names.end(), "ofi-rdm") != names.end()) {
      ways.emplace_back("ofi-rdm", "shm");
      ways.emplace_back("ofi-msg", "tcp");
    }
    for (const auto& [transport, provider] : ways) {
      CAPTURE(transport);
      Config config = service.config;
      config.tls = true;
      config.transport = transport;
      config.link.provider = provider;
      config.connect_timeout_s = 60;
      auto client = Client::open(config);
      REQUIRE_MESSAGE(client, client.error().what);
      const auto data = noise(5'000'000, 7);
      std::vector<Batch> batches;
      for (int k = 0; k < 40; ++k) {
        batches.push_back(client->batch());
        batches.back().write("s", "o" + std::to_string(k % 5), 0, Bytes(data).first(k % 4 ? 3000 : data.size()));
        batches.back().put("s", "k", bytes_of("v"));
        REQUIRE(batches.back().start());
      }
      std::size_t wrong = 0;
      for (Batch& batch : batches) wrong += !batch.wait() || batch.failed();
      CHECK(wrong == 0);
      auto batch = client->batch();
      batch.read("s", "o0", 0, data.size());
      REQUIRE(batch.run());
      CHECK(std::ranges::equal(batch[0].data, data));
    }
    Config plain = service.config;
    const auto client = Client::open(plain);
    CHECK(static_cast<bool>(client) == (std::string(tls) == "offer"));
    if (client) continue;
    CHECK(client.error().code == "store.denied");
    CHECK(client.error().what.find("--tls") != std::string::npos);
  }
}

TEST_CASE("TLS: it needs a secret, a server that offers it, and a word that is known") {
  const TokenFile token;
  Service off = service_with(token, "off");
  off.config.tls = true;
  const auto client = Client::open(off.config);
  REQUIRE_FALSE(client);
  CHECK(client.error().code == "store.denied");
  CHECK(client.error().hint.find("--tls offer") != std::string::npos);
  off.config.auth = "none";
  const auto without = Client::open(off.config);
  REQUIRE_FALSE(without);
  CHECK(without.error().code == "store.usage");
  for (const auto& [tls, auth] : {std::pair{"offer", "none"}, std::pair{"perhaps", "token"}}) {
    ServerConfig config;
    config.listen = "127.0.0.1:0";
    config.backends = memory_backends();
    config.tls = tls;
    config.auth = auth;
    config.token_file = token.path;
    const auto server = Server::start(config);
    REQUIRE_FALSE(server);
    CHECK(server.error().code == "store.usage");
  }
}
