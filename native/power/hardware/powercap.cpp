// RAPL through the powercap interface of Linux: folders below class/powercap, with microjoules and microwatts in files.
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
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "core/number.hpp"
#include "core/units.hpp"
#include "power/hardware/kinds.hpp"

namespace sonde::power::kinds {

namespace {

namespace fs = std::filesystem;

/// Limits of plausible power of a package: this factor of its highest cap or, if that is unknown, this power.
constexpr double beyond_factor = 10, beyond_w = 10e3;
/// RAPL reports no lowest cap. Packages do not go much below a quarter of their highest cap, whatever cap is set.
constexpr double least_share = 0.25;
/// A counter without a change is reported after this time, and then whenever the time has doubled.
constexpr double still_s = 30;
/// Opening watches the counters of zones that may be one meter for at most this time, if one of them moves at all in
/// the first part of it.
constexpr double watched_s = 0.4, first_watched_s = 0.12, watch_again_s = 0.002;

/// RAPL rounds a limit to an eighth of a watt.
constexpr double rounding_w = 0.2;

struct Constraint {
  std::string file;  // "constraint_0_power_limit_uw"
  bool writable = true;
};

struct Zone {
  std::string name;  // "package-0", "package-0/dram", "psys"
  std::string kernels_name;
  std::string folder;
  std::unique_ptr<EnergyCounter> counter;
  std::vector<Constraint> limits;  // the long-term constraint is the first
  Range range;
};

/// Two zones that may be one meter: dies of one package.
struct Pair {
  std::size_t first, second;
  Mirror mirror;
};

/// "package-0" of "package-0-die-1" and "package-0#2": what one meter may count under both names.
std::string package_of(std::string name) {
  for (const std::string_view mark : {"-die-", "#"})
    if (const auto at = name.find(mark); at != std::string::npos) {
      const auto end = name.find_first_not_of("0123456789", at + mark.size());
      name.erase(at, end == std::string::npos ? end : end - at);
    }
  return name;
}

bool is_package(const std::string& name) { return name.starts_with("package-") && name.find('/') == std::string::npos; }

/// "intel-rapl" of ".../intel-rapl:0:1".
std::string driver_of(const std::string& folder) {
  const std::string entry = folder.substr(folder.rfind('/') + 1);
  return entry.substr(0, entry.find(':'));
}

/// The depth of a zone: "intel-rapl:0:1" has two numbers. 0: not a zone.
std::size_t depth_of(const std::string& folder) {
  return static_cast<std::size_t>(std::count(folder.begin(), folder.end(), ':'));
}

/// Compares numbers in names by value, so that package-10 comes after package-9.
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
    // If the kernel has no packages, it counts only the whole platform.
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
    for (auto& zone : self->zones_) (void)self->count(zone);  // energy counts from this reading
    self->watch_pairs();
    return Opened(std::move(self));
  }

  Source source() const override { return Source::powercap; }
  const std::string& model() const override { return model_; }
  const std::vector<std::string>& domains() const override { return names_; }
  Range range(std::size_t domain) const override { return domain < zones_.size() ? zones_[domain].range : Range{}; }

  std::string repeats(std::size_t domain) const override {
    for (const auto& pair : pairs_)
      if (pair.second == domain && pair.mirror.same())
        return told({"power.hardware_failed",
                     "the energy counters of " + names_[pair.first] + " and " + names_[domain] +
                         " move as one, so they are one meter: " + names_[domain] +
                         " is not counted (name one of them in `domains`)",
                     ""});
    return "";
  }

