#include "power/hardware/node.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "core/clock.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "power/hardware/kinds.hpp"

namespace sonde::power {

namespace {

/// Whether a domain covers the whole node: all other readings are part of it.
bool is_whole(const std::string& name) { return name == "node" || name == "psys"; }

/// "package-0/core" is part of "package-0", and counted there; memory's power is separate from its package's.
bool counted_elsewhere(const std::string& name, const std::vector<std::string>& all) {
  const auto slash = name.find('/');
  if (slash == std::string::npos || name.substr(slash) == "/dram") return false;
  return std::find(all.begin(), all.end(), name.substr(0, slash)) != all.end();
}

class RealNode final : public Node {
 public:
  explicit RealNode(double base_w) : base_w_(base_w) {}

  Result<void> begin(const Settings& settings) {
    if (!(settings.base_w >= 0 && settings.base_w <= 1e9))
      return Error{"power.bad_hardware", "a base of " + kinds::exact(settings.base_w) + " W", "allowed: 0 to 1e9 W"};
    if (settings.hardware.empty())
      return Error{"power.no_hardware", "no hardware is configured",
                   "add [[node-manager.hardware]] with kind = \"powercap\" or another kind"};
    bool read_only = true;
    std::string why, cpufreq_root = "/sys";
    bool simulated = false, frequencies = false;
    std::set<std::string> used_names;
    for (const auto& spec : settings.hardware) {
      if (spec.kind == Source::cpufreq) {  // frequencies alone: nothing of it is power
        cpufreq_root = spec.root;
        frequencies = true;
        continue;
      }
      auto opened = open_hardware(spec);
      if (!opened) return opened.error();
      if (spec.kind == Source::powercap && !frequencies) cpufreq_root = spec.root;
      simulated = simulated || spec.kind == Source::simulated;
      read_only = read_only && spec.read_only;
      std::string tag = name_of(spec.kind);
      for (int again = 2; std::any_of(parts_.begin(), parts_.end(), [&](const Part& p) { return p.tag == tag; });
           ++again)
        tag = std::string(name_of(spec.kind)) + "#" + std::to_string(again);
      const std::string& model = (*opened)->model();
      if (model_.find(model) == std::string::npos) model_ += (model_.empty() ? "" : ", ") + model;
      const auto& names = (*opened)->domains();
      for (std::size_t k = 0; k < names.size(); ++k) {
        Domain one{parts_.size(), k, kinds::unlike(names[k], used_names), is_whole(names[k]),
                   !counted_elsewhere(names[k], names)};
        if (const Range range = (*opened)->range(k); !range.settable && why.empty())
          why = tag + " " + names[k] + ": " + range.why_not;
        domains_.push_back(one);
      }
      Part part;
      part.tag = tag;
      part.hardware = std::move(*opened);
      parts_.push_back(std::move(part));
    }
    if (parts_.empty())
      return Error{"power.no_hardware", "no configured hardware reports power",
                   "cpufreq has only frequencies; add kind = \"powercap\""};
    base_w_ = settings.base_w;
    choose();
    if (held_.empty() && !read_only)
      return Error{"power.no_cap", "no part of this node can be capped: " + why,
                   "correct this, or set read_only = true for its hardware"};
    why_not_ = held_.empty() ? why : "";
    // A simulated node would show the frequencies of the machine it runs on: only on request.
    if (!simulated || frequencies) {
      auto found = Cpufreq::open(cpufreq_root);
      if (found) cpufreq_ = std::move(*found);
    }
    return {};
  }

  Range range() const override {
    if (held_.empty()) return {unknown, unknown, false, why_not_};
    Range out{base_of_cap(), base_of_cap(), true, ""};
    for (const auto k : distinct(held_)) {
      const Range one = range_of(domains_[k]);
      out.min_w += one.min_w;
      out.max_w += one.max_w;
    }
    return out;
  }

  const std::string& model() const override { return model_; }

