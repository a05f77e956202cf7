// What a client that was let in can take from the server: memory, threads, and whole servers by an exception.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "../store/service.hpp"
#include "allocations.hpp"
#include "core/sanitizer.hpp"
#include "store/fuzz/hostile.hpp"
#include "store/module.hpp"
#include "stranger.hpp"

using namespace sonde::store;
using namespace sonde::store::test;
using sonde::test::Allocations;
using sonde::test::NoThreads;

namespace {

constexpr std::size_t MiB = 1u << 20;

/// A stranger that the server would move to the transport of modules/waits.cpp.
Stranger waiting(Server& server) {
  static const auto loaded = load_module(SONDE_TEST_HOSTILE_MODULES "/sonde-store-waits.so");
  REQUIRE_MESSAGE(loaded, loaded.error().what);
  Stranger one(server);
  one.be_welcomed("transport=test-waits\n");
  one.say(plain_frame(wire::Kind::transport, bytes_of("first")));
  return one;
}

/// Waits until the server has nobody left; it destroys a session when its turn is over.
void wait_for_nobody(Server& server) {
  while (server.metrics().connections != 0) std::this_thread::yield();
}

}  // namespace

TEST_CASE("a batch that claims more operations than it brings is refused before anything is sized by the claim" *
          doctest::skip(sonde::sanitized)) {
  Service service;
  Server& server = *service.servers[0];
  for (const Role role : {Role::kv, Role::data}) {
    Stranger one(server);
    one.be_welcomed();
    Request request(role);
    request.add(role == Role::kv ? Code::kv_get : Code::object_status, "k");
    request.header.batch_ops = limit::batch_ops;
    const Allocations watch;
    one.say(request.frame());
    const auto answers = answers_of(one.hear(wire::Kind::reply));
    CHECK(watch.largest() < MiB);
    REQUIRE(answers.size() == 1);
    if (role == Role::kv) {
      CHECK(answers[0].status == Status::invalid);
      CHECK(answers[0].run == limit::batch_ops);
    }
  }
  // The same in several frames, one of which has a piece of an operation: the pieces do not count as operations.
  Stranger one(server);
  one.be_welcomed();
  const Allocations watch;
  for (std::uint32_t part = 0; part < 4; ++part) {
    Request request(Role::kv);
    request.add(Code::kv_put, "k", bytes_of("piece"), 0);
    request.header.batch_ops = limit::batch_ops;
    request.header.part = part;
    one.say(request.frame(part < 3 ? wire::more : 0));
  }
  const auto answers = answers_of(one.hear(wire::Kind::reply));
  CHECK(watch.largest() < MiB);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].status == Status::invalid);
  CHECK(fuzz::alive(server));
}

TEST_CASE("a session does not keep the memory of its largest batch" * doctest::skip(sonde::sanitized)) {
  Service service;
  Server& server = *service.servers[0];
  Stranger one(server);
  one.be_welcomed();
  const auto ask = [&](std::uint32_t frames, std::uint64_t id) {
    for (std::uint32_t part = 0; part < frames; ++part) {
      Request request(Role::kv, id);
      request.header.batch_ops = part * 8192;
      for (int k = 0; k < 8192; ++k) request.add(Code::kv_get, "k");
      request.header.batch_ops = frames * 8192;
      request.header.part = part;
      one.say(request.frame(part + 1 < frames ? wire::more : 0));
    }
    while (one.hear(wire::Kind::reply).header.flags & wire::more) {}
  };
  ask(1, 1);
  const Allocations watch;
  ask(16, 2);
  // The pong says that the turn in which the batch was answered is over.
  one.say(plain_frame(wire::Kind::ping, {}, 3));
  one.hear(wire::Kind::pong);
  CHECK(watch.held() < 4 * MiB);
}

