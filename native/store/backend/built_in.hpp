#pragma once
/// Backends in libsonde-store besides those of memory.hpp; the build detects what each needs.
/// Any-thread.

#include <memory>

#include "store/backend.hpp"

namespace sonde::store {

/// Objects as files under `path`.
Result<std::unique_ptr<Backend>> open_posix(const Settings& settings);
/// Keys in an LMDB environment under `path`.
Result<std::unique_ptr<Backend>> open_lmdb(const Settings& settings);
/// Schemas and rows in an SQLite database under `path`, or in memory.
Result<std::unique_ptr<Backend>> open_sqlite(const Settings& settings);
Result<std::unique_ptr<Backend>> open_sqlite_memory(const Settings& settings);

/// The settings of this tree's backends, for help and documentation; each backend's source describes their effect.
struct SettingHelp {
  const char *backend, *name, *meaning;
};
inline constexpr SettingHelp setting_help[] = {
    {"memory", "limit", "bytes of names and data, beyond which there is no_space (default: none)"},
    {"posix", "path", "folder of the objects; created if missing"},
    {"posix", "files", "files that stay open, 1 to 1048576 (default 512)"},
    {"lmdb", "path", "folder of the database; created if missing"},
    {"lmdb", "map", "largest size of the database, 1MiB to 64TiB (default 64GiB); address space, not disk"},
    {"rocksdb", "path", "folder of the database; created if missing"},
    {"rocksdb", "cache", "cache of blocks read, 1MiB to 1TiB (default 64MiB)"},
    {"rocksdb", "buffer", "data collected in memory before a file is written, 1MiB to 1TiB (default 64MiB)"},
    {"sqlite", "path", "folder of the database; created if missing"},
    {"sqlite", "limit", "largest size of the database, from 1MiB (default: the size of the disk)"},
};

}  // namespace sonde::store
