// Cyclone DDS behind the bus, with peers in processes of their own: within one process nothing goes over the wire.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "../claimed.hpp"
#include "bus/bus.hpp"
#include "bus/cdr.hpp"
#include "core/clock.hpp"
#include "there.hpp"

using namespace sonde;
using namespace sonde::bus;

namespace {

constexpr double patience_s = 20;

bool is_there() { return there_is("cyclonedds"); }

const TypePtr blob = structure("test::Blob", {{"n", primitive(Kind::uint64), false, ""},
                                              {"data", sequence_of(primitive(Kind::octet)), false, ""}});
const TypePtr keyed = structure("test::Keyed", {{"node", string_type(), true, ""},
                                                {"socket", primitive(Kind::uint16), true, ""},
                                                {"power", primitive(Kind::float64), false, ""}});

std::vector<std::byte> blob_payload(std::uint64_t n, std::size_t bytes) {
  std::vector<std::byte> out, data(bytes);
  for (std::size_t k = 0; k < bytes; ++k) data[k] = std::byte(n + k * 7);
  CdrWriter writer(out);
  writer.put(n);
  writer.put(static_cast<std::uint32_t>(bytes));
  writer.put_bytes(data);
  return out;
}

std::vector<std::byte> keyed_payload(std::string_view node, std::uint16_t socket, double power) {
  std::vector<std::byte> out;
  CdrWriter writer(out);
  writer.put(node);
  writer.put(socket);
  writer.put(power);
  return out;
}

struct Measured {
  std::string node;
  std::uint16_t socket = 0;
  double power = 0;
  auto operator<=>(const Measured&) const = default;
};

Measured measured(Bytes payload) {
  CdrReader reader(payload);
  Measured out;
  out.node = reader.get_string();
  out.socket = reader.get<std::uint16_t>();
  out.power = reader.get<double>();
  CHECK(reader.ok());
  return out;
}

/// Of a domain of its own: who shares one finds other topics there.
Profile profile_of() {
  Profile profile;
  profile.domain = claimed::domain();
  profile.participant = "test";
  profile.discovery.lease_s = 2;
  profile.discovery.announce_s = 0.5;
  return profile;
}

Qos all_qos() {
  Qos qos;
  qos.history = History::keep_all;
  qos.max_blocking_s = patience_s;
  return qos;
}

std::shared_ptr<Bus> open_bus(const Profile& profile) {
  auto bus = Bus::open(profile, "cyclonedds");
  REQUIRE_MESSAGE(bus, (bus ? "" : bus.error().what));
  return *bus;
}

template <typename T> T made(Result<T> result) {
  REQUIRE_MESSAGE(result, (result ? "" : result.error().what));
  return std::move(*result);
}

/// Takes until `enough` says so. A reader may have been given all before: it is looked at before it is waited for.
template <typename Enough>
bool take_until(Waiter& waiter, Reader& reader, const Reader::Taker& taker, const Enough& enough,
                double seconds = patience_s) {
  const Deadline deadline = Deadline::in_s(seconds);
  for (;;) {
    reader.take(taker);
    if (enough()) return true;
    if (waiter.wait(deadline).empty()) return false;
  }
}

/// This program again, as a peer: a fork alone would have the locks of Cyclone's threads without the threads.
class PeerProcess {
 public:
  PeerProcess(const char* role, const Profile& profile) {
    const std::string text = to_xml(profile);
    ::setenv("SONDE_TEST_BUS_PROFILE", text.c_str(), 1);
    ::setenv("SONDE_TEST_BUS_ROLE", role, 1);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execl("/proc/self/exe", "sonde-test-bus", "--no-skip", "-m", "-tc=the child of a Cyclone DDS test",
              static_cast<char*>(nullptr));
      ::_exit(10);
    }
    ::unsetenv("SONDE_TEST_BUS_PROFILE");
    ::unsetenv("SONDE_TEST_BUS_ROLE");
    REQUIRE(pid_ > 0);
  }
  ~PeerProcess() { end(SIGKILL); }
  void end(int signal) {
    if (pid_ <= 0) return;
    ::kill(pid_, signal);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

bool until(const std::function<bool()>& done, double seconds = patience_s) {
  const Deadline deadline = Deadline::in_s(seconds);
  while (!done()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// Sends each sample of the topic `to` back on `from`, until it is killed.
void echo(Bus& bus, const TypePtr& type) {
  auto back = made(bus.writer("from", type, all_qos()));
  auto reader = made(bus.reader("to", type, all_qos()));
  auto waiter = made(bus.waiter());
  REQUIRE(waiter->attach(*reader, 1));
  for (;;) {
    waiter->wait({});
    reader->take([&](const SampleInfo& info, Bytes payload) {
      if (info.has_data) (void)back->write(payload);
      else (void)back->dispose(payload);
    });
  }
}

/// Waits until what `writer` sends comes back from an echo to `reader`. That both are matched here says nothing about
/// the other side: until the peer knows of this reader, it sends its answers to nobody.
void wait_for_echo(Writer& writer, Reader& reader,
                   const std::function<std::vector<std::byte>(std::uint64_t)>& payload) {
  REQUIRE(writer.wait_matched(1, Deadline::in_s(patience_s)));
  REQUIRE(reader.wait_matched(1, Deadline::in_s(patience_s)));
  const Deadline deadline = Deadline::in_s(patience_s);
  // Answers come in order: nothing is under way once the newest has come.
  bool back = false;
  for (std::uint64_t n = 0; !back; ++n) {
    REQUIRE(!deadline.passed());
    const auto sent = payload(n);
    REQUIRE(writer.write(sent));
    writer.flush();
    const Reader::Taker taker = [&](const SampleInfo&, Bytes got) {
      back = got.size() >= sent.size() && std::equal(sent.begin(), sent.end(), got.begin());
    };
    until([&] { return reader.take(taker), back; }, 0.1);
  }
}

void wait_for_echo(Writer& writer, Reader& reader) {
  wait_for_echo(writer, reader, [](std::uint64_t n) { return blob_payload(n, 4); });
}

}  // namespace

TEST_CASE("the child of a Cyclone DDS test" * doctest::skip()) {
  const char* text = std::getenv("SONDE_TEST_BUS_PROFILE");
  const char* role_is = std::getenv("SONDE_TEST_BUS_ROLE");
  if (!text || !role_is) return;
  const std::string role = role_is;
  Profile profile = made(parse_profile(text));
  profile.participant = "peer";
  const auto bus = open_bus(profile);
  if (role == "echo") echo(*bus, blob);
  if (role == "echo keyed") echo(*bus, keyed);
  if (role == "flood") {
    Qos qos;
    qos.reliability = Reliability::best_effort;
    auto writer = made(bus->writer("flood", blob, qos));
    REQUIRE(writer->wait_matched(1, Deadline::in_s(patience_s)));
    for (std::uint64_t n = 0;; ++n) REQUIRE(writer->write(blob_payload(n, 8000)));
  }
  if (role == "fill") {
    Qos qos = all_qos();
    qos.max_samples = 4;
    qos.max_blocking_s = 0.1;
    auto writer = made(bus->writer("fill", blob, qos));
    for (std::uint64_t n = 0;; ++n) (void)writer->write(blob_payload(n, 200'000));
  }
  if (role == "idle") {
    auto writer = made(bus->writer("idle", keyed));
    ::pause();
  }
}

TEST_CASE("Cyclone DDS brings payloads of any size to another process and back, byte for byte") {
  if (!is_there()) return;
  for (const TransportKind kind : {TransportKind::udp4, TransportKind::udp6}) {
    CAPTURE(static_cast<int>(kind));
    Profile profile = profile_of();
    profile.transport.kind = kind;
    if (kind == TransportKind::udp6) {
      profile.transport.multicast = Multicast::none;
      profile.discovery.kind = DiscoveryKind::peers;
      profile.discovery.peers = {"[::1]:4"};
    }
    // One size below the least fragment, one whose fragments are rounded down to words; buffers beyond what systems
    // grant.
    profile.transport.max_message_bytes = kind == TransportKind::udp6 ? 1024 : 64999;
    profile.transport.receive_buffer_bytes = profile.transport.send_buffer_bytes = 64u << 20;
    const PeerProcess peer("echo", profile);
    const auto bus = open_bus(profile);
    auto writer = made(bus->writer("to", blob, all_qos()));
    auto reader = made(bus->reader("from", blob, all_qos()));
    auto waiter = made(bus->waiter());
    REQUIRE(waiter->attach(*reader, 5));
    wait_for_echo(*writer, *reader);

    std::vector<std::vector<std::byte>> sent;
    for (const std::size_t bytes : {0, 1, 2, 3, 4, 63, 64, 1300, 1344, 1345, 14'000, 65'536, 1'000'003, 5'000'000})
      sent.push_back(blob_payload(sent.size(), bytes));
    std::size_t came = 0;
    const Guid author = reader->matched().at(0);
    for (const auto& payload : sent) REQUIRE(writer->write(payload));
    REQUIRE(take_until(
        *waiter, *reader,
        [&](const SampleInfo& info, Bytes payload) {
          const auto& expected = sent.at(came++);
          CHECK(info.has_data);
          CHECK(info.writer == author);
          CHECK(info.source_ns > 0);
          CHECK(info.received_ns >= info.source_ns - 1'000'000'000);
          // Messages are padded to words.
          CHECK(payload.size() >= expected.size());
          CHECK(payload.size() < expected.size() + 4);
          CHECK(std::equal(expected.begin(), expected.end(), payload.begin()));
        },
        [&] { return came == sent.size(); }));
    CHECK(reader->status().lost == 0);
    CHECK(writer->wait_acknowledged(Deadline::in_s(patience_s)));
  }
}

TEST_CASE(
    "a reader that is full is closed while others still write to it, and who comes after it is given what they write") {
  if (!is_there()) return;
  const Profile profile = profile_of();
  const auto bus = open_bus(profile);
  Qos qos = all_qos();
  qos.max_samples = 1;
  auto reader = made(bus->reader("fill", blob, qos));
  const PeerProcess peer("fill", profile);
  // Where this fails, it stands still: the test's own end is what tells.
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    REQUIRE(until([&] { return reader->status().rejected > 0; }));
    reader.reset();
    reader = made(bus->reader("fill", blob, qos));
    std::uint64_t came = 0;
    REQUIRE(until([&] {
      reader->take([&](const SampleInfo& info, Bytes payload) { came += info.has_data && payload.size() > 200'000; },
                   1);
      return came >= 3;
    }));
  }
}

TEST_CASE("instances of Cyclone DDS are told apart by their key across processes, and both byte orders are read") {
  if (!is_there()) return;
  const Profile profile = profile_of();
  const PeerProcess peer("echo keyed", profile);
  const auto bus = open_bus(profile);
  auto writer = made(bus->writer("to", keyed, all_qos()));
  Qos last = all_qos();
  last.history = History::keep_last;
  last.depth = 1;
  auto reader = made(bus->reader("from", keyed, last));
  auto waiter = made(bus->waiter());
  REQUIRE(waiter->attach(*reader, 1));
  wait_for_echo(*writer, *reader,
                [](std::uint64_t n) { return keyed_payload("not there yet", 0, static_cast<double>(n)); });

  // Two keys whose parts are equal when they are put together without their lengths, and one longer than a hash.
  const std::string longer(300, 'x');
  for (double power = 1; power <= 3; ++power)
    for (const std::string& node : {std::string("n1"), std::string("n"), longer})
      for (const std::uint16_t socket : {0, 1}) REQUIRE(writer->write(keyed_payload(node, socket, power)));
  // Big endian, as a foreign peer may write: the same instance as its little endian twin.
  std::vector<std::byte> big = keyed_payload("n", 1, 4);
  {
    const auto swap = [&big](std::size_t at, std::size_t n) {
      std::reverse(big.begin() + static_cast<std::ptrdiff_t>(at), big.begin() + static_cast<std::ptrdiff_t>(at + n));
    };
    big[1] = std::byte{0};
    swap(4, 4);   // the string's length: 2 with its NUL
    swap(10, 2);  // behind "n\0"
    swap(12, 8);
  }
  REQUIRE(writer->write(big));
  REQUIRE(writer->dispose(keyed_payload("n1", 1, 0)));

  std::map<Measured, int> newest;
  std::set<std::pair<std::string, int>> disposed;
  const auto taker = [&](const SampleInfo& info, Bytes payload) {
    Measured one = measured(payload);
    if (info.has_data) {
      CHECK(info.state == InstanceState::alive);
      const double power = std::exchange(one.power, 0);
      newest[one] = std::max(newest[one], static_cast<int>(power));
    } else {
      CHECK(info.state == InstanceState::disposed);
      CHECK(one.power == 0);
      disposed.emplace(one.node, one.socket);
    }
  };
  REQUIRE(take_until(*waiter, *reader, taker, [&] { return !disposed.empty() && newest[{"n", 1, 0}] == 4; }));
  CHECK(newest.size() == 6);
  for (const auto& [which, power] : newest) CHECK(power == (which == Measured{"n", 1, 0} ? 4 : 3));
  CHECK(disposed == std::set<std::pair<std::string, int>>{{"n1", 1}});
}

TEST_CASE("a killed peer of Cyclone DDS is known by name, host and pid, and is gone when its lease ends") {
  if (!is_there()) return;
  const Profile profile = profile_of();
  PeerProcess peer("idle", profile);
  const auto bus = open_bus(profile);
  auto reader = made(bus->reader("idle", keyed));
  REQUIRE(reader->wait_matched(1, Deadline::in_s(patience_s)));
  const Guid writer = reader->matched().at(0);

  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const auto find = [&]() -> std::optional<Participant> {
    for (const Participant& one : bus->peers())
      if (one.pid == peer.pid()) return one;
    return {};
  };
  REQUIRE(until([&] { return find().has_value(); }));
  CHECK(find()->name == "peer");
  CHECK(find()->host == host);
  const auto announced = [&]() -> std::optional<Endpoint> {
    for (const Endpoint& one : bus->endpoints())
      if (one.guid == writer) return one;
    return {};
  };
  REQUIRE(announced());
  CHECK(announced()->writes);
  CHECK(announced()->topic == "idle");
  CHECK(announced()->type == "test::Keyed");
  CHECK(announced()->participant == find()->guid);

  peer.end(SIGKILL);
  CHECK(until([&] { return reader->status().matched == 0; }));
  CHECK(reader->status().matched_ever == 1);
  CHECK(until([&] { return !announced(); }));
}

TEST_CASE("what a best-effort reader of Cyclone DDS loses on the way is counted") {
  if (!is_there()) return;
  const Profile profile = profile_of();
  const PeerProcess peer("flood", profile);
  const auto bus = open_bus(profile);
  Qos qos;
  qos.reliability = Reliability::best_effort;
  qos.depth = 1 << 20;
  auto reader = made(bus->reader("flood", blob, qos));
  auto waiter = made(bus->waiter());
  REQUIRE(waiter->attach(*reader, 1));
  std::uint64_t came = 0, first = 0, last = 0;
  const auto taker = [&](const SampleInfo& info, Bytes payload) {
    if (!info.has_data) return;
    last = CdrReader(payload).get<std::uint64_t>();
    if (!came++) first = last;
  };
  // The socket overflows where nobody empties it: two processes and one receiving thread on busy cores do so by
  // themselves.
  REQUIRE(take_until(*waiter, *reader, taker, [&] { return came > 100 && last - first + 1 > came; }, 60));
  CHECK(reader->status().lost == static_cast<std::int64_t>(last - first + 1 - came));
}

TEST_CASE("buses of one process share a domain of Cyclone DDS, and a different configuration of it is refused") {
  if (!is_there()) return;
  Profile profile = profile_of();
  auto first = open_bus(profile);
  profile.name = "another";
  profile.participant = "another";
  {
    const auto second = open_bus(profile);
    CHECK(second->guid() != first->guid());
    CHECK(until([&] { return !first->peers().empty(); }));
    auto writer = made(first->writer("here", keyed));
    auto reader = made(second->reader("here", keyed));
    CHECK(writer->wait_matched(1, Deadline::in_s(patience_s)));
    REQUIRE(writer->write(keyed_payload("n", 0, 1)));
    std::size_t came = 0;
    reader->take([&](const SampleInfo& info, Bytes) {
      CHECK(info.writer == writer->guid());
      ++came;
    });
    CHECK(came == 1);
  }
  profile.transport.max_message_bytes = 1400;
  const auto refused = Bus::open(profile, "cyclonedds");
  REQUIRE(!refused);
  CHECK(refused.error().code == "bus.open");
  CHECK(refused.error().what.find("domain " + std::to_string(profile.domain)) != std::string::npos);
  first.reset();
  CHECK(Bus::open(profile, "cyclonedds"));
}

TEST_CASE("a writer of Cyclone DDS with a latency budget holds samples back until flush, or until it is spent") {
  if (!is_there()) return;
  const Profile profile = profile_of();
  const PeerProcess peer("echo", profile);
  const auto bus = open_bus(profile);
  const auto round_trip = [&](double budget_s, bool flushes) {
    Qos qos = all_qos();
    qos.latency_budget_s = budget_s;
    auto writer = made(bus->writer("to", blob, qos));
    auto reader = made(bus->reader("from", blob, all_qos()));
    auto waiter = made(bus->waiter());
    REQUIRE(waiter->attach(*reader, 1));
    wait_for_echo(*writer, *reader);
    for (std::uint64_t n = 0; n < 5; ++n) REQUIRE(writer->write(blob_payload(n, 16)));
    if (flushes) writer->flush();
    std::size_t came = 0;
    REQUIRE(take_until(
        *waiter, *reader, [&](const SampleInfo& info, Bytes) { came += info.has_data; }, [&] { return came == 5; }));
  };
  round_trip(3600, true);  // would not come within the test's patience by itself
  round_trip(0.05, false);
}

TEST_CASE(
    "writers of Cyclone DDS with latency budgets of different lengths have each sample sent, whenever it is written") {
  if (!is_there()) return;
  const Profile profile = profile_of();
  const PeerProcess peer("echo", profile);
  const auto bus = open_bus(profile);
  std::vector<std::unique_ptr<Writer>> writers;
  for (const double budget_s : {0.002, 0.03, 0.0}) {
    Qos qos = all_qos();
    qos.latency_budget_s = budget_s;
    writers.push_back(made(bus->writer("to", blob, qos)));
  }
  auto reader = made(bus->reader("from", blob, all_qos()));
  auto waiter = made(bus->waiter());
  REQUIRE(waiter->attach(*reader, 1));
  for (auto& writer : writers) wait_for_echo(*writer, *reader);
  std::mt19937 random(5);
  std::uint64_t sent = 0, came = 0;
  for (int turn = 0; turn < 300; ++turn) {
    // Now one sample and a rest, now many without: the thread that sends is asleep, about to look, or in the midst of
    // it.
    auto& writer = *writers[random() % writers.size()];
    for (std::uint64_t n = random() % 4 ? 1 + random() % 3 : 500; n; --n)
      REQUIRE(writer.write(blob_payload(sent++, 16)));
    if (random() % 2) std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    if (random() % 3) continue;
    REQUIRE(take_until(
        *waiter, *reader, [&](const SampleInfo& info, Bytes) { came += info.has_data; }, [&] { return came == sent; }));
  }
  REQUIRE(take_until(
      *waiter, *reader, [&](const SampleInfo& info, Bytes) { came += info.has_data; }, [&] { return came == sent; }));
}

TEST_CASE("a writer of Cyclone DDS that waits for a reader keeps no other writer from sending what it held back") {
  if (!is_there()) return;
  const Profile profile = profile_of();
  const PeerProcess peer("echo", profile);
  const auto bus = open_bus(profile);
  Qos slow = all_qos(), few = all_qos(), quick = all_qos();
  slow.latency_budget_s = 0.001;
  slow.max_blocking_s = patience_s;
  few.max_samples = 1;
  quick.latency_budget_s = 0.002;
  auto full = made(bus->reader("full", blob, few));
  auto waits = made(bus->writer("full", blob, slow));
  auto writer = made(bus->writer("to", blob, quick));
  auto reader = made(bus->reader("from", blob, all_qos()));
  auto waiter = made(bus->waiter());
  REQUIRE(waiter->attach(*reader, 1));
  REQUIRE(waits->wait_matched(1, Deadline::in_s(patience_s)));
  wait_for_echo(*writer, *reader);
  std::atomic<int> written{0};
  std::atomic<bool> failed{false};
  std::thread blocked([&] {
    for (std::uint64_t n = 0; n < 3; ++n, ++written)
      if (!waits->write(blob_payload(n, 16))) failed = true;
  });
  const auto until = Deadline::in_s(patience_s);
  while (written < 1 && until.left_ms() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(
      std::chrono::milliseconds(50));  // what is held back has long been due, and the reader is full
  CHECK(written < 3);
  for (std::uint64_t n = 0; n < 20; ++n) {
    REQUIRE(writer->write(blob_payload(n, 16)));
    std::size_t came = 0;
    CHECK(take_until(
        *waiter, *reader, [&](const SampleInfo& info, Bytes) { came += info.has_data; }, [&] { return came == 1; }));
  }
  CHECK(written < 3);
  std::size_t taken = 0;
  while (taken < 3 && until.left_ms() != 0) taken += full->take([](const SampleInfo&, Bytes) {});
  blocked.join();
  CHECK(taken == 3);
  CHECK(!failed);
}

TEST_CASE(
    "a writer of Cyclone DDS that waits for a reader keeps no other of its participant from saying that it lives") {
  if (!is_there()) return;
  const auto bus = open_bus(profile_of());
  Qos manual = all_qos(), few = all_qos();
  manual.liveliness = Liveliness::manual_by_participant;
  manual.lease_s = 0.5;
  few.max_samples = 1;
  auto full = made(bus->reader("full", blob, few));
  auto reader = made(bus->reader("other", blob, all_qos()));
  auto waits = made(bus->writer("full", blob, manual));
  auto writer = made(bus->writer("other", blob, manual));
  REQUIRE(waits->wait_matched(1, Deadline::in_s(patience_s)));
  REQUIRE(writer->wait_matched(1, Deadline::in_s(patience_s)));
  std::atomic<int> written{0};
  std::atomic<bool> failed{false};
  std::thread blocked([&] {
    for (std::uint64_t n = 0; n < 3; ++n, ++written)
      if (!waits->write(blob_payload(n, 16))) failed = true;
  });
  CHECK(until([&] { return written >= 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::vector<std::unique_ptr<Writer>> more;  // Cyclone ends none while a thread is in the midst of a write
  // Once while all live, and once after all have lapsed.
  for (const bool lapsed : {false, true}) {
    if (lapsed) CHECK(until([&] { return writer->status().liveliness_lost > 0; }));
    writer->assert_liveliness();
    CHECK(written < 3);
    if (lapsed) CHECK(until([&] { return reader->status().alive == 1; }));
    more.push_back(made(bus->writer("more", blob, manual)));
    CHECK(written < 3);
  }
  std::size_t taken = 0;
  CHECK(until([&] { return (taken += full->take([](const SampleInfo&, Bytes) {})) == 3; }));
  blocked.join();
  CHECK(!failed);
  // The one that waited as it lapsed is held for dead, until it writes or says something again.
  writer->assert_liveliness();
  CHECK(until([&] { return full->status().alive == 1; }));
}

TEST_CASE(
    "the end of an instance of Cyclone DDS is told once and behind its samples, however few are taken at a time") {
  if (!is_there()) return;
  const auto bus = open_bus(profile_of());
  auto writer = made(bus->writer("keyed", keyed, all_qos()));
  auto reader = made(bus->reader("keyed", keyed, all_qos()));
  REQUIRE(writer->wait_matched(1, Deadline::in_s(patience_s)));
  REQUIRE(reader->wait_matched(1, Deadline::in_s(patience_s)));
  auto waiter = made(bus->waiter());
  REQUIRE(waiter->attach(*reader, 1));
  for (const std::size_t most :
       {std::size_t{1}, std::size_t{2}, std::size_t{63}, std::size_t{64}, std::size_t{65}, SIZE_MAX})
    for (const int samples : {1, 2, 63, 64, 65, 128, 256, 300}) {
      CAPTURE(most);
      CAPTURE(samples);
      for (int k = 0; k < samples; ++k) REQUIRE(writer->write(keyed_payload("ends", 0, k)));
      REQUIRE(writer->write(keyed_payload("stays", 0, 0)));
      REQUIRE(writer->dispose(keyed_payload("ends", 0, 0)));
      int data = 0, ends = 0, early = 0, others = 0;
      const auto look = [&](const SampleInfo& info, Bytes payload) {
        if (measured(payload).node != "ends") ++others;
        else if (info.has_data) ++data, early += ends;
        else ++ends;
      };
      // Whoever waits is told as long as something is left, and not afterwards.
      while (!waiter->wait(Deadline::in_s(data < samples || !ends || !others ? patience_s : 0.001)).empty())
        reader->take(look, most);
      CHECK(data == samples);
      CHECK(others == 1);
      CHECK(ends == 1);
      CHECK(early == 0);
    }
}

TEST_CASE("a security file of Cyclone DDS that cannot be read is named") {
  if (!is_there()) return;
  Profile profile = profile_of();
  profile.security = Security{"/nowhere/identity_ca.pem",    "/nowhere/cert.pem",       "/nowhere/key.pem",
                              "/nowhere/permissions_ca.pem", "/nowhere/governance.p7s", "/nowhere/permissions.p7s"};
  const auto refused = Bus::open(profile, "cyclonedds");
  REQUIRE(!refused);
  CAPTURE(refused.error().what);
  CHECK(refused.error().what.find("/nowhere/identity_ca.pem") != std::string::npos);
}
