#pragma once
// A world for system managers: nodes with leases, disks that fail, a network that loses, delays and breaks, and a
// clock. Whenever a cap changes, the sum of all is held against what may be in force, and that of each rack against its
// limit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "power/powerd/system.hpp"

namespace power_world {

using namespace sonde::power;
using sonde::bus::ReplyCode;

constexpr std::int64_t second = 1'000'000'000;
inline std::int64_t in(double s) { return static_cast<std::int64_t>(s * 1e9); }

struct Setting {
  std::uint64_t seed = 1;
  std::vector<NodeConfig> nodes;
  std::map<std::string, RackConfig> racks;
  std::size_t managers = 2;
  double budget_w = 800, loss = 0, soft_w = unknown;
  std::string policy = "uniform";
  bool hostile = false;  ///< anything happens at any time
  bool without_quorum = false;
  std::vector<double> lease_s;  ///< of each manager; of those beyond 15 s
};

inline NodeConfig node(const std::string& name, double min_w = 50, double max_w = 400, double safe_w = 100,
                       const std::string& rack = "") {
  NodeConfig out;
  out.member = {name, min_w, max_w, safe_w};
  out.rack = rack;
  return out;
}

class World {
 public:
  struct Node {
    bool alive = false, off = false, lies = false;
    std::unique_ptr<LeaseKeeper> keeper;
    Fence kept;
    double rate = 1, hardware_w = 0, demand_w = 1e9, asked_w = 0;
    double least_w = 0, most_w = 1e9;  ///< what its hardware can be set to, from its next start on
    std::int64_t offset = 0, telemetry_ns = 0;
    bool silent = false;  ///< sends no telemetry by itself
  };
  struct Disk {
    std::optional<Kept> kept;
    std::int64_t written_ns = 0;
    bool fails = false, audit_fails = false;
    Kept now(std::int64_t now_ns) const {
      Kept out = *kept;
      if (std::isnan(out.shed_w)) return out;
      out.shed_left_s = std::max(0.0, out.shed_left_s - static_cast<double>(now_ns - written_ns) / 1e9);
      if (out.shed_left_s <= 0) out.shed_w = unknown;
      return out;
    }
  };
  struct Chief {
    std::unique_ptr<Manager> manager;
    Disk disk;
    std::int64_t offset = 0, ticked_ns = -second, stalled_until_ns = 0;
    std::uint64_t life = 0;  ///< letters of an earlier one are not for a later one
    std::vector<Manager::Line> audit;
    std::vector<std::string> events;
    std::vector<ClusterTelemetry> telemetry;
  };

  explicit World(const Setting& setting)
      : setting_(setting), random_(setting.seed), chiefs(setting.managers), loss_(setting.loss) {
    for (std::size_t k = 0; k < setting.nodes.size(); ++k) {
      Node made;
      made.rate = setting.hostile ? 1 + (random_.uniform() - 0.5) * 1.8e-3 : 1;
      made.offset = static_cast<std::int64_t>(random_.below(1000)) * second;
      nodes.push_back(std::move(made));
      of_.push_back(k);
      start_node(k);
      safe_w += setting.nodes[k].member.safe_w, most_w += setting.nodes[k].member.max_w;
    }
    allowed_w = setting.budget_w;
    for (std::size_t m = 0; m < chiefs.size(); ++m) {
      chiefs[m].offset = static_cast<std::int64_t>(random_.below(1000)) * second;
      start(m);
    }
  }

  // ---- what a test may do

