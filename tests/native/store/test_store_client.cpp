#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "service.hpp"
#include "store/auth.hpp"
#include "store/transport/tcp.hpp"

using namespace sonde::store;
using namespace sonde::store::test;

namespace {

/// Each test of the client runs embedded, on one server, and on three.
template <typename Test> void everywhere(Test test) {
  SUBCASE("embedded") {
    Config config;
    config.embedded = memory_backends();
    auto client = Client::open(config);
    REQUIRE(client);
    test(*client);
  }
  SUBCASE("one server") {
    Service service;
    auto client = service.client();
    test(client);
  }
  SUBCASE("three servers") {
    Service service(3);
    auto client = service.client();
    test(client);
  }
  SUBCASE("one server, small frames, no checksum of data") {
    ServerConfig base;
    base.frame_data = 4096;
    Service service(1, memory_backends(), base);
    service.config.checksum = false;
    auto client = service.client();
    test(client);
  }
}

}  // namespace

TEST_CASE("keys: put, get, remove, each with its own status") {
  everywhere([](Client& client) {
    auto b = client.batch();
    b.put("runs", "a", bytes_of("alpha"));
    b.put("runs", "b", bytes_of(""));
    REQUIRE(b.run());
    CHECK(b.failed() == 0);
    b.clear();
    const auto a = b.get("runs", "a"), empty = b.get("runs", "b"), none = b.get("runs", "c"),
               other = b.get("other", "a");
    REQUIRE(b.run());
    CHECK(text(b[a].data) == "alpha");
    CHECK(b[a].value == 5);
    CHECK(b[empty].status == Status::ok);
    CHECK(b[empty].data.empty());
    CHECK(b[none].status == Status::not_found);
    CHECK(b[other].status == Status::not_found);
    CHECK(b.failed() == 2);
    b.clear();
    b.remove("runs", "a");
    b.remove("runs", "nothing");
    REQUIRE(b.run());
    CHECK(b[0].status == Status::ok);
    CHECK(b[1].status == Status::not_found);
  });
}

TEST_CASE("a value larger than any frame comes back whole, into own memory or the batch's") {
  everywhere([](Client& client) {
    const auto value = noise(3'000'001, 1);
    auto b = client.batch();
    b.put("big", "value", value);
    REQUIRE(b.run());
    CHECK(b[0].status == Status::ok);
    b.clear();
    std::vector<std::byte> into(value.size());
    b.get("big", "value");
    b.get("big", "value", into);
    REQUIRE(b.run());
    CHECK(std::ranges::equal(b[0].data, value));
    CHECK(b[1].value == value.size());
    CHECK(into == value);
    b.clear();
    std::vector<std::byte> little(1000);
    b.get("big", "value", little);
    REQUIRE(b.run());
    CHECK(b[0].value == value.size());
    CHECK(b[0].data.size() == little.size());
    CHECK(std::ranges::equal(little, Bytes(value).first(little.size())));
  });
}

