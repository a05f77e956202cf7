#include "power/powerd/racks.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/units.hpp"

namespace sonde::power {

Result<std::vector<Rack>> limited_racks(const std::vector<NodeConfig>& nodes,
                                        const std::map<std::string, RackConfig>& racks) {
  std::vector<Rack> out;
  for (const auto& [name, rack] : racks) {
    const double limit = std::fmin(rack.power_limit_w, rack.cooling_w);  // the other one where one is NaN
    if (std::isnan(limit)) continue;
    Rack made{name, limit, {}};
    double safe = 0;
    for (std::size_t k = 0; k < nodes.size(); ++k)
      if (nodes[k].rack == name) made.nodes.push_back(k), safe += nodes[k].member.safe_w;
    if (!(limit >= safe))
      return Error{"power.safe_above_rack",
                   "the safe caps of " + std::to_string(made.nodes.size()) + " nodes of rack " + name + " add up to " +
                       format_power(safe) + ", which is above its limit of " + format_power(limit),
                   "lower safe caps, raise the rack's power_limit or cooling, or move nodes to another rack"};
    if (!made.nodes.empty()) out.push_back(std::move(made));
  }
  return out;
}

void fit_racks(const std::vector<Rack>& racks, const std::vector<double>& held, const std::vector<double>& low,
               const std::vector<double>& high, const std::vector<double>& weight, std::vector<double>& caps) {
  if (racks.empty()) return;
  const double before = std::accumulate(caps.begin(), caps.end(), 0.0,
                                        [](double sum, double cap) { return std::isnan(cap) ? sum : sum + cap; });
  std::vector<bool> full(caps.size());
  // Each round fills at least one rack, or is the last.
  for (std::size_t round = 0; round <= racks.size(); ++round) {
    bool over = false;
    for (const auto& rack : racks) {
      double room = rack.limit_w, sum = 0;
      std::vector<std::size_t> members;
      for (const auto k : rack.nodes) {
        if (std::isnan(caps[k])) room -= held[k];
        else members.push_back(k), sum += caps[k];
      }
      if (members.empty() || sum <= room) continue;
      over = true;
      // The part of each node above its lowest cap shrinks by one factor.
      double least = 0;
      for (const auto k : members) least += low[k];
      const double keep = sum > least ? std::max(0.0, room - least) / (sum - least) * (1 - 1e-12) : 0;
      for (const auto k : members) caps[k] = low[k] + (caps[k] - low[k]) * std::min(keep, 1.0), full[k] = true;
    }
    if (!over) return;
    std::vector<std::size_t> takers;
    std::vector<double> from, to, by;
    double now = 0, theirs = 0;
    for (std::size_t k = 0; k < caps.size(); ++k) {
      if (std::isnan(caps[k])) continue;
      now += caps[k];
      if (full[k] || caps[k] >= high[k]) continue;
      takers.push_back(k), from.push_back(caps[k]), to.push_back(high[k]), by.push_back(weight[k]);
      theirs += caps[k];
    }
    if (takers.empty() || before - now <= 1e-6) return;
    const auto levelled = level(theirs + (before - now), from, to, by);
    for (std::size_t i = 0; i < takers.size(); ++i) caps[takers[i]] = levelled[i];
  }
}

std::vector<double> within_racks(const Ledger& ledger, const std::vector<Rack>& racks, std::vector<double> caps,
                                 std::int64_t now_ns) {
  for (const auto& rack : racks) {
    double committed = 0;
    for (const auto k : rack.nodes) committed += ledger.committed_w(k, now_ns);
    const bool unknown_above = committed > rack.limit_w && !ledger.settled(now_ns);
    double room = rack.limit_w - committed;
    for (const auto k : rack.nodes) {
      if (std::isnan(caps[k])) continue;
      const Member& member = ledger.members()[k];
      const double now_w = ledger.own_w(k, now_ns);
      double cap = std::clamp(caps[k], member.min_w, member.max_w);
      if (unknown_above && cap > member.safe_w) {
        caps[k] = unknown;
        continue;
      }
      if (cap > now_w) {
        const double more = std::min(cap - now_w, std::max(room, 0.0));
        room -= more;
        cap = now_w + more;
      }
      caps[k] = cap;
    }
  }
  return caps;
}

}  // namespace sonde::power