  void run_for(double s) {
    const std::int64_t until = now_ + in(s);
    std::int64_t next_chaos = now_;
    for (;;) {
      std::int64_t next = until;
      if (!mail_.empty()) next = std::min(next, mail_.begin()->first);
      for (const auto& chief : chiefs)
        if (chief.manager) next = std::min(next, due(chief));
      for (const auto& node : nodes)
        if (node.alive && !node.silent) next = std::min(next, node.telemetry_ns);
      if (setting_.hostile) next = std::min(next, next_chaos);
      advance(std::max(next, now_));
      if (now_ >= until) return;
      while (!mail_.empty() && mail_.begin()->first <= now_) {
        const auto letter = std::move(mail_.begin()->second);
        mail_.erase(mail_.begin());
        letter();
        check();
      }
      for (std::size_t k = 0; k < nodes.size(); ++k)
        if (nodes[k].alive && !nodes[k].silent && nodes[k].telemetry_ns <= now_) tell(k);
      for (std::size_t m = 0; m < chiefs.size(); ++m) {
        if (!chiefs[m].manager || due(chiefs[m]) > now_) continue;
        tick(m);
        check();
      }
      if (setting_.hostile && now_ >= next_chaos) {
        something();
        check();
        next_chaos = now_ + in(random_.uniform() * 0.4);
      }
    }
  }
  /// Until a manager leads and has lent what its nodes can have, as far as nothing is in the way.
  void settle() { run_for(20); }

  void kill(std::size_t m) {
    chiefs[m].manager.reset(), ++chiefs[m].life;
    close_orders(m);
  }
  void start(std::size_t m) {
    Chief& chief = chiefs[m];
    Manager::Settings s;
    s.cluster = "c", s.name = "m" + std::to_string(m), s.instance = random_.next();
    s.budget.power_limit_w = setting_.budget_w, s.budget.policy = setting_.policy, s.budget.soft_w = setting_.soft_w,
    s.budget.without_quorum = setting_.without_quorum;
    if (m < setting_.lease_s.size()) s.budget.lease_s = setting_.lease_s[m];
    s.nodes = setting_.nodes, s.racks = setting_.racks, s.priority = static_cast<std::uint32_t>(m);
    auto made = Manager::open(s, chief.disk.kept ? std::optional<Kept>(chief.disk.now(now_)) : std::nullopt, clock(m));
    REQUIRE(made);
    chief.manager = std::move(*made);
    ++chief.life;
    chief.manager->audit_works(!chief.disk.audit_fails, "full");
    pump(m);
  }
  void lease(std::size_t m, double lease_s) { setting_.lease_s[m] = lease_s; }  ///< from its next start on
  void stop_node(std::size_t k) { nodes[k].alive = false, nodes[k].hardware_w = config(k).member.safe_w; }
  /// Another node manager of the same name begins elsewhere; its safe cap is beside the budget until somebody knows it.
  std::size_t clone_node(std::size_t k) {
    nodes.emplace_back();
    nodes.back().offset = static_cast<std::int64_t>(random_.below(1000)) * second;
    of_.push_back(k);
    unforeseen_w += config(k).member.safe_w;
    start_node(nodes.size() - 1);
    return nodes.size() - 1;
  }
  void start_node(std::size_t k) {
    Node& node = nodes[k];
    const auto& m = config(k).member;
    if (setting_.hostile && !random_.below(4)) node.most_w = m.safe_w + random_.uniform() * (m.max_w - m.safe_w);
    node.keeper = std::make_unique<LeaseKeeper>(
        LeaseKeeper::Limits{std::max(m.min_w, node.least_w), std::min(m.max_w, node.most_w), m.safe_w, 600},
        random_.next(), node.kept);
    node.alive = true, node.off = false;
    node.hardware_w = m.safe_w;
    node.telemetry_ns = now_ + in(random_.uniform());
  }
  void cut(std::size_t m, std::size_t k) { cut_.insert({m, k}); }
  /// Its telemetry arrives, and no question reaches it.
  void cut_questions(std::size_t k) { unasked_.insert(k); }
  void cut_managers(std::size_t a, std::size_t b) { cut_.insert({a, 1000 + b}), cut_.insert({b, 1000 + a}); }
  void heal() { cut_.clear(); }

