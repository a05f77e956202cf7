#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "store/conformance/backend.hpp"

using namespace sonde;
using namespace sonde::store;

namespace {

struct Scratch {
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "sonde-backends-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Scratch() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

void conforms(Role role, const std::string& name, const Settings& settings, std::size_t at_least) {
  CAPTURE(name);
  std::size_t n = 0;
  for (const auto& check : conformance::check_backend(role, [&](const Settings& besides) {
         Settings all = settings;
         all.insert(besides.begin(), besides.end());
         return open_backend(role, name, all);
       })) {
    CHECK_MESSAGE(check.passed, check.name << ": " << check.message);
    ++n;
  }
  CHECK(n >= at_least);
}

bool there_is(Role role, std::string_view name) {
  for (const auto& known : backend_names(role))
    if (known == name) return true;
  MESSAGE("skipped: this build has no backend " << name);
  return false;
}

}  // namespace

TEST_CASE("conformance: null") {
  conforms(Role::data, "null", {}, 7);
  conforms(Role::kv, "null", {}, 7);
  conforms(Role::db, "null", {}, 7);
}

TEST_CASE("conformance: memory, objects") { conforms(Role::data, "memory", {}, 25); }
TEST_CASE("conformance: memory, keys") { conforms(Role::kv, "memory", {}, 20); }

TEST_CASE("conformance: posix") {
  const Scratch scratch;
  conforms(Role::data, "posix", {{"path", scratch.path / "objects"}}, 25);
}

TEST_CASE("conformance: posix that may keep one file open") {
  const Scratch scratch;
  conforms(Role::data, "posix", {{"path", scratch.path / "objects"}, {"files", "1"}}, 25);
}

TEST_CASE("conformance: lmdb") {
  if (!there_is(Role::kv, "lmdb")) return;
  const Scratch scratch;
  conforms(Role::kv, "lmdb", {{"path", scratch.path / "keys"}}, 20);
}

TEST_CASE("conformance: lmdb whose map is so small that every batch is committed alone") {
  if (!there_is(Role::kv, "lmdb")) return;
  const Scratch scratch;
  conforms(Role::kv, "lmdb", {{"path", scratch.path / "keys"}, {"map", "40MiB"}}, 20);
}

TEST_CASE("conformance: sqlite, on disk and in memory") {
  if (!there_is(Role::db, "sqlite")) return;
  const Scratch scratch;
  conforms(Role::db, "sqlite", {{"path", scratch.path / "rows"}}, 20);
  conforms(Role::db, "memory", {}, 20);
}

TEST_CASE("conformance: rocksdb, a module of this build") {
  if (!there_is(Role::kv, "rocksdb")) return;
  const Scratch scratch;
  conforms(Role::kv, "rocksdb", {{"path", scratch.path / "keys"}}, 20);
}
