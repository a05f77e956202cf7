#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bus/null.hpp"
#include "core/clock.hpp"

using namespace sonde;
using namespace sonde::bus;

namespace {

TypePtr type_named(const std::string& name, bool keyed = false) {
  auto number = std::make_shared<Type>();
  number->kind = Kind::uint32;
  auto type = std::make_shared<Type>();
  type->kind = Kind::structure;
  type->name = name;
  type->fields = {{"number", number, keyed, {}}, {"value", number, false, {}}};
  return type;
}
const TypePtr plain = type_named("t::Plain"), keyed = type_named("t::Keyed", true);

struct Here {
  std::unique_ptr<ParticipantPort> port;
  explicit Here(std::uint32_t domain = 77, const std::string& name = "") {
    Profile profile;
    profile.domain = domain;
    profile.participant = name;
    auto opened = null_implementation().open(profile);
    REQUIRE(opened);
    port = std::move(*opened);
  }
  std::unique_ptr<WriterPort> writer(const Qos& qos = {}, const TypePtr& type = plain,
                                     const std::string& topic = "topic") {
    return std::move(*port->writer(topic, type, qos));
  }
  std::unique_ptr<ReaderPort> reader(const Qos& qos = {}, const TypePtr& type = plain,
                                     const std::string& topic = "topic") {
    return std::move(*port->reader(topic, type, qos));
  }
};

struct Payload {
  std::array<std::byte, 12> bytes{std::byte{0}, std::byte{1}};
  std::array<std::byte, 4> key{};
  explicit Payload(std::uint32_t number, std::uint32_t value = 0) {
    std::memcpy(bytes.data() + 4, &number, 4);
    std::memcpy(bytes.data() + 8, &value, 4);
    for (std::size_t k = 0; k < 4; ++k) key[k] = std::byte(number >> (24 - 8 * k));
  }
};
Result<void> write(WriterPort& writer, std::uint32_t number) { return writer.write(Payload(number).bytes, {}); }
Result<void> write_keyed(WriterPort& writer, std::uint32_t key, std::uint32_t value) {
  const Payload payload(key, value);
  return writer.write(payload.bytes, payload.key);
}

struct Seen {
  std::uint32_t number = 0, value = 0;
  SampleInfo info;
};
std::vector<Seen> take(ReaderPort& reader, std::size_t most = SIZE_MAX) {
  std::vector<Seen> all;
  reader.take(most, [&](const SampleInfo& info, Bytes payload) {
    Seen seen;
    seen.info = info;
    REQUIRE(payload.size() == 12);
    std::memcpy(&seen.number, payload.data() + 4, 4);
    std::memcpy(&seen.value, payload.data() + 8, 4);
    all.push_back(seen);
  });
  return all;
}
std::vector<std::uint32_t> numbers(ReaderPort& reader, std::size_t most = SIZE_MAX) {
  std::vector<std::uint32_t> all;
  for (const Seen& seen : take(reader, most)) all.push_back(seen.number);
  return all;
}
using Numbers = std::vector<std::uint32_t>;

void wait_s(double s) { sleep_until(now_s() + s); }

}  // namespace

TEST_CASE("null: what is written is taken, in order, by every reader of the topic and nobody else") {
  Here a, b, elsewhere(78);
  auto writer = a.writer();
  auto mine = a.reader(), theirs = b.reader(), other_topic = b.reader({}, plain, "other"),
       other_domain = elsewhere.reader(), other_type = b.reader({}, keyed);
  CHECK(writer->status().matched == 2);
  CHECK(writer->matched().size() == 2);
  for (std::uint32_t k = 0; k < 5; ++k) CHECK(write(*writer, k));
  CHECK(numbers(*mine) == Numbers{0, 1, 2, 3, 4});
  CHECK(numbers(*theirs, 2) == Numbers{0, 1});
  CHECK(numbers(*theirs) == Numbers{2, 3, 4});
  for (auto* none : {other_topic.get(), other_domain.get(), other_type.get()}) {
    CHECK(numbers(*none).empty());
    CHECK(none->status().matched == 0);
  }
  theirs.reset();
  CHECK(writer->status().matched == 1);
  CHECK(writer->status().matched_ever == 2);
  writer.reset();
  CHECK(mine->status().matched == 0);
  CHECK(mine->status().matched_ever == 1);
}

