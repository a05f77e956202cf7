// RAPL as Linux' powercap has it: folders below class/powercap, microjoules and microwatts in files.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/number.hpp"
#include "core/units.hpp"
#include "power/hardware/kinds.hpp"

namespace sonde::power::kinds {

namespace {

namespace fs = std::filesystem;

/// More than a package can draw: told from it by a factor of its highest cap, or, where that is not known, by a number.
constexpr double beyond_factor = 10, beyond_w = 10e3;
/// RAPL tells no least cap. Packages do not go much below a quarter of their highest, whatever is asked of them.
constexpr double least_share = 0.25;
/// A counter that stands still is reported after this.
constexpr double still_s = 30;

struct Constraint {
  std::string file;  // "constraint_0_power_limit_uw"
  bool writable = true;
};

struct Zone {
  std::string name;  // "package-0", "package-0/dram", "psys"
  std::string kernels_name;
  std::string folder;
  std::unique_ptr<EnergyCounter> counter;
  std::vector<Constraint> limits;  // the long term's first
  Range range;
};

bool is_package(const std::string& name) { return name.starts_with("package-") && name.find('/') == std::string::npos; }

/// "intel-rapl" of ".../intel-rapl:0:1".
std::string driver_of(const std::string& folder) {
  const std::string entry = folder.substr(folder.rfind('/') + 1);
  return entry.substr(0, entry.find(':'));
}

/// "intel-rapl:0:1" has two numbers; what is no zone has none.
std::size_t depth_of(const std::string& folder) {
  return static_cast<std::size_t>(std::count(folder.begin(), folder.end(), ':'));
}

/// Numbers in names by their value, so that package-10 comes after package-9.
bool before(const std::string& a, const std::string& b) { return ::strverscmp(a.c_str(), b.c_str()) < 0; }

class Powercap final : public Hardware {
 public:
  static Opened open(const HardwareSpec& spec) {
    auto self = std::unique_ptr<Powercap>(new Powercap);
    self->root_ = spec.root;
    self->clock_ = spec.clock;
    auto zones = self->find(spec.root + "/class/powercap");
    if (!zones) return zones.error();
    std::vector<std::string> names;
    for (const auto& zone : *zones) names.push_back(zone.name);
    // Where the kernel has no packages, the whole platform is all that it counts.
    const bool packages = std::any_of(names.begin(), names.end(), is_package);
    auto taken = chosen(spec.domains, names,
                        [&](const std::string& name) { return packages ? is_package(name) : name == "psys"; });
    if (!taken) return taken.error();
    for (const auto k : *taken) {
      auto& zone = (*zones)[k];
      zone.range = narrowed(look(zone), spec);
      self->names_.push_back(zone.name);
    }
    for (std::size_t k = 0; k < zones->size(); ++k) {
      const bool domain = std::find(taken->begin(), taken->end(), k) != taken->end();
      prepare((*zones)[k]);
      (domain ? self->zones_ : self->others_).push_back(std::move((*zones)[k]));
    }
    self->model_ = self->zones_.front().folder.find("intel-rapl") != std::string::npos ? "RAPL (powercap)" : "powercap";
    for (auto& zone : self->zones_) (void)self->count(zone);  // energy is counted from here on
    return Opened(std::move(self));
  }

  Source source() const override { return Source::powercap; }
  const std::string& model() const override { return model_; }
  const std::vector<std::string>& domains() const override { return names_; }
  Range range(std::size_t domain) const override { return domain < zones_.size() ? zones_[domain].range : Range{}; }

  Result<std::vector<DomainReading>> read() override {
    std::vector<DomainReading> out;
    std::optional<Error> first;
    bool any = false;
    for (auto& zone : zones_) {
      DomainReading one;
      const auto trouble = [&](const Error& e) {
        if (one.trouble.empty()) one.trouble = told(e);
        if (!first) first = e;
      };
      if (const auto counted = count(zone)) {
        one.power_w = zone.counter->power_w();
        any = true;
        if (const double still = zone.counter->still_s(); still >= still_s)
          trouble({"power.hardware_failed",
                   zone.folder + "/energy_uj has stood still for " + format_duration(std::floor(still)) +
                       ": the power of " + zone.name + " is not known",
                   ""});
      } else {
        trouble(counted.error());
      }
      one.energy_j = zone.counter ? zone.counter->energy_j() : unknown;
      if (!zone.limits.empty()) {
        const auto cap = limit(zone);
        if (cap) {
          one.cap_w = *cap;
          any = true;
        } else {
          trouble(cap.error());
        }
      }
      out.push_back(std::move(one));
    }
    if (!any && first) return *first;
    return out;
  }

