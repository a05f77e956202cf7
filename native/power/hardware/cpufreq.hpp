#pragma once
/// Core frequencies through Linux' cpufreq: reads them and sets limits. Owner-thread.

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "power/policy.hpp"

namespace sonde::power {

struct Frequency {
  std::string name;                                                 ///< "policy0"
  double current_hz = unknown, min_hz = unknown, max_hz = unknown;  ///< min, max: the limits that are set
  double least_hz = unknown, most_hz = unknown;                     ///< the limits of the hardware
  std::string governor;
  std::vector<std::string> governors;  ///< the available governors
  std::vector<int> cores;
};

class Cpufreq {
 public:
  /// `root`: the path of sysfs. A machine without cpufreq has no policies; that is no error.
  static Result<Cpufreq> open(const std::string& root = "/sys");
  const std::vector<std::string>& policies() const { return policies_; }
  /// Errors: power.hardware_gone, power.hardware_failed. Values that a driver does not report are NaN or empty. Limits
  /// and governors that others changed appear within 10 s: a node of many cores has a thousand such files.
  Result<std::vector<Frequency>> read();
  /// NaN: unchanged. Errors: power.out_of_range (with the allowed range), power.unknown_policy and
  /// power.unknown_governor (with the nearest), power.read_only, power.hardware_gone.
  Result<void> set(const std::string& policy, double min_hz, double max_hz, const std::string& governor = {});

 private:
  std::string folder_;
  std::vector<std::string> policies_;
  std::vector<Frequency> known_;  ///< as last read
  std::int64_t limits_ns_ = 0;    ///< when limits and governors were last read; 0: they must be read
};

}  // namespace sonde::power
