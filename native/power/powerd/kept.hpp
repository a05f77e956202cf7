#pragma once
/// The persistent state of a system manager: the epoch that it used last, the budget and its version, a SHED in force,
/// the longest lease. It is written to a new file, synced, and renamed: after a crash either the old or the new file
/// exists. Any-thread.

#include <cstdint>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "power/policy.hpp"

namespace sonde::power {

struct Kept {
  std::uint64_t epoch = 0;  ///< never used again by this manager
  std::uint64_t budget_version = 0;
  double budget_w = unknown;  ///< the budget when nothing is shed
  double configured_w =
      unknown;              ///< the budget in the configuration of that time: a difference now is a change by hand
  double shed_w = unknown;  ///< the reduced budget while a SHED lasts; NaN: no SHED
  double lease_s =
      0;  ///< the longest lease that may run, whoever gave it, as far as known; 0: in a file of an older version
  double shed_left_s = 0;  ///< as of now; on disk it is stored as the time of day of its end
};

/// The file of a manager in a state folder.
std::string kept_path(const std::string& folder, const std::string& manager);
/// Errors: power.state (what, where).
Result<void> save(const std::string& path, const Kept& kept, std::int64_t realtime_ns);
/// Nothing if there is no file. Errors: power.state: the file cannot be read, or is damaged, so the last budget is
/// unknown.
Result<std::optional<Kept>> load_kept(const std::string& path, std::int64_t realtime_ns);

}  // namespace sonde::power
