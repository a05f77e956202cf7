#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "bus/probe/board.hpp"
#include "bus/probe/way.hpp"

using namespace sonde;
using namespace sonde::bus;
using namespace sonde::bus::probe;

namespace {

struct Ends {
  std::unique_ptr<Place> place;
  std::unique_ptr<Sender> sender;
  std::unique_ptr<Receiver> receiver;
};

Ends ends(const std::string& implementation) {
  auto variant = Variant::parse(implementation + "=" + implementation);
  REQUIRE(variant);
  auto place = open_place(*variant, {});
  REQUIRE_MESSAGE(place, (place ? "" : place.error().what));
  Ends e{std::move(*place), {}, {}};
  auto receiver = e.place->receiver({.topic = "t", .partitions = {}});
  auto sender = e.place->sender({.topic = "t", .partitions = {}});
  REQUIRE(receiver);
  REQUIRE(sender);
  e.receiver = std::move(*receiver);
  e.sender = std::move(*sender);
  if (!e.receiver->address().empty()) REQUIRE(e.sender->connect({e.receiver->address()}));
  REQUIRE(e.sender->wait_matched(1, Deadline::in_s(20)));
  return e;
}

}  // namespace

TEST_CASE(
    "bus probe ways: what is written arrives whole and in order by the bus and by each of the machine's own ways") {
  for (const char* implementation : {"raw-udp", "raw-tcp", "raw-shm", "null"}) {
    CAPTURE(implementation);
    auto e = ends(implementation);
    for (const std::size_t size :
         {std::size_t{32}, std::size_t{33}, std::size_t{4096}, std::size_t{60000}, std::size_t{3} << 20}) {
      if (size > 65507 && std::string_view(implementation) == "raw-udp") continue;
      CAPTURE(size);
      // Sums to more than the ring holds, one under way at a time: what a receiver has not taken yet must not matter
      // here.
      const std::uint64_t many = size > 65507 ? 9 : 300;
      Message message(size);
      std::uint64_t next = 0, wrong = 0;
      const Receiver::Taker taker = [&](Bytes body) {
        MessageHead head{};
        wrong += !Message::read(body, head) || head.index != next || body.size() != size || head.length != size - 32 ||
                 (size > 40 && body[size - 1] == std::byte{} && body[size - 2] == std::byte{});
        std::atomic_ref(next).fetch_add(1);
      };
      std::thread writer([&] {
        for (std::uint64_t k = 0; k < many; ++k) {
          message.head().index = k;
          if (!e.sender->write(message)) break;
          if (std::string_view(implementation) == "raw-udp" || std::string_view(implementation) == "null")
            while (std::atomic_ref(next).load() <= k && (k % 8 == 7 || size > 20000)) std::this_thread::yield();
        }
      });
      const Deadline deadline = Deadline::in_s(60);
      while (next < many && !deadline.passed()) e.receiver->receive(taker, deadline);
      writer.join();
      CHECK(next == many);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("bus probe ways: a wait ends at its deadline and when it is woken") {
  for (const char* implementation : {"raw-udp", "raw-tcp", "raw-shm", "null"}) {
    CAPTURE(implementation);
    auto e = ends(implementation);
    const auto nothing = [](Bytes) {};
    CHECK(e.receiver->look(nothing) == 0);
    const std::int64_t began = now_ns();
    CHECK(e.receiver->receive(nothing, Deadline::in_s(0.15)) == 0);
    CHECK(now_ns() - began >= 140'000'000);
    std::atomic<bool> over{false};
    std::thread waits([&] {
      e.receiver->receive(nothing, {});
      over = true;
    });
    const Deadline deadline = Deadline::in_s(30);
    while (!over && !deadline.passed()) {
      e.receiver->wake();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    CHECK(over);
    if (!over) std::_Exit(1);  // the thread would wait for ever
    waits.join();
  }
}

TEST_CASE("bus probe ways: a board knows who has a message and takes no other for it") {
  auto made = SharedBoard::make();
  REQUIRE(made);
  auto opened = SharedBoard::open((*made)->path());
  REQUIRE(opened);
  SharedBoard &writer = **made, &reader = **opened;
  writer.begin(1, 5, 2);
  reader.tell(0, 1, 4, 100);  // an old one
  reader.tell(0, 2, 5, 100);  // of another burst
  CHECK_FALSE(writer.wait(Deadline::in_s(0.01)));
  CHECK(writer.arrived_ns(0) == 0);
  reader.tell(0, 1, 5, 101);
  reader.tell(0, 1, 5, 102);  // twice
  CHECK_FALSE(writer.wait(Deadline::in_s(0.01)));
  std::thread last([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    reader.tell(1, 1, 5, 103);
  });
  CHECK(writer.wait(Deadline::in_s(60)));
  last.join();
  CHECK(writer.arrived_ns(0) == 101);
  CHECK(writer.arrived_ns(1) == 103);
  writer.begin(1, 6, 2);
  CHECK(writer.arrived_ns(0) == 0);
  CHECK_FALSE(SharedBoard::open("/proc/self/fd/none"));
}
