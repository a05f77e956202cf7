#pragma once
/// Common parts of the kinds of hardware, and the function that opens each. For this folder only; others use
/// hardware.hpp. Any-thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "power/hardware/hardware.hpp"

namespace sonde::power::kinds {

using Opened = Result<std::unique_ptr<Hardware>>;

Opened open_powercap(const HardwareSpec& spec);
Opened open_nvml(const HardwareSpec& spec);
Opened open_redfish(const HardwareSpec& spec);
Opened open_ipmi(const HardwareSpec& spec);
Opened open_simulated(const HardwareSpec& spec);

/// The packages to install for a kind that this build or machine lacks; empty: nothing.
const char* nvml_missing();
const char* redfish_missing();
const char* ipmi_missing();

/// "code: what"
std::string told(const Error& error);

/// The content of a sysfs file without trailing blanks. Errors: power.hardware_gone (the file or its device is gone),
/// power.hardware_failed.
Result<std::string> read_text(const std::string& path);
Result<double> read_number(const std::string& path);
Result<std::uint64_t> read_count(const std::string& path);
/// Never creates a file. Errors: as read_text(); missing rights are power.read_only.
Result<void> write_text(const std::string& path, const std::string& text);

/// The `names` that a configuration's pattern matches; empty pattern: those that `usual` selects. Errors:
/// power.unknown_domain.
Result<std::vector<std::size_t>> chosen(const std::string& pattern, const std::vector<std::string>& names,
                                        const std::function<bool(const std::string&)>& usual);

/// The hardware's range, narrowed by the configuration; not settable if read_only is set, or if neither gives a limit.
Range narrowed(Range range, const HardwareSpec& spec);
/// Errors: power.read_only, power.out_of_range.
Result<void> may_set(const Range& range, const std::string& domain, double cap_w);
/// `name`, followed by "#2", "#3", … if it is in `used` already; the result is added to `used`.
std::string unlike(const std::string& name, std::set<std::string>& used);
/// A number as text for Original::value, with all its digits.
std::string exact(double value);

/// The first line of a password file. Errors: power.bad_hardware: it cannot be read, is empty, or others may read it.
Result<std::string> password_in(const std::string& path);

/// Computes joules from a counter that wraps at `range` and may be reset. Owner-thread.
class EnergyCounter {
 public:
  /// `unit_j`: of one count; `range`: the highest count, 0: unknown; `most_w`: the highest possible power, to tell a
  /// reset from a wrap.
  EnergyCounter(double unit_j, std::uint64_t range, double most_w) : unit_j_(unit_j), range_(range), most_w_(most_w) {}
  void add(std::uint64_t count, std::int64_t now_ns);
  double energy_j() const { return energy_j_; }
  /// Power between the last two counts that were far enough apart; NaN: there were not yet two, or it was reset between
  /// them, or it stands still.
  double power_w() const { return power_w_; }
  /// How long it has not moved; a counter of a running machine moves, but those of virtual machines and of faulty
  /// firmware may not.
  double still_s() const { return begun_ ? static_cast<double>(last_ns_ - moved_ns_) * 1e-9 : 0; }

 private:
  double unit_j_;
  std::uint64_t range_;
  double most_w_;
  std::uint64_t last_ = 0;
  std::int64_t last_ns_ = 0, moved_ns_ = 0;
  double energy_j_ = 0, power_w_ = unknown;
  bool begun_ = false;
};

/// Whether two counters are one meter that has two names. Either they grow by equal counts, look for look; or they have
/// the same count for seconds, but for what is drawn between reading the one and the other. Counters that do not move
/// show nothing. Owner-thread.
class Mirror {
 public:
  /// The counts of one look: the first counter before and after the second.
  void add(std::uint64_t first, std::uint64_t second, std::uint64_t first_again, std::int64_t now_ns);
  /// Since several looks they have moved as one; it takes several other looks in a row to end that.
  bool same() const { return same_; }
  /// Nothing more is learnt at once.
  bool decided() const { return same_ || apart_ >= several; }

 private:
  static constexpr int several = 4;
  static constexpr std::int64_t between_ns = 5'000'000, equal_for_ns = 2'000'000'000;
  std::uint64_t first_ = 0, second_ = 0;
  std::int64_t moved_ns_ = 0, equal_since_ns_ = 0;
  int alike_ = 0, equal_ = 0, apart_ = 0;
  bool begun_ = false, same_ = false;
};

/// The temperatures, fans and voltages of hwmon under a sysfs root. Files that vanish are left out. If several chips
/// have one name, as with two sockets or two drives, the names contain the device: "nvme@nvme1/Composite".
std::vector<Sensor> hwmon_sensors(const std::string& root);

}  // namespace sonde::power::kinds