  Result<double> cap(std::size_t domain, double cap_w) override {
    if (domain >= zones_.size())
      return Error{"power.unknown_domain", "there is no domain " + std::to_string(domain), ""};
    auto& zone = zones_[domain];
    if (const auto may = may_set(zone.range, zone.name, cap_w); !may) return may.error();
    const std::string text = std::to_string(std::llround(cap_w * 1e6));
    for (std::size_t k = 0; k < zone.limits.size(); ++k) {
      auto& one = zone.limits[k];
      if (!one.writable) continue;
      const auto written = write_text(zone.folder + "/" + one.file, text);
      if (written) continue;
      if (k == 0) return written.error();
      one.writable = false;  // firmware keeps the short term for itself: the long one holds over its window
    }
    // A zone that is switched off has limits that nobody obeys.
    const auto enabled = read_text(zone.folder + "/enabled");
    if (enabled && *enabled == "0")
      if (const auto on = write_text(zone.folder + "/enabled", "1"); !on) return on.error();
    auto back = limit(zone);
    if (!back) return back.error();
    if (std::isnan(*back))
      return Error{"power.hardware_failed", zone.folder + "/enabled stays 0: no limit is in force",
                   "a BIOS setting may lock it"};
    return *back;
  }

  Result<std::vector<Sensor>> sensors() override {
    for (auto& zone : others_) (void)count(zone);
    std::vector<Sensor> out;
    for (const auto& zone : others_)
      if (zone.counter && std::isfinite(zone.counter->power_w()))
        out.push_back({zone.name, SensorKind::power, zone.counter->power_w()});
    for (auto& one : hwmon_sensors(root_)) out.push_back(std::move(one));
    return out;
  }

  Result<std::vector<Original>> originals() override {
    std::vector<Original> out;
    for (const auto& zone : zones_) {
      if (!zone.range.settable) continue;
      for (const auto& setting : settings_of(zone)) {
        auto value = read_text(zone.folder + "/" + setting);
        if (!value) return value.error();
        out.push_back({zone.name, setting, *value});
      }
    }
    return out;
  }

  Result<void> restore(const std::vector<Original>& originals) override {
    std::optional<Error> first;
    for (const auto& one : originals) {
      const auto zone = std::find_if(zones_.begin(), zones_.end(), [&](const Zone& z) { return z.name == one.domain; });
      Result<void> done;
      std::uint64_t value = 0;
      if (zone == zones_.end()) {
        done = Error{"power.unknown_domain", one.domain + " is not there any more", ""};
      } else {
        // What is kept on disk may be damaged: only settings that there are, and numbers, are written. One that could
        // not be written has what it had.
        const bool known =
            one.setting == "enabled" || std::any_of(zone->limits.begin(), zone->limits.end(),
                                                    [&](const Constraint& c) { return c.file == one.setting; });
        if (!known || !number(one.value, value)) {
          done = Error{"power.bad_original",
                       one.domain + " has no setting " + one.setting + " that could be " + one.value, ""};
        } else if (const auto now = read_text(zone->folder + "/" + one.setting); !now || *now != one.value) {
          done = write_text(zone->folder + "/" + one.setting, one.value);
        }
      }
      if (!done && !first) first = done.error();
    }
    if (first) return *first;
    return {};
  }

 private:
  Powercap() = default;

