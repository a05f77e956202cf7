#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../hostile/stranger.hpp"
#include "service.hpp"
#include "store/fuzz/hostile.hpp"
#include "store/transport/tcp.hpp"

using namespace sonde::store;
using namespace sonde::store::test;

namespace {

/// Frames as bytes: a handshake and a put of one key in two frames.
std::vector<std::byte> bytes_of_frame(const Outgoing& out) { return out.head; }

std::vector<std::byte> put_message(std::uint64_t id) {
  std::vector<std::byte> stream;
  const std::vector<std::byte> data(100, std::byte{'x'});
  for (std::uint32_t part = 0; part < 2; ++part) {
    wire::TableWriter table;
    wire::Record r;
    r.code = Code::kv_put;
    r.space = "s";
    const std::string key = "k" + std::to_string(part);
    r.key = key;
    r.index = part;
    r.data_bytes = 100;
    table.add(r);
    wire::Header h;
    h.id = id;
    h.flags = static_cast<std::uint16_t>(wire::data_sum | (part == 0 ? wire::more : 0));
    h.role = Role::kv;
    h.ops = 1;
    h.part = part;
    h.batch_ops = 2;
    h.table_bytes = static_cast<std::uint32_t>(table.bytes());
    h.data_bytes = 100;
    h.body_crc = wire::crc32c(data, wire::crc32c(table.table()));
    std::vector<std::byte> head(wire::header_bytes);
    wire::encode(h, head.data());
    stream.insert(stream.end(), head.begin(), head.end());
    stream.insert(stream.end(), table.table().begin(), table.table().end());
    stream.insert(stream.end(), data.begin(), data.end());
  }
  return stream;
}

bool has(Client& client, const char* key) {
  auto b = client.batch();
  b.get("s", key);
  REQUIRE(b.run());
  return b[0].status == Status::ok;
}

}  // namespace

TEST_CASE("a connection cut at every byte of a message: the batch is whole or absent") {
  Service service;
  Server& server = *service.servers[0];
  auto client = service.client();
  const auto stream = put_message(1);
  for (std::size_t n = 0; n <= stream.size(); ++n) {
    CAPTURE(n);
    const int answers = fuzz::attack(server, Bytes(stream).first(n), true);
    CHECK(answers == (n == stream.size() ? 1 : 0));
    const bool first = has(client, "k0"), second = has(client, "k1");
    CHECK(first == second);
    CHECK(first == (n == stream.size()));
  }
  // The same within the handshake.
  const auto hello = bytes_of_frame(plain_frame(wire::Kind::hello, bytes_of("client=x\nnonce=y\n")));
  for (std::size_t n = 0; n <= hello.size(); ++n) CHECK(fuzz::attack(server, Bytes(hello).first(n), false) >= 0);
  CHECK(fuzz::alive(server));
}

TEST_CASE("every changed byte of a message is seen, and harms nobody else") {
  Service service;
  Server& server = *service.servers[0];
  auto client = service.client();
  const auto stream = put_message(1);
  for (std::size_t n = 0; n < stream.size(); ++n) {
    CAPTURE(n);
    auto bad = stream;
    bad[n] ^= std::byte{0x10};
    CHECK(fuzz::attack(server, bad, true) >= 0);
    CHECK_FALSE(has(client, "k0"));
    CHECK_FALSE(has(client, "k1"));
  }
  CHECK(fuzz::alive(server));
}

TEST_CASE("requests before the welcome, wrong kinds and wrong order end the connection with words") {
  Service service;
  Server& server = *service.servers[0];
  const auto refused = server.metrics().bad_frames.load();
  CHECK(fuzz::attack(server, put_message(1), false) == 1);  // one fault
  auto second_part_first = put_message(1);
  second_part_first.erase(second_part_first.begin(),
                          second_part_first.begin() + static_cast<std::ptrdiff_t>(second_part_first.size() / 2));
  CHECK(fuzz::attack(server, second_part_first, true) == 1);
  auto other_id = put_message(1);
  const auto two = put_message(2);
  std::copy(two.begin() + static_cast<std::ptrdiff_t>(two.size() / 2), two.end(),
            other_id.begin() + static_cast<std::ptrdiff_t>(other_id.size() / 2));
  CHECK(fuzz::attack(server, other_id, true) == 1);
  CHECK(fuzz::attack(server,
                     bytes_of("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n and more text than a header has bytes"),
                     false) == 1);
  CHECK(server.metrics().bad_frames.load() == refused + 4);
  CHECK(server.metrics().last_refused() == "this host: store.bad_frame");
}

