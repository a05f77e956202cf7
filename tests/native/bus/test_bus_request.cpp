#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bus/cdr.hpp"
#include "bus/request.hpp"
#include "core/clock.hpp"

using namespace sonde;
using namespace sonde::bus;

namespace {

std::shared_ptr<Bus> open_bus(std::uint32_t domain = 66) {
  Profile profile;
  profile.domain = domain;
  auto bus = Bus::open(profile, "null");
  REQUIRE(bus);
  return *bus;
}

std::vector<std::byte> bytes(std::string_view text) {
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  return {p, p + text.size()};
}
std::string text(Bytes from) { return {reinterpret_cast<const char*>(from.data()), from.size()}; }

Answer ok(std::string_view body) {
  Answer answer;
  answer.body = bytes(body);
  return answer;
}
Server::Handler echo = [](const Incoming& in) { return ok(text(in.body)); };

std::unique_ptr<Client> client_of(const std::shared_ptr<Bus>& bus, const std::string& service,
                                  const ServiceTypes& types = {}) {
  auto client = Client::open(bus, service, types);
  REQUIRE(client);
  return std::move(*client);
}
std::unique_ptr<Server> server_of(const std::shared_ptr<Bus>& bus, const std::string& service, Server::Handler handler,
                                  const ServerOptions& options = {}, const ServiceTypes& types = {}) {
  auto server = Server::open(bus, service, types, std::move(handler), options);
  REQUIRE(server);
  return std::move(*server);
}
CallOptions within(double deadline_s, double retry_s = 0.5, const std::string& target = "") {
  return {target, deadline_s, retry_s};
}

template <typename Done> bool until(const Done& done, double limit_s = 30) {
  const Deadline deadline = Deadline::in_s(limit_s);
  while (!done())
    if (deadline.passed()) return false;
    else sleep_until(now_s() + 0.001);
  return true;
}

/// A gate that handlers stand at.
struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool open = false;
  void pass() {
    std::unique_lock lock(mutex);
    opened.wait(lock, [&] { return open; });
  }
  void unlock() {
    const std::lock_guard lock(mutex);
    open = true;
    opened.notify_all();
  }
};

/// A peer that speaks the wire itself, and not always well.
struct Foreign {
  std::shared_ptr<Bus> bus;
  std::unique_ptr<Writer> requests;
  std::unique_ptr<Reader> replies;
  std::string partition;
  explicit Foreign(const std::shared_ptr<Bus>& on, const std::string& service)
      : bus(on), partition("reply/" + on->guid().text()) {
    requests = std::move(*bus->writer(service, request_type()));
    Qos qos;
    qos.partitions = {partition};
    qos.durability = Durability::transient_local;
    replies = std::move(*bus->reader(service + "_reply", reply_type(), qos));
    REQUIRE(requests->wait_matched(1, Deadline::in_s(10)));
  }
  struct Request {
    Guid client;
    std::uint64_t number = 1;
    std::uint32_t client_number = 1, left_ms = 60000, attempt = 1;
    std::string partition, target, body = "x";
  };
  Request request(std::uint64_t number = 1) const {
    Request r;
    r.client = bus->guid();
    r.number = number;
    r.partition = partition;
    return r;
  }
  bool send(const Request& r) {
    std::vector<std::byte> payload;
    CdrWriter out(payload);
    out.put_bytes(r.client.bytes);
    out.put(r.number);
    out.put(r.client_number);
    out.put(r.left_ms);
    out.put(r.attempt);
    out.put(std::string_view(r.partition));
    out.put(std::string_view(r.target));
    out.put(static_cast<std::uint32_t>(r.body.size()));
    out.put_bytes(bytes(r.body));
    return bool(requests->write(payload));
  }
  std::size_t take() {
    return replies->take([](const SampleInfo&, Bytes) {});
  }
};

void send_reply(Writer& writer, const Guid& client, std::uint32_t client_number, std::uint64_t number,
                std::string_view body) {
  std::vector<std::byte> payload;
  CdrWriter out(payload);
  out.put_bytes(client.bytes);
  out.put(number);
  out.put(client_number);
  out.put(std::uint32_t{0});
  out.put(std::string_view("liar"));
  out.put(std::string_view(""));
  out.put(static_cast<std::uint32_t>(body.size()));
  out.put_bytes(bytes(body));
  REQUIRE(writer.write(payload));
}

}  // namespace

