// Transports over libfabric, by the conformance suite and by what only they can get wrong.
#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "providers.hpp"
#include "store/conformance/pair.hpp"
#include "store/conformance/transport.hpp"
#include "store/module/ofi/handshake.hpp"
#include "store/module/ofi/message.hpp"
#include "store/module/ofi/region.hpp"
#include "store/module/ofi/threshold.hpp"

using namespace sonde;
using namespace sonde::store;

namespace {

bool have_ofi() {
  const auto names = transport_names();
  const bool have = std::find(names.begin(), names.end(), "ofi-msg") != names.end();
  if (!have) MESSAGE("this build has no libfabric");
  return have;
}

void conforms(const char* transport, const char* provider,
              const std::function<void(conformance::TransportPlan&)>& change = {}) {
  if (!have_ofi()) return;
  conformance::TransportPlan plan;
  plan.options.provider = provider;
  if (change) change(plan);
  const auto checks = conformance::check_transport([&] { return *open_transport(transport); }, plan);
  CHECK(!checks.empty());
  for (const auto& check : checks) {
    INFO(transport, " over ", provider, ": ", check.name, ": ", check.message);
    CHECK(check.passed);
  }
}

std::size_t entries(const char* folder, const std::string& prefix = {}) {
  std::size_t n = 0;
  DIR* dir = opendir(folder);
  if (!dir) return 0;
  while (const dirent* entry = readdir(dir)) n += std::string(entry->d_name).starts_with(prefix);
  closedir(dir);
  return n;
}

/// How names in shared memory begin that this user's process `pid` makes. Others' come and go, as tests run beside
/// these.
std::string shared_stem(pid_t pid) {
  struct stat ns{};
  REQUIRE(stat("/proc/self/ns/pid", &ns) == 0);
  return "sonde-ofi-" + std::to_string(getuid()) + '-' + std::to_string(ns.st_ino) + '-' + std::to_string(pid) + '-';
}

class Quiet final : public Sink {
 public:
  void frame(Link&, const wire::Header&, Bytes, Bytes, bool) override { ++frames; }
  void closed(Link&, const Error* error) override {
    ended = true;
    if (error) why = error->code;
  }
  int frames = 0;
  bool ended = false;
  std::string why;
};

struct Pair {
  std::unique_ptr<PairControl> near, far;
  Quiet near_sink, far_sink;
  std::unique_ptr<Link> client, server;
  std::string error;