TEST_CASE("null: keep_last holds the last of each instance") {
  Here here;
  Qos qos;
  qos.depth = 2;
  auto writer = here.writer(qos);
  auto reader = here.reader(qos);
  for (std::uint32_t k = 0; k < 5; ++k) CHECK(write(*writer, k));
  CHECK(numbers(*reader) == Numbers{3, 4});
  auto keyed_writer = here.writer(qos, keyed);
  auto keyed_reader = here.reader(qos, keyed);
  for (std::uint32_t k = 0; k < 4; ++k)
    for (std::uint32_t key = 0; key < 2; ++key) CHECK(write_keyed(*keyed_writer, key, k));
  std::vector<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (const Seen& s : take(*keyed_reader)) seen.emplace_back(s.number, s.value);
  CHECK(seen == std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 2}, {1, 2}, {0, 3}, {1, 3}});
}

TEST_CASE("null: a reliable writer waits for a full keep_all reader, at most max_blocking") {
  Here here;
  Qos qos;
  qos.history = History::keep_all;
  qos.max_samples = 3;
  qos.max_blocking_s = 0.05;
  auto writer = here.writer(qos);
  auto reader = here.reader(qos), quick = here.reader(qos);
  for (std::uint32_t k = 0; k < 3; ++k) CHECK(write(*writer, k));
  CHECK(numbers(*quick).size() == 3);
  const auto refused = write(*writer, 3);
  REQUIRE(!refused);
  CHECK(refused.error().code == "bus.timed_out");
  CHECK(numbers(*quick).empty());  // what was refused reached nobody
  qos.max_blocking_s = 30;
  auto patient = here.writer(qos);
  std::thread later([&] {
    wait_s(0.05);
    CHECK(numbers(*reader) == Numbers{0, 1, 2});
  });
  CHECK(write(*patient, 4));
  later.join();
  CHECK(numbers(*reader) == Numbers{4});
  CHECK(numbers(*quick) == Numbers{4});
  for (std::uint32_t k = 0; k < 3; ++k) CHECK(write(*patient, k));
  std::thread closes([&] {
    wait_s(0.05);
    reader.reset();
    CHECK(numbers(*quick).size() == 3);
  });
  CHECK(write(*patient, 9));  // a reader that goes is waited for no longer
  closes.join();
  Qos best_effort = qos;
  best_effort.reliability = Reliability::best_effort;
  auto lossy = here.reader(best_effort);
  for (std::uint32_t k = 0; k < 5; ++k) {
    CHECK(write(*patient, k));
    take(*quick);
  }
  CHECK(numbers(*lossy) == Numbers{0, 1, 2});
  CHECK(lossy->status().rejected == 2);
  CHECK(lossy->status().lost == 2);
}

TEST_CASE("null: transient_local gives a late reader the past, once") {
  Here here;
  Qos qos;
  qos.durability = Durability::transient_local;
  qos.depth = 2;
  auto writer = here.writer(qos);
  for (std::uint32_t k = 0; k < 4; ++k) CHECK(write(*writer, k));
  Qos now_on = qos;
  now_on.durability = Durability::volatile_;
  auto reader = here.reader(qos), fresh = here.reader(now_on);
  CHECK(write(*writer, 4));
  CHECK(numbers(*reader) == Numbers{3, 4});
  CHECK(numbers(*fresh) == Numbers{4});
  auto other = here.writer(now_on);
  CHECK(other->status().incompatible == 1);
  CHECK(other->status().incompatible_policy == "durability");
  CHECK(reader->status().incompatible == 1);
}