TEST_CASE("request: a call is answered, with the server's code and name") {
  const auto a = open_bus(), b = open_bus();
  auto server = server_of(a, "service",
                          [](const Incoming& in) -> Answer {
                            const std::string asked = text(in.body);
                            if (asked == "throw") throw std::runtime_error("no such node");
                            if (asked == "throw 1") throw 1;
                            if (asked == "deny") return {ReplyCode::denied, "not you", {}, {}, 1};
                            if (asked == "own")
                              return {static_cast<ReplyCode>(1234), "", "a name that does not travel", bytes("own"), 1};
                            return ok(asked + "!");
                          },
                          {.name = "n001", .threads = 2});
  for (const auto& bus : {a, b}) {
    auto client = client_of(bus, "service");
    CHECK(client->wait_for_server(Deadline::in_s(10)));
    auto answer = client->call(bytes("hello"));
    REQUIRE(answer);
    CHECK(answer->code == ReplyCode::ok);
    CHECK(text(answer->body) == "hello!");
    CHECK(answer->server == "n001");
    answer = client->call(bytes("throw"));
    REQUIRE(answer);
    CHECK(answer->code == ReplyCode::failed);
    CHECK(answer->message == "no such node");
    answer = client->call(bytes("throw 1"));
    CHECK(answer->code == ReplyCode::failed);
    answer = client->call(bytes("deny"));
    CHECK(answer->code == ReplyCode::denied);
    CHECK(answer->message == "not you");
    answer = client->call(bytes("own"));
    CHECK(static_cast<std::uint32_t>(answer->code) == 1234);
    CHECK(answer->server == "n001");
    auto empty = client->call({});
    REQUIRE(empty);
    CHECK(text(empty->body) == "!");
    CHECK(client->counts().calls == 6);
    CHECK(client->counts().answered == 6);
    CHECK(client->counts().timed_out == 0);
  }
  CHECK(server->counts().answered == 12);
  CHECK(server->counts().failed == 4);
  CHECK(server->counts().clients == 2);
}

TEST_CASE("request: bodies of other types are refused on either side") {
  const auto bus = open_bus();
  const ServiceTypes types{structure("t::Ask", {{"n", primitive(Kind::uint32), false, {}}}),
                           structure("t::Told", {{"n", primitive(Kind::uint64), false, {}}})};
  std::vector<std::byte> ask, told;
  CdrWriter(ask).put(std::uint32_t{1});
  CdrWriter(told).put(std::uint64_t{1});
  std::atomic<bool> well{true};
  auto server = server_of(
      bus, "typed",
      [&](const Incoming&) {
        Answer answer;
        answer.body = well ? told : ask;
        return answer;
      },
      {}, types);
  auto client = client_of(bus, "typed", types), untyped = client_of(bus, "typed"),
       mistaken = client_of(bus, "typed", {types.request, types.request});
  CHECK(client->call(ask));
  auto refused = client->call(told);
  REQUIRE(!refused);
  CHECK(refused.error().code == "bus.malformed");
  CHECK(client->counts().calls == 1);
  auto answer = untyped->call(told);
  REQUIRE(answer);
  CHECK(answer->code == ReplyCode::bad_request);
  auto garbage = mistaken->call(ask, within(0.2));
  REQUIRE(!garbage);
  CHECK(garbage.error().code == "bus.timed_out");
  CHECK(garbage.error().what.find("malformed") != std::string::npos);
  CHECK(mistaken->counts().malformed >= 1);
  well = false;
  answer = client->call(ask);
  REQUIRE(answer);
  CHECK(answer->code == ReplyCode::failed);
  CHECK(server->counts().malformed == 1);
}

TEST_CASE("request: a service's types are looked at as it is opened") {
  const auto bus = open_bus();
  const TypePtr bad =
      structure("t::Bad", {{"n", primitive(Kind::uint32), false, {}}, {"n", primitive(Kind::uint32), false, {}}});
  for (const ServiceTypes& types :
       {ServiceTypes{bad, {}}, ServiceTypes{{}, bad}, ServiceTypes{primitive(Kind::uint32), {}}}) {
    const auto client = Client::open(bus, "bad", types);
    REQUIRE(!client);
    CHECK(client.error().code == "bus.bad_type");
    CHECK(client.error().what.find("service bad") != std::string::npos);
    const auto server = Server::open(bus, "bad", types, echo);
    REQUIRE(!server);
    CHECK(server.error().code == "bus.bad_type");
  }
}

