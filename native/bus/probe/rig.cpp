#include "bus/probe/rig.hpp"

#include <unistd.h>

#include <algorithm>

namespace sonde::bus::probe {

namespace {

constexpr double found_within_s = 20;

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

Rig::Rig(const Options& options, const Variant& variant, const Known& known, const std::vector<Reached>& reached,
         Domains& domains, Foreman& foreman)
    : options_(options),
      variant_(variant),
      known_(known),
      reached_(reached),
      domains_(domains),
      foreman_(foreman),
      domains_used_{domains.take()} {
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

Talk Rig::told(Talk talk, const Program& program) const {
  talk.with("variant", variant_.text).with("domain", domain());
  if (!reached_.empty()) {
    const Reached& here = reached_[host_of(program)];
    talk.with("addresses", here.addresses).with("interfaces", here.interfaces);
  }
  if (!variant_.profile.empty()) return talk;
  if (known_.discovery == DiscoveryKind::peers && variant_.discovery.peers.empty()) {
    std::vector<std::string> peers;
    const auto add = [&](const std::string& address) { peers.push_back(address + ":" + std::to_string(expected_)); };
    if (reached_.empty()) add("127.0.0.1");
    for (const auto& one : reached_) add(one.address);
    if (hub_) peers.resize(1);
    talk.with("peers", peers);
  }
  if (!server_.empty()) talk.with("servers", std::vector<std::string>{server_});
  return talk;
}

std::vector<Program*> Rig::counters() const {
  if (keeper_) return {keeper_};
  std::vector<Program*> found;
  std::set<std::size_t> seen;
  for (const auto& p : programs_)
    if (const auto k = host_of(*p); seen.insert(k).second && (reached_.empty() || !reached_[k].again))
      found.push_back(p.get());
  return found;
}

bool Rig::enclose(std::string& why) {
  auto keeper = Program::start({.name_space = "new", .host = host(0)});
  if (!keeper) {
    why = keeper.error().what;
    return false;
  }
  auto hello = foreman_.ask(**keeper, Talk("hello"));
  if (!hello || hello->text("namespace") != "own") {
    why = hello ? hello->text("namespace") : hello.error().what;
    return false;
  }
  name_space_ = hello->text("pid");
  programs_.push_back(std::move(*keeper));
  keeper_ = programs_.back().get();
  return true;
}

Result<void> Rig::serve() {
  if (known_.discovery != DiscoveryKind::server || !variant_.profile.empty() || !server_.empty()) return {};
  auto program = Program::start({.name_space = name_space_, .host = host(0)});
  if (!program) return program.error();
  programs_.push_back(std::move(*program));
  auto port = foreman_.ask(*programs_.back(), Talk("port"));
  if (!port) return port.error();
  server_ = (reached_.empty() ? "127.0.0.1" : reached_.front().address) + ":" + port->text("port");
  auto opened =
      foreman_.ask(*programs_.back(), told(Talk("open"), *programs_.back()).with("id", "server").with("serve", true));
  if (!opened) return opened.error();
  return {};
}

Result<Program*> Rig::add(ProgramOptions how) {
  if (auto ok = serve(); !ok) return ok.error();
  const std::size_t before = (keeper_ ? 1 : 0) + (server_.empty() ? 0 : 1);
  if (!known_.across && programs_.size() > before) return programs_.back().get();
  how.name_space = name_space_;
  how.host = host(programs_.size() - before);
  auto program = Program::start(how);
  if (!program) return program.error();
  programs_.push_back(std::move(*program));
  return programs_.back().get();
}

Result<void> Rig::open(const std::vector<End>& ends, std::uint32_t domain) {
  std::vector<Foreman::Order> orders;
  for (const auto& e : ends) {
    Talk talk = told(Talk("open"), *e.program).with("id", e.place).with("participant", e.place);
    if (domain) talk.with("domain", domain);
    orders.push_back({e.program, talk});
  }
  auto opened = foreman_.ask(orders);
  if (!opened) return opened.error();
  return {};
}

Talk Rig::end(const char* verb, const End& end, const Channel& how, const std::string& partition) const {
  Talk talk(verb);
  talk.with("id", end.id)
      .with("at", end.place)
      .with("topic", how.topic)
      .with("best_effort", how.best_effort)
      .with("keep_all", how.keep_all);
  if (!partition.empty()) talk.with("partitions", std::vector<std::string>{partition});
  return talk;
}

Result<void> Rig::match(const End& sender, const std::vector<End>& receivers) {
  std::vector<Foreman::Order> orders{
      {sender.program,
       Talk("matched").with("id", sender.id).with("n", receivers.size()).with("within_s", found_within_s)}};
  for (const auto& r : receivers)
    orders.push_back({r.program, Talk("matched").with("id", r.id).with("n", 1).with("within_s", found_within_s)});
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
  auto found = foreman_.ask(*sender.program,
                            Talk("matched").with("id", sender.id).with("n", receivers).with("within_s", found_within_s),
                            2 * found_within_s);
  if (!found) return found.error();
  return {};
}

}  // namespace sonde::bus::probe
