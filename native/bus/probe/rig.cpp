#include "bus/probe/rig.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace sonde::bus::probe {

namespace {

constexpr double found_within_s = 20;

/// A port that nobody has at the moment.
std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof at;
  const bool ok = fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&at), n) == 0 && ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &n) == 0;
  if (fd >= 0) ::close(fd);
  return ok ? ntohs(at.sin_port) : std::uint16_t{11811};
}

}  // namespace

std::uint32_t Domains::take(const std::vector<std::uint32_t>& own) {
  for (const bool shared : {false, true})
    for (std::uint32_t k = 0; k < span_; ++k) {
      const std::uint32_t domain = first_ + (next_ + k) % span_;
      if (shared ? std::find(own.begin(), own.end(), domain) != own.end() : used_.count(domain) != 0) continue;
      next_ = (next_ + k + 1) % span_;
      used_.insert(domain);
      return domain;
    }
  used_.insert(first_);
  return first_;
}

Rig::Rig(const Options& options, const Variant& variant, const Known& known, Domains& domains, Foreman& foreman)
    : options_(options), variant_(variant), known_(known), domains_(domains), foreman_(foreman), domains_used_{domains.take()} {
  static std::uint32_t made = 0;
  topic_ = "sonde_probe_" + std::to_string(::getpid()) + "_" + std::to_string(++made);
}

Rig::~Rig() {
  end_all(programs_);
  for (const auto domain : domains_used_) domains_.give(domain);
}

void Rig::dismiss() {
  for (auto& p : programs_) p->dismiss();
}

std::uint32_t Rig::more_domain() { return domains_used_.emplace_back(domains_.take(domains_used_)); }

Talk Rig::told(Talk talk) const {
  talk.with("variant", variant_.text).with("domain", domain());
  if (!variant_.profile.empty()) return talk;
  if (known_.discovery == DiscoveryKind::peers && variant_.discovery.peers.empty()) {
    std::vector<std::string> peers;
    if (options_.hosts.empty()) peers = {"127.0.0.1:" + std::to_string(expected_)};
    for (const auto& host : options_.hosts) peers.push_back(host + ":" + std::to_string(expected_));
    if (hub_) peers.resize(1);
    talk.with("peers", peers);
  }
  if (!server_.empty()) talk.with("servers", std::vector<std::string>{server_});
  return talk;
}

bool Rig::enclose(std::string& why) {
  auto keeper = Program::start({.name_space = "new"});
  if (!keeper) {
    why = keeper.error().what;
    return false;
  }
  auto hello = foreman_.ask(**keeper, Talk("hello"));
  if (!hello || hello->text("namespace") != "own") {
    why = hello ? hello->text("namespace") : hello.error().what;
    return false;
  }
  name_space_ = std::to_string((*keeper)->pid());
  programs_.push_back(std::move(*keeper));
  keeper_ = programs_.back().get();
  return true;
}

Result<void> Rig::serve() {
  if (known_.discovery != DiscoveryKind::server || !variant_.profile.empty() || !server_.empty()) return {};
  server_ = (options_.hosts.empty() ? "127.0.0.1" : options_.hosts.front()) + ":" + std::to_string(free_port());
  auto program = Program::start({.name_space = name_space_, .launcher = options_.launcher, .host = options_.hosts.empty() ? "" : options_.hosts.front()});
  if (!program) return program.error();
  programs_.push_back(std::move(*program));
  auto opened = foreman_.ask(*programs_.back(), told(Talk("open")).with("id", "server").with("serve", true));
  if (!opened) return opened.error();
  return {};
}

Result<Program*> Rig::add(ProgramOptions how) {
  if (auto ok = serve(); !ok) return ok.error();
  const std::size_t before = (keeper_ ? 1 : 0) + (server_.empty() ? 0 : 1);
  if (!known_.across && programs_.size() > before) return programs_.back().get();
  how.name_space = name_space_;
  how.launcher = options_.launcher;
  if (!options_.hosts.empty()) how.host = options_.hosts[(programs_.size() - before) % options_.hosts.size()];
  auto program = Program::start(how);
  if (!program) return program.error();
  programs_.push_back(std::move(*program));
  return programs_.back().get();
}

Result<void> Rig::open(const std::vector<End>& ends, std::uint32_t domain) {
  std::vector<Foreman::Order> orders;
  for (const auto& e : ends) {
    Talk talk = told(Talk("open")).with("id", e.place).with("participant", e.place);
    if (domain) talk.with("domain", domain);
    orders.push_back({e.program, talk});
  }
  auto opened = foreman_.ask(orders);
  if (!opened) return opened.error();
  return {};
}

Talk Rig::end(const char* verb, const End& end, const Channel& how, const std::string& partition) const {
  Talk talk(verb);
  talk.with("id", end.id).with("at", end.place).with("topic", how.topic).with("best_effort", how.best_effort).with("keep_all", how.keep_all);
  if (!partition.empty()) talk.with("partitions", std::vector<std::string>{partition});
  return talk;
}

Result<void> Rig::match(const End& sender, const std::vector<End>& receivers) {
  std::vector<Foreman::Order> orders{{sender.program, Talk("matched").with("id", sender.id).with("n", receivers.size()).with("within_s", found_within_s)}};
  for (const auto& r : receivers) orders.push_back({r.program, Talk("matched").with("id", r.id).with("n", 1).with("within_s", found_within_s)});
  auto found = foreman_.ask(orders, 2 * found_within_s);
  if (!found) return found.error();
  return {};
}

Result<void> Rig::channel(const End& sender, const std::vector<End>& receivers, const Channel& how) {
  std::vector<Foreman::Order> orders;
  for (const auto& r : receivers) orders.push_back({r.program, end("receiver", r, how, how.from_partition)});
  orders.push_back({sender.program, end("sender", sender, how, how.to_partition)});
  auto made = foreman_.ask(orders);
  if (!made) return made.error();
  std::vector<std::string> addresses;
  for (const auto& answer : *made)
    if (!answer.text("address").empty()) addresses.push_back(answer.text("address"));
  if (!addresses.empty()) {
    auto connected = foreman_.ask(*sender.program, Talk("connect").with("id", sender.id).with("addresses", addresses));
    if (!connected) return connected.error();
  }
  return match(sender, receivers);
}

Result<void> Rig::sender_for(const End& sender, std::size_t receivers, const Channel& how) {
  auto made = foreman_.ask(*sender.program, end("sender", sender, how, how.to_partition));
  if (!made) return made.error();
  auto found = foreman_.ask(*sender.program, Talk("matched").with("id", sender.id).with("n", receivers).with("within_s", found_within_s), 2 * found_within_s);
  if (!found) return found.error();
  return {};
}

}  // namespace sonde::bus::probe