TEST_CASE("request: the target chooses the server, and all may be asked") {
  const auto a = open_bus(), b = open_bus(), c = open_bus();
  auto first = server_of(a, "nodes", [](const Incoming&) { return ok("1"); }, {.name = "n001"});
  auto second = server_of(b, "nodes", [](const Incoming&) { return ok("2"); }, {.name = "n002"});
  auto client = client_of(c, "nodes");
  for (int k = 0; k < 20; ++k) {
    auto one = client->call({}, within(10, 0.5, "n001")), two = client->call({}, within(10, 0.5, "*2"));
    REQUIRE(one);
    REQUIRE(two);
    CHECK(one->server == "n001");
    CHECK(text(two->body) == "2");
  }
  auto all = client->call_all({}, within(30, 0.5, "n00?"), 2);
  REQUIRE(all);
  REQUIRE(all->size() == 2);
  CHECK(std::set<std::string>{(*all)[0].server, (*all)[1].server} == std::set<std::string>{"n001", "n002"});
  auto some = client->call_all({}, within(0.2, 0.05), 5);
  REQUIRE(some);
  CHECK(some->size() == 2);
  auto none = client->call({}, within(0.1, 0.02, "n003"));
  REQUIRE(!none);
  CHECK(none.error().code == "bus.timed_out");
  CHECK(none.error().what.find("n003") != std::string::npos);
  CHECK(first->counts().not_for_us >= 20);
  CHECK(!client->call({}, within(1, 1, std::string(256, 'x'))));
  CHECK(client->counts().unasked == 0);
}

TEST_CASE("request: what nobody answers times out, and says whether a server was there") {
  const auto bus = open_bus();
  auto client = client_of(bus, "nobody");
  CHECK(!client->wait_for_server(Deadline::in_s(0.01)));
  auto failed = client->call({}, within(0.05));
  REQUIRE(!failed);
  CHECK(failed.error().code == "bus.timed_out");
  CHECK(failed.error().what.find("no servers are there") != std::string::npos);
  CHECK(failed.error().what.find("sent 0 times") != std::string::npos);
  for (const double never : {0.0, -1.0}) CHECK(!client->call({}, within(never)));
  Gate gate;
  auto server = server_of(bus, "nobody", [&](const Incoming& in) {
    gate.pass();
    return ok(text(in.body));
  });
  failed = client->call({}, within(2, 0.01));
  REQUIRE(!failed);
  CHECK(failed.error().what.find("1 server is there") != std::string::npos);
  CHECK(client->counts().retried >= 1);
  CHECK(client->counts().timed_out == 4);
  gate.unlock();
  CHECK(until([&] { return client->counts().late >= 1; }));
  CHECK(client->counts().answered == 0);
  CHECK(server->counts().repeated >= 1);
}

TEST_CASE("request: a server that comes later is found by the call that waits") {
  const auto bus = open_bus();
  auto client = client_of(bus, "later");
  auto call = std::async(std::launch::async, [&] { return client->call(bytes("x"), within(60, 0)); });
  sleep_until(now_s() + 0.05);
  auto server = server_of(bus, "later", echo);
  auto answer = call.get();
  REQUIRE(answer);
  CHECK(answer->tries == 1);
}

TEST_CASE("request: a request that comes again is answered again and not executed again, until it is forgotten") {
  const auto bus = open_bus(), far = open_bus();
  std::atomic<int> executed{0}, again{0};
  auto server = server_of(bus, "once",
                          [&](const Incoming& in) {
                            ++executed;
                            if (in.repeated) ++again;
                            return ok("done");
                          },
                          {.name = "", .remembered = 2});
  Foreign peer(far, "once");
  std::size_t got = 0;
  const auto take = [&](std::size_t n) { return until([&] { return (got += peer.take()) >= n; }); };
  CHECK(peer.send(peer.request(1)));
  CHECK(take(1));
  auto repeat = peer.request(1);
  repeat.attempt = 2;
  for (int k = 0; k < 3; ++k) CHECK(peer.send(repeat));
  CHECK(take(4));
  CHECK(executed == 1);
  CHECK(server->counts().repeated == 3);
  CHECK(peer.send(peer.request(2)));
  CHECK(peer.send(peer.request(3)));
  CHECK(take(6));
  CHECK(peer.send(repeat));
  CHECK(take(7));
  CHECK(executed == 4);
  CHECK(again == 1);
}