TEST_CASE("objects: written and read in pieces of every kind") {
  everywhere([](Client& client) {
    const auto data = noise(5'000'003, 2);
    auto b = client.batch();
    b.write("fields", "p", 0, Bytes(data).first(3'000'000));
    b.write("fields", "p", 3'000'000, Bytes(data).subspan(3'000'000));
    REQUIRE(b.run());
    CHECK(b[0].value == 3'000'000);
    CHECK(b[1].value == 2'000'003);
    b.clear();
    std::vector<std::byte> into(data.size());
    const auto whole = b.read("fields", "p", 0, into);
    const auto part = b.read("fields", "p", 4'999'990, std::uint64_t{1000});
    const auto beyond = b.read("fields", "p", 6'000'000, std::uint64_t{10});
    const auto none = b.read("fields", "q", 0, std::uint64_t{10});
    const auto status = b.status("fields", "p");
    const auto huge = b.read("fields", "p", 1, std::uint64_t{1} << 40);
    REQUIRE(b.run());
    CHECK(b[whole].value == data.size());
    CHECK(into == data);
    CHECK(b[part].data.size() == 13);
    CHECK(b[beyond].status == Status::ok);
    CHECK(b[beyond].data.empty());
    CHECK(b[none].status == Status::not_found);
    CHECK(b[status].value == data.size());
    CHECK(b[status].time_ns > 1'600'000'000'000'000'000);
    CHECK(std::ranges::equal(b[huge].data, Bytes(data).subspan(1)));
    b.clear();
    b.truncate("fields", "p", 10);
    b.truncate("fields", "p", 20);
    b.read("fields", "p", 0, std::uint64_t{100});
    b.create("fields", "p", flag::exclusive);
    b.remove_object("fields", "p");
    b.status("fields", "p");
    REQUIRE(b.run());
    CHECK(b[2].data.size() == 20);
    CHECK(std::ranges::equal(b[2].data.first(10), Bytes(data).first(10)));
    CHECK(std::ranges::all_of(b[2].data.subspan(10), [](std::byte v) { return v == std::byte{}; }));
    CHECK(b[3].status == Status::exists);
    CHECK(b[4].status == Status::ok);
    CHECK(b[5].status == Status::not_found);
  });
}

