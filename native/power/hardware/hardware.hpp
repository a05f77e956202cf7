#pragma once
/// The devices through which a node's power is read and capped: one interface, implemented by powercap (RAPL), NVML,
/// Redfish, IPMI DCMI, and a simulated node that must be requested by name. There is no silent fallback from one to
/// another: each number states its source.
///
/// A Hardware is one device with one or more *domains* (package-0, gpu-1, node). A Node (node.hpp) combines several of
/// them under one total cap. Owner-thread, except where stated. The limits of caps are checked here, not left to
/// firmware: some firmware accepts any value (99,999 W).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "power/policy.hpp"
#include "power/source.hpp"

namespace sonde::power {

struct Range {
  double min_w = unknown, max_w = unknown;
  bool settable = false;
  std::string why_not;  ///< if it is not settable: "constraint_0_power_limit_uw does not exist", "…: Permission denied"
};

struct DomainReading {
  double power_w = unknown;  ///< where only energy is counted, over the time since the last read(): NaN at the first
  double energy_j =
      unknown;  ///< since open(); wrap-arounds are counted, and a counter that was reset continues without a fall
  double cap_w = unknown;  ///< as read back now: the highest in force; NaN: unknown, or none is in force
  std::string trouble;     ///< code and sentence about what could not be read; empty: none
};

struct Sensor {
  std::string name;
  SensorKind kind = SensorKind::power;
  double value = unknown;  ///< W, J, degC, V, rpm, share
};

/// Saved before the first cap is set, so that another process can restore it after a crash.
struct Original {
  std::string domain;
  std::string setting;  ///< which of the hardware's: "constraint_0_power_limit_uw", "PowerLimit"
  std::string value;    ///< as the hardware had it
};

class Hardware {
 public:
  virtual ~Hardware() = default;
  virtual Source source() const = 0;
  virtual const std::string& model() const = 0;  ///< "Intel RAPL", or the name that a BMC reports
  virtual const std::vector<std::string>& domains() const = 0;
  virtual Range range(std::size_t domain) const = 0;
  /// Code and sentence if this domain has the meter and the limit of another one, as far as has been seen: its power,
  /// its cap and its range are then not added. Empty: it stands for itself. May change with each read() and cap().
  virtual std::string repeats(std::size_t) const { return ""; }
  /// Reads all domains, in their order. Takes up to `timeout_s` of the configuration out of band, microseconds in band.
  /// Errors: power.hardware_gone (the file or device that vanished), power.hardware_failed (its message),
  /// power.bmc_timeout, power.bmc_denied. If only one domain fails, it has NaN.
  virtual Result<std::vector<DomainReading>> read() = 0;
  /// Sets a cap, reads it back, and returns the value read: the caller compares. Errors: power.out_of_range (value,
  /// allowed range; nothing was written), power.read_only, and those of read().
  virtual Result<double> cap(std::size_t domain, double cap_w) = 0;
  virtual Result<std::vector<Sensor>> sensors() { return std::vector<Sensor>{}; }
  /// The present settings that cap() will overwrite.
  virtual Result<std::vector<Original>> originals() = 0;
  /// Restores settings; those that can no longer be restored are reported after all others were. Errors: as cap().
  virtual Result<void> restore(const std::vector<Original>& originals) = 0;
};

/// One [[node-manager.hardware]] of the configuration.
struct HardwareSpec {
  Source kind = Source::none;
  std::string root = "/sys";  ///< powercap, cpufreq: where sysfs is; simulated, where it is another: a folder that
                              ///< keeps the cap when the process dies
  std::string url, user, password_file,
      ca;                ///< redfish: https://bmc17; ipmi: host or empty for the local BMC; files are read at open
  std::string domains;   ///< of those that are there, a pattern with * and ?; empty: all packages, GPUs, the node
  double timeout_s = 5;  ///< for one exchange with a BMC
  double min_w = unknown, max_w = unknown;  ///< of each domain, narrower than the hardware's own; needed where it tells
                                            ///< none. powercap: a quarter of the highest
  bool read_only = false;                   ///< never sets anything
  /// simulated:
  double idle_w = 60, busy_w = 300, noise_w = 2, lag_s = 0.5, load = 0.5;
  std::string load_file;  ///< a number 0 … 1 in it is the load; read at each step
  std::uint64_t seed = 1;
  std::function<std::int64_t()> clock = now_ns;  ///< timer of powercap's counters; a test has its own
};

/// Errors: power.no_hardware (what was searched for, where), power.unknown_domain, power.bad_hardware (a setting that
/// the kind does not have), power.not_built (a kind that this build lacks, and what to install), and those of read().
Result<std::unique_ptr<Hardware>> open_hardware(const HardwareSpec& spec);

/// The kinds of this build, for --help and `sonde doctor`; `missing`: what to install, empty if nothing is missing.
struct HardwareKind {
  Source kind;
  const char* what;
  const char* missing;
};
std::vector<HardwareKind> hardware_kinds();

}  // namespace sonde::power
