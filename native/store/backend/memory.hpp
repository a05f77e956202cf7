#pragma once
/// Objects and keys in this process's memory: gone when it ends. For scratch data, tests and as the upper bound of what
/// a backend can reach. Settings: `limit` (bytes of data and names, "4GiB"; beyond it no_space). Any-thread.

#include <memory>

#include "store/backend.hpp"

namespace sonde::store {

Result<std::unique_ptr<Backend>> open_memory_data(const Settings& settings);
Result<std::unique_ptr<Backend>> open_memory_kv(const Settings& settings);

/// Takes everything, keeps nothing: writes and puts are ok, reads give zeros of the length asked for, gets and scans
/// find nothing. What is left is the cost of client, wire and server. No settings.
Result<std::unique_ptr<Backend>> open_null(Role role, const Settings& settings);

}  // namespace sonde::store
