// Damaged and forged datagrams at the ports of a process that has a bus, while it exchanges samples. The attacker is no
// DDS: it repeats what the process itself sends, as a participant of its own, so that its datagrams get as far as a
// peer's, and then damages them.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../claimed.hpp"
#include "bus/bus.hpp"
#include "bus/cdr.hpp"
#include "core/clock.hpp"

using namespace sonde;
using namespace sonde::bus;

namespace {

constexpr int results = 3;  // the child's descriptor of what it says; libraries write on the others
constexpr double patience_s = 60;

const TypePtr blob = structure("wire::Blob", {{"n", primitive(Kind::uint64), false, ""},
                                              {"data", sequence_of(primitive(Kind::octet)), false, ""}});
const TypePtr keyed =
    structure("wire::Keyed", {{"name", string_type(), true, ""}, {"n", primitive(Kind::uint64), false, ""}});

std::vector<std::byte> sample(const TypePtr& type, std::uint64_t n) {
  std::vector<std::byte> out;
  CdrWriter writer(out);
  if (type == keyed) writer.put(std::string_view("n001"));
  writer.put(n);
  if (type == blob) {
    const std::vector<std::byte> data(n % 40 == 0 ? 20'000 : n % 200);  // some in fragments
    writer.put(static_cast<std::uint32_t>(data.size()));
    writer.put_bytes(data);
  }
  return out;
}
std::uint64_t number_of(const TypePtr& type, Bytes payload) {
  CdrReader reader(payload);
  if (type == keyed) reader.get_string();
  return reader.get<std::uint64_t>();
}

void say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(results, text.data(), text.size()) < 0) ::_exit(4);
}

/// One sample at a time from a participant to another, on two topics.
struct Exchange {
  std::shared_ptr<Bus> from, to;
  struct Way {
    TypePtr type;
    std::unique_ptr<Writer> writer;
    std::unique_ptr<Reader> reader;
  };
  std::vector<Way> ways;
  std::uint64_t n = 0;

  bool open(const Profile& profile, const std::string& implementation, const std::string& topic) {
    for (auto* bus : {&from, &to}) {
      auto opened = Bus::open(profile, implementation);
      if (!opened) return false;
      *bus = *opened;
    }
    for (const TypePtr& type : {blob, keyed}) {
      auto writer = from->writer(topic + std::to_string(ways.size()), type, Qos{});
      auto reader = to->reader(topic + std::to_string(ways.size()), type, Qos{});
      if (!writer || !reader) return false;
      ways.push_back({type, std::move(*writer), std::move(*reader)});
    }
    const Deadline deadline = Deadline::in_s(patience_s);
    for (const Way& way : ways) {
      // Others may be matched as well.
      const auto is_matched = [&] {
        const auto writers = way.reader->matched(), readers = way.writer->matched();
        return std::find(writers.begin(), writers.end(), way.writer->guid()) != writers.end() &&
               std::find(readers.begin(), readers.end(), way.reader->guid()) != readers.end();
      };
      while (!is_matched() && !deadline.passed()) sleep_until(now_s() + 5e-3);
      if (!is_matched()) return false;
    }
    return true;
  }
  bool round() {
    ++n;
    for (const Way& way : ways) {
      if (!way.writer->write(sample(way.type, n))) return false;
      bool came = false;
      for (const Deadline deadline = Deadline::in_s(patience_s); !came && !deadline.passed();
           sleep_until(now_s() + 1e-4))
        way.reader->take([&](const SampleInfo& info, Bytes payload) {
          if (info.writer == way.writer->guid() && info.has_data) came |= number_of(way.type, payload) == n;
        });
      if (!came) return false;
    }
    return true;
  }
};