  Result<std::vector<DomainReading>> read() override {
    compare_pairs();
    std::vector<DomainReading> out;
    std::optional<Error> first;
    bool any = false;
    for (std::size_t k = 0; k < zones_.size(); ++k) {
      auto& zone = zones_[k];
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
                   zone.folder + "/energy_uj has not changed for " +
                       format_duration(still_s * std::exp2(std::floor(std::log2(still / still_s)))) +
                       ": the power of " + zone.name + " is not known",
                   ""});
      } else {
        trouble(counted.error());
      }
      one.energy_j = zone.counter ? zone.counter->energy_j() : unknown;
      if (!zone.limits.empty()) {
        const auto cap = limit_of(k);
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
    if (const auto done = set(zone, cap_w); !done) return done.error();
    // One meter has one limit. If its other name has a limit of its own, both are compared with the same power.
    for (const auto& pair : pairs_) {
      if (pair.first != domain || !pair.mirror.same()) continue;
      auto& other = zones_[pair.second];
      const auto has = limit(other);
      if (!other.range.settable || (has && std::abs(*has - cap_w) < rounding_w)) continue;
      if (const auto done = set(other, cap_w); !done) return done.error();
    }
    auto back = limit_of(domain);
    if (!back) return back.error();
    if (std::isnan(*back))
      return Error{"power.hardware_failed", zone.folder + "/enabled stays 0, so no limit is in force",
                   "a BIOS setting may prevent it"};
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
        done = Error{"power.unknown_domain", one.domain + " does not exist any more", ""};
      } else {
        // The data on disk may be damaged: only known settings with numbers are written. A setting that was not
        // writable was not changed, so it still has its value.
        const bool known =
            one.setting == "enabled" || std::any_of(zone->limits.begin(), zone->limits.end(),
                                                    [&](const Constraint& c) { return c.file == one.setting; });
        if (!known || !number(one.value, value)) {
          done = Error{"power.bad_original",
                       one.domain + " has no setting " + one.setting + " that can be " + one.value, ""};
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

  static Result<void> set(Zone& zone, double cap_w) {
    const std::string text = std::to_string(std::llround(cap_w * 1e6));
    for (std::size_t k = 0; k < zone.limits.size(); ++k) {
      auto& one = zone.limits[k];
      if (!one.writable) continue;
      const auto written = write_text(zone.folder + "/" + one.file, text);
      if (written) continue;
      if (k == 0) return written.error();
      one.writable = false;  // the firmware controls the short-term limit; the long-term limit holds over its window
    }
    // The limits of a zone that is switched off have no effect.
    const auto enabled = read_text(zone.folder + "/enabled");
    if (enabled && *enabled == "0") return write_text(zone.folder + "/enabled", "1");
    return {};
  }

  /// Decides before the first reading is used which zones are one meter, if their counters move.
  void watch_pairs() {
    for (std::size_t k = 0; k < zones_.size(); ++k)
      for (std::size_t first = 0; first < k; ++first)
        if (package_of(names_[first]) == package_of(names_[k])) pairs_.push_back({first, k, {}});
    if (pairs_.empty()) return;
    const double began_s = now_s();
    const auto still = [&] { return read_count(zones_[pairs_.front().first].folder + "/energy_uj"); };
    const auto begun = still();
    bool moved = false;
    for (;;) {
      compare_pairs();
      if (std::all_of(pairs_.begin(), pairs_.end(), [](const Pair& p) { return p.mirror.decided(); })) return;
      const double passed_s = now_s() - began_s;
      if (const auto now = still(); now && begun && *now != *begun) moved = true;
      if (passed_s >= watched_s || (passed_s >= first_watched_s && !moved)) return;
      sleep_until(now_s() + watch_again_s);
    }
  }

  void compare_pairs() {
    for (auto& pair : pairs_) {
      const std::string first = zones_[pair.first].folder + "/energy_uj",
                        second = zones_[pair.second].folder + "/energy_uj";
      const auto a = read_count(first), b = read_count(second), again = read_count(first);
      if (a && b && again) pair.mirror.add(*a, *b, *again, now_ns());
    }
  }

  /// The highest limit of a domain and of what repeats it.
  Result<double> limit_of(std::size_t domain) const {
    auto most = limit(zones_[domain]);
    for (const auto& pair : pairs_)
      if (pair.first == domain && pair.mirror.same() && most && !zones_[pair.second].limits.empty())
        if (const auto other = limit(zones_[pair.second])) *most = std::fmax(*most, *other);
    return most;
  }

  static Result<std::vector<Zone>> find(const std::string& folder) {
    std::error_code why;
    std::vector<std::string> entries;
    for (const auto& entry : fs::directory_iterator(folder, why)) entries.push_back(entry.path().filename());
    const auto none = [&](const std::string& what) {
      return Error{"power.no_hardware", what,
                   "this is usual in a virtual machine; on a physical machine try 'modprobe intel_rapl_msr'. Without "
                   "RAPL, use kind = \"redfish\", \"ipmi\", or \"simulated\""};
    };
    if (why) return none("RAPL is not available: " + folder + ": " + why.message());
    std::sort(entries.begin(), entries.end(), before);
    // If two drivers have the same package, the driver of the registers is used; the lower limit of both is in force.
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
      // The MMIO driver lists a package a second time: it is the same package. Two packages of one driver are
      // different, for example dies to which an older kernel gives the same name.
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
    if (out.empty()) return none("RAPL is not available: no package in " + folder);
    std::stable_sort(out.begin(), out.end(), [](const Zone& a, const Zone& b) { return before(a.name, b.name); });
    return out;
  }

  /// Finds the limits of a zone and their range.
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
      range.why_not = "constraint_0_power_limit_uw does not exist";
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

  /// The highest limit in force: the package may draw this power, though perhaps only for the short term. NaN: the zone
  /// is switched off.
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
  std::vector<Zone> zones_;   // the domains, in order
  std::vector<Pair> pairs_;   // of zones_
  std::vector<Zone> others_;  // parts of packages and psys, reported as sensors
};

}  // namespace

Opened open_powercap(const HardwareSpec& spec) { return Powercap::open(spec); }

}  // namespace sonde::power::kinds
