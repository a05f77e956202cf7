// What a server that a client has let in can do to that client: it answers what it likes, for as long as it likes.
#include <doctest/doctest.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "allocations.hpp"
#include "store/striped.hpp"
#include "stranger.hpp"

using namespace sonde::store;
using namespace sonde::store::test;
using sonde::test::Allocations;

namespace {

constexpr std::size_t MiB = 1u << 20;

/// A server that lets everybody in, and whose answers are a test's. It ends after its clients.
class Impostor {
 public:
  using Answer = std::function<void(Stranger& client, const Frame& request)>;

  explicit Impostor(Answer answer) : answer_(std::move(answer)) {
    const auto listener = tcp_listen({"127.0.0.1", 0}, port_);
    REQUIRE(listener);
    listener_ = *listener;
    taker_ = std::thread([this] { take(); });
  }
  ~Impostor() {
    ::shutdown(listener_, SHUT_RDWR);
    taker_.join();
    ::close(listener_);
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;

  Client client() const {
    Config config;
    config.servers = {"127.0.0.1:" + std::to_string(port_)};
    config.auth = "none";
    config.timeout_s = 120;
    auto opened = Client::open(config);
    REQUIRE_MESSAGE(opened, opened.error().what);
    return std::move(*opened);
  }

 private:
  void take() {
    std::vector<std::thread> served;
    for (;;) {
      pollfd ready{listener_, POLLIN, 0};
      (void)::poll(&ready, 1, -1);
      const int fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) break;
      served.emplace_back([this, fd] {
        Stranger client(fd);
        if (!client.hear()) return;
        client.say(plain_frame(wire::Kind::challenge, bytes_of("auth=none\n")));
        if (!client.hear()) return;
        client.say(plain_frame(wire::Kind::welcome, bytes_of("roles=data,kv,db\n")));
        while (const auto request = client.hear()) answer_(client, *request);
      });
    }
    for (auto& one : served) one.join();
  }

  Answer answer_;
  std::uint16_t port_ = 0;
  int listener_ = -1;
  std::thread taker_;
};

wire::Answer one(std::uint32_t index, std::size_t bytes = 0, Status status = Status::ok) {
  wire::Answer a;
  a.status = status;
  a.index = index;
  a.data_bytes = static_cast<std::uint32_t>(bytes);
  return a;
}

Stream reply_to(const Frame& request, const std::vector<wire::Answer>& answers, Bytes data = {}, bool more = false) {
  wire::Header h;
  h.kind = wire::Kind::reply;
  h.id = request.header.id;
  h.role = request.header.role;
  h.batch_ops = request.header.batch_ops;
  h.flags = more ? wire::more : 0;
  wire::TableWriter table;
  for (const auto& a : answers) table.add(a);
  h.ops = table.ops();
  return frame_of(h, table.table(), data);
}

/// A page of a listing, as backends pack it.
Stream page_of(const std::vector<std::string>& names) {
  Stream out;
  for (const auto& name : names) {
    const std::uint32_t lengths[2] = {static_cast<std::uint32_t>(name.size()), 0};
    append(out, std::as_bytes(std::span(lengths)));
    append(out, bytes_of(name));
  }
  return out;
}

Stream listing(const Frame& request, const std::vector<std::string>& names, bool follows) {
  const Stream page = page_of(names);
  wire::Answer a = one(0, page.size());
  a.value = names.size();
  a.time_ns = follows ? 1 : 0;
  return reply_to(request, {a}, page);
}

Op op_of(Code code) {
  Op op;
  op.code = code;
  op.space = "s";
  op.key = "k";
  if (code == Code::object_read) op.length = MiB;
  return op;
}

}  // namespace

