// One client at work must not hold up the others: how much is done for a connection at a turn, and what a batch of keys
// keeps out.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "service.hpp"
#include "store/transport/tcp.hpp"

using namespace sonde;
using namespace sonde::store;
using namespace sonde::store::test;

namespace {

/// Takes its time with each frame.
class Slow final : public Sink {
 public:
  void frame(Link&, const wire::Header& h, Bytes, Bytes, bool) override {
    ids.push_back(h.id);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void closed(Link&, const Error* error) override {
    ended = true;
    why = error ? error->what : "";
  }
  std::vector<std::uint64_t> ids;
  bool ended = false;
  std::string why;
};

}  // namespace

TEST_CASE("a link whose frames take long comes back between them, and loses none of those that came before the end") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  Slow sink;
  TcpLink link(ends[0], {}, sink);
  std::vector<std::byte> all;
  constexpr std::uint64_t frames = 20;
  for (std::uint64_t id = 0; id < frames; ++id) {
    const auto one = plain_frame(wire::Kind::ping, {}, id);
    all.insert(all.end(), one.head.begin(), one.head.end());
  }
  REQUIRE(::send(ends[1], all.data(), all.size(), 0) == static_cast<ssize_t>(all.size()));
  ::close(ends[1]);
  int most = 0, turns = 0;
  bool said = true;
  while (!sink.ended && ++turns < 1000) {
    most = std::max(most, link.progress());
    if (sink.ids.size() < frames) said &= link.undelivered();
  }
  CHECK(most < 3);
  CHECK(said);
  CHECK(sink.ended);
  CHECK(sink.why == "");
  REQUIRE(sink.ids.size() == frames);
  CHECK(std::is_sorted(sink.ids.begin(), sink.ids.end()));
}

TEST_CASE("bells for a peer that reads nothing do not pile up, and wake it when it looks") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  Slow sink;
  TcpLink link(ends[0], {}, sink);
  TcpControl control(link);
  for (int k = 0; k < 100'000; ++k) control.ring();
  CHECK(link.open());
  CHECK(link.backlog() < 1000);
  std::vector<std::byte> all;
  std::byte text[65536];
  for (ssize_t n; (n = ::recv(ends[1], text, sizeof text, MSG_DONTWAIT)) > 0;) all.insert(all.end(), text, text + n);
  REQUIRE(all.size() >= wire::header_bytes);
  const auto header = wire::decode(all.data());
  REQUIRE(header);
  CHECK((*header).kind == wire::Kind::ping);
  CHECK(control.heard());  // which lets go of what was held back
  CHECK(link.backlog() == 0);
  ::close(ends[1]);
}

TEST_CASE("a client whose requests are many at once has all of them answered, a turn after the other") {
  Service service;
  auto client = service.client();
  std::vector<Batch> batches;
  // More than a turn's bytes in many small frames, and in a few large ones.
  const std::string small(2000, 's'), large(3 << 20, 'l');
  for (int k = 0; k < 1500; ++k) {
    batches.push_back(client.batch());
    batches.back().write("turns", "o" + std::to_string(k % 10), 0, bytes_of(k % 500 == 0 ? large : small));
    REQUIRE(batches.back().start());
  }
  std::size_t failed = 0;
  for (Batch& batch : batches) failed += !batch.wait() || batch.failed();
  CHECK(failed == 0);
}

TEST_CASE("batches of keys over several spaces are all or nothing to those who read them, whatever their order") {
  Service service;
  constexpr int spaces = 40;  // some of which share a lock
  const auto name = [](int k) { return "space" + std::to_string(k % spaces); };
  std::atomic<bool> stop = false;
  std::atomic<std::size_t> wrong = 0, reads = 0;
  {
    auto first = service.client();
    auto batch = first.batch();
    for (int k = 0; k < spaces; ++k) batch.put(name(k), "k", bytes_of("0"));
    REQUIRE(batch.run());
  }
  std::vector<std::thread> threads;
  for (int writer = 0; writer < 2; ++writer)
    threads.emplace_back([&, writer] {
      auto client = service.client();
      for (int round = 0; round < 200; ++round) {
        const std::string value = std::to_string(writer) + "." + std::to_string(round);
        auto batch = client.batch();
        for (int k = 0; k < spaces; ++k) batch.put(name(writer ? k : spaces - k), "k", bytes_of(value));
        const bool spoilt = round % 4 == 3;  // its last operation fails: nothing of it stays
        if (spoilt) batch.put(name(round), "k", bytes_of("never"), flag::exclusive);
        wrong += !batch.run() || (batch.failed() != 0) != spoilt;
      }
    });
  threads.emplace_back([&] {
    auto client = service.client();
    while (!stop) {
      auto batch = client.batch();
      for (int k = 0; k < spaces; ++k) batch.get(name(k), "k");
      if (!batch.run() || batch.failed()) {
        ++wrong;
        continue;
      }
      const std::string one(text_of(batch[0].data));
      for (std::size_t k = 1; k < batch.size(); ++k) wrong += text_of(batch[k].data) != one;
      ++reads;
    }
  });
  threads[0].join();
  threads[1].join();
  stop = true;
  threads[2].join();
  CHECK(wrong == 0);
  CHECK(reads > 0);
}

TEST_CASE("a batch of more keys than a turn allows is carried out whole") {
  Service service;
  auto client = service.client();
  for (const int keys : {1024, 1025, 20'000}) {
    CAPTURE(keys);
    const std::string value = std::to_string(keys);
    auto batch = client.batch();
    for (int k = 0; k < keys; ++k) batch.put("many", "k" + std::to_string(k), bytes_of(value));
    REQUIRE(batch.run());
    CHECK(batch.failed() == 0);
    auto back = client.batch();
    back.get("many", "k" + std::to_string(keys - 1));
    REQUIRE(back.run());
    CHECK(text_of(back[0].data) == value);
  }
}