TEST_CASE("request: a server that is asked for more than its queue holds says busy") {
  const auto bus = open_bus();
  Gate gate;
  auto server = server_of(bus, "busy",
                          [&](const Incoming&) {
                            gate.pass();
                            return ok("");
                          },
                          {.name = "", .queue = 2});
  auto client = client_of(bus, "busy");
  std::atomic<int> busy{0}, fine{0};
  for (int k = 0; k < 10; ++k)
    client->start({}, within(60), [&](Result<Answer> answer) {
      if (answer && answer->code == ReplyCode::busy) ++busy;
      if (answer && answer->code == ReplyCode::ok) ++fine;
    });
  CHECK(until([&] { return busy >= 7; }));
  gate.unlock();
  CHECK(until([&] { return busy + fine == 10; }));
  CHECK(fine >= 2);
  CHECK(server->counts().busy >= static_cast<std::uint64_t>(busy));  // more where one asked again before it heard
}

TEST_CASE("request: a server drops what nobody waits for any more") {
  const auto bus = open_bus();
  Gate gate;
  std::atomic<int> executed{0};
  auto server = server_of(bus, "drops", [&](const Incoming&) {
    ++executed;
    gate.pass();
    return ok("");
  });
  auto client = client_of(bus, "drops");
  client->start({}, within(60), [](Result<Answer>) {});
  CHECK(until([&] { return executed == 1; }));
  CHECK(!client->call({}, within(0.05)));
  sleep_until(now_s() + 0.1);
  gate.unlock();
  CHECK(until([&] { return server->counts().expired == 1; }));
  CHECK(executed == 1);
}

TEST_CASE("request: what waits when a server ends is answered closing") {
  const auto bus = open_bus();
  Gate gate;
  std::atomic<int> executed{0}, closing{0}, fine{0};
  auto server = server_of(bus, "closing", [&](const Incoming&) {
    ++executed;
    gate.pass();
    return ok("");
  });
  auto client = client_of(bus, "closing");
  for (int k = 0; k < 5; ++k)
    client->start({}, within(60), [&](Result<Answer> answer) {
      if (answer && answer->code == ReplyCode::closing) ++closing;
      if (answer && answer->code == ReplyCode::ok) ++fine;
    });
  const auto different = [&] {
    return server->counts().requests - server->counts().repeated;
  };  // on a busy machine some are sent twice
  CHECK(until([&] { return executed == 1 && different() == 5; }));
  std::thread ends([&] { server.reset(); });
  sleep_until(now_s() + 0.05);
  gate.unlock();
  ends.join();
  CHECK(until([&] { return closing + fine == 5; }));
  CHECK(fine == executed);
}

TEST_CASE("request: a client that goes tells those who wait; callbacks may start, not wait") {
  const auto bus = open_bus();
  auto server = server_of(bus, "goes", echo);
  auto client = client_of(bus, "silent");
  std::atomic<int> closed{0};
  for (int k = 0; k < 100; ++k)
    client->start({}, within(60), [&](Result<Answer> answer) {
      if (!answer && answer.error().code == "bus.closed") ++closed;
    });
  client.reset();
  CHECK(closed == 100);

  auto other = client_of(bus, "goes");
  std::promise<std::string> waited;
  std::promise<std::string> started;
  other->start(bytes("1"), {}, [&](Result<Answer>) {
    auto refused = other->call(bytes("2"));
    waited.set_value(refused ? "" : refused.error().code);
    other->start(bytes("3"), {},
                 [&](Result<Answer> answer) { started.set_value(answer ? text(answer->body) : answer.error().code); });
  });
  CHECK(waited.get_future().get() == "bus.would_wait");
  CHECK(started.get_future().get() == "3");
  std::promise<void> ended;
  auto* held = other.release();
  held->start({}, {}, [&, held](Result<Answer>) {
    delete held;
    ended.set_value();
  });
  ended.get_future().get();
  const auto malformed =
      client_of(bus, "goes", {structure("t::Ask", {{"n", primitive(Kind::uint32), false, {}}}), nullptr});
  std::promise<std::string> told;
  malformed->start({}, {}, [&](Result<Answer> answer) { told.set_value(answer ? "" : answer.error().code); });
  CHECK(told.get_future().get() == "bus.malformed");
}