  Pair(const char* transport, const LinkOptions& options, const LinkOptions& server_options) {
    const auto [a, b] = PairControl::make_pair();
    near = std::make_unique<PairControl>(a);
    far = std::make_unique<PairControl>(b);
    const Deadline deadline = Deadline::in_s(20);
    std::thread thread([&] {
      const auto first = far->receive(deadline);
      if (!first) return;
      Result<std::vector<std::byte>> message = first;
      auto made = (*open_transport(transport))->accept(*far, *message, server_options, far_sink, deadline);
      if (made) server = std::move(*made);
    });
    auto made = (*open_transport(transport))->connect(*near, options, near_sink, deadline);
    if (made) client = std::move(*made);
    else error = made.error().code + ": " + made.error().what + " / " + made.error().hint;
    if (!made) near.reset();
    thread.join();
  }
  Pair(const char* transport, const LinkOptions& options) : Pair(transport, options, options) {}
};

LinkOptions over(const char* provider) {
  LinkOptions options;
  options.provider = provider;
  return options;
}

Outgoing small_frame(std::uint64_t id) {
  wire::Header header;
  header.kind = wire::Kind::ping;
  header.id = id;
  Outgoing out;
  out.head.resize(wire::header_bytes);
  wire::encode(header, out.head.data());
  return out;
}

bool until(const std::function<bool()>& done, double seconds = 5) {
  const Deadline deadline = Deadline::in_s(seconds);
  while (!done() && !deadline.passed()) {
    const timespec nap{0, 200'000};
    nanosleep(&nap, nullptr);
  }
  return done();
}

}  // namespace

TEST_CASE("ofi-msg keeps what a transport promises: net") {
  if (have_ofi()) conforms("ofi-msg", net_or_tcp());
}
TEST_CASE("ofi-msg keeps what a transport promises: tcp") { conforms("ofi-msg", "tcp"); }
TEST_CASE("ofi-msg keeps what a transport promises: sockets" * doctest::test_suite("soak")) {
  conforms("ofi-msg", "sockets", [](auto& plan) { plan.small_frames = 2000; });
}
TEST_CASE("ofi-msg keeps what a transport promises: sockets, with less in each stream") {
  conforms("ofi-msg", "sockets", [](auto& plan) {
    plan.small_frames = 200;
    plan.only = "tables,small-pipelined,stop-within,keep-dropped,end-in-order,both-end,rubbish,idle-peer-killed";
  });
}
TEST_CASE("ofi-rdm keeps what a transport promises: shm") { conforms("ofi-rdm", "shm"); }
TEST_CASE("ofi-rdm keeps what a transport promises: net") {
  if (have_ofi()) conforms("ofi-rdm", net_or_tcp());
}
TEST_CASE("ofi-rma keeps what a transport promises: shm, measured threshold") { conforms("ofi-rma", "shm"); }
TEST_CASE("ofi-rma keeps what a transport promises: shm, all data by remote reads") {
  if (!have_ofi()) return;
  conforms("ofi-rma", "shm", [](auto& plan) {
    plan.options.rma_from = 1;
    if (peer_moves_reads()) plan.small_frames = 2000;
  });
}
TEST_CASE("ofi-rma keeps what a transport promises: tcp, data from 20 kB by remote reads") {
  conforms("ofi-rma", "tcp", [](auto& plan) { plan.options.rma_from = 20'000; });
}

TEST_CASE("the threshold is where the worst loss over all sizes is least") {
  using ofi::least_regret;
  using Ratios = std::vector<ofi::Tried>;
  constexpr std::size_t frame = 256u << 10, size = 64u << 10;
  // What reads took over what messages took: messages win at every size, or lose at one.
  const Ratios written{{16u << 10, {1.3}}, {size, {1.18}}, {frame, {1.04}}, {1u << 20, {1.29}}};
  CHECK(least_regret(written, frame) == -1);
  const Ratios read{{16u << 10, {1.2}}, {size, {1.2}}, {frame, {0.9}}, {1u << 20, {0.98}}};
  CHECK(least_regret(read, frame) == frame);
  // A large operation is frames of frame_data: reads that win alone and lose in a row are weighed against each other.
  CHECK(least_regret(Ratios{{frame, {0.8}}, {1u << 20, {1.1}}}, frame) == frame);
  CHECK(least_regret(Ratios{{frame, {0.9}}, {1u << 20, {1.3}}}, frame) == -1);
  CHECK(least_regret(Ratios{{frame, {1.3}}, {1u << 20, {0.7}}}, 1u << 20) == 1 << 20);
  // Everything by reads, and messages where it is all the same.
  CHECK(least_regret(Ratios{{16u << 10, {0.5}}, {size, {0.5}}}, frame) == 16 << 10);
  CHECK(least_regret(Ratios{{16u << 10, {0.99}}, {size, {0.98}}}, frame) == -1);
  // One try that something else slowed says nothing; nor does a size that was not tried.
  CHECK(least_regret(Ratios{{size, {0.7, 0.72, 40.0}}, {frame, {}}}, frame) == size);
  CHECK(least_regret(Ratios{{size, {}}}, frame) == -1);
  CHECK(least_regret({}, frame) == -1);
}

TEST_CASE("nothing of the trial of messages and remote reads is left when use begins") {
  if (!have_ofi()) return;
  for (const char* provider : {"shm", "tcp"})
    for (const std::int64_t from : {-1, 1}) {
      INFO(provider, ", ", from);
      LinkOptions options = over(provider);
      options.rma_from = from;
      Pair pair("ofi-rma", options);
      REQUIRE_MESSAGE(pair.client, pair.error);
      REQUIRE(pair.server);
      CHECK(pair.near_sink.frames + pair.far_sink.frames == 0);
      CHECK(pair.client->info().detail.find("frames)") == std::string::npos);
      pair.client->send(small_frame(1));
      pair.client->flush();
      pair.server->send(small_frame(2));
      pair.server->flush();
      const auto both = [&] {
        pair.client->progress();
        pair.server->progress();
        return pair.near_sink.frames == 1 && pair.far_sink.frames == 1;
      };
      CHECK(until(both));
      CHECK(until([&] {
        both();
        return pair.client->taken() && pair.server->taken();
      }));
      CHECK_FALSE(pair.near_sink.ended);
      CHECK_FALSE(pair.far_sink.ended);
      CHECK(pair.near_sink.frames + pair.far_sink.frames == 2);
    }
}

namespace {

void thesis_variant(const char* provider, std::size_t small_frames, const char* only) {
  conforms("ofi-msg", provider, [&](auto& plan) {
    plan.options.gather = false;
    plan.options.await = true;
    plan.small_frames = small_frames;
    plan.seconds = 60;
    plan.only = only;
  });
}

}  // namespace

TEST_CASE("each piece by its own send, and awaited: the thesis variant") {
  for (const char* provider : {"tcp", "sockets"})
    thesis_variant(provider, 100, "sizes,small-pipelined,keep-dropped,end-in-order");
}
TEST_CASE("each piece by its own send, and awaited: the thesis variant in long streams" * doctest::test_suite("soak")) {
  for (const char* provider : {"tcp", "sockets"})
    thesis_variant(provider, 300, "sizes,segments,both-ways,ping-pong,small-pipelined,keep-dropped,end-in-order");
}

TEST_CASE("each piece by its own send, not awaited") {
  conforms("ofi-msg", "tcp", [](auto& plan) {
    plan.options.gather = false;
    plan.only = "sizes,segments,ping-pong,keep-dropped";
  });
}

TEST_CASE("without spinning, a sleeper is woken") {
  if (!have_ofi()) return;
  for (const auto& [transport, provider] : {std::pair{"ofi-rdm", "shm"}, {"ofi-msg", net_or_tcp()}, {"ofi-msg", "tcp"}})
    conforms(transport, provider, [](auto& plan) {
      plan.options.spin_s = 0;
      plan.only = "ping-pong,both-ways,after-sleep,small-pipelined,held-back";
    });
}

TEST_CASE("a provider that demands registration, contexts, its own keys and addressing gets them") {
  const auto strict = [](conformance::TransportPlan& plan) {
    plan.options.more["ofi.strict"] = "1";
    plan.kill = false;
    // What sleeps on purpose has nothing to do with registration and addressing.
    plan.only =
        "sizes,segments,tables,both-ways,ping-pong,small-pipelined,stop-within,placed,keep-dropped,"
        "end-in-order,both-end,rubbish";
  };
  SUBCASE("connected, offsets below, addresses above") { conforms("ofi-msg", "tcp", strict); }
  SUBCASE("datagrams, addresses below, offsets above") { conforms("ofi-rdm", "shm", strict); }
  SUBCASE("remote reads by address and key") {
    conforms("ofi-rma", "tcp", [&](auto& plan) {
      strict(plan);
      plan.options.rma_from = 5000;
    });
  }
  SUBCASE("remote reads by offset and key") {
    conforms("ofi-rma", "shm", [&](auto& plan) {
      strict(plan);
      plan.options.rma_from = 5000;
    });
  }
}

TEST_CASE("an unknown provider is named, and those there are") {
  if (!have_ofi()) return;
  Pair pair("ofi-msg", over("carrier-pigeon"));
  CHECK(pair.client == nullptr);
  CHECK(pair.error.find("store.no_provider") == 0);
  CHECK(pair.error.find("carrier-pigeon") != std::string::npos);
  CHECK(pair.error.find("tcp") != std::string::npos);
}

TEST_CASE("an unknown setting is an error") {
  if (!have_ofi()) return;
  LinkOptions options = over("tcp");
  options.more["colour"] = "blue";
  Pair pair("ofi-msg", options);
  CHECK(pair.client == nullptr);
  CHECK(pair.error.find("store.bad_setting") == 0);
}

TEST_CASE("a server that allows one provider only is heeded") {
  if (!have_ofi()) return;
  Pair pair("ofi-msg", LinkOptions{}, over("tcp"));
  REQUIRE_MESSAGE(pair.client, pair.error);
  CHECK(pair.client->info().provider == "tcp");
  CHECK(pair.server->info().provider == "tcp");
}

TEST_CASE("without a provider given, processes of one host take shared memory") {
  if (!have_ofi()) return;
  Pair pair("ofi-rdm", LinkOptions{});
  REQUIRE_MESSAGE(pair.client, pair.error);
  CHECK(pair.client->info().transport == "ofi-rdm");
  CHECK(pair.client->info().provider == "shm");
}

TEST_CASE("shared memory that is not this user's own, or none of a transport, is not mapped") {
  const auto address = [](const std::string& text) { return std::as_bytes(std::span(text.c_str(), text.size() + 1)); };
  const std::string whole = "fi_shm://sonde-ofi-0-1-2:3", bare = "sonde-ofi-x";
  CHECK(ofi::region_of(address(whole)) == "sonde-ofi-0-1-2:3");
  CHECK(ofi::region_of(address(bare)) == bare);
  CHECK(ofi::region_of({}).empty());
  const std::string own = "sonde-ofi-0-0-" + std::to_string(::getpid()) + "-test", path = "/dev/shm/" + own;
  const std::string other = "sonde-" + own, link = own + "-link";
  const auto make = [](const std::string& at) {
    const int fd = ::open(at.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    ::close(fd);
  };
  make(path);
  make("/dev/shm/" + other);
  REQUIRE(::symlink(path.c_str(), ("/dev/shm/" + link).c_str()) == 0);
  CHECK(ofi::is_own_region(own));
  CHECK(!ofi::is_own_region(link));
  CHECK(!ofi::is_own_region(other));
  CHECK(!ofi::is_own_region("../" + own));
  CHECK(!ofi::is_own_region(own + "-nowhere"));
  REQUIRE(::chmod(path.c_str(), 0620) == 0);
  CHECK(!ofi::is_own_region(own));
  if (::geteuid() == 0) {
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
    CHECK(!ofi::is_own_region(own));
  }
  for (const auto& name : {own, other, link}) ::unlink(("/dev/shm/" + name).c_str());
}

TEST_CASE("probe says of every candidate that it works, or why not") {
  if (!have_ofi()) return;
  const auto found = (*open_transport("ofi-msg"))->probe(Deadline::in_s(60));
  CHECK(found.size() >= 2);
  bool tcp = false;
  for (const Found& f : found) {
    INFO(f.provider, ": ", f.why);
    CHECK(!f.provider.empty());
    if (f.works) CHECK(f.half_round_trip_s > 0);
    if (!f.works) CHECK(!f.why.empty());
    tcp |= f.provider == "tcp" && f.works;
  }
  CHECK(tcp);
}

TEST_CASE("a provider that hangs is given up and leaves nothing behind") {
  if (!have_ofi()) return;
  char script[] = "/tmp/sonde-hang-XXXXXX";
  const int fd = mkstemp(script);
  REQUIRE(fd >= 0);
  const std::string text = "#!/bin/sh\nsleep 600\n";
  REQUIRE(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  fchmod(fd, 0700);
  close(fd);
  // The results are kept for a process, so this one is asked in another.
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    setenv("SONDE_OFI_PROBE", script, 1);
    const auto found = (*open_transport("ofi-rdm"))->probe(Deadline::in_s(1));
    // What other tests tried before is known already; at least one provider is not.
    std::size_t hung = 0;
    for (const Found& f : found) hung += !f.works && f.why.find("hangs") != std::string::npos;
    // No child is left, dead or alive.
    const bool clean = waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD;
    _exit(hung > 0 && clean ? 0 : 1);
  }
  int status = -1;
  bool ended = false;
  until([&] { return ended = ended || waitpid(child, &status, WNOHANG) == child; }, 30);
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  unlink(script);
  CHECK(ended);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("no thread, descriptor, shared memory or signal handler is left by a pair of links") {
  if (!have_ofi()) return;
  for (const auto& [transport, provider] : {std::pair{"ofi-msg", net_or_tcp()},
                                            {"ofi-msg", "tcp"},
                                            {"ofi-msg", "sockets"},
                                            {"ofi-rdm", "shm"},
                                            {"ofi-rdm", net_or_tcp()},
                                            {"ofi-rma", "shm"}}) {
    INFO(transport, " over ", provider);
    { Pair first(transport, over(provider)); }  // what libfabric keeps for the life of the process is there now
    const std::size_t threads = entries("/proc/self/task"), descriptors = entries("/proc/self/fd");
    struct sigaction before{}, after{};
    sigaction(SIGTERM, nullptr, &before);
    {
      Pair pair(transport, over(provider));
      REQUIRE_MESSAGE(pair.client, pair.error);
      REQUIRE(pair.server);
      CHECK(entries("/dev/shm", shared_stem(getpid())) ==
            0);  // its names are gone as soon as both ends know each other
    }
    CHECK(until([&] { return entries("/proc/self/task") == threads; }));
    CHECK(entries("/proc/self/fd") == descriptors);
    CHECK(entries("/dev/shm", shared_stem(getpid())) == 0);
    sigaction(SIGTERM, nullptr, &after);
    CHECK((before.sa_handler == after.sa_handler));
  }
}

TEST_CASE("what a killed process left in shared memory is swept, what a living one has is not") {
  if (!have_ofi()) return;
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  waitpid(dead, nullptr, 0);
  const std::string left = "/dev/shm/" + shared_stem(dead) + "1:0:0",
                    kept = "/dev/shm/" + shared_stem(getpid()) + "999:0:0";
  const std::string other = "/dev/shm/sonde-other-" + std::to_string(getpid());
  for (const auto& name : {left, kept, other}) close(open(name.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  { Pair pair("ofi-msg", over("tcp")); }
  CHECK(access(left.c_str(), F_OK) != 0);
  CHECK(access(kept.c_str(), F_OK) == 0);
  CHECK(access(other.c_str(), F_OK) == 0);
  unlink(left.c_str());
  unlink(kept.c_str());
  unlink(other.c_str());
}

TEST_CASE("a peer over its Control that speaks nonsense is refused") {
  if (!have_ofi()) return;
  const auto [a, b] = PairControl::make_pair();
  PairControl near(a), far(b);
  Quiet sink;
  const auto made = (*open_transport("ofi-msg"))
                        ->accept(far, bytes_of("buffers=9999999999\n\xff\xfe"), LinkOptions{}, sink, Deadline::in_s(5));
  CHECK_FALSE(made);
  CHECK(made.error().code == "store.bad_frame");
}

TEST_CASE("a peer whose messages lie is told off, and nothing else happens") {
  if (!have_ofi()) return;
  for (const auto& [transport, provider] : {std::pair{"ofi-msg", "tcp"}, {"ofi-rdm", "shm"}})
    for (int lie = 1; lie <= 7; ++lie) {
      INFO(transport, " over ", provider, ", lie ", lie);
      LinkOptions honest = over(provider), liar = honest;
      liar.more["ofi.strict"] = "1";
      liar.more["ofi.lie"] = std::to_string(lie);
      Pair pair(transport, liar, honest);
      REQUIRE_MESSAGE(pair.client, pair.error);
      REQUIRE(pair.server);
      // The next goes when the one before has arrived: frames that wait would share messages, and the tenth message is
      // what lies.
      for (int id = 1; id <= 20 && !pair.far_sink.ended; ++id) {
        pair.client->send(small_frame(static_cast<std::uint64_t>(id)));
        pair.client->flush();
        CHECK(until([&] {
          pair.server->progress();
          pair.client->progress();
          return pair.far_sink.ended || pair.far_sink.frames == id;
        }));
      }
      CHECK(pair.far_sink.ended);
      CHECK(pair.far_sink.why == "store.bad_frame");
      CHECK(pair.far_sink.frames < 20);
      CHECK_FALSE(pair.server->open());
    }
}

TEST_CASE("a client of another version of the transports is refused, and told which versions there are") {
  if (!have_ofi()) return;
  const auto refusal = [](const std::string& first) {
    const auto [a, b] = PairControl::make_pair();
    auto near = std::make_unique<PairControl>(a);
    PairControl far(b);
    Quiet sink;
    std::thread server([&] {
      CHECK_FALSE((*open_transport("ofi-msg"))->accept(far, bytes_of(first), LinkOptions{}, sink, Deadline::in_s(60)));
    });
    const auto answer = near->receive(Deadline::in_s(60));
    near.reset();
    server.join();
    REQUIRE(answer);
    return std::string(wire::text_value(wire::decode_text(*answer), "refuse"));
  };
  const std::string first = "try=tcp\nstyle=msg\nframe_data=262144\n";
  CHECK(refusal(first).find("the client speaks version 1 ") == 0);
  CHECK(refusal(first + "protocol=3\n").find("the client speaks version 3 ") == 0);
}

TEST_CASE("a server of another version of the transports is named as the reason") {
  if (!have_ofi()) return;
  const auto [a, b] = PairControl::make_pair();
  PairControl near(a);
  auto far = std::make_unique<PairControl>(b);
  Quiet sink;
  std::string why;
  std::thread client([&] {
    const auto made = (*open_transport("ofi-msg"))->connect(near, over("tcp"), sink, Deadline::in_s(60));
    CHECK_FALSE(made);
    if (!made) why = made.error().what;
  });
  CHECK(far->receive(Deadline::in_s(60)));
  CHECK(far->send(bytes_of("address=02\nformat=0\ntoken=0123456789abcdef\nbuffers=7\nbytes=278528\n")));
  CHECK(far->receive(Deadline::in_s(60)));  // that it failed
  far.reset();
  client.join();
  CHECK(why.find("the server speaks version 1 ") != std::string::npos);
}

TEST_CASE("the hash of tags gives the published values, however its text is cut") {
  ofi::SipKey key;
  for (std::size_t k = 0; k < key.size(); ++k) key[k] = static_cast<std::byte>(k);
  std::array<std::byte, 63> text;
  for (std::size_t k = 0; k < text.size(); ++k) text[k] = static_cast<std::byte>(k);
  const auto hash = [&](std::size_t bytes, std::size_t cut) {
    ofi::SipHash h(key);
    for (std::size_t at = 0; at < bytes; at += cut) h.add(std::span(text).subspan(at, std::min(cut, bytes - at)));
    return h.end();
  };
  // Of the texts 00, 01, 02 … of so many bytes; that of 15 is in the paper, the others in the authors' vectors.
  const std::pair<std::size_t, std::uint64_t> published[] = {
      {0, 0x726fdb47dd0e0e31},  {1, 0x74f839c593dc67fd},  {2, 0x0d6c8009d9a94f5a},  {3, 0x85676696d7fb7e2d},
      {4, 0xcf2794e0277187b7},  {7, 0xab0200f58b01d137},  {8, 0x93f5f5799a932462},  {9, 0x9e0082df0ba9e4b0},
      {15, 0xa129ca6149be45e5}, {16, 0x3f2acc7f57c29bdb}, {17, 0x699ae9f52cbe4794}, {63, 0x958a324ceb064572}};
  for (const auto& [bytes, value] : published)
    for (const std::size_t cut : {1, 3, 8, 11, 64}) {
      INFO(bytes, " bytes, in pieces of ", cut);
      CHECK(hash(bytes, cut) == value);
    }
}

TEST_CASE("a tag is of each field of a message, of its number in 64 bits, and of what is sealed") {
  ofi::SipKey key{};
  key[3] = std::byte{7};
  ofi::MessageHeader header;
  header.kind = 2;
  header.bytes = 100;
  header.sealed = 5;
  std::vector<std::byte> content(100, std::byte{1});
  const std::uint64_t tag = ofi::tag_of(key, header, 42, content);
  CHECK(ofi::tag_of(key, header, 42, content) == tag);
  for (std::size_t k = 0; k < offsetof(ofi::MessageHeader, tag); ++k) {
    ofi::MessageHeader other = header;
    reinterpret_cast<std::byte*>(&other)[k] ^= std::byte{1};
    INFO("byte ", k);
    CHECK(ofi::tag_of(key, other, 42, content) != tag);
  }
  CHECK(ofi::tag_of(key, header, 42 + (1ull << 32), content) != tag);
  for (const std::size_t k : {0, 39}) {
    content[k] ^= std::byte{1};
    CHECK(ofi::tag_of(key, header, 42, content) != tag);
    content[k] ^= std::byte{1};
  }
  content[40] ^= std::byte{1};
  CHECK(ofi::tag_of(key, header, 42, content) == tag);
  key[3] = std::byte{8};
  CHECK(ofi::tag_of(key, header, 42, content) != tag);
}

TEST_CASE("a message of the peer is held against what was sent and taken") {
  const ofi::LinkCounts counts{9, 2, (1ull << 32) + 5, 8};
  ofi::MessageHeader sound;
  sound.kind = static_cast<std::uint8_t>(ofi::MessageKind::stream);
  sound.bytes = 20;
  sound.sequence = 5;
  sound.given = 9;
  sound.released = 2;
  const auto refused = [&](auto change, std::size_t bytes = 20) {
    ofi::MessageHeader header = sound;
    change(header);
    const auto ok = ofi::check_header(header, bytes, counts, "p");
    if (!ok) CHECK(ok.error().code == "store.bad_frame");
    return !ok;
  };
  CHECK_FALSE(refused([](auto&) {}));
  CHECK_FALSE(refused([](auto& h) { h.sequence = 12; }));  // before its turn, and there is a receive for it
  CHECK_FALSE(refused([](auto& h) { h.given = 0, h.released = 0; }));
  CHECK(refused([](auto&) {}, 19));
  CHECK(refused([](auto& h) { h.magic = 0; }));
  CHECK(refused([](auto& h) { h.kind = 0; }));
  CHECK(refused([](auto& h) { h.kind = 8; }));
  CHECK(refused([](auto& h) { h.sequence = 13; }));
  CHECK(refused([](auto& h) { h.sequence = 4; }));
  CHECK(refused([](auto& h) { h.given = 10; }));
  CHECK(refused([](auto& h) { h.released = 3; }));
  ofi::SipKey key{};
  const std::vector<std::byte> content(20, std::byte{1});
  sound.tag = ofi::tag_of(key, sound, (1ull << 32) + 5, content);
  CHECK(ofi::tag_fits(key, sound, counts, content));
  CHECK_FALSE(ofi::tag_fits(key, sound, {9, 2, 5, 8}, content));  // the number in 64 bits
}

TEST_CASE("an announcement is of as much as its frame has, in one piece of text") {
  const auto announced = [](std::uint32_t data, const std::vector<ofi::Range>& ranges, std::size_t cut = 0) {
    wire::Header header;
    header.kind = wire::Kind::ping;
    header.data_bytes = data;
    const std::uint32_t counts[2] = {wire::header_bytes, static_cast<std::uint32_t>(ranges.size())};
    std::vector<std::byte> content(sizeof counts + ranges.size() * sizeof(ofi::Range) + wire::header_bytes);
    std::memcpy(content.data(), counts, sizeof counts);
    if (!ranges.empty()) std::memcpy(content.data() + 8, ranges.data(), ranges.size() * sizeof(ofi::Range));
    wire::encode(header, content.data() + content.size() - wire::header_bytes);
    content.resize(content.size() - cut);
    const auto read = ofi::read_announcement(content);
    if (!read) CHECK(read.error().code == "store.bad_frame");
    else CHECK((*read).header.data_bytes == data);
    return bool(read);
  };
  CHECK(announced(5000, {{1, 2, 5000}}));
  CHECK(announced(5000, {{1, 2, 1}, {~0ull, 3, 4999}}));
  CHECK(announced(64, std::vector<ofi::Range>(64, {1, 2, 1})));
  CHECK_FALSE(announced(65, std::vector<ofi::Range>(65, {1, 2, 1})));
  CHECK_FALSE(announced(5000, {{1, 2, 4999}}));
  CHECK_FALSE(announced(0, {{1, 2, ~0ull}, {1, 2, 1}}));  // whose sum is 0
  CHECK_FALSE(announced(0, {{1, 2, 0}}));                 // there is nothing to read
  CHECK_FALSE(announced(5000, {}));
  CHECK_FALSE(announced(5000, {{1, 2, 5000}}, 1));
  CHECK_FALSE(ofi::read_announcement({}));
}

TEST_CASE("what a peer says of its receives and its address is what it can be, or nothing") {
  const auto receives = [](const char* text) { return bool(ofi::receives_in(wire::decode_text(bytes_of(text)))); };
  CHECK(receives("buffers=4\nbytes=4096\n"));
  CHECK(receives("buffers=4096\nbytes=67108864\n"));
  for (const char* wrong : {"", "buffers=3\nbytes=4096\n", "buffers=4097\nbytes=4096\n", "buffers=4\nbytes=4095\n",
                            "buffers=4\nbytes=67108865\n", "buffers=-1\nbytes=-1\n",
                            "buffers=18446744073709551620\nbytes=4096\n", "buffers=4 \nbytes=4096\n"})
    CHECK_FALSE(receives(wrong));
  CHECK(ofi::from_hex("00ffA0").size() == 3);
  for (const char* wrong : {"", "0", "000", "0g", "-1", "0x00"}) CHECK(ofi::from_hex(wrong).empty());
}

TEST_CASE("an address that is none, or too short for its kind, is refused at both ends") {
  if (!have_ofi()) return;
  for (const char* address : {"", "0", "02", "0a00", "0a000000"}) {
    INFO("'", address, "'");
    {
      const auto [a, b] = PairControl::make_pair();
      PairControl near(a);
      auto far = std::make_unique<PairControl>(b);
      Quiet sink;
      bool made = false;
      std::thread client(
          [&] { made = bool((*open_transport("ofi-msg"))->connect(near, over("tcp"), sink, Deadline::in_s(60))); });
      CHECK(far->receive(Deadline::in_s(60)));
      CHECK(far->send(bytes_of("protocol=2\nformat=1\ntoken=0123456789abcdef\nbuffers=7\nbytes=278528\nkeys=" +
                               std::string(64, '0') + "\naddress=" + address + '\n')));
      (void)far->receive(Deadline::in_s(60));  // that it failed
      far.reset();
      client.join();
      CHECK_FALSE(made);
    }
    const auto [a, b] = PairControl::make_pair();
    auto near = std::make_unique<PairControl>(a);
    PairControl far(b);
    Quiet sink;
    bool made = false;
    std::thread server([&] {
      const std::string first = std::string("try=") + net_or_tcp() + "\nprotocol=2\nstyle=rdm\n";
      made = bool((*open_transport("ofi-rdm"))->accept(far, bytes_of(first), {}, sink, Deadline::in_s(60)));
    });
    CHECK(near->receive(Deadline::in_s(60)));
    CHECK(near->send(bytes_of("buffers=4\nbytes=4096\naddress=" + std::string(address) + '\n')));
    CHECK(near->send(bytes_of("failed=it was tried\n")));
    near.reset();
    server.join();
    CHECK_FALSE(made);
  }
}

TEST_CASE("a client that goes in the middle of the handshake does not hold the server") {
  if (!have_ofi()) return;
  for (const auto& [transport, provider, style] :
       {std::tuple{"ofi-msg", "tcp", "msg"}, {"ofi-rdm", net_or_tcp(), "rdm"}}) {
    const auto [a, b] = PairControl::make_pair();
    auto near = std::make_unique<PairControl>(a);
    PairControl far(b);
    Quiet sink;
    bool failed = false;
    std::thread server([&, transport = transport, provider = provider, style = style] {
      const std::string first = std::string("try=") + provider + "\nprotocol=2\nstyle=" + style + "\n";
      failed = !(*open_transport(transport))->accept(far, bytes_of(first), LinkOptions{}, sink, Deadline::in_s(20));
    });
    CHECK((*near).receive(Deadline::in_s(10)));  // its address
    const std::int64_t gone = now_ns();
    near.reset();
    server.join();
    CHECK(failed);
    CHECK(now_ns() - gone < 10'000'000'000);  // long before the deadline
  }
}

namespace {

/// Over shared memory, where all data is announced and read by the peer.
LinkOptions announcing() {
  LinkOptions options = over("shm");
  options.rma_from = 1;
  return options;
}

/// A frame whose data, at `memory`, stays there.
Outgoing large_frame(Bytes memory) {
  Outgoing out = small_frame(1);
  wire::Header header;
  header.kind = wire::Kind::ping;
  header.id = 1;
  header.data_bytes = static_cast<std::uint32_t>(memory.size());
  header.body_crc = wire::crc32c(memory);
  wire::encode(header, out.head.data());
  out.segments.push_back(memory);
  return out;
}

}  // namespace

TEST_CASE("over shared memory what is announced is read and delivered in one turn") {
  if (!have_ofi()) return;
  Pair pair("ofi-rma", announcing());
  REQUIRE_MESSAGE(pair.client, pair.error);
  REQUIRE(pair.server);
  const std::vector<std::byte> memory(100'000, std::byte{1});
  for (int round = 1; round <= 5; ++round) {
    pair.client->send(large_frame(memory));
    pair.client->flush();
    // Every turn more is one around the event loop of whoever reads.
    const int first = pair.server->progress();
    if (!peer_moves_reads()) CHECK(first == 1);
    if (first == 0) {
      pair.client->progress();
      CHECK(pair.server->progress() == 1);
    }
    CHECK(pair.far_sink.frames == round);
    CHECK_FALSE(pair.client->taken());  // it was not told yet
    pair.server->send(small_frame(2));
    pair.server->flush();
    CHECK(until([&] {
      pair.client->progress();
      pair.server->progress();
      return pair.client->taken() && pair.near_sink.frames == round;
    }));
  }
}

TEST_CASE("a peer that sleeps is woken where it has to move what is read of its memory") {
  if (!have_ofi()) return;
  Pair pair("ofi-rma", announcing());
  REQUIRE_MESSAGE(pair.client, pair.error);
  REQUIRE(pair.server);
  const std::vector<std::byte> memory(100'000, std::byte{1});
  const auto woken = [&] {
    pollfd bell{pair.client->wait_fd(), POLLIN, 0};
    return poll(&bell, 1, 0) == 1;
  };
  for (const bool first : {true, false}) {  // asleep before the announcement is seen, and after it
    const int before = pair.far_sink.frames;
    pair.client->send(large_frame(memory));
    pair.client->flush();
    if (first) REQUIRE(until([&] { return pair.client->arm(); }));
    pair.server->progress();
    if (!first) REQUIRE(until([&] { return pair.client->arm(); }));
    CHECK(until([&] { return pair.server->progress() || pair.far_sink.frames > before || woken(); }));
    CHECK(until([&] {
      pair.client->progress();
      pair.server->progress();
      return pair.far_sink.frames > before;
    }));
    pair.server->send(small_frame(2));
    pair.server->flush();
    CHECK(until([&] {
      pair.client->progress();
      pair.server->progress();
      return pair.client->taken();
    }));
  }
}

TEST_CASE("what a peer announced is not read once it is gone and its memory is another's") {
  if (!have_ofi()) return;
  for (const char* provider : {"shm", "tcp"}) {
    INFO(provider);
    LinkOptions options = over(provider);
    options.rma_from = 1;
    Pair pair("ofi-rma", options);
    REQUIRE_MESSAGE(pair.client, pair.error);
    std::vector<std::byte> memory(300'000, std::byte{1});
    pair.client->send(large_frame(memory));
    pair.client->flush();
    CHECK(until([&] {
      pair.client->progress();
      return pair.client->backlog() == 0;
    }));
    CHECK_FALSE(pair.client->taken());
    pair.client.reset();  // not for ever does it wait
    std::fill(memory.begin(), memory.end(), std::byte{2});
    CHECK(until([&] {
      pair.server->progress();
      return pair.far_sink.ended;
    }));
    CHECK(pair.far_sink.frames == 0);
    CHECK(pair.far_sink.why == "store.disconnected");
  }
}

TEST_CASE("frames after the end are dropped") {
  if (!have_ofi()) return;
  Pair pair("ofi-msg", over("tcp"));
  REQUIRE_MESSAGE(pair.client, pair.error);
  pair.server.reset();
  CHECK(until([&] {
    pair.client->progress();
    return pair.near_sink.ended;
  }));
  CHECK(pair.near_sink.why == "");
  CHECK_FALSE(pair.client->open());
  pair.client->send(small_frame(1));
  pair.client->flush();
  CHECK(pair.client->backlog() == 0);
  CHECK(pair.client->progress() == 0);
  CHECK(pair.client->info().provider == "tcp");
}

TEST_CASE("an armed link's descriptor wakes an event loop") {
  if (!have_ofi()) return;
  for (const auto& [transport, provider] :
       {std::pair{"ofi-msg", net_or_tcp()}, {"ofi-msg", "tcp"}, {"ofi-rdm", "shm"}, {"ofi-rdm", net_or_tcp()}}) {
    INFO(transport, " over ", provider);
    Pair pair(transport, over(provider));
    REQUIRE_MESSAGE(pair.client, pair.error);
    for (int round = 1; round <= 3; ++round) {
      while (!pair.server->arm()) pair.server->progress();
      pollfd wait{pair.server->wait_fd(), pair.server->wait_events(), 0};
      REQUIRE(wait.fd >= 0);
      CHECK(poll(&wait, 1, 20) == 0);  // nothing there: it does sleep
      pair.client->send(small_frame(1));
      pair.client->flush();
      const Deadline deadline = Deadline::in_s(5);
      while (pair.far_sink.frames < round && !deadline.passed()) {
        CHECK(poll(&wait, 1, 5000) == 1);
        pair.server->progress();
        pair.client->progress();
        while (pair.far_sink.frames < round && !pair.server->arm()) pair.server->progress();
      }
      CHECK(pair.far_sink.frames == round);
    }
  }
}
