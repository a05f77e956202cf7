#pragma once
/// What a system manager has on its disk: the epoch that it used last, the budget and its version, a SHED that lasts,
/// the longest lease. Written to a new file, synced, and renamed: after a crash there is the old one or the new one.
/// Any-thread.

#include <cstdint>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "power/policy.hpp"

namespace sonde::power {

struct Kept {
  std::uint64_t epoch = 0;  ///< never used again by this manager
  std::uint64_t budget_version = 0;
  double budget_w = unknown;      ///< what it is when nothing is shed
  double configured_w = unknown;  ///< what the configuration said then: another one there is a change by hand
  double shed_w = unknown;        ///< what is left of the budget while a SHED lasts; NaN: none does
  double lease_s =
      0;  ///< the longest that may run, whoever lent it, as far as is known; 0: of a file of before that was kept
  double shed_left_s = 0;  ///< as it is now; on the disk it is the time of the day when it ends
};

/// The file of a manager in a state folder.
std::string kept_path(const std::string& folder, const std::string& manager);
/// Errors: power.state (what, where).
Result<void> save(const std::string& path, const Kept& kept, std::int64_t realtime_ns);
/// Nothing where there is no file. Errors: power.state: it cannot be read, or is damaged: then nobody knows which
/// budget was set last.
Result<std::optional<Kept>> load_kept(const std::string& path, std::int64_t realtime_ns);

}  // namespace sonde::power