TEST_CASE("null: partitions, with wildcards on one side") {
  struct Case {
    std::vector<std::string> written, read;
    bool match;
  };
  const std::vector<Case> cases = {
      {{}, {}, true},
      {{"a"}, {}, false},
      {{}, {"a"}, false},
      {{"a"}, {"a"}, true},
      {{"a", "b"}, {"b", "c"}, true},
      {{"Node1"}, {"Node*"}, true},
      {{"Node*"}, {"Node12"}, true},
      {{"Node1"}, {"Node?"}, true},
      {{"Node12"}, {"Node?"}, false},
      {{"Node*"}, {"Node*"}, false},
      {{"a/b/c"}, {"a*c"}, true},
      {{"a/b/c"}, {"*b?c"}, true},
      {{"abab"}, {"*ab"}, true},
      {{"aba"}, {"*ab"}, false},
      {{""}, {}, true},
      {{}, {"*"}, true},
  };
  Here here;
  for (const Case& c : cases) {
    CAPTURE(c.written.empty() ? "-" : c.written[0]);
    CAPTURE(c.read.empty() ? "-" : c.read[0]);
    Qos w, r;
    w.partitions = c.written;
    r.partitions = c.read;
    auto writer = here.writer(w);
    auto reader = here.reader(r);
    CHECK(writer->status().matched == (c.match ? 1 : 0));
    CHECK(write(*writer, 1));
    CHECK(numbers(*reader).size() == (c.match ? 1 : 0));
  }
}

TEST_CASE("null: an instance that is disposed, or that nobody writes any more, is told") {
  Here here;
  auto writer = here.writer({}, keyed), second = here.writer({}, keyed);
  auto reader = here.reader({}, keyed);
  CHECK(write_keyed(*writer, 1, 10));
  CHECK(write_keyed(*writer, 2, 20));
  CHECK(write_keyed(*second, 2, 21));
  const Payload gone(1);
  CHECK(writer->dispose(gone.bytes, gone.key));
  auto seen = take(*reader);
  REQUIRE(seen.size() == 4);
  CHECK(seen[3].info.state == InstanceState::disposed);
  CHECK(!seen[3].info.has_data);
  CHECK(seen[3].number == 1);
  CHECK(seen[0].info.writer == writer->guid());
  writer.reset();
  CHECK(take(*reader).empty());  // 2 has a writer still
  second.reset();
  seen = take(*reader);
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].info.state == InstanceState::no_writers);
  CHECK(seen[0].number == 2);
}

TEST_CASE("null: lifespan, deadline and liveliness are kept when somebody looks") {
  Here here;
  Qos qos;
  qos.lifespan_s = 0.02;
  auto writer = here.writer(qos);
  auto reader = here.reader();
  CHECK(write(*writer, 1));
  wait_s(0.05);
  CHECK(numbers(*reader).empty());
  qos.lifespan_s = 60;
  auto lasting = here.writer(qos);
  CHECK(write(*lasting, 2));
  CHECK(numbers(*reader).size() == 1);

  Qos often;
  often.deadline_s = 0.02;
  auto late = here.writer(often, plain, "late");
  auto waits = here.reader(often, plain, "late");
  CHECK(waits->status().deadline_missed == 0);
  CHECK(write(*late, 1));
  wait_s(0.07);
  CHECK(waits->status().deadline_missed >= 3);
  CHECK(late->status().deadline_missed >= 3);

  Qos alive;
  alive.liveliness = Liveliness::manual_by_topic;
  alive.lease_s = 0.02;
  auto asserts = here.writer(alive, plain, "alive");
  auto watches = here.reader(alive, plain, "alive");
  wait_s(0.05);
  CHECK(watches->status().alive == 0);
  CHECK(watches->status().liveliness_lost == 1);
  CHECK(asserts->status().liveliness_lost == 1);
  asserts->assert_liveliness();
  wait_s(0.05);
  CHECK(watches->status().liveliness_lost == 2);
  asserts.reset();
  CHECK(watches->status().matched == 0);
  CHECK(watches->status().liveliness_lost == 2);
}

