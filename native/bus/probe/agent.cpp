#include "bus/probe/agent.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "bus/network.hpp"
#include "bus/probe/drawn.hpp"
#include "core/thrown.hpp"
#include "core/ticks.hpp"

namespace sonde::bus::probe {

namespace {

/// Unmeasured time at the start of a burst, while the scheduler places both ends.
constexpr std::int64_t settle_ns = 3'000'000;
constexpr double patience_s = 1;        ///< a message that took longer is lost
constexpr std::uint32_t most_lost = 3;  ///< consecutive losses that end the burst
constexpr std::uint32_t counted_extra =
    5;  ///< extra messages for which instructions are counted, because reading the counter takes time
const double nan = std::nan("");

class Echo final : public Worker {
 public:
  Echo(Receiver& from, Sender& to, std::size_t size, bool spin)
      : from_(from), thread_([this, &to, size, spin] { run(to, size, spin); }) {}
  ~Echo() override {
    over_ = true;
    from_.wake();
    thread_.join();
  }

 private:
  void run(Sender& to, std::size_t size, bool spin) {
    ::prctl(PR_SET_NAME, "echo");
    Message answer(size);
    std::vector<MessageHead> heads;
    const Receiver::Taker taker = [&](Bytes body) {
      MessageHead head;
      if (!Message::read(body, head)) return;
      head.received_ns = now_ns();
      heads.push_back(head);
    };
    while (!over_) {
      if (spin) {
        while (!over_ && from_.look(taker) == 0) {}
      } else {
        from_.receive(taker, {});
      }
      for (const auto& head : heads) {
        const auto length = answer.head().length;
        answer.head() = head;
        answer.head().length = length;
        (void)to.write(answer);  // the other end detects the loss
      }
      heads.clear();
    }
  }
  Receiver& from_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

class Counting final : public Collector {
 public:
  Counting(Receiver& from, std::unique_ptr<SharedBoard> board, std::uint32_t subscriber)
      : from_(from), board_(std::move(board)), thread_([this, subscriber] { run(subscriber); }) {}
  ~Counting() override {
    over_ = true;
    from_.wake();
    thread_.join();
  }
  Counted counted(std::uint32_t burst) override {
    if (burst_.load(std::memory_order_acquire) != burst) return {};
    return {received_.load(), first_ns_.load(), last_ns_.load()};
  }

 private:
  void run(std::uint32_t subscriber) {
    ::prctl(PR_SET_NAME, "collect");
    std::uint64_t next = 0;
    const Receiver::Taker taker = [&](Bytes body) {
      MessageHead head;
      if (!Message::read(body, head)) return;
      const std::int64_t at_ns = now_ns();
      if (board_) board_->tell(subscriber, head.burst, static_cast<std::uint32_t>(head.index), at_ns);
      if (burst_.load(std::memory_order_relaxed) != head.burst) {
        next = 0;
        received_ = 0;
        first_ns_.store(at_ns, std::memory_order_relaxed);
        burst_.store(head.burst, std::memory_order_release);
      }
      if (head.index < next) return;  // a duplicate
      next = head.index + 1;
      received_.store(received_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      last_ns_.store(at_ns, std::memory_order_relaxed);
    };
    while (!over_) from_.receive(taker, {});
  }
  Receiver& from_;
  std::unique_ptr<SharedBoard> board_;
  std::atomic<std::uint32_t> burst_{0};
  std::atomic<std::uint64_t> received_{0};
  std::atomic<std::int64_t> first_ns_{0}, last_ns_{0};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

class Awake final : public Worker {
 public:
  Awake() {
    cpu_set_t may;
    ::sched_getaffinity(0, sizeof may, &may);
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &may)) threads_.emplace_back([this, core] { run(core); });
  }
  ~Awake() override {
    over_ = true;
    for (auto& t : threads_) t.join();
  }