  static Result<std::vector<Zone>> find(const std::string& folder) {
    std::error_code why;
    std::vector<std::string> entries;
    for (const auto& entry : fs::directory_iterator(folder, why)) entries.push_back(entry.path().filename());
    const auto none = [&](const std::string& what) {
      return Error{"power.no_hardware", what,
                   "usual in a virtual machine; on a real one: modprobe intel_rapl_msr. Without: kind = \"redfish\", "
                   "\"ipmi\", or \"simulated\""};
    };
    if (why) return none("there is no RAPL: " + folder + ": " + why.message());
    std::sort(entries.begin(), entries.end(), before);
    // Where two drivers have a package, the registers' own is used: the lower limit of both is in force.
    std::stable_partition(entries.begin(), entries.end(),
                          [](const std::string& entry) { return !driver_of(entry).ends_with("-mmio"); });
    std::map<std::string, std::string> packages;  // "intel-rapl:0" -> "package-0"
    std::set<std::string> used;
    std::vector<Zone> out;
    for (const auto& entry : entries) {
      const std::size_t depth = depth_of(entry);
      if (!depth) continue;
      const std::string path = folder + "/" + entry;
      auto name = read_text(path + "/name");
      if (!name || name->empty() || name->find('/') != std::string::npos) continue;
      if (depth == 1) {
        if (!is_package(*name) && *name != "psys") continue;
        packages[entry] = *name;
      } else {
        const auto parent = packages.find(entry.substr(0, entry.find(':', entry.find(':') + 1)));
        if (parent == packages.end()) continue;
        *name = parent->second + "/" + *name;
      }
      // The MMIO driver has a package a second time: it is one package. Two of one driver are two, as of dies that an
      // older kernel gives one name.
      const std::string driver = entry.substr(0, entry.find(':'));
      if (std::any_of(out.begin(), out.end(),
                      [&](const Zone& z) { return z.kernels_name == *name && driver_of(z.folder) != driver; })) {
        packages.erase(entry);
        continue;
      }
      Zone zone;
      zone.kernels_name = *name;
      zone.name = unlike(*name, used);
      zone.folder = path;
      if (depth == 1) packages[entry] = zone.name;
      out.push_back(std::move(zone));
    }
    if (out.empty()) return none("there is no RAPL: no package in " + folder);
    std::stable_sort(out.begin(), out.end(), [](const Zone& a, const Zone& b) { return before(a.name, b.name); });
    return out;
  }

  /// Finds the limits of a zone and what they may be.
  static Range look(Zone& zone) {
    Range range;
    std::string most;
    for (int k = 0; k < 8; ++k) {
      const std::string one = "constraint_" + std::to_string(k) + "_";
      const auto name = read_text(zone.folder + "/" + one + "name");
      const bool longest = name ? *name == "long_term" : k == 0;
      if (!longest && !(name && *name == "short_term")) continue;
      if (::access((zone.folder + "/" + one + "power_limit_uw").c_str(), F_OK) != 0) continue;
      Constraint limit{one + "power_limit_uw",
                       ::access((zone.folder + "/" + one + "power_limit_uw").c_str(), W_OK) == 0};
      if (longest) {
        zone.limits.insert(zone.limits.begin(), limit);
        most = one + "max_power_uw";
      } else {
        zone.limits.push_back(limit);
      }
    }
    if (most.empty()) {
      zone.limits.clear();
      range.why_not = "constraint_0_power_limit_uw is not there";
      return range;
    }
    if (const auto value = read_number(zone.folder + "/" + most); value && *value > 0) range.max_w = *value * 1e-6;
    range.min_w = range.max_w * least_share;
    range.settable = zone.limits.front().writable;
    if (!range.settable) range.why_not = zone.folder + "/" + zone.limits.front().file + ": Permission denied";
    return range;
  }

  static void prepare(Zone& zone) {
    const auto most = read_number(zone.folder + "/constraint_0_max_power_uw");
    const auto range = read_count(zone.folder + "/max_energy_range_uj");
    zone.counter = std::make_unique<EnergyCounter>(1e-6, range ? *range : 0,
                                                   most && *most > 0 ? *most * 1e-6 * beyond_factor : beyond_w);
  }

  Result<void> count(Zone& zone) const {
    const auto value = read_count(zone.folder + "/energy_uj");
    if (!value) return value.error();
    zone.counter->add(*value, clock_());
    return {};
  }

  /// The highest that is in force: the package may draw so much, if only for the short term. NaN: the zone is switched
  /// off.
  static Result<double> limit(const Zone& zone) {
    const auto enabled = read_text(zone.folder + "/enabled");
    if (enabled && *enabled == "0") return unknown;
    double most = unknown;
    for (const auto& one : zone.limits) {
      if (!one.writable && &one != &zone.limits.front()) continue;
      const auto value = read_number(zone.folder + "/" + one.file);
      if (!value) return value.error();
      most = std::isnan(most) ? *value : std::max(most, *value);
    }
    return most * 1e-6;
  }

  static std::vector<std::string> settings_of(const Zone& zone) {
    std::vector<std::string> out;
    for (const auto& one : zone.limits)
      if (one.writable) out.push_back(one.file);
    if (::access((zone.folder + "/enabled").c_str(), W_OK) == 0) out.push_back("enabled");
    return out;
  }

  std::string root_, model_;
  std::function<std::int64_t()> clock_;
  std::vector<std::string> names_;
  std::vector<Zone> zones_;   // domains, in their order
  std::vector<Zone> others_;  // parts and psys, told as sensors
};

}  // namespace

Opened open_powercap(const HardwareSpec& spec) { return Powercap::open(spec); }

}  // namespace sonde::power::kinds