  std::uint64_t order(std::size_t m, const SystemCommand& command, double deadline_s = 30) {
    Manager& manager = *chiefs[m].manager;
    if (command.order == SystemOrder::SET_POWER && std::isfinite(command.budget_w))
      allowed_w = std::max(allowed_w, command.budget_w);
    if (command.order == SystemOrder::SHED && command.share > 0 && command.share < 1) {
      allowed_w = std::max(allowed_w, highest_base() * (1 - command.share));
    }
    const std::uint64_t number = ++orders_;
    open_[number] = m;
    manager.order(number, command, {"client", "test", "host", 1}, clock(m) + in(deadline_s), clock(m));
    pump(m);
    return number;
  }
  const sonde::bus::AnswerOf<SystemAnswer>* answer(std::uint64_t number) const {
    const auto at = answers_.find(number);
    return at == answers_.end() ? nullptr : &at->second;
  }
  std::size_t leader() const {
    for (std::size_t m = 0; m < chiefs.size(); ++m)
      if (chiefs[m].manager && chiefs[m].manager->state() == Manager::State::leading) return m;
    return chiefs.size();
  }
  std::size_t leaders() const {
    std::size_t n = 0;
    for (const auto& chief : chiefs) n += chief.manager && chief.manager->state() == Manager::State::leading;
    return n;
  }
  double sum_w() const {
    double sum = 0;
    for (const auto& node : nodes) sum += node.hardware_w;
    return sum;
  }
  double rack_w(const std::string& rack) const {
    double sum = 0;
    for (std::size_t k = 0; k < nodes.size(); ++k)
      if (config(k).rack == rack) sum += nodes[k].hardware_w;
    return sum;
  }
  std::int64_t now() const { return now_; }
  std::int64_t clock(std::size_t m) const { return now_ + chiefs[m].offset; }
  Manager& manager(std::size_t m) { return *chiefs[m].manager; }
  bool has_event(std::size_t m, const std::string& what) const {
    return std::any_of(chiefs[m].events.begin(), chiefs[m].events.end(),
                       [&](const std::string& e) { return e.find("\"event\":\"" + what + "\"") != std::string::npos; });
  }
  std::size_t audited(std::size_t m, const std::string& part) const {
    return static_cast<std::size_t>(std::count_if(chiefs[m].audit.begin(), chiefs[m].audit.end(), [&](const auto& l) {
      return l.json.text().find(part) != std::string::npos;
    }));
  }
  void pump(std::size_t m) {
    Chief& chief = chiefs[m];
    while (chief.manager) {
      auto effects = chief.manager->take();
      if (effects.empty()) return;
      for (auto& line : effects.audit) log(chief, line);
      for (auto& commit : effects.commits) {
        bool fine = !chief.disk.fails;
        if (commit.log) log(chief, *commit.log);
        if (commit.must_log && chief.disk.audit_fails) fine = false;
        if (fine) chief.disk.kept = commit.kept, chief.disk.written_ns = now_;
        if (setting_.hostile && !random_.below(60)) return kill(m);  // it is on the disk, and nobody was told
        chief.manager->kept(
            commit.number,
            fine ? sonde::Result<void>{} : sonde::Result<void>(sonde::Error{"power.state", "no room", "make room"}),
            clock(m));
      }
      for (auto& event : effects.events) chief.events.push_back(event.text());
      for (auto& t : effects.telemetry) {
        if (chief.telemetry.size() < 1000) chief.telemetry.push_back(t);
        for (std::size_t other = 0; other < chiefs.size(); ++other)
          if (other != m)
            send({m, 1000 + other}, [this, other, t] {
              if (!chiefs[other].manager) return;
              chiefs[other].manager->cluster_said(t, clock(other));
              pump(other);
            });
      }
      for (auto& [k, grant] : effects.grants) {
        ++grants;
        above_safe += grant.cap_w > setting_.nodes[k].member.safe_w;
        for (const auto i : asked(k))
          send({m, i}, [this, m, i, grant = grant, asked = clock(m), life = chief.life] {
            Node& node = nodes[i];
            if (!node.alive) return;
            const Refusal refusal = node.keeper->offer(grant, clock(node));
            node.kept = node.keeper->seen();
            if (refusal == Refusal::none) node.asked_w = grant.cap_w;
            set_hardware(i);
            refusal == Refusal::none ? tell(m, i, asked, life) : refuse(m, i, refusal, life);
          });
      }
      for (const auto& ask : effects.asks)
        for (const auto i : asked(ask.node))
          send({m, i}, [this, m, i, ask, fence = chief.manager->fence(), asked = clock(m), life = chief.life] {
            Node& node = nodes[i];
            if (!node.alive) return;
            const Refusal refusal = ask.fence ? node.keeper->fence(fence) : Refusal::none;
            node.kept = node.keeper->seen();
            refusal == Refusal::none ? tell(m, i, asked, life) : refuse(m, i, refusal, life);
          });
      for (const auto version : effects.replicate) ask_standbys(m, version, 0);
      for (auto& done : effects.done) {
        CHECK(!answers_.contains(done.order));
        answers_[done.order] = done.answer;
        open_.erase(done.order);
      }
    }
  }