TEST_CASE("an answer without an end takes as much of a client's memory as what was asked for may have, and no more") {
  const Stream data(256u << 10, std::byte{'x'});
  const Impostor server([&](Stranger& client, const Frame& request) {
    const Stream frame = reply_to(request, {one(0, data.size())}, data, true);
    for (std::size_t sent = 0; sent < 160 * MiB; sent += data.size())
      if (!client.say(frame)) return;
    client.say(reply_to(request, {one(0)}));
  });
  struct Asked {
    Code code;
    std::size_t most;
  };
  for (const auto& [code, most] :
       {Asked{Code::kv_get, limit::value_bytes}, Asked{Code::kv_scan, limit::value_bytes + MiB},
        Asked{Code::object_list, limit::value_bytes + MiB}, Asked{Code::object_read, MiB},
        Asked{Code::db_query, limit::atomic_batch_bytes}, Asked{Code::kv_remove, 0}, Asked{Code::object_status, 0}}) {
    CAPTURE(name_of(code));
    Client client = server.client();
    const Allocations watch;
    auto batch = client.batch();
    batch.add(op_of(code));
    const auto ran = batch.run();
    REQUIRE_FALSE(ran);
    CHECK(ran.error().what.find("more than was asked for") != std::string::npos);
    // It grows by doubling, and what it had before is held until the batch goes.
    CHECK(watch.held() < 2 * most + 2 * MiB);
  }
}

TEST_CASE("what a server says of a value's length takes no memory before the value comes") {
  const Impostor server([&](Stranger& client, const Frame& request) {
    // One value or many: the announced data of the frame does not come.
    const std::uint32_t n = request.header.batch_ops;
    std::vector<wire::Answer> answers;
    const std::size_t each = (256u << 10) / n;
    for (std::uint32_t k = 0; k < n; ++k) {
      answers.push_back(one(k, each));
      answers.back().value = limit::value_bytes;
    }
    const Stream frame = reply_to(request, answers, Stream(n * each));
    client.say(Bytes(frame).first(frame.size() - n * each + 1));
    ::shutdown(client.fd(), SHUT_RDWR);
  });
  for (const std::uint32_t n : {1u, 8192u}) {
    CAPTURE(n);
    Client client = server.client();
    auto batch = client.batch();
    for (std::uint32_t k = 0; k < n; ++k) batch.get("s", "k");
    const Allocations watch;
    CHECK_FALSE(batch.run());
    CHECK(watch.largest() < 4 * MiB);  // the server of the test among it
    CHECK(watch.held() < 6 * MiB);
  }
}