TEST_CASE("thousands of hostile frames: the server lives, and its memory is bounded") {
  const auto server = fuzz::target();
  REQUIRE(server);
  std::mt19937_64 random(7);
  for (int k = 0; k < 400; ++k)
    CHECK(fuzz::attack(*server, fuzz::hostile_stream(random, 1 + random() % 32), random() % 16 != 0) >= 0);
  CHECK(fuzz::alive(*server));
  CHECK(server->metrics().connections <= 1);
}

TEST_CASE("what the fuzzer begins from, and what it once found, is answered or refused") {
  const auto server = fuzz::target();
  REQUIRE(server);
  std::size_t n = 0;
  for (const auto& file : std::filesystem::directory_iterator(SONDE_TEST_DATA "/storefuzz")) {
    if (file.path().extension() == ".md") continue;
    const std::string name = file.path().filename().string();
    CAPTURE(name);
    std::ifstream from(file.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(from), {}};
    CHECK(fuzz::attack(*server, fuzz::stream_of(bytes_of(input)), true) >= 0);
    ++n;
  }
  CHECK(n > 40);
  CHECK(fuzz::alive(*server));
}

TEST_CASE("a thousand idle connections cost others nothing, and one too many is told") {
  ServerConfig base;
  base.connections = 1001;
  Service service(1, memory_backends(), base);
  Stream entry = plain_frame(wire::Kind::hello, bytes_of("client=idle\nnonce=y\n")).head;
  append(entry, plain_frame(wire::Kind::proof, {}).head);
  std::vector<Stranger> idle;
  for (int k = 0; k < 1000; ++k) {
    idle.emplace_back(*service.servers[0], "127.0.0.1");
    idle.back().say(entry);
    idle.back().hear(wire::Kind::challenge);
    idle.back().hear(wire::Kind::welcome);
  }
  {
    auto client = service.client();
    auto b = client.batch();
    b.put("s", "k", bytes_of("v"));
    CHECK(b.run());
    auto refused = Client::open(service.config);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == "store.unavailable");
    CHECK(refused.error().what.find("1001 connections") != std::string::npos);
  }
}

TEST_CASE("who does not say hello in time is sent away") {
  ServerConfig base;
  base.hello_timeout_s = 0.5;
  Service service(1, memory_backends(), base);
  CHECK(fuzz::attack(*service.servers[0], {}, false) == 0);
  auto fd = tcp_connect(*parse_address(service.config.servers[0]), Deadline::in_s(5));
  REQUIRE(fd);
  std::byte chunk[4096];
  ssize_t n;
  std::size_t said = 0;
  do {
    n = ::recv(*fd, chunk, sizeof chunk, 0);
    if (n < 0 && errno == EAGAIN) std::this_thread::yield();
    if (n > 0) said += static_cast<std::size_t>(n);
  } while (n > 0 || (n < 0 && errno == EAGAIN));
  CHECK(said > 0);
  ::close(*fd);
}

