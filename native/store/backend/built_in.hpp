#pragma once
/// Backends that libsonde-store brings beside those of memory.hpp; what each needs is found when it is built. Any-thread.

#include "store/backend.hpp"

namespace sonde::store {

/// Objects as files under `path`.
Result<std::unique_ptr<Backend>> open_posix(const Settings& settings);
/// Keys in an LMDB environment under `path`.
Result<std::unique_ptr<Backend>> open_lmdb(const Settings& settings);
/// Schemas and rows in an SQLite database under `path`, or in memory.
Result<std::unique_ptr<Backend>> open_sqlite(const Settings& settings);
Result<std::unique_ptr<Backend>> open_sqlite_memory(const Settings& settings);

}  // namespace sonde::store
