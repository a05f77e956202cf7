// What a stranger, who has not proved who it is, can take from a server and from those who have.
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "../store/service.hpp"
#include "allocations.hpp"
#include "core/sanitizer.hpp"
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