TEST_CASE("ten thousand writes in one batch, and their reads") {
  everywhere([](Client& client) {
    const auto data = noise(std::size_t{10'000} * 4096, 3);
    auto b = client.batch();
    for (std::size_t k = 0; k < 10'000; ++k) b.write("bench", "o", k * 4096, Bytes(data).subspan(k * 4096, 4096));
    REQUIRE(b.run());
    CHECK(b.failed() == 0);
    b.clear();
    std::vector<std::byte> into(data.size());
    for (std::size_t k = 0; k < 10'000; ++k) b.read("bench", "o", k * 4096, MutableBytes(into).subspan(k * 4096, 4096));
    REQUIRE(b.run());
    CHECK(b.failed() == 0);
    CHECK(into == data);
  });
}

TEST_CASE("a kv batch is all or nothing") {
  Service service;
  auto client = service.client();
  auto b = client.batch();
  b.put("s", "there", bytes_of("1"));
  REQUIRE(b.run());
  b.clear();
  b.put("s", "new", bytes_of("2"));
  b.put("s", "there", bytes_of("3"), flag::exclusive);
  b.put("s", "more", bytes_of("4"));
  REQUIRE(b.run());
  CHECK(b[0].status == Status::aborted);
  CHECK(b[1].status == Status::exists);
  CHECK(b[2].status == Status::aborted);
  b.clear();
  b.get("s", "new");
  b.get("s", "there");
  REQUIRE(b.run());
  CHECK(b[0].status == Status::not_found);
  CHECK(text(b[1].data) == "1");
  SUBCASE("a name that no server would take undoes it too") {
    b.clear();
    b.put("s", "new", bytes_of("2"));
    b.put("s", std::string(limit::key_bytes + 1, 'x'), bytes_of("3"));
    REQUIRE(b.run());
    CHECK(b[0].status == Status::aborted);
    CHECK(b[1].status == Status::too_large);
  }
}

TEST_CASE("scan and list: all servers, in order, with prefix, over many pages") {
  everywhere([](Client& client) {
    auto b = client.batch();
    std::vector<std::string> keys, values;
    for (char ch = 'a'; ch <= 'z'; ++ch) values.emplace_back(200, ch);
    for (int k = 0; k < 3000; ++k) {
      char key[32];
      std::snprintf(key, sizeof key, "key/%05d", k);
      keys.emplace_back(key);
      b.put("many", key, bytes_of(values[static_cast<std::size_t>(k) % values.size()]));
      b.create("many", key);
    }
    b.put("many", "other", bytes_of("x"));
    b.put("more", "key/1", bytes_of("x"));
    REQUIRE(b.run());
    std::vector<std::string> seen;
    REQUIRE(client.scan("many", "key/", false, [&](std::string_view key, Bytes value) {
      CHECK(value.size() == 200);
      seen.emplace_back(key);
      return true;
    }));
    CHECK(seen == keys);
    seen.clear();
    REQUIRE(client.list("many", "key/00", [&](std::string_view name) {
      seen.emplace_back(name);
      return true;
    }));
    CHECK(seen.size() == 1000);
    int n = 0;
    REQUIRE(client.scan("many", "", true, [&](std::string_view, Bytes value) {
      CHECK(value.empty());
      return ++n < 5;
    }));
    CHECK(n == 5);
    seen.clear();
    REQUIRE(client.scan(
        "many", "key/", true,
        [&](std::string_view key, Bytes) {
          seen.emplace_back(key);
          return true;
        },
        "key/02989"));
    CHECK(seen == std::vector<std::string>(keys.begin() + 2990, keys.end()));
    seen.clear();
    REQUIRE(client.list(
        "many", "key/0",
        [&](std::string_view name) {
          seen.emplace_back(name);
          return true;
        },
        "key/00999x"));
    CHECK(seen == std::vector<std::string>(keys.begin() + 1000, keys.end()));
    REQUIRE(client.scan("none", "", true, [&](std::string_view, Bytes) -> bool {
      FAIL("there is nothing");
      return true;
    }));
  });
}

TEST_CASE("many batches under way on one connection, answered each") {
  everywhere([](Client& client) {
    std::vector<Batch> batches;
    std::vector<std::string> values;
    for (int k = 0; k < 100; ++k) values.push_back("value " + std::to_string(k));
    for (int k = 0; k < 100; ++k) {
      batches.push_back(client.batch());
      batches.back().put("p", "k" + std::to_string(k), bytes_of(values[static_cast<std::size_t>(k)]));
      REQUIRE(batches.back().start());
    }
    for (auto& b : batches) {
      REQUIRE(b.wait());
      CHECK(b.failed() == 0);
    }
    auto b = client.batch();
    for (int k = 0; k < 100; ++k) b.get("p", "k" + std::to_string(k));
    REQUIRE(b.run());
    for (std::size_t k = 0; k < 100; ++k) CHECK(text(b[k].data) == values[k]);
  });
}

TEST_CASE("a batch is waited for in slices, and may be given up in between") {
  everywhere([](Client& client) {
    const auto data = noise(2'000'000, 7);
    auto b = client.batch();
    b.write("w", "o", 0, data);
    CHECK_FALSE(b.done_within(0.01));  // not started
    REQUIRE(b.start());
    while (!b.done_within(0.05)) {}
    REQUIRE(b.wait());
    CHECK(b.failed() == 0);
    CHECK(b.op(0).key == "o");
    b.clear();
    std::vector<std::byte> into(data.size());
    b.read("w", "o", 0, into);
    REQUIRE(b.start());
    b.clear();
    b.status("w", "o");
    REQUIRE(b.run());
    CHECK(b[0].value == data.size());
  });
}

TEST_CASE("a client from many threads, more than it has connections") {
  Service service(2);
  service.config.connections = 3;
  auto client = service.client();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 200; ++k) {
        auto b = client.batch();
        const std::string key = std::to_string(t) + '/' + std::to_string(k);
        b.put("t", key, bytes_of(key));
        b.write("t", key, 0, bytes_of(key));
        if (!b.run() || b.failed()) ++wrong;
        b.clear();
        b.get("t", key);
        b.read("t", key, 0, std::uint64_t{100});
        if (!b.run() || text(b[0].data) != key || text(b[1].data) != key) ++wrong;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(service.servers[0]->metrics().connections <= 3);
}

TEST_CASE("safety none: nothing is waited for, failures are told by flush") {
  everywhere([](Client& client) {
    auto b = client.batch(Safety::none);
    for (int k = 0; k < 50; ++k) b.put("n", std::to_string(k), bytes_of("v"));
    REQUIRE(b.run());
    REQUIRE(client.flush());
    auto r = client.batch();
    for (int k = 0; k < 50; ++k) r.get("n", std::to_string(k));
    REQUIRE(r.run());
    CHECK(r.failed() == 0);
  });
  Service service;
  auto client = service.client();
  auto b = client.batch(Safety::none);
  b.write("n", "none", 0, bytes_of("v"), flag::must_exist);
  b.truncate("n", "none", 7);
  REQUIRE(b.run());
  const auto flushed = client.flush();
  CHECK(bool(client.flush()));
  (void)flushed;  // not_found is an answer, no failure
  b.clear();
  b.put("n", "k", bytes_of("1"), flag::exclusive);
  b.put("n", "k", bytes_of("2"), flag::exclusive);
  REQUIRE(b.run());
  const auto lost = client.flush();
  REQUIRE_FALSE(lost);
  CHECK(lost.error().code == "store.lost");
  CHECK(client.flush());
}

TEST_CASE("safety storage is refused by a backend that cannot keep it") {
  everywhere([](Client& client) {
    auto b = client.batch(Safety::storage);
    b.put("s", "k", bytes_of("v"));
    b.write("s", "o", 0, bytes_of("v"));
    REQUIRE(b.run());
    CHECK(b[0].status == Status::unsupported);
    CHECK(b[1].status == Status::unsupported);
  });
}

TEST_CASE("a role that no server has is an error that names it") {
  Service service(1, {{Role::kv, "memory", {}}});
  auto client = service.client();
  auto b = client.batch();
  b.create("s", "o");
  const auto ran = b.run();
  REQUIRE_FALSE(ran);
  CHECK(ran.error().code == "store.no_server");
  CHECK(ran.error().what.find("data") != std::string::npos);
}

TEST_CASE("roles on different servers") {
  Service data(2, {{Role::data, "memory", {}}}), kv(1, {{Role::kv, "memory", {}}});
  Config config = data.config;
  config.servers = {data.config.servers[0], data.config.servers[1], "kv@" + kv.config.servers[0]};
  auto client = Client::open(config);
  REQUIRE(client);
  CHECK((*client).servers(Role::data) == 2);
  CHECK((*client).servers(Role::kv) == 1);
  CHECK((*client).servers(Role::db) == 0);
  auto b = (*client).batch();
  b.put("s", "k", bytes_of("v"));
  b.write("s", "o", 0, bytes_of("v"));
  REQUIRE(b.run());
  CHECK(b.failed() == 0);
  config.servers.back() = "data@" + kv.config.servers[0];
  CHECK_FALSE(Client::open(config));
}

TEST_CASE("a server that ends: the batch says so, the next one finds the server that came instead") {
  auto service = std::make_unique<Service>();
  auto client = service->client();
  auto b = client.batch();
  b.put("s", "k", bytes_of("v"));
  REQUIRE(b.run());
  const std::string address = service->servers[0]->address();
  service.reset();
  b.clear();
  b.put("s", "k", bytes_of("v"));
  CHECK_FALSE(b.run());
  CHECK(b[0].status == Status::disconnected);
  ServerConfig again;
  again.listen = address;
  again.auth = "none";
  again.backends = memory_backends();
  auto server = Server::start(again);
  REQUIRE(server);
  b.clear();
  b.put("s", "k", bytes_of("v"));
  CHECK(b.run());
}

TEST_CASE("an unused batch, and one that is used twice, say what to do") {
  Service service;
  auto client = service.client();
  auto b = client.batch();
  CHECK(b.run().error().code == "store.empty_batch");
  b.put("s", "k", bytes_of("v"));
  REQUIRE(b.run());
  CHECK(b.run().error().code == "store.started");
  CHECK(client.batch().wait().error().code == "store.not_started");
}

TEST_CASE("the status of a server names its backends and counts") {
  Service service;
  auto client = service.client();
  auto b = client.batch();
  b.put("s", "k", bytes_of("v"));
  b.get("s", "missing");
  REQUIRE(b.run());
  auto status = client.status();
  REQUIRE(status);
  REQUIRE((*status).size() == 1);
  const std::string& json = (*status)[0].status;
  CHECK(json.find(R"("kv.put":1)") != std::string::npos);
  CHECK(json.find(R"("not_found":1)") != std::string::npos);
  CHECK(json.find(R"("backend":"memory")") != std::string::npos);
  CHECK((*status)[0].link.transport == "tcp");
}

TEST_CASE("memory: what its limit refuses leaves nothing, neither an object nor a part of one") {
  Service service(1, {{Role::data, "memory", {{"limit", "1MiB"}}}});
  auto client = service.client();
  const auto large = noise(800'000, 1), small = noise(70'000, 2);
  auto batch = client.batch();
  batch.write("s", "kept", 0, small);
  REQUIRE(batch.run());
  // Of two pieces that only one has room for, neither is there; and what it took is free again, as the next shows.
  for (int again = 0; again < 3; ++again) {
    batch.clear();
    batch.write("s", "new", 200'000, large);
    batch.status("s", "new");
    batch.write("s", "kept", 65'000, large);
    batch.status("s", "kept");
    REQUIRE(batch.run());
    if (again == 0) {
      CHECK(batch[0].status == Status::ok);
      CHECK(batch[2].status == Status::no_space);
      CHECK(batch[2].value == 0);
      CHECK(batch[3].value == small.size());
      batch.clear();
      batch.remove_object("s", "new");
      batch.write("s", "other", 0, large);
      REQUIRE(batch.run());
      CHECK(batch.failed() == 0);
      continue;
    }
    CHECK(batch[0].status == Status::no_space);
    CHECK(batch[0].value == 0);
    CHECK(batch[1].status == Status::not_found);
    CHECK(batch[2].status == Status::no_space);
    CHECK(batch[3].value == small.size());
  }
  std::vector<std::string> names;
  REQUIRE(client.list("s", "", [&](std::string_view name) { return names.emplace_back(name), true; }));
  CHECK(names == std::vector<std::string>{"kept", "other"});
  // Nothing of what was refused shows where the object becomes longer.
  std::vector<std::byte> into(80'000);
  batch.clear();
  batch.truncate("s", "kept", into.size());
  batch.read("s", "kept", 0, into);
  REQUIRE(batch.run());
  CHECK(std::equal(small.begin(), small.end(), into.begin()));
  CHECK(std::all_of(into.begin() + static_cast<std::ptrdiff_t>(small.size()), into.end(),
                    [](std::byte b) { return b == std::byte{}; }));
}

TEST_CASE("a write in pieces of which one in the middle is refused says what stands before it") {
  ServerConfig base;
  base.frame_data = 256u << 10;
  Service service(1, {{Role::data, "memory", {{"limit", "1MiB"}}}}, base);
  auto client = service.client();
  const auto bytes = noise(786'432, 1);
  auto batch = client.batch();
  batch.write("s", "o", 524'288, Bytes(bytes).subspan(524'288));  // has blocks for the third piece already
  batch.write("s", "filler", 0, Bytes(bytes).first(327'680));
  REQUIRE(batch.run());
  REQUIRE(batch.failed() == 0);
  batch.clear();
  batch.write("s", "o", 0, bytes);
  REQUIRE(batch.run());
  CHECK(batch[0].status == Status::no_space);
  CHECK(batch[0].value == 262'144);
}

TEST_CASE("a server that accepts and says nothing is named, with how long it had and what gives it longer") {
  std::uint16_t port = 0;
  const auto listener = tcp_listen({"127.0.0.1", 0}, port);
  REQUIRE(listener);
  Config config;
  config.servers = {"127.0.0.1:" + std::to_string(port)};
  config.connect_timeout_s = 0.05;
  const auto client = Client::open(config);
  ::close(*listener);
  REQUIRE_FALSE(client);
  CHECK(client.error().code == "store.timed_out");
  CHECK(client.error().what.find("the server at " + config.servers[0] + " did not answer within ") !=
        std::string::npos);
  CHECK(client.error().what.find(" ms") != std::string::npos);
  CHECK(client.error().hint.find("connect_timeout_s") != std::string::npos);
}

TEST_CASE("store: a client that is told to stop does not go on connecting to a server that says nothing") {
  std::uint16_t port = 0;
  const auto listener = tcp_listen(*parse_address("127.0.0.1:0"), port);
  REQUIRE(listener);
  Config config;
  config.servers = {"127.0.0.1:" + std::to_string(port)};
  config.connect_timeout_s = 600;
  int asked = 0;
  config.stop = [&] { return ++asked > 2; };
  const auto client = Client::open(config);
  ::close(*listener);
  REQUIRE_FALSE(client);
  CHECK(client.error().code == "store.interrupted");
  CHECK(client.error().what.find(config.servers[0]) != std::string::npos);
}

TEST_CASE("store: a server chooses no text that a client signs: a nonce, or nothing") {
  CHECK(auth::is_nonce(auth::nonce()));
  const std::string digits(63, 'a');
  for (const std::string& text :
       {std::string("transfer all to mallory"), std::string(), digits, digits + "A", digits + "aa"}) {
    CHECK_FALSE(auth::is_nonce(text));
    std::uint16_t port = 0;
    const auto listener = tcp_listen({"127.0.0.1", 0}, port);
    REQUIRE(listener);
    std::thread server([&] {
      pollfd ready{*listener, POLLIN, 0};
      (void)::poll(&ready, 1, 10'000);
      const int peer = ::accept(*listener, nullptr, nullptr);
      const std::string said =
          wire::encode_text({{"auth", "munge"}, {"nonce", text}, {"protocol", std::string(auth::protocol)}});
      const Outgoing out = plain_frame(wire::Kind::challenge, std::as_bytes(std::span(said)));
      (void)!::write(peer, out.head.data(), out.head.size());
      char heard[4096];
      while (::read(peer, heard, sizeof heard) > 0) {}
      ::close(peer);
    });
    Config config;
    config.servers = {"127.0.0.1:" + std::to_string(port)};
    config.auth = "munge";
    const auto client = Client::open(config);
    server.join();
    ::close(*listener);
    REQUIRE_FALSE(client);
    CHECK(client.error().code == "store.bad_frame");
    CHECK(client.error().what.find("nonce") != std::string::npos);
  }
}

TEST_CASE("store: what failed at one of two servers names that one") {
  Service service(2, {{Role::data, "memory", {{"limit", "4MiB"}}}, {Role::kv, "memory", {}}});
  Client client = service.client();
  SUBCASE("an operation") {
    const std::vector<std::byte> much(8u << 20);
    Batch batch = client.batch();
    batch.add({Code::object_write, 0, "s", "o", 0, 0, much, {}}, 1);
    batch.status("s", "nothing");
    REQUIRE(batch.run());
    REQUIRE(batch[0].status == Status::no_space);
    CHECK(batch.why(0).find(service.config.servers[1]) != std::string::npos);
    CHECK(batch.why(1) == explain(Status::not_found));
  }
  SUBCASE("the way to it") {
    service.servers[1]->stop(0);
    Batch batch = client.batch();
    batch.add({Code::object_create, 0, "s", "o", 0, 0, {}, {}}, 1);
    const auto ran = batch.run();
    REQUIRE_FALSE(ran);
    CHECK(ran.error().what.find(service.config.servers[1]) != std::string::npos);
    CHECK(ran.error().what.find(service.config.servers[0]) == std::string::npos);
  }
}

TEST_CASE("an address reads as it is written, and a host has no brackets") {
  for (const char* text : {"127.0.0.1:5440", "[::1]:7", "name:1"}) CHECK(parse_address(text)->text() == text);
  for (const char* text : {"[[a]", "[[::1]:5", "a[b:1", "a]:1", "[]:1", "[::1", "::1"}) {
    const auto read = parse_address(text);
    REQUIRE_FALSE(read);
    CHECK(read.error().code == "store.bad_address");
  }
}
