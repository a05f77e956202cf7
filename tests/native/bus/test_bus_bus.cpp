#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bus/bus.hpp"
#include "bus/cdr.hpp"
#include "bus/null.hpp"

using namespace sonde;
using namespace sonde::bus;

namespace {

const TypePtr power = structure("t::Power", {{"number", primitive(Kind::uint32), true, ""},
                                             {"node", string_type(8), false, ""},
                                             {"on", primitive(Kind::boolean), false, ""}});
/// Another structure by the same name.
const TypePtr other_power = structure("t::Power", {{"number", primitive(Kind::uint32), true, ""},
                                                   {"node", string_type(8), false, ""},
                                                   {"on", primitive(Kind::octet), false, ""}});

std::vector<std::byte> sample(std::uint32_t number, std::string_view node = "n1") {
  std::vector<std::byte> payload;
  CdrWriter out(payload);
  out.put(number);
  out.put(node);
  out.put(true);
  return payload;
}

std::uint32_t number_of(Bytes payload) { return CdrReader(payload).get<std::uint32_t>(); }

/// A domain of its own for each case: null's participants see each other in all of the process.
std::uint32_t fresh_domain() {
  static std::uint32_t next = 100;
  return ++next;
}

std::shared_ptr<Bus> open_null(std::uint32_t domain, const std::function<void(Profile&)>& change = {}) {
  Profile profile;
  profile.domain = domain;
  profile.types["t::Power"] = power;
  profile.topics["power"] = {"power", "t::Power", {}, {}};
  if (change) change(profile);
  auto bus = Bus::open(profile, "null");
  REQUIRE_MESSAGE(bus, bus.error().what);
  return *bus;
}

/// A participant of the same implementation below the bus: what a foreign program writes.
struct Foreign {
  std::unique_ptr<ParticipantPort> port;
  std::unique_ptr<WriterPort> writer;
  Foreign(std::uint32_t domain, const std::string& user_data, const TypePtr& type = power) {
    Profile profile;
    profile.domain = domain;
    profile.participant = "foreign";
    auto opened = null_implementation().open(profile);
    port = std::move(*opened);
    Qos qos;
    qos.user_data = user_data;
    auto made_writer = port->writer("power", type, qos);
    writer = std::move(*made_writer);
  }
  void write(Bytes payload, std::uint32_t number = 0) {
    std::array<std::byte, 4> key;
    for (std::size_t k = 0; k < 4; ++k) key[k] = std::byte(number >> (24 - 8 * k));
    REQUIRE(writer->write(payload, key));
  }
};

/// Samples; that an instance has lost its writers is none.
std::vector<std::uint32_t> taken(Reader& reader) {
  std::vector<std::uint32_t> numbers;
  reader.take([&](const SampleInfo& info, Bytes payload) {
    if (info.has_data) numbers.push_back(number_of(payload));
  });
  return numbers;
}

bool has(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return true;
  MESSAGE("said: ", text);
  return false;
}

template <typename T> T made(Result<T> result) {
  REQUIRE_MESSAGE(result, result.error().what);
  return std::move(*result);
}

using Numbers = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("bus: a sample goes from a writer to readers of its topic, and both count it") {
  const auto domain = fresh_domain();
  const auto a = open_null(domain), b = open_null(domain);
  auto writer = a->writer("power");
  auto reader = b->reader("power");
  REQUIRE(writer);
  REQUIRE(reader);
  CHECK((*writer)->wait_matched(1, Deadline::in_s(5)));
  CHECK((*reader)->wait_matched(1, Deadline::in_s(5)));
  CHECK(!(*writer)->wait_matched(2, Deadline::in_s(0.02)));
  CHECK((*writer)->topic() == "power");
  CHECK(equal(*(*reader)->type(), *power));
  for (std::uint32_t k = 0; k < 1000; ++k) REQUIRE((*writer)->write(sample(k)));
  Numbers expected(1000);
  for (std::uint32_t k = 0; k < 1000; ++k) expected[k] = k;
  CHECK(taken(**reader) == expected);
  CHECK(taken(**reader).empty());
  CHECK((*writer)->counts().samples == 1000);
  CHECK((*reader)->counts().samples == 1000);
  CHECK((*reader)->counts().bytes == 1000 * sample(0).size());
  CHECK((*reader)->counts().last_error == "");
  CHECK((*writer)->matched() == std::vector<Guid>{(*reader)->guid()});
  CHECK((*writer)->guid().text().size() == 32);
}

TEST_CASE("bus: take() hands on as many as are asked for") {
  const auto bus = open_null(fresh_domain());
  auto writer = made(bus->writer("power"));
  auto reader = made(bus->reader("power"));
  for (std::uint32_t k = 0; k < 700; ++k) REQUIRE(writer->write(sample(k)));
  std::size_t handed = 0;
  const auto count = [&](const SampleInfo&, Bytes) { ++handed; };
  CHECK(reader->take(count, 0) == 0);
  CHECK(reader->take(count, 3) == 3);
  CHECK(reader->take(count, 600) == 600);
  CHECK(reader->take(count) == 97);
  CHECK(handed == 700);
}

TEST_CASE("bus: what is no sample of the type is not written, and why is told") {
  const auto bus = open_null(fresh_domain());
  auto writer = made(bus->writer("power"));
  auto reader = made(bus->reader("power"));
  const auto refused = [&](Bytes payload) {
    const auto written = writer->write(payload);
    REQUIRE(!written);
    CHECK(written.error().code == "bus.malformed");
    return written.error().what;
  };
  refused({});
  auto cut = sample(1);
  cut.resize(10);
  CHECK(has(refused(cut), "topic power: not a sample of t::Power: "));
  auto wrong = sample(1);
  wrong.back() = std::byte{2};
  CHECK(has(refused(wrong), "on"));
  CHECK(has(refused(sample(1, "too-long-a-name")), "node"));
  CHECK(!writer->dispose(cut));
  const std::vector<std::byte> large(limit::sample_bytes + 1);
  const auto too_large = writer->write(large);
  REQUIRE(!too_large);
  CHECK(too_large.error().code == "bus.too_large");
  CHECK(writer->counts().samples == 0);
  CHECK(taken(*reader).empty());
}

TEST_CASE("bus: malformed samples of others are counted and go no further") {
  const auto domain = fresh_domain();
  const auto bus = open_null(domain);
  auto reader = made(bus->reader("power"));
  Foreign foreign(domain, "");
  foreign.write(sample(1), 1);
  auto wrong = sample(2);
  wrong.back() = std::byte{7};
  foreign.write(wrong, 2);
  foreign.write(Bytes{}, 3);
  const std::vector<std::byte> large(limit::sample_bytes + 1);
  foreign.write(large, 4);
  foreign.write(sample(5), 5);
  CHECK(taken(*reader) == Numbers{1, 5});
  const Counts counts = reader->counts();
  CHECK(counts.samples == 2);
  CHECK(counts.malformed == 2);
  CHECK(counts.too_large == 1);
  CHECK(counts.other_type == 0);
  CHECK(has(counts.last_error, "67108865 B"));
  CHECK(has(counts.last_error, foreign.writer->guid().text()));
}

TEST_CASE("bus: writers that mean another structure by the type's name are told apart by their fingerprint") {
  const auto domain = fresh_domain();
  const auto bus = open_null(domain), other = open_null(domain);
  auto reader = made(bus->reader("power"));
  auto same = made(other->writer("power"));
  auto different = made(other->writer("power", other_power));
  Foreign silent(domain, ""), talker(domain, "their own words"), old(domain, announcement(*other_power, "v1"));
  REQUIRE(same->write(sample(1)));
  REQUIRE(different->write(sample(2)));  // would pass for one of ours
  silent.write(sample(3), 3);
  talker.write(sample(4), 4);
  old.write(sample(5), 5);
  REQUIRE(same->write(sample(6)));
  CHECK(taken(*reader) == Numbers{1, 3, 4, 6});
  CHECK(reader->counts().other_type == 2);
  CHECK(reader->counts().malformed == 0);
  CHECK(has(reader->counts().last_error, "means another structure by t::Power: fingerprint " +
                                             fingerprint(*other_power) + ", here " + fingerprint(*power)));
  // each time, not only the first
  REQUIRE(different->write(sample(7)));
  REQUIRE(different->write(sample(8)));
  CHECK(taken(*reader).empty());
  CHECK(reader->counts().other_type == 4);
}

TEST_CASE("bus: the same within one participant, whose own writers its list of others lacks") {
  const auto bus = open_null(fresh_domain());
  auto reader = made(bus->reader("power"));
  auto same = made(bus->writer("power"));
  auto different = made(bus->writer("power", other_power));
  REQUIRE(different->write(sample(1)));
  REQUIRE(same->write(sample(2)));
  CHECK(taken(*reader) == Numbers{2});
  CHECK(reader->counts().other_type == 1);
}

TEST_CASE("bus: writers that come later are asked about as well") {
  const auto domain = fresh_domain();
  const auto bus = open_null(domain);
  auto reader = made(bus->reader("power"));
  for (std::uint32_t k = 0; k < 50; ++k) {
    const bool agrees = k % 2;
    Foreign one(domain, announcement(agrees ? *power : *other_power, ""));
    one.write(sample(k), k);
    CHECK(taken(*reader) == (agrees ? Numbers{k} : Numbers{}));
  }
  CHECK(reader->counts().other_type == 25);
}

TEST_CASE("bus: what is announced can be read back, and nothing else is taken for it") {
  const std::string plain = announcement(*power, "");
  CHECK(plain == "sonde1 fp=" + fingerprint(*power));
  CHECK(read_announcement(plain).fingerprint == fingerprint(*power));
  CHECK(read_announcement(plain).user_data == "");
  const std::string most(most_user_data, 'x');
  CHECK(announcement(*power, most).size() == 255);
  CHECK(read_announcement(announcement(*power, most)).user_data == most);
  CHECK(read_announcement(announcement(*power, " a b")).user_data == " a b");
  for (const std::string& foreign :
       {std::string(), std::string("sonde1 fp="), std::string("hello"), plain.substr(0, plain.size() - 1), plain + "x",
        "sonde1 fp=" + std::string(32, 'g'), "sonde2 " + plain.substr(7)}) {
    CAPTURE(foreign);
    CHECK(read_announcement(foreign).fingerprint == "");
    CHECK(read_announcement(foreign).user_data == foreign);
  }
  const auto domain = fresh_domain();
  const auto a = open_null(domain), b = open_null(domain);
  Qos qos;
  qos.user_data = "role=monitor";
  auto writer = made(a->writer("power", power, qos));
  const auto endpoints = b->endpoints();
  REQUIRE(endpoints.size() == 1);
  CHECK(endpoints[0].user_data == announcement(*power, "role=monitor"));
  CHECK(read_announcement(endpoints[0].user_data).user_data == "role=monitor");
}

TEST_CASE("bus: topics, types and QoS that are wrong are refused by name") {
  const auto bus = open_null(fresh_domain());
  const auto unknown = bus->writer("powre");
  REQUIRE(!unknown);
  CHECK(unknown.error().code == "bus.unknown_topic");
  CHECK(has(unknown.error().what, "has no topic 'powre' (nearest: power)"));
  CHECK(!bus->reader("powre"));
  const auto code = [&](const std::string& topic, const TypePtr& type, const Qos& qos = {}) {
    auto reader = bus->reader(topic, type, qos);
    auto writer = bus->writer(topic, type, qos);
    CHECK(!reader);
    return writer ? std::string() : writer.error().code;
  };
  CHECK(code("a b", power) == "bus.bad_name");
  CHECK(code("", power) == "bus.bad_name");
  CHECK(code(std::string(256, 'a'), power) == "bus.bad_name");
  CHECK(code("a", nullptr) == "bus.bad_type");
  CHECK(code("a", primitive(Kind::octet)) == "bus.bad_type");
  CHECK(code("a", structure("t", {})) == "bus.bad_type");
  Qos qos;
  qos.depth = 0;
  CHECK(code("a", power, qos) == "bus.bad_qos");
  qos = {};
  qos.user_data = std::string(213, 'x');
  CHECK(code("a", power, qos) == "bus.bad_qos");
  qos = {};
  qos.latency_budget_s = 0.1;
  CHECK(code("a", power, qos) == "bus.unsupported");
  CHECK(bus->writer("Monitor_report/job:1", power));
  Profile profile;
  profile.domain = 233;
  CHECK(Bus::open(profile, "null").error().code == "bus.bad_profile");
}

TEST_CASE("bus: a waiter tells which readers have samples, and is woken") {
  const auto domain = fresh_domain();
  const auto bus = open_null(domain), other = open_null(domain);
  auto writer = made(other->writer("power"));
  auto first = made(bus->reader("power"));
  auto waiter = made(bus->waiter());
  REQUIRE(waiter->attach(*first, 7));
  CHECK(waiter->wait(Deadline::in_s(0)).empty());
  REQUIRE(writer->write(sample(1)));
  CHECK(waiter->wait(Deadline::in_s(5)) == std::vector<std::uint64_t>{7});
  CHECK(taken(*first).size() == 1);
  {
    auto second = made(bus->reader("power"));
    REQUIRE(waiter->attach(*second, 8));
    REQUIRE(writer->write(sample(2)));
    CHECK(waiter->wait(Deadline::in_s(5)).size() == 2);
    CHECK(taken(*first).size() == 1);
  }
  // a reader that went without detaching is not waited for any more
  CHECK(waiter->wait(Deadline::in_s(0.01)).empty());
  std::thread waker([&] { waiter->wake(); });
  CHECK(waiter->wait(Deadline::in_s(60)).empty());
  waker.join();
  waiter->detach(*first);
  waiter->detach(*first);
  REQUIRE(writer->write(sample(3)));
  CHECK(waiter->wait(Deadline::in_s(0.01)).empty());
  auto stranger = made(other->reader("power"));
  const auto attached = waiter->attach(*stranger, 9);
  REQUIRE(!attached);
  CHECK(attached.error().code == "bus.other_bus");
  // a waiter may go before the readers that are attached to it
  REQUIRE(waiter->attach(*first, 1));
  waiter.reset();
  CHECK(taken(*first) == Numbers{3});
}

TEST_CASE("bus: what a taker throws comes out, and the reader goes on") {
  const auto bus = open_null(fresh_domain());
  auto writer = made(bus->writer("power"));
  auto reader = made(bus->reader("power"));
  REQUIRE(writer->write(sample(1)));
  CHECK_THROWS_WITH_AS(reader->take([](const SampleInfo&, Bytes) { throw std::runtime_error("mine"); }), "mine",
                       std::runtime_error);
  REQUIRE(writer->write(sample(2)));
  CHECK(taken(*reader) == Numbers{2});
}

TEST_CASE("bus: objects keep the bus that made them, in whatever order they go") {
  auto bus = open_null(fresh_domain());
  auto writer = made(bus->writer("power"));
  auto reader = made(bus->reader("power"));
  auto waiter = made(bus->waiter());
  REQUIRE(waiter->attach(*reader, 1));
  const std::weak_ptr<Bus> watch = bus;
  bus.reset();
  CHECK(!watch.expired());
  REQUIRE(writer->write(sample(1)));
  writer.reset();
  CHECK(waiter->wait(Deadline::in_s(5)).size() == 1);
  waiter.reset();
  CHECK(taken(*reader) == Numbers{1});
  reader.reset();
  CHECK(watch.expired());
}

TEST_CASE("bus: disposals arrive with their key") {
  const auto bus = open_null(fresh_domain());
  auto writer = made(bus->writer("power"));
  auto reader = made(bus->reader("power"));
  REQUIRE(writer->write(sample(9)));
  REQUIRE(writer->dispose(sample(9)));
  std::vector<std::pair<InstanceState, std::uint32_t>> seen;
  reader->take([&](const SampleInfo& info, Bytes payload) { seen.emplace_back(info.state, number_of(payload)); });
  REQUIRE(seen.size() == 2);
  CHECK(seen.back() == std::pair{InstanceState::disposed, 9u});
  CHECK(reader->counts().malformed == 0);
}

TEST_CASE("bus: many threads write and one takes, without loss") {
  const auto domain = fresh_domain();
  const auto bus = open_null(domain), other = open_null(domain);
  Qos qos;
  qos.history = History::keep_all;
  auto reader = made(bus->reader("power", power, qos));
  auto writer = made(other->writer("power", power, qos));
  constexpr std::uint32_t threads = 4, each = 2000;
  std::vector<std::thread> writing;
  for (std::uint32_t t = 0; t < threads; ++t)
    writing.emplace_back([&, t] {
      for (std::uint32_t k = 0; k < each; ++k) (void)writer->write(sample(t * each + k));
    });
  auto waiter = made(bus->waiter());
  REQUIRE(waiter->attach(*reader, 1));
  std::vector<bool> seen(threads * each);
  std::size_t n = 0;
  const Deadline deadline = Deadline::in_s(60);
  while (n < threads * each && !deadline.passed()) {
    (void)waiter->wait(deadline);
    n += reader->take([&](const SampleInfo&, Bytes payload) { seen[number_of(payload)] = true; });
  }
  for (auto& thread : writing) thread.join();
  CHECK(n == threads * each);
  CHECK(std::count(seen.begin(), seen.end(), true) == threads * each);
  CHECK(writer->counts().samples == threads * each);
}