  NodeReading read() override {
    NodeReading out;
    const auto trouble = [&](const std::string& what) {
      if (out.trouble.empty()) out.trouble = what;
    };
    std::vector<DomainReading> all;
    for (auto& part : parts_) {
      const std::size_t many = part.hardware->domains().size();
      auto now = part.hardware->read();
      if (!now) trouble(kinds::told(now.error()));
      for (std::size_t k = 0; k < many; ++k) {
        all.push_back(now ? (*now)[k] : DomainReading{});
        if (!all.back().trouble.empty()) trouble(all.back().trouble);
      }
      const Source source = part.hardware->source();
      const bool far = source == Source::redfish || source == Source::ipmi;
      if (!far || !part.sensed || now_ns() - part.sensed_ns >= far_sensors_ns) {
        auto sensors = part.hardware->sensors();
        if (!sensors) trouble(kinds::told(sensors.error()));
        part.sensors = sensors ? std::move(*sensors) : std::vector<Sensor>{};
        part.sensed = true;
        part.sensed_ns = now_ns();
      }
      out.sensors.insert(out.sensors.end(), part.sensors.begin(), part.sensors.end());
    }
    // Readers identify sensors by name: each name must be unique.
    std::map<SensorKind, std::set<std::string>> used;
    for (auto& sensor : out.sensors) sensor.name = kinds::unlike(sensor.name, used[sensor.kind]);
    double power_w = base_w_, energy_j = unknown;
    for (std::size_t k = 0; k < domains_.size(); ++k) {
      const auto& one = domains_[k];
      out.domains.push_back({one.name, parts_[one.part].hardware->source(), all[k], range_of(one)});
    }
    if (!shown_.empty()) {
      const bool whole = domains_[shown_.front()].whole;
      if (whole) power_w = 0;
      energy_j = 0;
      for (const auto k : distinct(shown_)) {
        power_w += all[k].power_w;
        energy_j += all[k].energy_j;
      }
      out.source = parts_[domains_[shown_.front()].part].hardware->source();
      if (!whole) energy_j += base_j();
    }
    out.power_w = power_w;
    out.energy_j = energy_j;
    if (!held_.empty()) {
      out.cap_w = base_of_cap();
      for (const auto k : distinct(held_)) out.cap_w += all[k].cap_w;
    }
    for (std::size_t k = 0; k < domains_.size() && out.note.empty(); ++k) out.note = repeats(domains_[k]);
    if (cpufreq_) {
      auto frequencies = cpufreq_->read();
      if (frequencies) out.frequencies = std::move(*frequencies);
      else trouble(kinds::told(frequencies.error()));
    }
    return out;
  }

  Result<double> cap(double cap_w) override {
    const auto held = distinct(held_);
    auto done = share(cap_w, held);
    // Setting a limit may have shown that another domain has the same one: then there are fewer to share the cap.
    if (distinct(held_) != held) done = share(cap_w, distinct(held_));
    return done;
  }

  Result<double> share(double cap_w, const std::vector<std::size_t>& held) {
    const Range all = range();
    if (const auto may = kinds::may_set(all, "the node", cap_w); !may) return may.error();
    std::vector<double> low, high, weight;
    for (const auto k : held) {
      const Range one = range_of(domains_[k]);
      low.push_back(one.min_w);
      high.push_back(one.max_w);
      weight.push_back(std::max(one.max_w - one.min_w, 1e-9));  // each as far within its own range
    }
    const auto shares = level(cap_w - base_of_cap(), low, high, weight);
    // Lower before raising: the sum is never above the higher of before and after.
    std::optional<Error> first;
    std::vector<std::size_t> order;
    std::vector<double> now(held.size(), unknown);
    for (std::size_t i = 0; i < held.size(); ++i) order.push_back(i);
    for (auto& part : parts_) {
      auto read = part.hardware->read();
      if (!read) continue;
      for (std::size_t i = 0; i < held.size(); ++i)
        if (&parts_[domains_[held[i]].part] == &part) now[i] = (*read)[domains_[held[i]].index].cap_w;
    }
    const auto raises = [&](std::size_t i) { return std::isfinite(now[i]) && shares[i] > now[i]; };
    std::stable_partition(order.begin(), order.end(), [&](std::size_t i) { return !raises(i); });
    bool behind = false;  // a cap that had to be lowered was not
    std::size_t followed = 0;
    for (const auto i : order) {
      if (behind && raises(i)) continue;
      auto& one = domains_[held[i]];
      if (!repeats(one).empty()) continue;  // its limit has been set already
      auto back = parts_[one.part].hardware->cap(one.index, shares[i]);
      if (back) {
        now[i] = *back;
        ++followed;
        behind = behind || (!raises(i) && *back > shares[i] + tolerance_w);
        continue;
      }
      if (!first) first = back.error();
      behind = behind || !raises(i);
    }
    double sum = base_of_cap();
    for (const double w : now) sum += w;
    if (first &&
        (first->code == "power.out_of_range" || first->code == "power.read_only" || !std::isfinite(sum) || !followed))
      return *first;
    if (!std::isfinite(sum)) return Error{"power.hardware_failed", "a cap was set, but it cannot be read back", ""};
    return sum;
  }

  Result<double> capped() override {
    if (held_.empty()) return Error{"power.read_only", "the node cannot be capped: " + why_not_, ""};
    double sum = base_of_cap();
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (std::none_of(held_.begin(), held_.end(), [&](std::size_t k) { return domains_[k].part == p; })) continue;
      auto now = parts_[p].hardware->read();
      if (!now) return now.error();
      for (const auto k : distinct(held_))
        if (domains_[k].part == p) sum += (*now)[domains_[k].index].cap_w;
    }
    return sum;
  }

