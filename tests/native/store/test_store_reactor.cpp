// A server's reactors, lanes and links under clients of every transport at once: what sanitizers should see at work
// together.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "providers.hpp"
#include "service.hpp"
#include "store_faults.hpp"

using namespace sonde;
using namespace sonde::store;
using namespace sonde::store::test;

namespace {

struct Way {
  const char* transport;
  const char* provider;
};

std::vector<Way> ways() {
  const auto names = transport_names();
  if (std::find(names.begin(), names.end(), "ofi-msg") == names.end()) {
    MESSAGE("this build has no libfabric");
    return {{"tcp", ""}};
  }
  std::vector<Way> all{{"tcp", ""}, {"ofi-msg", "tcp"}, {"ofi-rdm", "shm"}, {"ofi-rma", "shm"}};
  if (std::string_view(net_or_tcp()) == "net") all.push_back({"ofi-msg", "net"});
  return all;
}

Config config_for(const Service& service, const Way& way) {
  Config config = service.config;
  config.transport = way.transport;
  config.link.provider = way.provider;
  config.connections = 2;
  config.timeout_s = 120;
  config.connect_timeout_s = 60;
  return config;
}

/// Puts, gets, writes and reads of all sizes under every level, several batches under way. How many went wrong.
int use(Client& client, const std::string& name, Bytes data) {
  int wrong = 0;
  std::vector<Batch> batches;
  for (const Safety safety : {Safety::network, Safety::storage, Safety::none})
    for (int k = 0; k < 6; ++k) {
      batches.push_back(client.batch(safety));
      Batch& b = batches.back();
      const std::size_t bytes = k % 2 ? 100 : 150'000;
      for (int n = 0; n < 4; ++n)
        b.write(name, "o" + std::to_string(k), static_cast<std::uint64_t>(n) * bytes,
                data.subspan(static_cast<std::size_t>(n) * bytes, bytes));
      if (safety != Safety::storage) b.put(name, "k" + std::to_string(k), data.first(50));
      wrong += !b.start();
    }
  for (Batch& b : batches) wrong += !b.wait() || b.failed();
  wrong += !client.flush();
  batches.clear();
  for (int k = 0; k < 6; ++k) {
    batches.push_back(client.batch());
    batches.back().read(name, "o" + std::to_string(k), 0, std::uint64_t{1} << 30);
    batches.back().get(name, "k" + std::to_string(k));
    wrong += !batches.back().start();
  }
  for (int k = 0; k < 6; ++k) {
    Batch& b = batches[static_cast<std::size_t>(k)];
    if (!b.wait() || b.failed()) {
      ++wrong;
      continue;
    }
    const Bytes all = data.first(k % 2 ? 400 : 600'000);
    wrong += !std::ranges::equal(b[0].data, all) || !std::ranges::equal(b[1].data, data.first(50));
  }
  return wrong;
}

/// A server on a disk whose syncs are held, and a batch under Safety::storage in one of them: its lane is at work.
struct HeldLane {
  const Role role;
  const faults::Scratch scratch;
  Service service{1, {{role, role == Role::kv ? "lmdb" : "posix", {{"path", scratch / "kept"}}}}};
  Client client = service.client();
  Batch first = client.batch(Safety::storage);
  const faults::Syncs syncs;

  explicit HeldLane(Role role_) : role(role_) {
    faults::Syncs::hold();
    if (role == Role::kv) first.put("s", "first", bytes_of("1"));
    else first.write("s", "first", 0, bytes_of("1"));
    REQUIRE(first.start());
    REQUIRE(soon([] { return faults::Syncs::count() > 0; }));
  }
  Server& server() { return *service.servers[0]; }
  bool waits(std::size_t tasks) {
    return soon([&] { return server().lane(role)->waiting() >= tasks; });
  }
  template <typename Condition> static bool soon(Condition condition) {
    for (const double until = now_s() + 60; now_s() < until; std::this_thread::yield())
      if (condition()) return true;
    return false;
  }
};

}  // namespace

TEST_CASE("clients over every transport come, work and go at once, on two reactors") {
  const faults::Scratch scratch;
  ServerConfig base;
  base.threads = 2;
  Service service(1, {{Role::data, "posix", {{"path", scratch / "data"}}}, {Role::kv, "memory", {}}}, base);
  const auto data = noise(600'000, 31);
  std::atomic<int> wrong = 0, not_there = 0;
  std::vector<std::thread> threads;
  const auto all = ways();
  for (std::size_t w = 0; w < all.size(); ++w)
    threads.emplace_back([&, w] {
      for (int round = 0; round < 3; ++round) {
        auto client = Client::open(config_for(service, all[w]));
        if (!client) {
          ++not_there;
          continue;
        }
        // Two threads of one client, each with names of its own.
        const std::string name = "w" + std::to_string(w);
        std::thread other([&] { wrong += use(*client, name + "b", data); });
        wrong += use(*client, name + "a", data);
        other.join();
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(not_there == 0);
  CHECK(wrong == 0);
  CHECK(service.servers[0]->metrics().bad_frames == 0);
}

TEST_CASE("a server that stops lets clients of every transport go, in the middle of what they do") {
  ServerConfig base;
  base.threads = 2;
  Service service(1, memory_backends(), base);
  std::atomic<int> at_work = 0, ended = 0;
  std::vector<std::thread> threads;
  const auto data = noise(300'000, 33);
  for (const Way& way : ways())
    threads.emplace_back([&, way] {
      auto client = Client::open(config_for(service, way));
      bool first = true;
      for (const double until = now_s() + 60; client && now_s() < until;) {
        auto b = (*client).batch();
        b.write("s", way.transport, 0, data);
        b.put("s", way.transport, bytes_of("v"));
        b.read("s", way.transport, 0, std::uint64_t{1} << 30);
        const bool ran = bool(b.run());
        if (std::exchange(first, false)) ++at_work;
        if (ran && b.failed() == 0) continue;
        // Refused, or without a connection: nothing else.
        bool orderly = true;
        for (std::size_t k = 0; k < b.size(); ++k)
          orderly &= b[k].status == Status::ok || b[k].status == Status::unavailable ||
                     b[k].status == Status::disconnected || b[k].status == Status::pending ||
                     b[k].status == Status::aborted;
        ended += orderly;
        return;
      }
      if (first) ++at_work;
    });
  const double until = now_s() + 60;
  while (at_work < static_cast<int>(threads.size()) && now_s() < until) std::this_thread::yield();
  service.servers[0]->stop();
  for (auto& thread : threads) thread.join();
  CHECK(ended == static_cast<int>(threads.size()));
}

TEST_CASE("a server that stops before its grace is long enough still does what waits in its lanes") {
  HeldLane held(Role::data);
  auto other = held.service.client();
  auto second = other.batch(Safety::storage);
  second.write("s", "second", 0, bytes_of("2"));
  REQUIRE(second.start());
  REQUIRE(held.waits(1));
  std::thread stopping([&] { held.server().stop(0); });
  CHECK(held.soon([&] { return held.server().stopping(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it now waits for its lane alone
  faults::Syncs::release();
  stopping.join();
  auto left = faults::open(Role::data, "posix", {{"path", held.scratch / "kept"}});
  CHECK(faults::text(*left, faults::read("first")) == "1");
  CHECK(faults::text(*left, faults::read("second")) == "2");
}

TEST_CASE(
    "what fails without acknowledgement is counted once, in however many frames it came and whoever counts meanwhile") {
  constexpr std::size_t operations = 4 * wire::frame_ops_max;
  HeldLane held(Role::data);
  auto other = held.client.batch(Safety::none);
  for (std::size_t k = 0; k < operations; ++k) other.create("s", "first", flag::exclusive);
  REQUIRE(other.start());
  CHECK(held.waits(3));  // behind the batch that waits for its sync; the last frame may be held back
  faults::Syncs::release();
  const auto flushed = held.client.flush();
  REQUIRE_FALSE(flushed);
  CHECK(flushed.error().code == "store.lost");
  CHECK(flushed.error().what.starts_with(std::to_string(operations) + ' '));
}

TEST_CASE("a batch without acknowledgement that only waits for its turn is counted once when it fails") {
  HeldLane held(Role::kv);
  auto other = held.client.batch(Safety::none);
  other.put("s", "first", bytes_of("2"), flag::exclusive);
  other.put("s", "second", bytes_of("2"));
  REQUIRE(other.start());
  auto asking = held.client.batch();
  asking.get("s", "second");
  REQUIRE(asking.start());
  std::thread flushing([&] { (void)asking.wait(); });  // sends both
  CHECK(held.waits(2));
  faults::Syncs::release();
  flushing.join();
  CHECK(asking[0].status == Status::not_found);
  const auto flushed = held.client.flush();
  REQUIRE_FALSE(flushed);
  CHECK(flushed.error().what.starts_with("2 operations "));
}