 private:
  void run(int core) {
    const sched_param none{};
    ::sched_setscheduler(0, SCHED_IDLE, &none);
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(core, &here);
    ::sched_setaffinity(0, sizeof here, &here);
    while (!over_.load(std::memory_order_relaxed)) {}
  }
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

volatile sig_atomic_t told_to_end = 0;
constexpr unsigned end_within_s = 5;

Error ended() { return {"bus.interrupted", "the program was asked to end", ""}; }

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// The local address that the system uses towards a host; IPv4 if available. Error: bus.unknown_host.
Result<std::string> address_towards(const std::string& host) {
  const auto peer = parse_peer(host);
  if (!peer) return peer.error();
  const auto v4 = address_of(*peer, false);
  const auto v6 = v4 ? v4 : address_of(*peer, true);
  if (!v6) return v4.error();
  const bool old = bool(v4);
  sockaddr_in at4{};
  sockaddr_in6 at6{};
  at4.sin_family = AF_INET;
  at6.sin6_family = AF_INET6;
  at4.sin_port = at6.sin6_port = htons(9);  // nothing is sent
  if (old) ::inet_pton(AF_INET, (*v4).c_str(), &at4.sin_addr);
  else ::inet_pton(AF_INET6, (*v6).c_str(), &at6.sin6_addr);
  auto* const at = old ? reinterpret_cast<sockaddr*>(&at4) : reinterpret_cast<sockaddr*>(&at6);
  socklen_t n = old ? sizeof at4 : sizeof at6;
  const int fd = ::socket(at->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool ok = fd >= 0 && ::connect(fd, at, n) == 0 && ::getsockname(fd, at, &n) == 0;
  const int why = errno;
  if (fd >= 0) ::close(fd);
  if (!ok)
    return Error{"bus.unknown_host", "no route leads to the host " + host + ": " + std::strerror(why),
                 "name the network between the hosts with --interfaces"};
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(at->sa_family, old ? static_cast<const void*>(&at4.sin_addr) : &at6.sin6_addr, text, sizeof text);
  return std::string(text);
}

std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  socklen_t n = sizeof at;
  const bool ok = fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&at), n) == 0 &&
                  ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &n) == 0;
  if (fd >= 0) ::close(fd);
  return ok ? ntohs(at.sin_port) : std::uint16_t{11811};
}

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

std::unique_ptr<Worker> make_echo(Receiver& from, Sender& to, std::size_t size, bool spin) {
  return std::make_unique<Echo>(from, to, size, spin);
}
std::unique_ptr<Collector> make_collector(Receiver& from, std::unique_ptr<SharedBoard> board,
                                          std::uint32_t subscriber) {
  return std::make_unique<Counting>(from, std::move(board), subscriber);
}
std::unique_ptr<Worker> make_awake() { return std::make_unique<Awake>(); }

Agent::~Agent() = default;

bool ending() { return told_to_end != 0; }

PlaceOptions place_in(const Talk& told) {
  PlaceOptions at;
  at.domain = told.number<std::uint32_t>("domain");
  at.participant = told.text("participant");
  at.peers = told.words("peers");
  at.servers = told.words("servers");
  at.serve = told.number<int>("serve") != 0;
  at.addresses = told.words("addresses");
  at.interfaces = told.words("interfaces");
  return at;
}

Talk Agent::answer(const Talk& told) {
  try {
    auto done = act(told);
    return done ? *done : Talk::failed(done.error());
  } catch (...) {
    return Talk::failed({"bus.internal", told.verb() + ": " + text_of_exception(), ""});
  }
}

Result<Talk> Agent::act(const Talk& told) {
  const std::string& verb = told.verb();
  if (verb == "hello")
    return Talk::ok()
        .with("pid", ::getpid())
        .with("host", host_name())
        .with("namespace", namespace_)
        .with("instructions", instructions_.state());
  if (verb == "reach") return reach(told);
  if (verb == "port") return Talk::ok().with("port", free_port());
  if (verb == "check") return check(told);
  if (verb == "open") return open(told);
  if (verb == "sender" || verb == "receiver") return end(told);
  if (verb == "ping") return ping(told);
  if (verb == "fan") return fan(told);
  if (verb == "flood") return flood(told);
  if (verb == "count") return count(told);
  if (verb == "join") return join(told);
  if (verb == "serve") return serve(told);
  if (verb == "call") return call(told);
  if (verb == "close") return close(told);
  if (verb == "usage") return usage_now();
  if (verb == "connect") {
    auto sender = find(senders_, told.text("id"));
    if (!sender) return sender.error();
    if (auto ok = (*sender)->connect(told.words("addresses")); !ok) return ok.error();
    return Talk::ok();
  }
  if (verb == "matched") {
    const auto n = told.number<std::size_t>("n", 1);
    const double within_s = told.number<double>("within_s", 10);
    const Deadline last = Deadline::in_s(within_s);
    const auto& id = told.text("id");
    const auto s = senders_.find(id);
    const auto r = receivers_.find(id);
    while (!last.passed()) {
      if (ending()) return ended();
      const Deadline soon = Deadline::in_s(0.2);
      if (s != senders_.end() ? s->second->wait_matched(n, soon)
                              : r != receivers_.end() && r->second->wait_matched(n, soon))
        return Talk::ok();
    }
    const std::int64_t have = s != senders_.end()     ? s->second->matched()
                              : r != receivers_.end() ? r->second->matched()
                                                      : -1;
    return Error{"bus.no_match",
                 "an endpoint found " + std::to_string(have) + " of " + std::to_string(n) + " others within " +
                     std::to_string(static_cast<int>(within_s)) + " s",
                 "check with 'sonde bus ls' whether the variant reaches other programs on this host"};
  }
  if (verb == "echo") {
    auto from = find(receivers_, told.text("from"));
    auto to = find(senders_, told.text("to"));
    if (!from) return from.error();
    if (!to) return to.error();
    workers_[told.text("id")] =
        make_echo(**from, **to, told.number<std::size_t>("size"), told.number<int>("spin") != 0);
    return Talk::ok();
  }
  if (verb == "collect") {
    auto from = find(receivers_, told.text("from"));
    if (!from) return from.error();
    std::unique_ptr<SharedBoard> board;
    if (told.has("board")) {
      auto opened = SharedBoard::open(told.text("board"));
      if (!opened) return opened.error();
      board = std::move(*opened);
    }
    collectors_[told.text("id")] = make_collector(**from, std::move(board), told.number<std::uint32_t>("subscriber"));
    return Talk::ok();
  }
  if (verb == "board") {
    auto made = SharedBoard::make();
    if (!made) return made.error();
    board_ = std::move(*made);
    return Talk::ok().with("address", board_->path());
  }
  if (verb == "traffic") {
    auto now = traffic();
    if (!now) return now.error();
    return Talk::ok()
        .with("datagrams", now->datagrams)
        .with("bytes", now->bytes)
        .with("overflowed", now->overflowed)
        .with("at_ns", now_ns());
  }
  if (verb == "lock") {
    if (::mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
      return Error{"bus.failed", std::string("mlockall(): ") + std::strerror(errno),
                   "raise the limit of locked memory: ulimit -l unlimited"};
    return Talk::ok();
  }
  if (verb == "awake") {
    workers_.erase("awake");
    if (told.number<int>("on")) workers_["awake"] = make_awake();
    return Talk::ok();
  }
  return Error{"bus.internal", "a program received the unknown command '" + verb + "'",
               "check that all programs have the same version"};
}

Result<Talk> Agent::usage_now() const {
  const Usage u = usage();
  return Talk::ok()
      .with("cpu", u.cpu_s)
      .with("page_faults", u.page_faults)
      .with("context_switches", u.context_switches);
}

Result<Talk> Agent::reach(const Talk& told) {
  auto all = machine_addresses();
  if (!all) return all.error();
  std::vector<Address> chosen;
  const auto take = [&chosen](const Address& a) {
    if (std::find(chosen.begin(), chosen.end(), a) == chosen.end()) chosen.push_back(a);
  };
  if (const auto words = told.words("interfaces"); !words.empty()) {
    Transport transport;
    transport.interfaces = words;
    auto found = chosen_addresses(transport, *all);
    if (!found) {
      transport.kind = TransportKind::udp6;
      const auto newer = chosen_addresses(transport, *all);
      if (!newer) return found.error();
      found = newer;
    }
    for (const auto& a : *found) take(a);
  }
  if (chosen.empty())
    for (const auto& host : told.words("hosts")) {
      const auto address = address_towards(host);
      if (!address) return address.error();
      for (const auto& a : *all)
        if (a.address == *address) take(a);
    }
  if (chosen.empty())
    return Error{"bus.network", "no interface of " + host_name() + " leads to the other hosts",
                 "name the network between them with --interfaces"};
  std::vector<std::string> addresses, interfaces;
  for (const auto& a : chosen) {
    if (!a.v6) addresses.push_back(a.address);
    if (std::find(interfaces.begin(), interfaces.end(), a.interface) == interfaces.end())
      interfaces.push_back(a.interface);
  }
  return Talk::ok()
      .with("host", host_name())
      .with("address", chosen.front().address)
      .with("addresses", addresses)
      .with("interfaces", interfaces)
      .with("loopback", only_loopback(chosen));
}

Result<Talk> Agent::check(const Talk& told) {
  auto variant = Variant::parse(told.text("variant"));
  if (!variant) return variant.error();
  PlaceOptions at = place_in(told);
  const bool away = told.number<int>("away") != 0;
  if (variant->raw()) {
    if (away && !variant->unprotected && variant->transport.kind != TransportKind::shared_memory)
      return Error{"bus.unprotected",
                   "bare sockets have no keys: anyone who reaches " +
                       (at.addresses.empty() ? "them" : at.addresses.front()) + " can send them messages",
                   "write unprotected=yes if you trust the network between the hosts"};
    return Talk::ok().with("across", true).with("detail", "raw transport, no bus");
  }
  if (variant->discovery.kind == DiscoveryKind::server) at.servers = {"127.0.0.1:1"};
  if (variant->discovery.kind == DiscoveryKind::peers) at.peers = {"127.0.0.1"};
  auto profile = profile_of(*variant, at);
  if (!profile) return profile.error();
  if (away && profile->transport.kind != TransportKind::shared_memory) {
    const auto on = chosen_addresses(profile->transport);
    if (!on) return on.error();
    if (only_loopback(*on))
      return Error{"bus.bad_profile",
                   "its profile uses only the loopback of " + host_name() + ", which other hosts cannot reach",
                   "name interfaces in the profile, or remove them so that the run sets them"};
    if (auto ok = check_exposure(*profile, *on); !ok) return ok.error();
  }
  auto entry = find_implementation(variant->implementation);
  if (!entry) return entry.error();
  const Caps caps = (*entry)->caps();
  if (auto ok = bus::check(*profile, variant->implementation, caps); !ok) return ok.error();
  if (variant->brought()) {
    // Report missing files and permissions now, not for each case.
    auto place = open_place(*variant, at);
    if (!place) return place.error();
    const EndOptions trial{.topic = "sonde_probe_trial", .partitions = {}};
    const auto refused = [&](const Error& why) {
      if (!profile->security || why.hint.find("permissions") == why.hint.npos) return why;
      const std::string who = variant->security.empty()
                                  ? "the profile's identity"
                                  : "the identity " + variant->identity + " of " + variant->security;
      return Error{
          why.code, who + " may not write and read the topics of a measurement, sonde_probe_*",
          "create an identity with this permission: sonde bus keys add FOLDER probe --publish '*' --subscribe '*'"};
    };
    if (auto sender = (*place)->sender(trial); !sender) return refused(sender.error());
    if (auto receiver = (*place)->receiver(trial); !receiver) return refused(receiver.error());
  }
  // Remove files that killed programs of earlier measurements left behind.
  if (told.number<int>("clean") && (*entry)->clean) (*entry)->clean();
  Variant as_profile = *variant;
  as_profile.transport = profile->transport;
  return Talk::ok()
      .with("version", (*entry)->version())
      .with("across", caps.across_processes)
      .with("transport", as_profile.transport_name())
      .with("discovery", static_cast<int>(profile->discovery.kind))
      .with("domain", profile->domain)
      .with("server_backup", caps.server_backup);
}

Result<Talk> Agent::open(const Talk& told) {
  auto variant = Variant::parse(told.text("variant"));
  if (!variant) return variant.error();
  auto place = open_place(*variant, place_in(told));
  if (!place) return place.error();
  places_[told.text("id")] = std::move(*place);
  return Talk::ok();
}

Result<Talk> Agent::end(const Talk& told) {
  auto at = find(places_, told.text("at"));
  if (!at) return at.error();
  const EndOptions options{told.text("topic"), told.number<int>("best_effort") != 0, told.number<int>("keep_all") != 0,
                           told.words("partitions")};
  if (told.verb() == "sender") {
    auto sender = (*at)->sender(options);
    if (!sender) return sender.error();
    senders_[told.text("id")] = std::move(*sender);
    return Talk::ok();
  }
  auto receiver = (*at)->receiver(options);
  if (!receiver) return receiver.error();
  const std::string address = (*receiver)->address();
  receivers_[told.text("id")] = std::move(*receiver);
  return Talk::ok().with("address", address);
}

Result<Talk> Agent::close(const Talk& told) {
  for (const auto& id : told.words("ids")) {
    workers_.erase(id);
    collectors_.erase(id);
    receivers_.erase(id);
    senders_.erase(id);
    places_.erase(id);
  }
  return Talk::ok();
}

Result<Talk> Agent::ping(const Talk& told) {
  auto to = find_all(senders_, told.words("to"));
  auto from = find_all(receivers_, told.words("from"));
  if (!to) return to.error();
  if (!from) return from.error();
  const auto n = told.number<std::uint32_t>("n", 1);
  const double burst_s = told.number<double>("burst_s", 1), pause_s = told.number<double>("pause_s", 0);
  const bool spin = told.number<int>("spin") != 0, same_host = told.number<int>("same_host", 1) != 0;
  Message message(told.number<std::size_t>("size", least_sample_bytes));
  message.head().burst = told.number<std::uint32_t>("burst");

  std::vector<double> rtt, publish, one_way, cycles, offset, faults, switches, counts;
  std::uint64_t index = 0;
  std::int64_t answered_ns = 0, received_ns = 0;
  const Receiver::Taker taker = [&](Bytes body) {
    const std::int64_t at_ns = now_ns();
    MessageHead head;
    if (!Message::read(body, head) || head.burst != message.head().burst || head.index != index) return;
    answered_ns = at_ns;
    received_ns = head.received_ns;
  };
  struct Once {
    std::int64_t began_ns, wrote_ns, cycles;
    std::uint64_t instructions;
  };
  const auto once = [&](bool count, Once& out) -> Result<void> {
    Sender& sender = *(*to)[index % to->size()];
    Receiver& receiver = *(*from)[index % from->size()];
    message.head().index = index;
    answered_ns = 0;
    const std::uint64_t before = count ? instructions_.read() : 0;
    out.began_ns = message.head().sent_ns = now_ns();
    const std::int64_t ticks_began = ticks();
    auto wrote = sender.write(message);
    const std::int64_t ticks_ended = ticks();
    out.wrote_ns = now_ns();
    if (count) out.instructions = instructions_.read() - before;
    if (!wrote) return wrote;
    out.cycles = ticks_ended - ticks_began;
    const Deadline deadline = Deadline::in_s(patience_s);
    while (answered_ns == 0 && !deadline.passed() && !ending()) {
      if (spin) receiver.look(taker);
      else receiver.receive(taker, deadline);
    }
    return {};
  };

  Once one{};
  // Messages on another transport, directly before the first one on this transport.
  if (told.has("warm_to")) {
    auto warm_to = find_all(senders_, told.words("warm_to"));
    auto warm_from = find_all(receivers_, told.words("warm_from"));
    if (!warm_to) return warm_to.error();
    if (!warm_from) return warm_from.error();
    std::swap(*to, *warm_to);
    std::swap(*from, *warm_from);
    for (std::uint32_t k = told.number<std::uint32_t>("warm_n"); k; --k, ++index)
      if (auto ok = once(false, one); !ok) return ok.error();
    std::swap(*to, *warm_to);
    std::swap(*from, *warm_from);
  }
  std::uint32_t lost = 0, lost_together = 0;
  std::int64_t came_ns = now_ns();
  if (told.number<int>("settle")) {
    const std::int64_t until_ns = came_ns + settle_ns;
    do {
      if (auto ok = once(false, one); !ok) return ok.error();
      ++index;
    } while (now_ns() < until_ns);
  }
  const std::int64_t t0_ns = now_ns();
  const bool audit = told.number<int>("audit") != 0;
  Usage before;
  for (std::uint32_t k = 0; k < n && lost_together < most_lost; ++k, ++index) {
    if (pause_s > 0) sleep_until(now_s() + pause_s);
    if (audit) before = usage();
    if (auto ok = once(audit && instructions_.counted(), one); !ok) return ok.error();
    if (ending()) return ended();
    if (audit && instructions_.counted())
      counts.push_back(static_cast<double>(one.instructions) - static_cast<double>(instructions_.own()));
    if (audit) {
      const Usage after = usage();
      faults.push_back(static_cast<double>(after.page_faults - before.page_faults));
      switches.push_back(static_cast<double>(after.context_switches - before.context_switches));
    }
    const bool here = answered_ns != 0;
    lost += !here;
    lost_together = here ? 0 : lost_together + 1;
    rtt.push_back(here ? seconds(answered_ns - one.began_ns) : nan);
    publish.push_back(seconds(one.wrote_ns - one.began_ns));
    one_way.push_back(here && same_host ? seconds(received_ns - one.began_ns) : nan);
    cycles.push_back(static_cast<double>(one.cycles));
    offset.push_back(seconds(one.began_ns - t0_ns));
    if (seconds(now_ns() - t0_ns) > burst_s) break;
  }
  if (instructions_.counted() && !audit)
    for (std::uint32_t k = 0; k < std::min(n, counted_extra); ++k, ++index) {
      if (auto ok = once(true, one); !ok) return ok.error();
      counts.push_back(static_cast<double>(one.instructions) - static_cast<double>(instructions_.own()));
    }
  return Talk::ok()
      .with("t0_ns", t0_ns)
      .with("rtt", rtt)
      .with("publish", publish)
      .with("one_way", one_way)
      .with("cycles", cycles)
      .with("offset", offset)
      .with("instructions", counts)
      .with("page_faults", faults)
      .with("context_switches", switches)
      .with("lost", rtt.empty() ? nan : static_cast<double>(lost) / static_cast<double>(rtt.size()));
}

Result<Talk> Agent::fan(const Talk& told) {
  auto sender = find(senders_, told.text("to"));
  if (!sender) return sender.error();
  if (!board_) return Error{"bus.internal", "the command fan needs a board", ""};
  const auto subscribers = told.number<std::uint32_t>("subscribers", 1), n = told.number<std::uint32_t>("n", 1);
  const double burst_s = told.number<double>("burst_s", 1);
  Message message(told.number<std::size_t>("size", least_sample_bytes));
  const auto burst = message.head().burst = told.number<std::uint32_t>("burst");
  std::vector<double> publish, cycles, first, last, offset, counts, one_way, one_way_offset, lost(subscribers, 0);
  std::uint32_t index = 0, lost_together = 0;
  const auto once = [&](bool record, bool count, std::int64_t t0_ns) -> Result<void> {
    message.head().index = index;
    board_->begin(burst, index, subscribers);
    ++index;
    const std::uint64_t before = count ? instructions_.read() : 0;
    const std::int64_t began_ns = message.head().sent_ns = now_ns();
    const std::int64_t ticks_began = ticks();
    auto wrote = (*sender)->write(message);
    const std::int64_t ticks_ended = ticks();
    const std::int64_t wrote_ns = now_ns();
    if (count)
      counts.push_back(static_cast<double>(instructions_.read() - before) - static_cast<double>(instructions_.own()));
    if (!wrote) return wrote;
    const bool all = board_->wait(Deadline::in_s(patience_s));
    lost_together = all ? 0 : lost_together + 1;
    if (!record) return {};
    std::int64_t least = INT64_MAX, most = 0;
    for (std::uint32_t k = 0; k < subscribers; ++k) {
      const std::int64_t at = board_->arrived_ns(k);
      one_way.push_back(at ? seconds(at - began_ns) : nan);
      one_way_offset.push_back(seconds(began_ns - t0_ns));
      if (at == 0) {
        lost[k] += 1;
        continue;
      }
      least = std::min(least, at);
      most = std::max(most, at);
    }
    publish.push_back(seconds(wrote_ns - began_ns));
    cycles.push_back(static_cast<double>(ticks_ended - ticks_began));
    first.push_back(most ? seconds(least - began_ns) : nan);
    last.push_back(all ? seconds(most - began_ns) : nan);
    offset.push_back(seconds(began_ns - t0_ns));
    return {};
  };
  const std::int64_t until_ns = now_ns() + settle_ns;
  do {
    if (auto ok = once(false, false, 0); !ok) return ok.error();
  } while (now_ns() < until_ns);
  const std::int64_t t0_ns = now_ns();
  for (std::uint32_t k = 0; k < n && lost_together < most_lost && seconds(now_ns() - t0_ns) <= burst_s && !ending();
       ++k)
    if (auto ok = once(true, false, t0_ns); !ok) return ok.error();
  if (instructions_.counted())
    for (std::uint32_t k = 0; k < std::min(n, counted_extra); ++k)
      if (auto ok = once(false, true, t0_ns); !ok) return ok.error();
  for (auto& share : lost) share = publish.empty() ? nan : share / static_cast<double>(publish.size());
  Random chance(burst);
  const auto told_of = drawn(one_way.size(), told_at_most, chance);
  keep_only(one_way, told_of);
  keep_only(one_way_offset, told_of);
  return Talk::ok()
      .with("t0_ns", t0_ns)
      .with("publish", publish)
      .with("cycles", cycles)
      .with("first", first)
      .with("last", last)
      .with("offset", offset)
      .with("one_way", one_way)
      .with("one_way_offset", one_way_offset)
      .with("instructions", counts)
      .with("lost", lost);
}

Result<Talk> Agent::flood(const Talk& told) {
  auto sender = find(senders_, told.text("to"));
  if (!sender) return sender.error();
  Message message(told.number<std::size_t>("size", least_sample_bytes));
  message.head().burst = told.number<std::uint32_t>("burst");
  std::uint64_t sent = 0, refused = 0;
  const std::int64_t began_ns = now_ns();
  const std::int64_t until_ns = began_ns + static_cast<std::int64_t>(told.number<double>("burst_s", 0.05) * 1e9);
  std::int64_t now = began_ns;
  for (; now < until_ns && !ending(); now = now_ns()) {
    message.head().index = sent;
    message.head().sent_ns = now;
    if (auto wrote = (*sender)->write(message)) ++sent;
    else if (wrote.error().code == "bus.timed_out" || wrote.error().code == "bus.failed") ++refused;
    else return wrote.error();
  }
  (*sender)->flush();
  return Talk::ok().with("sent", sent).with("refused", refused).with("began_ns", began_ns).with("ended_ns", now_ns());
}

Result<Talk> Agent::count(const Talk& told) {
  auto all = find_all(collectors_, told.words("ids"));
  if (!all) return all.error();
  std::vector<double> received, first, last;
  for (auto* one : *all) {
    const auto counted = one->counted(told.number<std::uint32_t>("burst"));
    received.push_back(static_cast<double>(counted.received));
    first.push_back(seconds(counted.first_ns));
    last.push_back(seconds(counted.last_ns));
  }
  return Talk::ok().with("received", received).with("first_s", first).with("last_s", last);
}

int run_peer(const std::string& name_space) {
  ::signal(SIGINT, SIG_IGN);  // Ctrl-C reaches the whole group of the terminal: the parent ends this program
  ::signal(SIGPIPE, SIG_IGN);
  std::string state;
  if (!name_space.empty()) {
    auto entered = name_space == "new" ? enter_new_namespace() : enter_namespace_of(std::atoi(name_space.c_str()));
    state = entered ? "own" : entered.error().what;
  }
  // The end of the input means that the parent has ended. Then all resources are released, with a limit of some
  // seconds.
  struct sigaction told{};
  told.sa_handler = [](int) {
    told_to_end = 1;
    ::alarm(end_within_s);
  };
  ::sigaction(SIGTERM, &told, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  {
    Agent agent(state);
    LineReader in(STDIN_FILENO);
    std::string line;
    for (;;) {
      const auto got = in.next(line, -1);
      if (got == LineReader::Got::later) continue;
      if (got == LineReader::Got::end) break;
      const auto heard = Talk::parse(line);
      const Talk said = heard ? agent.answer(*heard)
                              : Talk::failed({"bus.internal", "a program received a line that is no command", ""});
      if (!write_line(STDOUT_FILENO, said.line())) break;
    }
    if (!ending()) ::alarm(end_within_s);
  }
  return 0;
}

}  // namespace sonde::bus::probe