TEST_CASE("request: thousands that are started at once are each executed once") {
  const auto bus = open_bus(), far = open_bus();
  constexpr int n = 5000;
  std::vector<std::atomic<int>> executed(n);
  auto server = server_of(bus, "many",
                          [&](const Incoming& in) {
                            std::uint32_t k = 0;
                            std::memcpy(&k, in.body.data(), sizeof k);
                            ++executed[k];
                            return ok(text(in.body));
                          },
                          {.name = "", .threads = 2});
  auto client = client_of(far, "many");
  std::atomic<int> right{0}, over{0};
  for (std::uint32_t k = 0; k < n; ++k) {
    std::vector<std::byte> body(sizeof k);
    std::memcpy(body.data(), &k, sizeof k);
    client->start(body, within(120), [&, body](Result<Answer> answer) {
      if (answer && answer->code == ReplyCode::ok && answer->body == body) ++right;
      ++over;
    });
  }
  CHECK(until([&] { return over == n; }, 120));
  CHECK(right == n);
  CHECK(std::all_of(executed.begin(), executed.end(), [](const auto& times) { return times == 1; }));
}

TEST_CASE("request: 100 clients, of one participant and of several, get their own answers") {
  constexpr int clients = 100, calls = 50;
  const auto bus = open_bus();
  std::vector<std::shared_ptr<Bus>> far;
  for (int k = 0; k < 10; ++k) far.push_back(open_bus());
  auto server = server_of(bus, "hundred", echo, {.name = "", .threads = 2});
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int c = 0; c < clients; ++c)
    threads.emplace_back([&, c] {
      auto client = Client::open(far[static_cast<std::size_t>(c % 10)], "hundred");
      for (int k = 0; client && k < calls; ++k) {
        const std::string body = std::to_string(c) + "/" + std::to_string(k);
        auto answer = (*client)->call(bytes(body), within(60));
        if (answer && answer->code == ReplyCode::ok && text(answer->body) == body) ++right;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(right == clients * calls);
  CHECK(server->counts().answered == clients * calls);
}

TEST_CASE("request: calls go through when the server ends and another begins") {
  const auto bus = open_bus(), far = open_bus();
  auto server = server_of(bus, "again", echo);
  std::atomic<bool> done{false};
  std::atomic<int> right{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int c = 0; c < 8; ++c)
    threads.emplace_back([&] {
      auto client = Client::open(far, "again");
      while (!done) {
        auto answer = (*client)->call(bytes("x"), within(60, 0.05));
        ++(answer && (answer->code == ReplyCode::ok || answer->code == ReplyCode::closing) ? right : wrong);
      }
    });
  for (int k = 0; k < 5; ++k) {
    const int before = right;
    CHECK(until([&] { return right > before + 100; }));
    server.reset();
    server = server_of(bus, "again", echo);
  }
  done = true;
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("request: a header that lies is counted and answered to nobody") {
  const auto bus = open_bus(), far = open_bus();
  std::atomic<int> executed{0};
  auto server = server_of(bus, "hostile", [&](const Incoming&) {
    ++executed;
    return ok("");
  });
  Foreign peer(far, "hostile");
  auto lie = peer.request();
  lie.client.bytes[3] ^= std::byte{1};
  lie.partition = "reply/" + lie.client.text();
  CHECK(peer.send(lie));  // in another's name
  for (const std::string& partition :
       {std::string(), std::string("*"), "reply/" + bus->guid().text(), peer.partition + "x"}) {
    lie = peer.request();
    lie.partition = partition;
    CHECK(peer.send(lie));
  }
  lie = peer.request(0);
  CHECK(peer.send(lie));
  lie = peer.request();
  lie.attempt = 0;
  CHECK(peer.send(lie));
  CHECK(until([&] { return server->counts().malformed == 7; }));
  lie = peer.request();
  lie.partition = std::string(5000, 'p');  // longer than the type allows: no implementation hands it on
  CHECK(!peer.send(lie));
  CHECK(executed == 0);
  CHECK(peer.take() == 0);
  // As many clients as it likes: each is remembered, until there are too many of them.
  for (std::uint32_t k = 1; k <= 3000; ++k) {
    auto one = peer.request(UINT64_MAX);
    one.client_number = k * 1'000'003u;
    CHECK(peer.send(one));
    if (k % 100 == 0) CHECK(until([&] { return server->counts().answered == k; }));
  }
  CHECK(server->counts().clients <= 1024);
  auto client = client_of(far, "hostile");
  CHECK(client->call({}, within(30)));
}

TEST_CASE("request: answers that nobody asked for are counted and harm no call") {
  const auto bus = open_bus(), far = open_bus();
  auto server = server_of(bus, "lies", echo);
  auto client = client_of(far, "lies");
  CHECK(client->call(bytes("1")));
  Qos qos;
  qos.partitions = {"reply/" + far->guid().text()};
  qos.durability = Durability::transient_local;
  qos.depth = 4096;
  auto liar = std::move(*bus->writer("lies_reply", reply_type(), qos));
  REQUIRE(liar->wait_matched(1, Deadline::in_s(10)));
  // It does not know the client's number: it tries them, until it has met it with a call that was never made and one
  // that was.
  std::uint32_t number = 0;
  CHECK(until([&] {
    for (int k = 0; k < 100; ++k, number = (number + 1) % 1000) {
      send_reply(*liar, far->guid(), number, 99, "lie");
      send_reply(*liar, far->guid(), number, 1, "lie");
    }
    return client->counts().unasked >= 1 && client->counts().duplicate >= 1;
  }));
  Guid other = far->guid();
  other.bytes[0] ^= std::byte{1};
  send_reply(*liar, other, 1, 1, "lie");
  auto answer = client->call(bytes("2"));
  REQUIRE(answer);
  CHECK(text(answer->body) == "2");
}

TEST_CASE(
    "request: a call to all gets the answers of more servers than one of them may have calls under way, even if all "
    "come at once") {
  constexpr std::size_t servers = 300;
  const auto bus = open_bus(), far = open_bus();
  Qos qos;
  qos.partitions = {"reply/" + far->guid().text()};
  qos.durability = Durability::transient_local;
  auto requests = std::move(*bus->reader("many", request_type()));
  std::vector<std::unique_ptr<Writer>> replies;
  for (std::size_t k = 0; k < servers; ++k) replies.push_back(std::move(*bus->writer("many_reply", reply_type(), qos)));
  auto client = client_of(far, "many");
  CHECK(client->wait_for_server(Deadline::in_s(10)));
  // The thread that takes replies stands still until all are there.
  Gate gate;
  std::atomic<bool> stands{false};
  client->start({}, within(1e-3, 0), [&](const Result<Answer>&) {
    stands = true;
    gate.pass();
  });
  CHECK(until([&] { return stands.load(); }));
  auto answers = std::async(std::launch::async, [&] { return client->call_all(bytes("all"), within(30, 0), servers); });
  std::uint32_t client_number = 0;
  std::uint64_t number = 0;
  CHECK(until([&] {
    requests->take([&](const SampleInfo&, Bytes payload) {
      CdrReader in(payload);
      in.get_bytes(16);
      number = in.get<std::uint64_t>();
      client_number = in.get<std::uint32_t>();
    });
    return number == 2;
  }));
  for (const auto& writer : replies) send_reply(*writer, far->guid(), client_number, number, "here");
  gate.unlock();
  auto came = answers.get();
  REQUIRE(came);
  CHECK(came->size() == servers);
}

TEST_CASE("request: names of codes and services") {
  CHECK(name_of(ReplyCode::closing) == "closing");
  CHECK(name_of(static_cast<ReplyCode>(77)) == "unknown");
  CHECK(name_of(static_cast<ReplyCode>(1000)) == "user");
  CHECK(check(*request_type()));
  CHECK(check(*reply_type()));
  const auto bus = open_bus();
  CHECK(!Client::open(bus, "no spaces"));
  CHECK(!Server::open(bus, "no spaces", {}, echo));
  ServerOptions options;
  options.name = std::string(256, 'x');
  auto refused = Server::open(bus, "long", {}, echo, options);
  REQUIRE(!refused);
  CHECK(refused.error().code == "bus.bad_name");
}
