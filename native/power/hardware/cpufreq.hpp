#pragma once
/// Frequencies of cores as Linux' cpufreq has them: read, and limits set. Owner-thread.

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "power/policy.hpp"

namespace sonde::power {

struct Frequency {
  std::string name;                                                 ///< "policy0"
  double current_hz = unknown, min_hz = unknown, max_hz = unknown;  ///< min, max: the limits that are set
  double least_hz = unknown, most_hz = unknown;                     ///< what the hardware has
  std::string governor;
  std::vector<std::string> governors;  ///< that it could have
  std::vector<int> cores;
};

class Cpufreq {
 public:
  /// `root`: where sysfs is. A machine without cpufreq has no policies; that is no error.
  static Result<Cpufreq> open(const std::string& root = "/sys");
  const std::vector<std::string>& policies() const { return policies_; }
  /// Errors: power.hardware_gone, power.hardware_failed. What a driver does not tell is NaN or empty.
  /// Limits and governors that others changed show within 10 s: a node of many cores has a thousand files of them.
  Result<std::vector<Frequency>> read();
  /// NaN: as it is. Errors: power.out_of_range (what is allowed), power.unknown_policy and power.unknown_governor (and
  /// the nearest), power.read_only, power.hardware_gone.
  Result<void> set(const std::string& policy, double min_hz, double max_hz, const std::string& governor = {});

 private:
  std::string folder_;
  std::vector<std::string> policies_;
  std::vector<Frequency> known_;  ///< as it was read last
  std::int64_t limits_ns_ = 0;    ///< when limits and governors were; 0: they have to be
};

}  // namespace sonde::power
