#pragma once
/// What a node's power is read from and held by: one interface, and behind it powercap (RAPL), NVML, Redfish, IPMI
/// DCMI, and a simulated node that has to be asked for by name. Nothing here falls back from one to another in silence:
/// each number says its source.
///
/// A Hardware is one device with one or more *domains* (package-0, gpu-1, node). A Node (node.hpp) is several of them
/// with one cap in sum. Owner-thread, except where said. Limits of what may be set are checked here, not left to
/// firmware: some takes anything (99,999 W).

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
  std::string why_not;  ///< where it is not: "constraint_0_power_limit_uw is not there", "…: Permission denied"
};

struct DomainReading {
  double power_w = unknown;  ///< over the time since the last read() where only energy is counted: NaN at the first
  double energy_j =
      unknown;  ///< since open(); wrap-arounds are counted, and a counter that was reset begins anew without a fall
  double cap_w = unknown;  ///< as read back now: the highest that is in force; NaN: it cannot tell, or none is in force
  std::string trouble;     ///< code and sentence of what of this could not be read; empty: nothing
};

struct Sensor {
  std::string name;
  SensorKind kind = SensorKind::power;
  double value = unknown;  ///< W, J, degC, V, rpm, share
};

/// Saved before the first cap is set, so that it can be restored by another process after a crash.
struct Original {
  std::string domain;
  std::string setting;  ///< which of the hardware's: "constraint_0_power_limit_uw", "PowerLimit"
  std::string value;    ///< as the hardware had it
};

class Hardware {
 public:
  virtual ~Hardware() = default;
  virtual Source source() const = 0;
  virtual const std::string& model() const = 0;  ///< "Intel RAPL", a BMC's own words
  virtual const std::vector<std::string>& domains() const = 0;
  virtual Range range(std::size_t domain) const = 0;
  /// All domains, in their order. Takes up to `timeout_s` of the configuration out of band, microseconds within.
  /// Errors: power.hardware_gone (a file or device vanished: which), power.hardware_failed (what it said),
  /// power.bmc_timeout, power.bmc_denied. A domain that alone fails has NaN.
  virtual Result<std::vector<DomainReading>> read() = 0;
  /// Sets, reads back, and returns what was read back: whoever asked compares. Errors: power.out_of_range (value, what
  /// is allowed; nothing was written), power.read_only, and those of read().
  virtual Result<double> cap(std::size_t domain, double cap_w) = 0;
  virtual Result<std::vector<Sensor>> sensors() { return std::vector<Sensor>{}; }
  /// What cap() will overwrite, as it is now.
  virtual Result<std::vector<Original>> originals() = 0;
  /// Puts back what is given; what can no longer be put back is told after all else was. Errors: as cap().
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
  double timeout_s = 5;  ///< of one exchange with a BMC
  double min_w = unknown, max_w = unknown;  ///< of each domain, narrower than the hardware's own; needed where it tells
                                            ///< none. powercap: a quarter of the highest
  bool read_only = false;                   ///< never sets anything
  /// simulated:
  double idle_w = 60, busy_w = 300, noise_w = 2, lag_s = 0.5, load = 0.5;
  std::string load_file;  ///< a number 0 … 1 in it is the load; read at each step
  std::uint64_t seed = 1;
  std::function<std::int64_t()> clock = now_ns;  ///< powercap: by which counters are timed; a test has its own
};

/// Errors: power.no_hardware (what was looked for, where), power.unknown_domain, power.bad_hardware (a setting that the
/// kind does not have), power.not_built (a kind that this build lacks, and what to install), and those of read().
Result<std::unique_ptr<Hardware>> open_hardware(const HardwareSpec& spec);

/// Kinds of this build, for --help and `sonde doctor`; `missing`: what to install, empty where it is there.
struct HardwareKind {
  Source kind;
  const char* what;
  const char* missing;
};
std::vector<HardwareKind> hardware_kinds();

}  // namespace sonde::power