  Result<std::vector<Original>> originals() override {
    std::vector<Original> out;
    for (auto& part : parts_) {
      auto all = part.hardware->originals();
      if (!all) return all.error();
      for (auto& one : *all) out.push_back({part.tag + ":" + one.domain, std::move(one.setting), std::move(one.value)});
    }
    return out;
  }

  Result<void> restore(const std::vector<Original>& originals) override {
    std::optional<Error> first;
    std::vector<std::vector<Original>> sorted(parts_.size());
    for (const auto& one : originals) {
      const auto colon = one.domain.find(':');
      const auto part = std::find_if(parts_.begin(), parts_.end(),
                                     [&](const Part& p) { return p.tag == one.domain.substr(0, colon); });
      if (colon == std::string::npos || part == parts_.end()) {
        if (!first)
          first = Error{"power.unknown_domain", shown(one.domain) + " does not exist any more",
                        "it existed when its settings were saved"};
        continue;
      }
      sorted[static_cast<std::size_t>(part - parts_.begin())].push_back(
          {one.domain.substr(colon + 1), one.setting, one.value});
    }
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (sorted[p].empty()) continue;
      if (auto done = parts_[p].hardware->restore(sorted[p]); !done && !first) first = done.error();
    }
    if (first) return *first;
    return {};
  }

 private:
  /// A BMC takes seconds for all its sensors.
  static constexpr std::int64_t far_sensors_ns = 30'000'000'000;
  static constexpr double tolerance_w = 1;  // RAPL rounds to an eighth of a watt, BMCs to one
  struct Part {
    std::string tag;  // "powercap", "powercap#2": part of the names of originals
    std::unique_ptr<Hardware> hardware;
    std::vector<Sensor> sensors;
    bool sensed = false;
    std::int64_t sensed_ns = 0;
  };
  struct Domain {
    std::size_t part, index;
    std::string name;
    bool whole, counts;
  };

  std::string repeats(const Domain& one) const { return parts_[one.part].hardware->repeats(one.index); }
  /// Without those that repeat another one.
  std::vector<std::size_t> distinct(const std::vector<std::size_t>& all) const {
    std::vector<std::size_t> out;
    for (const auto k : all)
      if (repeats(domains_[k]).empty()) out.push_back(k);
    return out;
  }

  Range range_of(const Domain& one) const { return parts_[one.part].hardware->range(one.index); }

  /// If a domain covers the whole node, its power and its cap are used; of several sources the first one configured.
  void choose() {
    const auto pick = [&](bool settable) {
      std::vector<std::size_t> out;
      std::optional<std::size_t> part;
      for (std::size_t k = 0; k < domains_.size(); ++k) {
        if (!domains_[k].whole || (settable && !range_of(domains_[k]).settable) || (part && *part != domains_[k].part))
          continue;
        part = domains_[k].part;
        out.push_back(k);
      }
      if (!out.empty()) return out;
      for (std::size_t k = 0; k < domains_.size(); ++k)
        if (!domains_[k].whole && domains_[k].counts && (!settable || range_of(domains_[k]).settable)) out.push_back(k);
      return out;
    };
    shown_ = pick(false);
    held_ = pick(true);
  }
  /// The power besides the capped domains.
  double base_of_cap() const { return !held_.empty() && domains_[held_.front()].whole ? 0 : base_w_; }
  double base_j() { return base_w_ * static_cast<double>(now_ns() - began_ns_) * 1e-9; }

  double base_w_;
  std::int64_t began_ns_ = now_ns();
  std::string model_, why_not_;
  std::vector<Part> parts_;
  std::vector<Domain> domains_;
  std::vector<std::size_t> shown_, held_;  // whose power is the node's, whose caps are the node's cap
  std::optional<Cpufreq> cpufreq_;
};

}  // namespace

Result<std::unique_ptr<Node>> Node::open(const Settings& settings) {
  auto node = std::make_unique<RealNode>(settings.base_w);
  if (const auto begun = node->begin(settings); !begun) return begun.error();
  return std::unique_ptr<Node>(std::move(node));
}

double Obedience::add(double power_w, double cap_w, double now_s) {
  if (!std::isfinite(power_w) || !std::isfinite(cap_w))
    return above_s_;  // what is not known neither accuses nor acquits
  if (power_w <= cap_w * (1 + tolerance_)) {
    since_s_ = unknown;
    return above_s_ = 0;
  }
  if (std::isnan(since_s_)) since_s_ = now_s;
  return above_s_ = std::max(0.0, now_s - since_s_);
}

}  // namespace sonde::power
