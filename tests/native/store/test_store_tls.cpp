// TLS by a secret that both sides know, and links that go through it.
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

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
  CHECK(refused.error().what.find("same secret") != std::string::npos);
  pass(*server, *client);  // the alert
  const auto heard = client->shake();
  REQUIRE_FALSE(heard);
  CHECK(heard.error().code == "store.denied");

  const auto other = made(Tls::Side::client);
  REQUIRE(other->shake());
  other->put(bytes_of("HTTP/1.1 400 Bad Request\r\n\r\n"));
  const auto plain = other->shake();
  REQUIRE_FALSE(plain);
  CHECK(plain.error().what.find("does not talk TLS") != std::string::npos);
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