  std::string described() const {
    std::string out;
    for (std::size_t m = 0; m < chiefs.size(); ++m) {
      out += "\n  m" + std::to_string(m) + ": ";
      if (const auto* who = chiefs[m].manager.get()) {
        out += (who->ledger() ? "leads " : "follows ") + std::to_string(who->fence().epoch) + " budget " +
               std::to_string(who->budget_w()) + " version " + std::to_string(who->budget_version());
        if (who->ledger()) out += " committed " + std::to_string(who->ledger()->committed_w(clock(m)));
      }
      if (chiefs[m].disk.kept)
        out += "; disk " + std::to_string(chiefs[m].disk.kept->budget_w) + " shed " +
               std::to_string(chiefs[m].disk.kept->shed_w) + " version " +
               std::to_string(chiefs[m].disk.kept->budget_version);
    }
    for (std::size_t k = 0; k < nodes.size(); ++k)
      out += "\n  " + config(k).member.name + (nodes[k].alive ? " has " : " is dead, has ") +
             std::to_string(nodes[k].hardware_w) + " by epoch " + std::to_string(nodes[k].keeper->seen().epoch) +
             (nodes[k].keeper->leased(clock(nodes[k])) ? " leased" : "");
    return out;
  }

  void check() {
    lower_allowed();
    double sum = sum_w();
    most_share = std::max(most_share, sum / allowed_w);
    if (sum > (allowed_w + unforeseen_w) * (1 + 1e-9))
      FAIL("at " << static_cast<double>(now_) / 1e9 << " s the caps add up to " << sum << " W, allowed are "
                 << allowed_w << " W" << described());
    for (const auto& [name, rack] : setting_.racks) {
      const double limit = std::fmin(rack.power_limit_w, rack.cooling_w);
      if (rack_w(name) > limit * (1 + 1e-9))
        FAIL("at " << static_cast<double>(now_) / 1e9 << " s the caps of rack " << name << " add up to " << rack_w(name)
                   << " W, allowed are " << limit << " W");
    }
  }

  std::size_t grants = 0, above_safe = 0, steps = 0, kills = 0, takeovers = 0, changed = 0;
  double unforeseen_w = 0;  ///< safe caps of clones
  double allowed_w = 0, most_share = 0, safe_w = 0, most_w = 0;

 private:
  Setting setting_;
  sonde::Random random_;

 public:
  std::vector<Node> nodes;
  std::vector<Chief> chiefs;

