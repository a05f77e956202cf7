#pragma once
// What the tests of backends that keep things on disk share: folders, small disks, syncs that fail, processes that are
// killed.

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/backend.hpp"

namespace sonde::store::faults {

struct Scratch {
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  std::string operator/(const std::string& name) const { return path + '/' + name; }
  std::string path;
};

/// A file system of its own in memory, so small that it fills up. `mounted` is false where this user may not mount.
struct SmallDisk {
  explicit SmallDisk(std::size_t bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  bool mounted = false;
  Scratch scratch;
};
#define REQUIRE_OR_SKIP(condition)                               \
  if (!(condition)) {                                            \
    MESSAGE("skipped: mounting a small file system needs root"); \
    return;                                                      \
  }

/// fsync and fdatasync of the whole test program, those of its libraries too. While one is alive, they are noted, and
/// those of numbers from `fail_from` on fail with EIO. Those that begin after hold() wait until release().
struct Syncs {
  Syncs();
  ~Syncs();
  static bool synced(const std::string& path);  ///< this file or folder, since the last clear()
  static std::size_t count();
  static void clear();
  static void fail_from(std::size_t number);
  static void hold();
  static void release();
};

std::unique_ptr<Backend> open(Role role, const std::string& name, const Settings& settings);
/// The error of an open that must fail; CHECKs that its code is store.cannot_open.
std::string cannot_open(Role role, const std::string& name, const Settings& settings);

Op op(Code code, std::string_view key, std::string_view data = {}, std::uint8_t flags = 0);
Op read(std::string_view key, std::uint64_t length = 1u << 30);
/// The status of one operation, or of each.
Status run(Backend& backend, const Op& op, Safety safety = Safety::network);
std::vector<Status> run(Backend& backend, const std::vector<Op>& ops, Safety safety = Safety::network);
/// What a read or get gives; its status in angle brackets where that is not ok.
std::string text(Backend& backend, const Op& op);

/// Folders that are not ours, damaged, or in use: what any backend of this tree must refuse.
void check_folder(Role role, const std::string& name, Role other_role, const std::string& other_name);

/// A child process writes batches under Safety::storage and is killed, some rounds on the same folder. After each, what
/// it was told is stored must be there; of roles kv and db what it was not told must be whole or absent.
void check_kill(Role role, const std::string& name);

}  // namespace sonde::store::faults