TEST_CASE("the texts of failures are cut, and one of a message is enough") {
  const Stream text(MiB, std::byte{'x'});
  const Impostor server([&](Stranger& client, const Frame& request) {
    const Stream frame = reply_to(request, {one(0, text.size(), Status::internal)}, text, true);
    for (int k = 0; k < 32; ++k) client.say(frame);
    client.say(reply_to(request, {one(0, 0, Status::internal)}));
  });
  Client client = server.client();
  const Allocations watch;
  auto batch = client.batch();
  batch.get("s", "k");
  REQUIRE(batch.run());
  CHECK(batch[0].status == Status::internal);
  CHECK(batch.why(0).size() < 10'000);
  CHECK(watch.held() < 4 * MiB);
}

TEST_CASE("data that comes behind the text of a failure is not written where the text lies") {
  const Stream begin(8192, std::byte{'a'}), text(10, std::byte{'t'}), rest(MiB, std::byte{'b'});
  const Impostor server([&](Stranger& client, const Frame& request) {
    client.say(reply_to(request, {one(0, begin.size())}, begin, true));
    client.say(reply_to(request, {one(0, text.size(), Status::internal)}, text, true));
    client.say(reply_to(request, {one(0, rest.size())}, rest));
  });
  Client client = server.client();
  for (const bool own_memory : {false, true}) {
    auto batch = client.batch();
    Stream into(32 * MiB);
    if (own_memory) batch.read("s", "k", 0, into);
    else batch.read("s", "k", 0, 32 * MiB);
    const auto ran = batch.run();
    REQUIRE_FALSE(ran);
    CHECK(ran.error().what.find("after a failure") != std::string::npos);
  }
}

TEST_CASE("a frame that answers the same operations over and over is refused") {
  const Impostor server([&](Stranger& client, const Frame& request) {
    wire::Answer all = one(0);
    all.run = request.header.batch_ops;
    std::vector<wire::Answer> answers;
    for (std::size_t k = 0; k < wire::frame_ops_max; ++k) {
      all.value = k;  // or they would be one
      answers.push_back(all);
    }
    client.say(reply_to(request, answers));
  });
  Client client = server.client();
  auto batch = client.batch();
  for (int k = 0; k < 1000; ++k) batch.remove("s", "k");
  const auto ran = batch.run();
  REQUIRE_FALSE(ran);
  CHECK(ran.error().what.find("over and over") != std::string::npos);
}

TEST_CASE("a server that pings without an end and reads nothing does not fill a client's memory") {
  const Impostor server([&](Stranger& client, const Frame& request) {
    Stream pings;
    for (int k = 0; k < 1000; ++k) append(pings, plain_frame(wire::Kind::ping, {}, 7).head);
    for (int k = 0; k < 500; ++k)
      if (!client.say(pings)) return;
    client.say(reply_to(request, {one(0)}));
  });
  Client client = server.client();
  const Allocations watch;
  auto batch = client.batch();
  batch.remove("s", "k");
  const auto ran = batch.run();
  CHECK(watch.held() < 4 * MiB);
  REQUIRE_FALSE(ran);
  CHECK(ran.error().what.find("pings") != std::string::npos);
}

TEST_CASE("a listing that does not move on is refused") {
  struct Page {
    std::string what;
    std::vector<std::string> names;
  };
  for (const auto& [what, names] :
       {Page{"the same again", {"p1", "p2"}}, Page{"one twice", {"p1", "p1"}}, Page{"backwards", {"p2", "p1"}},
        Page{"of another prefix", {"p1", "q"}}, Page{"shorter than the prefix", {""}}, Page{"before the prefix", {"a"}},
        Page{"as long as no name is", {"p" + std::string(2000, 'x')}}}) {
    CAPTURE(what);
    int pages = 0;
    const Impostor server([&, &listed = names](Stranger& client, const Frame& request) {
      client.say(listing(request, listed, ++pages < 1000));
    });
    Client client = server.client();
    for (const bool objects : {false, true}) {
      int entries = 0;
      const auto done = objects ? client.list("s", "p", [&](std::string_view) { return ++entries > 0; })
                                : client.scan("s", "p", true, [&](std::string_view, Bytes) { return ++entries > 0; });
      REQUIRE_FALSE(done);
      CHECK(done.error().code == "store.bad_frame");
      CHECK(done.error().what.find("'s'") != std::string::npos);
      CHECK(entries <= 2);
    }
  }
}

TEST_CASE("a listing that says that more follows and brings nothing has an end") {
  const Impostor server([&](Stranger& client, const Frame& request) { client.say(listing(request, {}, true)); });
  Client client = server.client();
  int entries = 0;
  CHECK(client.list("s", "", [&](std::string_view) { return ++entries > 0; }));
  CHECK(entries == 0);
}

TEST_CASE("items whose names do not begin as they were asked for are an error") {
  const Impostor server([&](Stranger& client, const Frame& request) { client.say(listing(request, {"x"}, false)); });
  Client client = server.client();
  const auto names = Item::list(client, "collection", "");
  REQUIRE_FALSE(names);
  CHECK(names.error().code == "store.bad_frame");
}

TEST_CASE("a collection without an end is cut off before it fills the memory") {
  std::uint64_t number = 0;
  const Impostor server([&](Stranger& client, const Frame& request) {
    std::vector<std::string> names;
    std::size_t bytes = 0;
    while (bytes < MiB - 1000) {
      char digits[32];
      std::snprintf(digits, sizeof digits, "%020llu", static_cast<unsigned long long>(++number));
      names.push_back(std::string("c\0", 2) + digits + std::string(400, 'x'));
      bytes += names.back().size() + 8;
    }
    client.say(listing(request, names, number < 4'000'000));
  });
  Client client = server.client();
  const Allocations watch;
  const auto names = Item::list(client, "c", "");
  REQUIRE_FALSE(names);
  CHECK(names.error().code == "store.too_large");
  CHECK(number < 1'000'000);
}

TEST_CASE("sizes that no object has are an error") {
  for (const std::uint64_t size : {limit::object_bytes + 1, ~std::uint64_t{0}}) {
    const Impostor server([&](Stranger& client, const Frame& request) {
      wire::Answer a = one(0);
      a.value = size;
      client.say(reply_to(request, {a}));
    });
    Client client = server.client();
    auto object = Striped::make(client, "s", "k", {});
    REQUIRE(object);
    const auto info = (*object).status();
    REQUIRE_FALSE(info);
    CHECK(info.error().code == "store.corrupt");
  }
}