 private:
  std::vector<std::size_t> of_;  ///< whose name each node has
  const NodeConfig& config(std::size_t k) const { return setting_.nodes[of_[k]]; }
  std::set<std::size_t> unasked_;
  std::vector<std::size_t> asked(std::size_t named) const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < of_.size(); ++i)
      if (of_[i] == named && !unasked_.contains(i)) out.push_back(i);
    return out;
  }
  std::int64_t clock(const Node& node) const {
    return node.offset + static_cast<std::int64_t>(static_cast<double>(now_) * node.rate);
  }
  std::int64_t due(const Chief& chief) const {
    return std::max({chief.manager->next_ns() - chief.offset, chief.ticked_ns + in(0.01), chief.stalled_until_ns});
  }
  void set_hardware(std::size_t k) {
    Node& node = nodes[k];
    if (node.alive) node.hardware_w = node.keeper->cap_w(clock(node));
  }
  void log(Chief& chief, const Manager::Line& line) {
    if (!chief.disk.audit_fails) chief.audit.push_back(line);
    chief.manager->audit_works(!chief.disk.audit_fails, "full");
  }

  void tick(std::size_t m) {
    Chief& chief = chiefs[m];
    chief.ticked_ns = now_;
    lower_allowed();  // its step may end a shed
    const bool led = chief.manager->state() == Manager::State::leading;
    chief.manager->tick(clock(m));
    pump(m);
    if (!chief.manager) return;
    const bool leads = chief.manager->state() == Manager::State::leading;
    steps += leads, takeovers += leads && !led;
  }

  /// Time goes on, and leases run out on the way.
  void advance(std::int64_t to) {
    for (;;) {
      std::int64_t first = to;
      for (auto& node : nodes) {
        if (!node.alive || !node.keeper->leased(clock(node))) continue;
        const auto ends =
            static_cast<std::int64_t>(static_cast<double>(node.keeper->ends_ns() - node.offset) / node.rate) + 2;
        if (ends > now_) first = std::min(first, ends);
      }
      now_ = first;
      for (std::size_t k = 0; k < nodes.size(); ++k) set_hardware(k);
      if (now_ >= to) return;
      check();
    }
  }

  void send(std::pair<std::size_t, std::size_t> link, const std::function<void()>& deliver) {
    if (cut_.contains(link)) return;
    for (int copies = setting_.hostile && !random_.below(20) ? 2 : 1; copies--;) {
      if (random_.uniform() < loss_) continue;
      double delay = 0.0002 + random_.uniform() * 0.003;
      if (setting_.hostile && !random_.below(15)) delay = random_.uniform() * 3;
      if (setting_.hostile && !random_.below(200)) delay = random_.uniform() * 40;
      mail_.emplace(now_ + in(delay), [this, link, deliver] {
        if (!cut_.contains(link)) deliver();
      });
    }
  }

  Report report(const Node& node) const {
    const std::int64_t at = clock(node);
    const LeaseKeeper& keeper = *node.keeper;
    return {keeper.ticket(at),
            keeper.seen(),
            keeper.sequence(),
            keeper.leased(at),
            keeper.leased(at) ? static_cast<double>(keeper.ends_ns() - at) / 1e9 : 0,
            keeper.cap_w(at),
            node.hardware_w};
  }
  double draws(const Node& node) const { return node.lies ? node.demand_w : std::min(node.hardware_w, node.demand_w); }
  void tell(std::size_t m, std::size_t k, std::int64_t asked, std::uint64_t life) {
    send({m, k}, [this, m, k, asked, life, told = report(nodes[k]), power = draws(nodes[k]),
                  limits = nodes[k].keeper->limits()] {
      if (!chiefs[m].manager || chiefs[m].life != life) return;
      chiefs[m].manager->node_ranges(config(k).member.name, limits.min_w, limits.max_w);
      chiefs[m].manager->node_said(config(k).member.name, told, power, 0, {}, asked, clock(m));
      pump(m);
    });
  }
  void refuse(std::size_t m, std::size_t k, Refusal refusal, std::uint64_t life) {
    send({m, k}, [this, m, k, refusal, life] {
      if (!chiefs[m].manager || chiefs[m].life != life) return;
      chiefs[m].manager->node_refused(of_[k], 999 + static_cast<std::uint32_t>(refusal), name_of(refusal), clock(m));
      pump(m);
    });
  }
  void tell(std::size_t k) {
    Node& node = nodes[k];
    node.telemetry_ns = now_ + in(5);
    for (std::size_t m = 0; m < chiefs.size(); ++m)
      send({m, k}, [this, m, k, told = report(node), power = draws(node)] {
        if (!chiefs[m].manager) return;
        chiefs[m].manager->node_said(config(k).member.name, told, power, 5, {}, 0, clock(m));
        pump(m);
      });
  }
  void ask_standbys(std::size_t m, std::uint64_t version, int tries) {
    std::size_t have = 0, of = 0;
    for (std::size_t other = 0; other < chiefs.size(); ++other) {
      if (other == m || !chiefs[other].manager) continue;
      ++of;
      have += !cut_.contains({m, 1000 + other}) && !cut_.contains({other, 1000 + m}) &&
              chiefs[other].manager->kept_version() >= version;
    }
    if (have < of && tries < 5) {
      mail_.emplace(now_ + in(0.2), [this, m, version, tries, life = chiefs[m].life] {
        if (chiefs[m].manager && chiefs[m].life == life) ask_standbys(m, version, tries + 1);
      });
      return;
    }
    mail_.emplace(now_ + in(0.001), [this, m, version, have, of, life = chiefs[m].life] {
      if (!chiefs[m].manager || chiefs[m].life != life) return;
      chiefs[m].manager->replicated(version, have, of, clock(m));
      pump(m);
    });
  }

  void close_orders(std::size_t m) {
    std::erase_if(open_, [&](const auto& o) { return o.second == m; });
  }
  double highest_base() const {
    double most = setting_.budget_w;
    for (const auto& chief : chiefs)
      if (chief.disk.kept) most = std::max(most, chief.disk.kept->budget_w);
    return most;
  }
  /// A lower budget binds from when all managers have it, nobody is asked for another, and who leads says that the
  /// nodes hold to it.
  void lower_allowed() {
    bool over = false;  // a shed: for whoever may take that for the end of it
    for (std::size_t i = 0; i < chiefs.size(); ++i) {
      if (chiefs[i].disk.kept && !std::isnan(chiefs[i].disk.kept->shed_w) &&
          std::isnan(chiefs[i].disk.now(now_).shed_w))
        allowed_w = std::max(allowed_w, chiefs[i].disk.kept->budget_w), over = true;
      if (!chiefs[i].manager) continue;
      const auto told = chiefs[i].manager->answer({SystemAsk::GET_INFO}, clock(i)).body.cluster;
      if (std::isfinite(told.restored_w) && told.shed_left_s <= 0)
        allowed_w = std::max(allowed_w, told.restored_w), over = true;
    }
    if (over || !open_.empty()) return;
    const std::size_t m = leader();
    if (m == chiefs.size() || leaders() > 1) return;
    const Manager& who = *chiefs[m].manager;
    for (const auto& chief : chiefs) {
      if (!chief.disk.kept || chief.disk.kept->budget_version != who.budget_version()) return;
      if (chief.manager && chief.manager->budget_version() != who.budget_version()) return;
    }
    const Ledger& ledger = *who.ledger();
    const std::int64_t at = clock(m);
    if (who.budget_w() < allowed_w && ledger.settings().budget_w == who.budget_w() && ledger.settled(at) &&
        ledger.quorum(at) && ledger.committed_w(at) <= who.budget_w() + 1e-6)
      allowed_w = who.budget_w(), ++changed;
  }

  void something() {
    const std::uint64_t what = random_.below(1000);
    const std::size_t k = random_.below(nodes.size()), m = random_.below(chiefs.size());
    Chief& chief = chiefs[m];
    if (what < 60) {
      nodes[k].demand_w = random_.uniform() * 500;
    } else if (what < 70) {
      if (nodes[k].alive) stop_node(k);
    } else if (what < 76) {
      nodes[k].alive = false, nodes[k].off = true, nodes[k].hardware_w = 0;
    } else if (what < 150) {
      if (!nodes[k].alive) {
        if (nodes[k].off) nodes[k].offset = static_cast<std::int64_t>(random_.below(50)) * second - now_;
        start_node(k);
      }
    } else if (what < 170) {
      cut(m, k);
    } else if (what < 176) {
      cut_managers(m, random_.below(chiefs.size()));
    } else if (what < 230) {
      heal();
    } else if (what < 236) {
      if (chief.manager) ++kills, kill(m);
    } else if (what < 320) {
      if (!chief.manager) start(m);
    } else if (what < 323) {
      for (std::size_t i = 0; i < nodes.size(); ++i)
        if (random_.below(2)) cut(m, i);
    } else if (what < 330) {
      chief.stalled_until_ns = now_ + in(random_.uniform() * 30);  // it hangs, and what came meanwhile comes at once
    } else if (what < 350) {
      SystemCommand c;
      c.budget_w = safe_w + (most_w - safe_w) * (random_.uniform() * 0.9 - 0.05);
      if (!random_.below(10)) c.budget_w = unknown;
      if (chief.manager) order(m, c);
    } else if (what < 362) {
      SystemCommand c;
      c.order = SystemOrder::SHED;
      c.share = random_.uniform() * 0.5, c.for_s = random_.uniform() * 60;
      if (chief.manager) order(m, c);
    } else if (what < 400) {
      SystemCommand c;
      c.order = random_.below(4) ? SystemOrder::SET_JOB : SystemOrder::END_JOB;
      c.job = "j" + std::to_string(random_.below(4)), c.for_s = random_.uniform() * 60,
      c.weight = random_.uniform() * 3, c.guaranteed_w = random_.uniform() * 300;
      for (std::size_t i = 0; i < nodes.size(); ++i)
        if (!random_.below(3)) c.nodes.push_back(setting_.nodes[i].member.name);
      if (chief.manager) order(m, c);
    } else if (what < 405) {
      chief.disk.fails = true;
    } else if (what < 425) {
      chief.disk.fails = false;
    } else if (what < 430) {
      chief.disk.audit_fails = !chief.disk.audit_fails;
    } else if (what < 436) {
      loss_ = random_.below(2) ? 0.02 : random_.uniform() * 0.5;
    } else if (what < 445) {
      // Words that cannot be true.
      if (!chief.manager) return;
      Report lie = nodes[k].alive ? report(nodes[k]) : Report{};
      lie.seen = {~std::uint64_t{0} - random_.below(3), "z"};
      if (random_.below(2)) lie.lease_w = lie.cap_w = lie.left_s = unknown;
      chief.manager->node_said(config(k).member.name, lie, 1e300, 0, {}, 0, clock(m));
      ClusterTelemetry t;
      t.cluster = "c", t.manager = "z", t.state = "active", t.epoch = ~std::uint64_t{0}, t.budget_w = 1e12,
      t.budget_version = ~std::uint64_t{0};
      chief.manager->cluster_said(t, clock(m));
      t.epoch = 1, t.budget_w = unknown;
      chief.manager->cluster_said(t, clock(m));
      pump(m);
    }
  }

  std::multimap<std::int64_t, std::function<void()>> mail_;
  std::set<std::pair<std::size_t, std::size_t>> cut_;
  std::int64_t now_ = 0;
  double loss_ = 0;
  std::uint64_t orders_ = 0;
  std::map<std::uint64_t, std::size_t> open_;
  std::map<std::uint64_t, sonde::bus::AnswerOf<SystemAnswer>> answers_;
};

}  // namespace power_world
