#pragma once
/// What the kinds of hardware share, and where each is opened. Within this folder; others use hardware.hpp. Any-thread.

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

/// What this build or machine lacks for a kind: words for what to install; empty: nothing.
const char* nvml_missing();
const char* redfish_missing();
const char* ipmi_missing();

/// "code: what"
std::string told(const Error& error);

/// A file of sysfs without the blanks at its end. Errors: power.hardware_gone (it is not there, or its device),
/// power.hardware_failed.
Result<std::string> read_text(const std::string& path);
Result<double> read_number(const std::string& path);
Result<std::uint64_t> read_count(const std::string& path);
/// Never makes a file. Errors: as read_text(); a lack of rights is power.read_only.
Result<void> write_text(const std::string& path, const std::string& text);

/// Which of `names` a configuration's pattern means; empty: those that `usual` names. Errors: power.unknown_domain.
Result<std::vector<std::size_t>> chosen(const std::string& pattern, const std::vector<std::string>& names,
                                        const std::function<bool(const std::string&)>& usual);

/// The hardware's range as the configuration narrows it; not settable where read_only is said, or a limit is known from
/// neither.
Range narrowed(Range range, const HardwareSpec& spec);
/// Errors: power.read_only, power.out_of_range.
Result<void> may_set(const Range& range, const std::string& domain, double cap_w);
/// `name`, with "#2", "#3", … behind it where it is among `used` already, which then has it, too.
std::string unlike(const std::string& name, std::set<std::string>& used);
/// A number as Original::value has it: all its digits.
std::string exact(double value);

/// The first line of a password file. Errors: power.bad_hardware: it cannot be read, is empty, or others may read it.
Result<std::string> password_in(const std::string& path);

/// Joules out of a counter that wraps at `range` and may be set back. Owner-thread.
class EnergyCounter {
 public:
  /// `unit_j`: of one count; `range`: the highest count, 0: not known; `most_w`: what it cannot be above, to tell a
  /// reset from a wrap.
  EnergyCounter(double unit_j, std::uint64_t range, double most_w) : unit_j_(unit_j), range_(range), most_w_(most_w) {}
  void add(std::uint64_t count, std::int64_t now_ns);
  double energy_j() const { return energy_j_; }
  /// Over the time between the last two counts that were long enough apart to tell; NaN: there were not yet two, or it
  /// was reset between them, or it stands still.
  double power_w() const { return power_w_; }
  /// For how long it has not moved, as a counter of a machine that is on does: those of virtual machines and of faulty
  /// firmware.
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

/// Lists what hwmon has of temperatures, fans and voltages under a sysfs root. Files that vanish are left out. Of chips
/// of one name, as two sockets or two drives have, each name has the device with it: "nvme@nvme1/Composite".
std::vector<Sensor> hwmon_sensors(const std::string& root);

}  // namespace sonde::power::kinds