TEST_CASE("the header of a large frame takes no room before the frame comes" * doctest::skip(sonde::sanitized)) {
  Service service;
  Server& server = *service.servers[0];
  Stranger one(server);
  one.be_welcomed();
  Request request(Role::kv);
  const Stream data(MiB, std::byte{'x'});
  request.add(Code::kv_put, "k", data);
  const Stream frame = request.frame();
  const Allocations watch;
  one.say(Bytes(frame).first(200));
  one.say(plain_frame(wire::Kind::ping, {}));  // within the data: nobody answers
  Stranger other(server);
  other.be_welcomed();
  CHECK(watch.largest() < 600'000);
}

TEST_CASE("a frame that there is no memory for ends its connection, not the server" * doctest::skip(sonde::sanitized)) {
  Service service;
  Server& server = *service.servers[0];
  Stranger one(server);
  one.be_welcomed();
  Request request(Role::kv);
  const Stream data(512u << 10, std::byte{'x'});
  request.add(Code::kv_put, "k", data);
  const Stream frame = request.frame();
  const Allocations watch;
  watch.refuse_from(200'000);
  one.say(frame);
  one.last_words();
  CHECK(watch.refused() > 0);
  watch.refuse_from(~std::size_t{0});
  CHECK(fuzz::alive(server));
  wait_for_nobody(server);
  CHECK(server.status().find("out of memory") != std::string::npos);
}

TEST_CASE(
    "a batch that there is no memory for ends its connection, in the lane and outside of it, and the lane goes on" *
    doctest::skip(sonde::sanitized)) {
  Service service;
  Server& server = *service.servers[0];
  for (const bool queued : {false, true}) {
    CAPTURE(queued);
    Stranger one(server);
    one.be_welcomed();
    const Stream piece(150'000, std::byte{'x'});
    const Allocations watch;
    watch.refuse_from(260'000);
    for (std::uint32_t part = 0; part < 2; ++part) {
      Request request(Role::kv);
      request.add(Code::kv_put, "k", piece, 0);
      if (queued && part == 0) request.add(Code::sync, "", {}, 1);
      request.header.batch_ops = queued ? 2 : 1;
      request.header.part = part;
      one.say(request.frame(part ? 0 : wire::more));
    }
    one.last_words();
    CHECK(watch.refused() > 0);
    watch.refuse_from(~std::size_t{0});
    CHECK(fuzz::alive(server));
    // Through the lane as well: who threw in it left it.
    Stranger other(server);
    other.be_welcomed();
    Request request(Role::kv);
    request.add(Code::kv_put, "other", bytes_of("v"));
    request.add(Code::sync, "");
    other.say(request.frame());
    CHECK(answers_of(other.hear(wire::Kind::reply)).at(0).status == Status::ok);
  }
}

TEST_CASE("where no thread can be made a link is refused, and the server goes on" * doctest::skip(sonde::sanitized)) {
  Service service;
  Server& server = *service.servers[0];
  {
    const NoThreads none;
    Stranger one = waiting(server);
    CHECK(one.last_words().find("store.unavailable") != std::string::npos);
    CHECK(none.refused() > 0);
  }
  CHECK(fuzz::alive(server));
}

TEST_CASE("links in the making have a bounded number of threads, and those beyond it wait for one" *
          doctest::skip(sonde::sanitized)) {
  Service service;
  Server& server = *service.servers[0];
  std::vector<Stranger> all;
  const NoThreads beyond(32);
  for (int k = 0; k < 48; ++k) all.push_back(waiting(server));
  CHECK(fuzz::alive(server));
  for (Stranger& one : all) one.say(plain_frame(wire::Kind::transport, bytes_of("second")));
  for (Stranger& one : all) CHECK(one.last_words().find("the client spoke") != std::string::npos);
  CHECK(beyond.refused() == 0);
}

TEST_CASE("a server that cannot have its threads does not start, and says why" * doctest::skip(sonde::sanitized)) {
  for (const unsigned allowed : {0u, 1u, 2u, 3u}) {
    CAPTURE(allowed);
    ServerConfig config;
    config.listen = "127.0.0.1:0";
    config.backends = memory_backends();
    const NoThreads beyond(allowed);
    const auto server = Server::start(config);
    REQUIRE_FALSE(server);
    CHECK(server.error().code == "store.unavailable");
    CHECK(server.error().what.find("thread") != std::string::npos);
  }
}

TEST_CASE("of an unfinished message all that is kept counts, and a frame that brings nothing is refused" *
          doctest::skip(sonde::sanitized)) {
  Service service;
  Server& server = *service.servers[0];
  for (const Role role : {Role::kv, Role::data}) {
    Stranger one(server);
    one.be_welcomed();
    Request empty(role);
    empty.header.batch_ops = 1;
    one.say(empty.frame(wire::more));
    one.say(plain_frame(wire::Kind::ping, {}));
    CHECK(one.last_words().find("has no operation") != std::string::npos);
  }
  Stranger one(server);
  one.be_welcomed();
  Stream stream;
  constexpr std::uint32_t frames = 330'000;
  for (std::uint32_t part = 0; part < frames; ++part) {
    Request request(Role::kv);
    request.add(Code::kv_get, "k", {}, part);
    request.header.batch_ops = frames;
    request.header.part = part;
    append(stream, request.frame(wire::more));
  }
  Request last(Role::kv, 1);
  last.add(Code::kv_get, "k", {}, 0);
  last.header.batch_ops = frames;
  last.header.part = frames;
  const Allocations watch;
  one.say(stream);
  one.say(plain_frame(wire::Kind::ping, {}));
  one.hear(wire::Kind::pong);
  CHECK(watch.held() < 68 * MiB);
  one.say(last.frame());
  CHECK(answers_of(one.hear(wire::Kind::reply)).at(0).status == Status::too_large);
}

TEST_CASE("what all clients together have the server hold has a bound, and those who hold little still have room") {
  ServerConfig base;
  base.client_memory = 16 * MiB;
  base.connections = 256;
  Service service(1, memory_backends(), base);
  Server& server = *service.servers[0];
  const Stream piece(256u << 10, std::byte{'x'});
  std::size_t refused = 0;
  {
    // Each holds an unfinished batch of 5 MiB, three quarters of 16 MiB in all at most.
    std::vector<Stranger> all;
    for (int k = 0; k < 6; ++k) {
      Stranger& one = all.emplace_back(server);
      one.be_welcomed();
      for (std::uint32_t part = 0; part < 20; ++part) {
        Request request(Role::kv);
        request.add(Code::kv_put, "k" + std::to_string(part), piece, part);
        request.header.batch_ops = 1000;
        request.header.part = part;
        if (!one.say(request.frame(wire::more))) break;
      }
      one.say(plain_frame(wire::Kind::status, {}));
      const auto words = one.hear();
      if (!words || words->header.kind == wire::Kind::status) continue;
      ++refused;
      CHECK(words->data.find("store.unavailable") != std::string::npos);
      CHECK(words->data.find("at most 16 MiB") != std::string::npos);
      CHECK(words->data.find("--client-memory") != std::string::npos);
    }
    CHECK(refused == 4);
    CHECK(server.budget().used() > 10 * MiB);
    CHECK(server.budget().used() <= 12 * MiB);
    CHECK(server.budget().refused() > 0);
    CHECK(fuzz::alive(server));
    CHECK(server.metrics_text().find("sonde_store_client_memory_refused_total") != std::string::npos);
  }
  wait_for_nobody(server);
  // The last of them gives back its share after it has ceased to be counted.
  const Deadline deadline = Deadline::in_s(20);
  while (server.budget().used() != 0 && !deadline.passed()) std::this_thread::yield();
  CHECK(server.budget().used() == 0);
}

TEST_CASE("a client that goes in the midst of many slow requests is let go of") {
  Service service;
  Server& server = *service.servers[0];
  for (int again = 0; again < 5; ++again) {
    Stranger one(server, "127.0.0.1");
    one.be_welcomed();
    Stream all;
    for (std::uint64_t id = 1; id <= 100; ++id) {
      Request request(Role::kv, id);
      for (int k = 0; k < 500; ++k) request.add(Code::kv_put, "k" + std::to_string(k), bytes_of("v"));
      append(all, request.frame());
    }
    one.say(all);
  }
  const Deadline deadline = Deadline::in_s(60);
  while (server.metrics().connections != 0 && !deadline.passed()) std::this_thread::yield();
  CHECK(server.metrics().connections == 0);
}

TEST_CASE("answers that a client does not take are counted, and end it when there is no room for them") {
  ServerConfig base;
  base.client_memory = 16 * MiB;
  Service service(1, memory_backends(), base);
  Server& server = *service.servers[0];
  auto client = service.client();
  const Stream value(MiB, std::byte{'x'});
  for (int k = 0; k < 40; ++k) {
    auto batch = client.batch();
    batch.put("s", "k" + std::to_string(k), value);
    REQUIRE(batch.run());
    REQUIRE(batch.failed() == 0);
  }
  Stranger one(server);
  one.be_welcomed();
  Request request(Role::kv);
  for (int k = 0; k < 40; ++k) request.add(Code::kv_get, "k" + std::to_string(k));
  one.say(request.frame());  // 40 MiB, of which it takes nothing
  while (server.budget().refused() == 0) std::this_thread::yield();
  CHECK(fuzz::alive(server));
  auto batch = client.batch();
  batch.get("s", "k1");
  CHECK(batch.run());
}

TEST_CASE("a message that is begun and not gone on with, and a frame of which half came, have a deadline") {
  ServerConfig base;
  base.message_timeout_s = 0.3;
  Service service(1, memory_backends(), base);
  Server& server = *service.servers[0];
  Stranger begun(server), half(server), idle(server);
  for (Stranger* one : {&begun, &half, &idle}) one->be_welcomed();
  Request request(Role::kv);
  request.add(Code::kv_get, "k");
  request.header.batch_ops = 2;
  begun.say(request.frame(wire::more));
  half.say(Bytes(request.frame()).first(70));
  CHECK(begun.last_words().find("was not complete") != std::string::npos);
  CHECK(half.last_words().find("was not complete") != std::string::npos);
  // Who has nothing under way may be silent for as long as it likes.
  idle.say(plain_frame(wire::Kind::ping, {}));
  idle.hear(wire::Kind::pong);
}

TEST_CASE("a message that goes on has all the time it takes") {
  ServerConfig base;
  base.message_timeout_s = 2;
  Service service(1, memory_backends(), base);
  Stranger one(*service.servers[0]);
  one.be_welcomed();
  constexpr std::uint32_t frames = 12;
  const Stream piece(256u << 10, std::byte{'x'});  // 4 s more each
  for (std::uint32_t part = 0; part < frames; ++part) {
    Request request(Role::kv);
    request.add(Code::kv_put, "k" + std::to_string(part), piece, part);
    request.header.batch_ops = frames;
    request.header.part = part;
    one.say(request.frame(part + 1 < frames ? wire::more : 0));
    if (part == 6) std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // what is tested is that time passes
  }
  CHECK(answers_of(one.hear(wire::Kind::reply)).at(0).status == Status::ok);
}