TEST_CASE("a client that does not read its answers is slowed down, not stored in memory") {
  Service service;
  auto client = service.client();
  const auto data = noise(8u << 20, 9);
  auto b = client.batch();
  b.write("slow", "o", 0, data);
  REQUIRE(b.run());
  // A thousand reads of 8 MiB asked for at once, and none taken.
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  service.servers[0]->serve(ends[1]);
  std::vector<std::byte> stream;
  const auto add = [&](const Outgoing& out) { stream.insert(stream.end(), out.head.begin(), out.head.end()); };
  add(plain_frame(wire::Kind::hello, bytes_of("client=slow\nnonce=y\n")));
  add(plain_frame(wire::Kind::proof, {}));
  for (std::uint64_t id = 1; id <= 1000; ++id) {
    wire::TableWriter table;
    wire::Record r;
    r.code = Code::object_read;
    r.space = "slow";
    r.key = "o";
    r.length = data.size();
    table.add(r);
    wire::Header h;
    h.id = id;
    h.ops = 1;
    h.batch_ops = 1;
    h.table_bytes = static_cast<std::uint32_t>(table.bytes());
    h.body_crc = wire::crc32c(table.table());
    std::vector<std::byte> head(wire::header_bytes);
    wire::encode(h, head.data());
    stream.insert(stream.end(), head.begin(), head.end());
    stream.insert(stream.end(), table.table().begin(), table.table().end());
  }
  for (std::size_t sent = 0; sent < stream.size();) {
    const ssize_t n = ::send(ends[0], stream.data() + sent, stream.size() - sent, MSG_DONTWAIT);
    if (n <= 0) break;
    sent += static_cast<std::size_t>(n);
  }
  // Others are served meanwhile, and what went out is a few MiB, not 8 GiB.
  for (int k = 0; k < 50; ++k) {
    b.clear();
    b.status("slow", "o");
    REQUIRE(b.run());
  }
  CHECK(service.servers[0]->metrics().bytes_out < 64u << 20);
  ::close(ends[0]);
}

TEST_CASE("a read of an exabyte takes its turns: others are served, and the server can end") {
  Service service;
  auto client = service.client();
  auto b = client.batch();
  b.create("huge", "o");
  b.truncate("huge", "o", std::uint64_t{1} << 60);
  REQUIRE(b.run());
  REQUIRE(b.failed() == 0);
  for (const Safety safety : {Safety::network, Safety::none}) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    service.servers[0]->serve(ends[1]);
    std::vector<std::byte> stream;
    wire::TableWriter table;
    wire::Record r;
    r.code = Code::object_read;
    r.space = "huge";
    r.key = "o";
    r.length = std::uint64_t{1} << 60;
    table.add(r);
    wire::Header h;
    h.id = 1;
    h.flags = safety == Safety::none ? wire::no_reply : 0;
    h.safety = safety;
    h.ops = h.batch_ops = 1;
    h.table_bytes = static_cast<std::uint32_t>(table.bytes());
    h.body_crc = wire::crc32c(table.table());
    std::vector<std::byte> head(wire::header_bytes);
    wire::encode(h, head.data());
    for (const auto& out :
         {plain_frame(wire::Kind::hello, bytes_of("client=huge\nnonce=y\n")), plain_frame(wire::Kind::proof, {})})
      stream.insert(stream.end(), out.head.begin(), out.head.end());
    stream.insert(stream.end(), head.begin(), head.end());
    stream.insert(stream.end(), table.table().begin(), table.table().end());
    REQUIRE(::send(ends[0], stream.data(), stream.size(), 0) == static_cast<ssize_t>(stream.size()));
    std::thread reader([fd = ends[0]] {  // takes all it gets, so that the server never has to wait
      std::vector<std::byte> chunk(1u << 20);
      while (::recv(fd, chunk.data(), chunk.size(), 0) > 0) {}
    });
    for (int k = 0; k < 20; ++k) {
      b.clear();
      b.status("huge", "o");
      CHECK(b.run());
    }
    ::shutdown(ends[0], SHUT_RDWR);
    reader.join();
    ::close(ends[0]);
  }
}

TEST_CASE("a client that is gone in the middle of its batch leaves the server well") {
  Service service;
  for (int k = 0; k < 20; ++k) {
    auto client = service.client();
    const auto data = noise(1u << 20, 11);
    std::vector<Batch> batches;
    for (int n = 0; n < 8; ++n) {
      batches.push_back(client.batch());
      batches.back().write("gone", "o", 0, data);
      batches.back().put("gone", "k", bytes_of("v"));
      REQUIRE(batches.back().start());
    }
  }
  CHECK(fuzz::alive(*service.servers[0]));
}