TEST_CASE("null: of several owners the strongest that is there is heard") {
  Here here;
  Qos weak, strong;
  weak.ownership = strong.ownership = Ownership::exclusive;
  strong.strength = 5;
  auto one = here.writer(weak), two = here.writer(strong);
  auto reader = here.reader(weak);
  CHECK(write(*one, 1));
  CHECK(write(*two, 2));
  CHECK(write(*one, 3));
  CHECK(numbers(*reader) == Numbers{1, 2});
  two.reset();
  CHECK(write(*one, 4));
  CHECK(numbers(*reader) == Numbers{4});
}

TEST_CASE("null: a waiter loses no sample and no wake") {
  Here here;
  auto writer = here.writer();
  auto reader = here.reader();
  auto waiter = std::move(*here.port->waiter());
  REQUIRE(waiter->attach(*reader, 7));
  CHECK(waiter->wait(Deadline::in_s(0.01)).empty());
  waiter->wake();
  CHECK(waiter->wait(Deadline{}).empty());  // a wake before the wait counts
  Here other;
  auto stranger = other.reader();
  CHECK(!waiter->attach(*stranger, 8));
  constexpr std::uint32_t n = 20000;
  std::thread writes([&] {
    for (std::uint32_t k = 0; k < n; ++k) {
      CHECK(write(*writer, k));
      if (k % 16 == 0) std::this_thread::yield();
    }
  });
  std::uint32_t last = 0;
  while (last + 1 < n) {
    const auto tags = waiter->wait(Deadline::in_s(30));
    REQUIRE(tags == std::vector<std::uint64_t>{7});
    for (const auto number : numbers(*reader)) last = number;
  }
  writes.join();
  waiter->detach(*reader);
  CHECK(write(*writer, 1));
  CHECK(waiter->wait(Deadline::in_s(0.01)).empty());
}

TEST_CASE("null: others and their endpoints are told as they announce themselves") {
  Here a(79, "first"), b(79, "second");
  Qos qos;
  qos.user_data = std::string("x\0y", 3);
  qos.partitions = {"p"};
  auto writer = a.writer(qos);
  auto mine = b.reader();
  const auto peers = b.port->peers();
  REQUIRE(peers.size() == 1);
  CHECK(peers[0].name == "first");
  CHECK(peers[0].pid > 0);
  CHECK(peers[0].guid == a.port->guid());
  const auto endpoints = b.port->endpoints();
  REQUIRE(endpoints.size() == 1);
  CHECK(endpoints[0].guid == writer->guid());
  CHECK(endpoints[0].participant == a.port->guid());
  CHECK(endpoints[0].writes);
  CHECK(endpoints[0].type == "t::Plain");
  CHECK(endpoints[0].partitions == std::vector<std::string>{"p"});
  CHECK(endpoints[0].user_data == qos.user_data);
}

TEST_CASE("null: several threads write, read, come and go") {
  constexpr std::uint32_t writers = 4, each = 5000;
  Here here;
  Qos qos;
  qos.history = History::keep_all;
  qos.max_samples = 100;
  qos.max_blocking_s = 60;
  auto reader = here.reader(qos);
  std::atomic<bool> done{false};
  std::thread comes_and_goes([&] {
    Here other;
    while (!done) {
      auto passing = other.reader();
      auto passing_writer = other.writer({}, plain, "elsewhere");
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> threads;
  for (std::uint32_t w = 0; w < writers; ++w)
    threads.emplace_back([&qos, w] {
      Here mine;
      auto writer = mine.writer(qos);
      for (std::uint32_t k = 0; k < each; ++k) CHECK(write(*writer, w * each + k));
    });
  std::vector<std::uint32_t> next(writers);
  std::uint32_t got = 0;
  const Deadline deadline = Deadline::in_s(60);
  while (got < writers * each && !deadline.passed())
    for (const auto number : numbers(*reader)) {
      ++got;
      CHECK(number % each == next[number / each]++);
    }
  CHECK(got == writers * each);
  for (auto& thread : threads) thread.join();
  done = true;
  comes_and_goes.join();
}