/// The process that is attacked.
class Victim {
 public:
  explicit Victim(const std::string& implementation, const Profile& profile) {
    int in[2], out[2];
    REQUIRE(::pipe(in) == 0);
    REQUIRE(::pipe(out) == 0);
    ::setenv("SONDE_TEST_BUS_PROFILE", to_xml(profile).c_str(), 1);
    ::setenv("SONDE_TEST_BUS_IMPLEMENTATION", implementation.c_str(), 1);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(in[0], 0);
      ::dup2(out[1], results);
      for (const int fd : {in[0], in[1], out[0], out[1]})
        if (fd != results && fd != 0) ::close(fd);
      ::execl("/proc/self/exe", "sonde-test-bus", "--no-skip", "-m", "-tc=the child of a wire test",
              static_cast<char*>(nullptr));
      ::_exit(10);
    }
    ::unsetenv("SONDE_TEST_BUS_PROFILE");
    ::unsetenv("SONDE_TEST_BUS_IMPLEMENTATION");
    ::close(in[0]), ::close(out[1]);
    in_ = in[1], out_ = out[0];
    REQUIRE(pid_ > 0);
  }
  ~Victim() {
    ::close(in_);
    if (status_ < 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    ::close(out_);
  }
  /// A line of what it says; empty: it says nothing more, or nothing in time.
  std::string line() {
    for (;;) {
      if (const auto end = said_.find('\n'); end != said_.npos) {
        std::string first = said_.substr(0, end);
        said_.erase(0, end + 1);
        return first;
      }
      pollfd wait{out_, POLLIN, 0};
      if (::poll(&wait, 1, static_cast<int>(2 * patience_s * 1e3)) <= 0) return {};
      char block[4096];
      const ssize_t n = ::read(out_, block, sizeof block);
      if (n <= 0) return {};
      said_.append(block, static_cast<std::size_t>(n));
    }
  }
  std::string ask(const char* what) {
    if (::write(in_, what, 1) != 1) return {};
    return line();
  }
  /// "", or how it ended before its time.
  std::string death() {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return {};
    status_ = status;
    return WIFSIGNALED(status) ? "ended by signal " + std::to_string(WTERMSIG(status))
                               : "ended with " + std::to_string(WEXITSTATUS(status));
  }
  /// The UDP ports of its sockets.
  std::vector<std::uint16_t> ports() const {
    std::set<std::string> inodes;
    std::error_code none;
    const std::string proc = "/proc/" + std::to_string(pid_);
    for (const auto& fd : std::filesystem::directory_iterator(proc + "/fd", none)) {
      const std::string to = std::filesystem::read_symlink(fd.path(), none);
      if (to.starts_with("socket:[")) inodes.insert(to.substr(8, to.size() - 9));
    }
    std::set<std::uint16_t> ports;
    std::ifstream table(proc + "/net/udp");
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      std::istringstream words(line);
      std::string word, local;
      for (int k = 0; k < 10 && words >> word; ++k)
        if (k == 1) local = word;
      if (inodes.contains(word))
        ports.insert(static_cast<std::uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
    }
    return {ports.begin(), ports.end()};
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, status_ = -1;
  std::string said_;
};

using Datagram = std::vector<unsigned char>;
using Prefix = std::array<unsigned char, 12>;
constexpr std::size_t header_bytes = 20, prefix_at = 8;

Prefix prefix_of(const Datagram& of) {
  Prefix prefix;
  std::copy_n(of.begin() + prefix_at, prefix.size(), prefix.begin());
  return prefix;
}
bool is_rtps(const Datagram& of) { return of.size() > header_bytes && std::memcmp(of.data(), "RTPS", 4) == 0; }

/// Everywhere in it: the sender's in the header, and what it says of itself and its endpoints.
void replace(Datagram& in, const Prefix& from, const Prefix& to) {
  for (auto at = in.begin(); (at = std::search(at, in.end(), from.begin(), from.end())) != in.end();
       at += static_cast<std::ptrdiff_t>(to.size()))
    std::copy(to.begin(), to.end(), at);
}

/// Submessages, as offset and length; the last may be cut.
std::vector<std::pair<std::size_t, std::size_t>> submessages(const Datagram& of) {
  std::vector<std::pair<std::size_t, std::size_t>> all;
  for (std::size_t at = header_bytes; at + 4 <= of.size();) {
    const bool little = of[at + 1] & 1;
    std::size_t length = little ? of[at + 2] | of[at + 3] << 8 : of[at + 3] | of[at + 2] << 8;
    if (length == 0) length = of.size() - at - 4;
    const std::size_t end = std::min(of.size(), at + 4 + length);
    all.emplace_back(at, end - at);
    at = end;
  }
  return all;
}

/// The addresses that a participant announces become the attacker's: what is sent to it comes here.
void point_to(Datagram& announcement, std::uint16_t port) {
  constexpr std::array<std::uint16_t, 4> locators{0x31, 0x32, 0x33, 0x48};  // of DDSI-RTPS' parameters
  for (const auto& [at, length] : submessages(announcement)) {
    if (announcement[at] != 0x15) continue;
    for (std::size_t k = at + 4; k + 28 <= at + length; k += 4) {
      const std::uint16_t id = static_cast<std::uint16_t>(announcement[k] | announcement[k + 1] << 8),
                          size = static_cast<std::uint16_t>(announcement[k + 2] | announcement[k + 3] << 8);
      if (size != 24 || std::find(locators.begin(), locators.end(), id) == locators.end()) continue;
      const std::uint32_t wide = port;
      std::memcpy(&announcement[k + 8], &wide, 4);
      const unsigned char address[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 127, 0, 0, 1};
      std::memcpy(&announcement[k + 12], address, 16);
    }
  }
}

class Attacker {
 public:
  Attacker(std::uint32_t domain, std::uint64_t seed) : random_(seed) {
    socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(socket_, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
    socklen_t size = sizeof own;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &size);
    port_ = ntohs(own.sin_port);
    group_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(group_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    ::setsockopt(group_, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
    sockaddr_in group{};
    group.sin_family = AF_INET;
    group.sin_port = htons(static_cast<std::uint16_t>(7400 + 250 * domain));
    ::inet_pton(AF_INET, "239.255.0.1", &group.sin_addr);
    REQUIRE(::bind(group_, reinterpret_cast<const sockaddr*>(&group), sizeof group) == 0);
    ip_mreq join{group.sin_addr, {htonl(INADDR_LOOPBACK)}};
    REQUIRE(::setsockopt(group_, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join) == 0);
    for (auto& byte : own_) byte = static_cast<unsigned char>(random_());
  }
  ~Attacker() { ::close(socket_), ::close(group_); }

  /// Learns who is there, joins as one more participant, and collects what it is told, for so long; longer where that
  /// is little.
  void learn(const std::vector<std::uint16_t>& ports, double seconds) {
    const auto enough = [this] { return others_.size() >= 2 && seeds_.size() >= 10; };
    for (const Deadline deadline = Deadline::in_s(seconds), patience = Deadline::in_s(60);
         !(deadline.passed() && (enough() || patience.passed()));) {
      pollfd wait[2]{{group_, POLLIN, 0}, {socket_, POLLIN, 0}};
      ::poll(wait, 2, 50);
      for (int k = 0; k < 2; ++k) {
        if (!(wait[k].revents & POLLIN)) continue;
        Datagram got(65536);
        const ssize_t n = ::recv(k ? socket_ : group_, got.data(), got.size(), 0);
        got.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
        if (!is_rtps(got) || prefix_of(got) == own_) continue;
        const Prefix from = prefix_of(got);
        if (std::find(others_.begin(), others_.end(), from) == others_.end()) others_.push_back(from);
        // As if it were the attacker's own: it announces itself, and endpoints of the same topics.
        replace(got, from, own_);
        if (k == 0) point_to(got, port_);
        send(got, ports);
        if (seeds_.size() < 400) seeds_.push_back(std::move(got));
      }
    }
  }
  std::size_t seeds() const { return seeds_.size(); }
  std::size_t others() const { return others_.size(); }

  /// `forge`: in the name of others, too.
  void attack(const std::vector<std::uint16_t>& ports, std::size_t datagrams, bool forge) {
    for (std::size_t k = 0; k < datagrams; ++k) {
      Datagram one = seeds_[random_() % seeds_.size()];
      const std::uint64_t times = 1 + random_() % 4;
      if (random_() % 16)
        for (std::uint64_t t = 0; t < times; ++t) damage(one);
      if (one.size() >= header_bytes && random_() % 32) {
        std::memcpy(one.data(), "RTPS\2\1", 6);
        const Prefix& as = forge && random_() % 2 ? others_[random_() % others_.size()] : own_;
        std::copy(as.begin(), as.end(), one.begin() + prefix_at);
        // Of whom it tells, and to whom.
        if (forge && random_() % 2) replace(one, own_, others_[random_() % others_.size()]);
      }
      if (!forge)
        for (const Prefix& other : others_) {
          // Nobody else is spoken for, by chance or by what was repeated.
          if (one.size() >= header_bytes && std::equal(other.begin(), other.end(), one.begin() + prefix_at))
            replace(one, other, own_);
        }
      send(one, {ports[random_() % ports.size()]});
      if (k % 20 == 0) sleep_until(now_s() + 1e-3);  // more would be lost in the sockets' buffers
    }
  }

 private:
  void send(const Datagram& what, const std::vector<std::uint16_t>& ports) {
    for (const std::uint16_t port : ports) {
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      to.sin_port = htons(port);
      ::sendto(socket_, what.data(), what.size(), MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    }
  }

  void damage(Datagram& of) {
    if (of.size() <= header_bytes) of.resize(header_bytes + 1 + random_() % 64);
    const auto at = [&](std::size_t width) {
      return header_bytes + (of.size() > header_bytes + width ? random_() % (of.size() - header_bytes - width) : 0);
    };
    constexpr std::uint32_t odd[] = {0,      1,       2,          3,          4,          7,
                                     8,      0x7f,    0xff,       0x100,      0x7fff,     0x8000,
                                     0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
    constexpr unsigned char kinds[] = {0x01, 0x06, 0x07, 0x08, 0x09, 0x0c, 0x0d, 0x0e, 0x0f, 0x12,
                                       0x13, 0x15, 0x16, 0x30, 0x31, 0x32, 0x33, 0x34, 0x80, 0xff};
    switch (random_() % 10) {
      case 0:
      case 1:
        for (std::uint64_t n = 1 + random_() % 8; n; --n) of[at(1)] ^= static_cast<unsigned char>(1u << random_() % 8);
        return;
      case 2:
      case 3: {
        const std::uint32_t value = odd[random_() % std::size(odd)];
        if (const std::size_t k = at(4) & ~std::size_t{3}; k + 4 <= of.size()) std::memcpy(&of[k], &value, 4);
        return;
      }
      case 4: {
        const auto value = static_cast<std::uint16_t>(odd[random_() % std::size(odd)]);
        if (const std::size_t k = at(2) & ~std::size_t{1}; k + 2 <= of.size()) std::memcpy(&of[k], &value, 2);
        return;
      }
      case 5: of.resize(at(1)); return;
      case 6: {  // a block once more
        const std::size_t from = at(1), n = std::min<std::size_t>(of.size() - from, 1 + random_() % 64);
        const Datagram block(of.begin() + static_cast<std::ptrdiff_t>(from),
                             of.begin() + static_cast<std::ptrdiff_t>(from + n));
        of.insert(of.begin() + static_cast<std::ptrdiff_t>(at(1)), block.begin(), block.end());
        return;
      }
      case 7: {  // submessages of another
        const Datagram& other = seeds_[random_() % seeds_.size()];
        const auto parts = submessages(other), own = submessages(of);
        if (parts.empty() || own.empty()) return;
        const auto& [from, n] = parts[random_() % parts.size()];
        const std::size_t to = own[random_() % own.size()].first;
        if (of.size() + n < 60'000)
          of.insert(of.begin() + static_cast<std::ptrdiff_t>(to), other.begin() + static_cast<std::ptrdiff_t>(from),
                    other.begin() + static_cast<std::ptrdiff_t>(from + n));
        return;
      }
      case 8: {  // another kind, flags, or length
        const auto own = submessages(of);
        if (own.empty()) return;
        const std::size_t from = own[random_() % own.size()].first;
        switch (random_() % 3) {
          case 0: of[from] = kinds[random_() % std::size(kinds)]; return;
          case 1: of[from + 1] = static_cast<unsigned char>(random_()); return;
          default:
            of[from + 2] = static_cast<unsigned char>(random_()),
                      of[from + 3] = static_cast<unsigned char>(random_() % 4);
            return;
        }
      }
      default:
        of.resize(header_bytes + random_() % 200);
        for (std::size_t k = header_bytes; k < of.size(); ++k) of[k] = static_cast<unsigned char>(random_());
    }
  }

  int socket_ = -1, group_ = -1;
  std::uint16_t port_ = 0;
  std::mt19937_64 random_;
  Prefix own_{};
  std::vector<Prefix> others_;
  std::vector<Datagram> seeds_;
};

std::size_t number_from(const char* name, std::size_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoul(text, nullptr, 10) : otherwise;
}

}  // namespace

TEST_CASE("the child of a wire test" * doctest::skip()) {
  const char* text = std::getenv("SONDE_TEST_BUS_PROFILE");
  const char* implementation = std::getenv("SONDE_TEST_BUS_IMPLEMENTATION");
  if (!text || !implementation) return;
  auto profile = parse_profile(text);
  REQUIRE(profile);
  Exchange exchange;
  const bool opened = exchange.open(*profile, implementation, "wire");
  say(opened ? "ready" : "not opened");
  std::string wrong;
  for (;;) {
    pollfd asked{0, POLLIN, 0};
    ::poll(&asked, 1, 0);
    if (asked.revents) {
      char what = 0;
      if (::read(0, &what, 1) != 1) ::_exit(0);
      if (what == 'r') say(wrong.empty() ? "round " + std::to_string(exchange.n) : wrong);
      if (what == 'f') {
        Exchange fresh;
        std::string said = fresh.open(*profile, implementation, "fresh") ? "" : "newcomers do not meet";
        for (int k = 0; k < 50 && said.empty(); ++k)
          if (!fresh.round()) said = "a newcomer's sample did not come";
        say(said.empty() ? "fresh" : said);
      }
    }
    if (wrong.empty() && !exchange.round()) wrong = "stuck at sample " + std::to_string(exchange.n);
  }
}

TEST_CASE("bus: damaged datagrams end no process, and hold up no samples of others") {
  // Not Fast DDS: Debian's 2.9.1 asserts what a damaged statistics submessage has to be, and its process ends
  // (docs/reference/bus-security.md).
  for (const char* implementation : {"cyclonedds"}) {
    if (!find_implementation(implementation)) continue;
    CAPTURE(implementation);
    Profile profile;
    profile.domain = claimed::domain();
    profile.participant = "victim";
    profile.discovery.announce_s = 0.2;
    const std::size_t seed = number_from("SONDE_TEST_WIRE_SEED", 1),
                      datagrams = number_from("SONDE_TEST_WIRE_DATAGRAMS", 10'000);
    CAPTURE(seed);
    Victim victim(implementation, profile);
    REQUIRE(victim.line() == "ready");
    Attacker attacker(profile.domain, seed);
    attacker.learn(victim.ports(), 3);
    REQUIRE(attacker.others() >= 2);
    REQUIRE(attacker.seeds() >= 10);

    const auto rounds = [&] {
      const std::string said = victim.ask("r");
      CHECK_MESSAGE(said.starts_with("round "), "'" << said << "' " << victim.death());
      return said.starts_with("round ") ? std::stoull(said.substr(6)) : 0;
    };
    const auto before = rounds();
    attacker.attack(victim.ports(), datagrams, false);
    CHECK_MESSAGE(rounds() > before, "samples do not go on");
    attacker.attack(victim.ports(), datagrams, true);
    // Whoever speaks in others' names can take samples from them; not from those who come afterwards.
    CHECK(victim.ask("f") == "fresh");
    CHECK(victim.death() == "");
  }
}
