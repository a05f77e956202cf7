#include "power/hardware/simulated.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/number.hpp"
#include "core/owned_file.hpp"
#include "core/text.hpp"
#include "power/hardware/kinds.hpp"

namespace sonde::power {

void PowerModel::pass(double s, double load, double cap_w) {
  const double demand = settings_.idle_w + std::clamp(load, 0.0, 1.0) * (settings_.busy_w - settings_.idle_w);
  const double target = std::max(std::min(demand, cap_w), settings_.idle_w);
  const double kept = settings_.lag_s > 0 ? std::exp(-s / settings_.lag_s) : 0;
  energy_j_ += target * s + (now_w_ - target) * settings_.lag_s * (1 - kept);
  now_w_ = target + (now_w_ - target) * kept;
}

double PowerModel::measured(double power_w) {
  // Box and Muller; 1 - uniform() is above 0.
  const double normal =
      std::sqrt(-2 * std::log(1 - random_.uniform())) * std::cos(2 * std::numbers::pi * random_.uniform());
  return std::max(0.0, power_w + settings_.noise_w * normal);
}

namespace kinds {

namespace {

constexpr std::int64_t least_ns = 1'000'000;

class Simulated final : public Hardware {
 public:
  explicit Simulated(const HardwareSpec& spec)
      : spec_(spec),
        model_({spec.idle_w, spec.busy_w, spec.noise_w, spec.lag_s, spec.seed}),
        load_(spec.load),
        cap_w_(spec.busy_w),
        last_ns_(now_ns()) {
    range_ = narrowed({spec.idle_w, spec.busy_w, true, ""}, spec);
    if (spec.root != "/sys") file_ = spec.root + "/simulated-cap";
  }

  Result<void> begin() {
    if (file_.empty()) return {};
    if (const auto kept = stored()) return {};
    else if (kept.error().code != "power.hardware_gone") return kept.error();
    return store(cap_w_);
  }

  Source source() const override { return Source::simulated; }
  const std::string& model() const override { return name_; }
  const std::vector<std::string>& domains() const override { return names_; }
  Range range(std::size_t domain) const override { return domain == 0 ? range_ : Range{}; }

  Result<std::vector<DomainReading>> read() override {
    DomainReading out;
    if (const auto stepped = step(); !stepped) return stepped.error();
    out.trouble = load_trouble_;
    out.power_w = shown_w_;
    out.energy_j = model_.energy_j();
    out.cap_w = cap_w_;
    return std::vector{out};
  }

  Result<double> cap(std::size_t domain, double cap_w) override {
    if (domain != 0) return Error{"power.unknown_domain", "there is no domain " + std::to_string(domain), ""};
    if (const auto may = may_set(range_, names_[0], cap_w); !may) return may.error();
    if (const auto stepped = step(); !stepped) return stepped.error();
    if (const auto kept = store(cap_w); !kept) return kept.error();
    return cap_w_;
  }

  Result<std::vector<Sensor>> sensors() override {
    // Warm as a machine of that power: for pages and rules to have something to show.
    return std::vector<Sensor>{
        {"load", SensorKind::utilisation, load_},
        {"cpu", SensorKind::temperature, 25 + 50 * model_.now_w() / std::max(1.0, spec_.busy_w)}};
  }

  Result<std::vector<Original>> originals() override {
    if (!range_.settable) return std::vector<Original>{};
    if (const auto stepped = step(); !stepped) return stepped.error();
    return std::vector<Original>{{names_[0], "cap", exact(cap_w_)}};
  }

  Result<void> restore(const std::vector<Original>& originals) override {
    std::string wrong;
    for (const auto& one : originals) {
      double value = 0;
      if (one.domain != names_[0] || one.setting != "cap" || !number(one.value, value) ||
          !(value >= 0 && value <= 1e9)) {
        if (wrong.empty()) wrong = one.domain + " " + one.setting + "=" + one.value;
        continue;
      }
      if (const auto stepped = step(); !stepped) return stepped.error();
      if (const auto kept = store(value); !kept) return kept.error();
    }
    if (!wrong.empty()) return Error{"power.bad_original", "there is no setting to restore from " + shown(wrong), ""};
    return {};
  }

 private:
  /// Time passes until now, under the cap that was in force.
  Result<void> step() {
    if (!spec_.load_file.empty()) {
      const auto load = read_number(spec_.load_file);
      load_trouble_.clear();
      if (!load) load_trouble_ = told(load.error());
      else if (!(*load >= 0 && *load <= 1))
        load_trouble_ =
            "power.hardware_failed: " + spec_.load_file + " has a load of " + exact(*load) + "; allowed: 0 to 1";
      else load_ = *load;
    }
    const std::int64_t now = now_ns();
    if (now - last_ns_ >= least_ns) {
      const double s = static_cast<double>(now - last_ns_) * 1e-9, before_j = model_.energy_j();
      model_.pass(s, load_, cap_w_);
      shown_w_ = model_.measured((model_.energy_j() - before_j) / s);
      last_ns_ = now;
    }
    if (file_.empty()) return {};
    const auto kept = stored();
    if (!kept) return kept.error();
    cap_w_ = *kept;
    return {};
  }
  Result<double> stored() const { return read_number(file_); }
  Result<void> store(double cap_w) {
    if (!file_.empty()) {
      // As with hardware: a reader sees the old or the new cap, never something between.
      char text[40];
      std::snprintf(text, sizeof text, "%.17g\n", cap_w);
      if (!write_whole(file_, text))
        return Error{"power.hardware_failed", "cannot store the cap in " + file_,
                     "check that the folder exists and can be written"};
    }
    cap_w_ = cap_w;
    return {};
  }

  HardwareSpec spec_;
  PowerModel model_;
  std::string name_ = "simulated node", file_, load_trouble_;
  std::vector<std::string> names_{"node"};
  Range range_;
  double load_, cap_w_, shown_w_ = unknown;
  std::int64_t last_ns_;
};

}  // namespace

Opened open_simulated(const HardwareSpec& spec) {
  const auto bad = [](const std::string& what, const std::string& hint) {
    return Error{"power.bad_hardware", what, hint};
  };
  if (!(std::isfinite(spec.idle_w) && spec.idle_w >= 0 && std::isfinite(spec.busy_w) && spec.busy_w >= spec.idle_w))
    return bad("a simulated node that draws " + exact(spec.idle_w) + " W idle and " + exact(spec.busy_w) + " W busy",
               "idle must be at least 0 W and at most busy");
  if (!(spec.noise_w >= 0 && spec.noise_w < 1e6))
    return bad("a simulated node with a noise of " + exact(spec.noise_w) + " W", "noise must be at least 0 W");
  if (!(spec.lag_s >= 0 && spec.lag_s < 1e6))
    return bad("a simulated node with a lag of " + exact(spec.lag_s) + " s", "lag must be at least 0 s");
  if (!(spec.load >= 0 && spec.load <= 1))
    return bad("a simulated node with a load of " + exact(spec.load), "allowed: 0 to 1");
  auto node = std::make_unique<Simulated>(spec);
  if (const auto begun = node->begin(); !begun) return begun.error();
  if (auto domain = chosen(spec.domains, node->domains(), [](const std::string&) { return true; }); !domain)
    return domain.error();
  return Opened(std::move(node));
}

}  // namespace kinds
}  // namespace sonde::power
